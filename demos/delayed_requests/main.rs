//! A small replicated log on loopback, thread per core, whose requests wait for a condition or time
//! out. It also runs the clients: `cargo run --release -p corewheel-demos --bin delayed_requests`.
//!
//! - `log`: the data that the requests wait for
//! - `broker`: the requests of one core, as delayed operations of the library
//! - `client`, `scenario`: the clients, their actions, and the expected answers
//! - `verdict`: whether every request was answered once and as expected, and how late

mod broker;
mod client;
#[path = "../../examples/common/mod.rs"]
mod common;
mod core;
mod log;
mod scenario;
mod verdict;
mod wire;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use corewheel::Cores;

use broker::Broker;
use common::load::Load;
use common::server::{self, Server};
use common::verdict::{Failures, Verdict};
use common::{Options, view};
use log::{Log, Partition};
use scenario::{FOLLOWERS, Plan};
use verdict::Report;

/// With a shorter timeout, short pauses of the machine could make requests time out unexpectedly.
const MIN_TIMEOUT_MS: u64 = 100;

/// A small replicated log, thread per core, whose requests wait for their condition or time out. It
/// also runs the clients.
///
/// A producer's request waits until the followers have its bytes. A request of a consumer or a
/// follower waits for new bytes. One follower stalls at planned times, so the clients know which
/// requests must time out. The verdict says whether each request was answered exactly once and as
/// expected, and how late the timeouts were, by the clocks of the clients. The limit of the
/// lateness is raised by the longest delay that the machine caused to a thread of the clients. Exit
/// status: 0 if the verdict is ok, 1 if it is not, 2 if the run was not possible.
#[derive(Debug, Parser)]
#[command(name = "delayed_requests")]
struct Args {
    /// Number of partitions, each with connections of 2 followers, 4 producers and 4 consumers
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=800))]
    partitions: u32,

    /// A request times out after this many milliseconds (a follower's request: after twice as many)
    #[arg(long, default_value_t = 800)]
    #[arg(value_parser = clap::value_parser!(u64).range(MIN_TIMEOUT_MS..=60_000))]
    timeout_ms: u64,

    /// Length of the run in seconds; at least ten timeouts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: u64,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let args = Args::parse();
    common::verdict::conclude(run(&args), args.options.json)
}

/// Serves the load until its end, and compares the server's counts with the clients' records.
fn run(&Args { partitions, timeout_ms, duration, options }: &Args) -> io::Result<Verdict<Report>> {
    if duration * 1_000 < timeout_ms * 10 {
        let shortest = timeout_ms.div_ceil(100);
        return Err(io::Error::other(format!("--duration must be at least {shortest}")));
    }
    let (timeout, run) = (Duration::from_millis(timeout_ms), Duration::from_secs(duration));
    let plan = Plan { partitions, timeout, run };
    server::raise_open_file_limit(2 * plan.connections(), options.cores())?;
    let partition = |_| Partition::new(FOLLOWERS.len());
    let log = Arc::new((0..partitions).map(partition).collect::<Log>());
    let purgatory = broker::purgatory_group();
    let (address, listeners) = server::open_listeners(0, options.cores())?;
    let server = Server::start(Cores::builder(), address, listeners, move |core, listener| {
        core::run(core, listener, Broker::new(&purgatory, core, Arc::clone(&log)))
    })?;
    let address = server.address;
    let load = Load::start(partitions, move |id, run| scenario::run(id, plan, address, run));
    let summary = format!("{partitions} partitions, timeout {timeout:?}");
    view::show_until(|| load.is_over(), run, &summary, options.json);
    // The clients keep their sockets until the server has ended, to receive late answers.
    let mut failures = Failures::default();
    let (cores, timers) = server.stop(&mut failures);
    let (partitions, longest_delay) = load.join()?;
    let clients = partitions.iter().flatten();
    let limits = (options.late_limit(), timeout);
    let report = Report::new(clients, &cores, timers, longest_delay, limits, &mut failures);
    Ok(Verdict::new(report, failures))
}
