//! A thread-per-core TCP server on loopback that closes idle connections. The program also runs the
//! clients: `cargo run --release --example idle_timeouts`.
//!
//! Each core has an event loop. A connection stays on the core that accepted it, with an idle timer
//! on that core's wheel. A packet resets the timer, and silence lets the timer fire. Another thread
//! may cancel the timer through a handle.
//!
//! - `connections`: the connections of one core, each with an idle timer
//! - `event_loop`: the loop of one core
//! - `client`: the clients, and the plan of their actions
//! - `verdict`: whether exactly the silent connections were closed, and how late

mod client;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod event_loop;
mod verdict;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

use client::{Client, Plan};
use common::load::Load;
use common::verdict::{Failures, Verdict};
use common::{Options, server, view};
use event_loop::IdleTimers;
use verdict::Report;

/// All client connections share an address, so each needs its own local port.
const MAX_CONNECTIONS: i64 = 25_000;
/// With a shorter timeout, a pause of the machine could make a talking connection look silent.
const MIN_IDLE_MS: u64 = 200;

/// A thread-per-core TCP server that closes idle connections. The program also runs the clients.
///
/// A tenth of the connections fall silent, a tenth are closed by the client, and a tenth stay open
/// although silent, because another thread cancels their idle timer. The other connections keep
/// talking. The verdict says whether the server closed exactly the silent connections with a timer,
/// and how late, by the clocks of the clients. Exit status: 0 if the verdict is ok, 1 if it is not,
/// 2 if the run was not possible.
#[derive(Debug, Parser)]
#[command(name = "idle_timeouts")]
struct Args {
    /// Number of connections, 10 to 25,000 (each needs a local port)
    #[arg(long, default_value_t = 4_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=MAX_CONNECTIONS))]
    connections: u32,

    /// The server closes a connection after this many milliseconds of silence
    #[arg(long, default_value_t = 2_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(MIN_IDLE_MS..=3_600_000))]
    idle_ms: u64,

    /// Length of the run in seconds; at least 3.6 idle timeouts and 1.2 seconds
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let args = Args::parse();
    common::verdict::conclude(run(&args), args.options.json)
}

/// Serves the load until the planned end. Compares the server's counts with the clients' records.
fn run(args: &Args) -> io::Result<Verdict<Report>> {
    let Args { connections, options, .. } = args;
    let (idle, run_time) = (Duration::from_millis(args.idle_ms), Duration::from_secs(args.seconds));
    let shortest = Plan::shortest_run(idle).as_millis().div_ceil(1_000);
    if u128::from(args.seconds) < shortest {
        return Err(io::Error::other(format!("--seconds must be at least {shortest}")));
    }
    server::raise_open_file_limit(2 * *connections as usize, options.cores())?;
    let plan = Arc::new(Plan::new(*connections, idle, run_time));
    let idle_timers = Arc::new(IdleTimers::default());
    let server = event_loop::start(options.cores(), idle, Arc::clone(&idle_timers))?;
    let address = server.address;
    let load = Load::start(*connections, move |id, run| {
        Client::run(id, Arc::clone(&plan), address, Arc::clone(&idle_timers), run)
    });
    let summary = format!("{connections} connections, idle timeout {idle:?}");
    view::show_until(|| load.is_over(), run_time, &summary, options.json);
    // The clients keep their sockets until now, so that the server counts them as open.
    let mut failures = Failures::default();
    let (resets_refused, timers) = server.stop(&mut failures);
    let (clients, _) = load.join()?;
    let (limit, refused) = (options.late_limit(), resets_refused.iter().sum());
    let report = Report::new(&clients, idle, limit, refused, timers, &mut failures);
    if !options.json {
        println!("`examples/idle_timeouts/verdict.rs` explains each count.");
    }
    Ok(Verdict::new(report, failures))
}
