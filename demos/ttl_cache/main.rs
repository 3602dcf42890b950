//! A thread-per-core key-value server whose keys expire, for unmodified Redis clients:
//! `cargo run --release -p corewheel-demos --bin ttl_cache`, and then `redis-cli -p 6380`.
//!
//! `doc/ttl_cache.md` explains it. In the order to read it:
//! - `keys`: the keys of a core and their timers; this is how the library is used
//! - `commands`: the commands
//! - `connection`: the commands and answers of one client
//! - `worker`: one core, its runtime, and the requests that travel between the cores
//! - `check`: a check of the server from outside (`--self-check`), or of another server
//!   (`--against`)
//! - `common`: the parts shared with the other demonstrations

mod check;
mod commands;
#[allow(dead_code, reason = "the check brings its own load")]
#[path = "../../examples/common/mod.rs"]
mod common;
mod connection;
mod keys;
mod worker;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::{io, thread};

use clap::Parser;

use common::verdict::{Failures, conclude};
use common::{Options, server, view};

/// A thread-per-core key-value server whose keys expire, for redis-cli, redis-benchmark, and other
/// clients that speak RESP.
///
/// Each key with a deadline has a timer on the core that it belongs to, and each connection has one
/// that closes it when it is idle. The server listens on the loopback interface and knows no
/// passwords. It stores strings, and nothing on disk. Exit status of a check: 0 if the verdict is
/// ok, 1 if it is not, 2 if the check was not possible.
#[derive(Clone, Debug, Parser)]
#[command(name = "ttl_cache")]
struct Args {
    /// The port; 0 takes a free one and says which
    #[arg(long, default_value_t = 6380)]
    port: u16,

    /// How many keys there may be; one more is refused with an error that begins with OOM. Each
    /// core has its share, and keys are not spread quite evenly: the first core may be full a
    /// little earlier
    #[arg(long, default_value_t = 4_000_000)]
    max_keys: usize,

    /// How many clients may be connected, in the same way; one more is turned away
    #[arg(long, default_value_t = 1_000)]
    max_clients: usize,

    /// After how many seconds of silence a connection is closed
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    idle: u64,

    /// Show what the timers of each core do, while the server runs
    #[arg(long, conflicts_with_all = ["self_check", "against"])]
    live: bool,

    /// Start the server at a free port, check it from outside, and end with a verdict
    #[arg(long, conflicts_with = "against")]
    self_check: bool,

    /// Check the server at this address instead, which may be a Redis: all of its keys are lost
    #[arg(long, value_name = "ADDRESS")]
    against: Option<SocketAddr>,

    /// How many keys expire within one second in a check
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    expiring: u32,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(server) = args.against {
        return conclude(check::other(&args, server), args.options.json);
    }
    if args.self_check {
        return conclude(check::own(&args), args.options.json);
    }
    let Err(error) = serve(&args);
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Serves until the process is ended from outside, or an error ends the server.
fn serve(args: &Args) -> io::Result<Infallible> {
    server::reserve_files(args.max_clients, args.options.cores())?;
    let server = worker::start(args, args.port)?;
    let ready = format!("ready at {}, {} event loops", server.address, args.options.cores());
    println!("{ready}");
    if args.live {
        thread::spawn(move || view::show_until(|| false, None, &ready, false));
    }
    let mut failures = Failures::default();
    server.join(&mut failures);
    Err(io::Error::other(failures.into_texts().join(", ")))
}
