//! The check of a server from outside, which ends with a verdict: whether commands do what they must, keys go when they
//! must, what is bounded is bounded, and very many expiring keys are no trouble to others.
//!
//! Against another server (`--against`) the same is asked as far as it can be asked of any: a Redis passes, within its
//! own exactness.

pub(crate) mod bounds;
pub(crate) mod client;
pub(crate) mod exactness;
pub(crate) mod flood;
pub(crate) mod semantics;
pub(crate) mod verdict;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::server::Server;
use client::Client;
use verdict::Verdict;

/// In a check of our own a silent connection is to be seen closed.
const IDLE_SECONDS: u32 = 3;
/// Keys that a small server has room for.
const FEW_KEYS: u32 = 100;
/// Redis counts in milliseconds, and a key lives through that of its deadline.
const EXACTNESS_OF_OTHERS: Duration = Duration::from_millis(1);

/// Checks a server that is started for it.
pub(crate) fn own(args: &Args) -> io::Result<Verdict> {
    let args = args.for_check(IDLE_SECONDS);
    let server = Server::start(&args, 0)?;
    let (silent, silent_since) = (Client::connect(server.address())?, Instant::now());
    let mut verdict = of(server.address(), &args, Duration::ZERO)?;
    verdict.complain(bounds::idle(silent, silent_since, args.idle())?);
    verdict.complain(bounds::backpressure(server.address())?);
    let small = Server::start(&args.with_room_for(FEW_KEYS), 0)?;
    verdict.complain(bounds::keys(small.address(), FEW_KEYS as usize)?);
    for server in [server, small] {
        let from_elsewhere = server.board.total(|figures| &figures.from_elsewhere);
        verdict.take_in(from_elsewhere, args.cores(), server.stop());
    }
    Ok(verdict)
}

/// Checks a server that is there.
pub(crate) fn other(args: &Args, server: SocketAddr) -> io::Result<Verdict> {
    of(server, args, EXACTNESS_OF_OTHERS)
}

fn of(server: SocketAddr, args: &Args, tolerance: Duration) -> io::Result<Verdict> {
    let (answers, wrong) = semantics::check(server)?;
    let exactness = exactness::check(server)?;
    let flood = flood::check(server, args.expiring)?;
    Ok(Verdict::reach(answers, wrong, exactness, flood, (tolerance, args.late_limit())))
}
