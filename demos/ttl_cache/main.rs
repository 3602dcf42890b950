//! A thread-per-core key-value server whose keys expire, for unmodified Redis clients:
//! `cargo run --release -p corewheel-demos --bin ttl_cache`, and then `redis-cli -p 6380` or
//! `redis-benchmark -p 6380 -t set,get,ping_mbulk`.
//!
//! DEL and EXISTS take one key. Inline commands are errors. Redis passes the check of `--against`.
//!
//! The modules, in the order to read them:
//! - `keys`: the keys of a core and their timers: the use of the library
//! - `commands`: the table of commands, and their effects
//! - `connection`: the commands and answers of one client
//! - `worker`: one core, its runtime, and the requests that travel between the cores
//! - `check`: a check of the server by clients (`--self-check`), or of another server (`--against`)

mod check;
mod commands;
#[allow(dead_code, reason = "the check brings its own load")]
#[path = "../../examples/common/mod.rs"]
mod common;
mod connection;
mod keys;
mod worker;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;

use common::verdict::{Failures, conclude};
use common::{Options, server};

/// A thread-per-core key-value server whose keys expire, for redis-cli, redis-benchmark, and other
/// clients that speak RESP.
///
/// Each key with a deadline has a timer on the key's core, and each connection has a timer that
/// closes it when it is idle. The server listens on the loopback interface, has no passwords, and
/// stores only strings, in memory. Exit status of a check: 0 if the verdict is ok, 1 if it is not,
/// 2 if the check was not possible.
#[derive(Clone, Debug, Parser)]
#[command(name = "ttl_cache")]
struct Args {
    /// The port; 0 chooses a free port and prints it
    #[arg(long, default_value_t = 6380)]
    port: u16,

    /// Maximum number of keys; a further key is refused with an error that begins with OOM. Each
    /// core has an equal share, so one core may be full a little earlier
    #[arg(long, default_value_t = 4_000_000)]
    max_keys: usize,

    /// Maximum number of clients, shared equally among the cores; a further client is refused
    #[arg(long, default_value_t = 1_000)]
    max_clients: usize,

    /// Close a connection after this many seconds of silence
    #[arg(long = "idle", value_name = "IDLE", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    idle_seconds: u64,

    /// Start the server at a free port, check it by clients, and end with a verdict
    #[arg(long, conflicts_with = "against")]
    self_check: bool,

    /// Check the server at this address, for example a Redis; deletes all its keys
    #[arg(long, value_name = "ADDRESS")]
    against: Option<SocketAddr>,

    /// Number of keys that a check lets expire within one second
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    expiring: u32,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(server) = args.against {
        return conclude(check::other_server(&args, server), args.options.json);
    }
    if args.self_check {
        return conclude(check::own_server(&args), args.options.json);
    }
    let Err(error) = serve(&args);
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn serve(args: &Args) -> io::Result<Infallible> {
    server::raise_open_file_limit(args.max_clients, args.options.cores())?;
    let server = worker::start(args, args.port)?;
    println!("ready at {}, {} event loops", server.address, args.options.cores());
    let mut failures = Failures::default();
    server.join(&mut failures);
    Err(io::Error::other(failures.into_texts().join(", ")))
}
