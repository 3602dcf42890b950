//! A check of a server from outside, with a verdict: whether commands are answered correctly, keys
//! expire on time, limits hold, and very many keys that expire at once disturb no other client.

mod answers;
mod bounds;
mod client;
mod flood;

use std::net::SocketAddr;
use std::time::Duration;
use std::{io, thread};

use serde::Serialize;

use crate::common::verdict::{Failures, Timers, Verdict};
use crate::{Args, worker};
use bounds::Exactness;
use flood::Flood;

/// After this many seconds the own server closes a silent connection.
const IDLE: u64 = 3;
/// How many keys the small server has room for.
const FEW_KEYS: u32 = 100;
/// A Redis counts milliseconds, and returns a key during the millisecond of its deadline.
const TOLERANCE_US: u64 = 1_000;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// How many answers were compared.
    answers: usize,
    exactness: Exactness,
    flood: Flood,
    /// The timers of the own server.
    timers: Timers,
    /// How many requests were carried out on a core other than their connection's.
    remote_requests: u64,
}

/// Checks a server that is started for this.
pub(crate) fn own(args: &Args) -> io::Result<Verdict<Report>> {
    let mut failures = Failures::default();
    // Keys are not spread quite evenly over the cores.
    let max_keys = args.max_keys.max(args.expiring as usize / 8 * 9 + 1_000);
    let server = worker::start(&Args { idle: IDLE, max_keys, ..args.clone() }, 0)?;
    let address = server.address;
    let silent = thread::spawn(move || bounds::silence(address));
    let mut report = check(args, address, 0, &mut failures)?;
    bounds::backpressure(address, &mut failures)?;
    let silent_for = silent.join().map_err(|_| io::Error::other("a client panicked"))??;
    if silent_for < Duration::from_secs(IDLE) {
        failures.push(format!("a connection was closed after {silent_for:?} of silence"));
    }
    let (remote_requests, timers) = server.stop(&mut failures);
    report.timers = timers;
    report.remote_requests = remote_requests.iter().sum();
    if args.options.cores() > 1 && report.remote_requests == 0 {
        failures.push("no request was carried out on another core".into());
    }
    let small = worker::start(&Args { max_keys: FEW_KEYS as usize, ..args.clone() }, 0)?;
    bounds::keys(small.address, FEW_KEYS, &mut failures)?;
    small.stop(&mut failures);
    Ok(Verdict::new(report, failures))
}

/// Checks a server that runs already.
pub(crate) fn other(args: &Args, server: SocketAddr) -> io::Result<Verdict<Report>> {
    let mut failures = Failures::default();
    let report = check(args, server, TOLERANCE_US, &mut failures)?;
    Ok(Verdict::new(report, failures))
}

/// Runs the checks that any server must pass. A key may be returned this long after its deadline.
fn check(
    args: &Args,
    server: SocketAddr,
    tolerance_us: u64,
    failures: &mut Failures,
) -> io::Result<Report> {
    let answers = answers::check(server, failures)?;
    let exactness = bounds::exactness(server, tolerance_us, failures)?;
    let flood = flood::check(server, args.expiring, args.options.late_limit())?;
    flood.get.check(failures);
    failures.count(flood.release.left, "keys never expired");
    Ok(Report { answers, exactness, flood, timers: Timers::default(), remote_requests: 0 })
}
