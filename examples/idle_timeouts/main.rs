//! A thread-per-core TCP server on loopback that closes every connection that has been silent for too long, under a
//! load that it brings along: `cargo run --release --example idle_timeouts`.
//!
//! One event loop per core. A connection lives on the core that accepted it, with an idle timeout on that core's own
//! timer: a packet moves it ahead, silence lets it fire, and another thread may cancel it through its handle.
//!
//! The server, in the order to read it:
//! - `connections`: the idle timeout of each connection; this is how the library is used
//! - `event_loop`: the loop of one core
//! - `server`: one loop per core
//!
//! What surrounds it:
//! - `args`, `files`: what was asked for, and whether the machine allows it
//! - `plan`: which connection does what, and when
//! - `packet`, `client`, `load`: the clients
//! - `admin`: cancels timers from its own thread
//! - `board`, `view`, `screen`, `timers`: the live view
//! - `verdict`, `stretches`, `accounts`, `report`: whether all was as it must be
//! - `seats`, `net`, `small`, `tally`: what the examples share, in `examples/common`, as they do `files`, `screen` and `timers`

mod accounts;
mod admin;
mod args;
mod board;
mod client;
mod connections;
mod event_loop;
#[path = "../common/files.rs"]
mod files;
mod load;
#[path = "../common/net.rs"]
mod net;
mod packet;
mod plan;
mod report;
#[path = "../common/screen.rs"]
mod screen;
#[path = "../common/seats.rs"]
mod seats;
mod server;
#[path = "../common/small.rs"]
mod small;
mod stretches;
#[path = "../common/tally.rs"]
mod tally;
#[path = "../common/timers.rs"]
mod timers;
mod verdict;
mod view;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use args::Args;
use board::Board;
use files::Needs;
use load::Brief;
use plan::Plan;
use server::Server;
use verdict::{Evidence, Verdict};

/// What was asked for cannot be done here.
const IMPOSSIBLE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::read();
    let (connections, load_threads) = (args.connections as usize, load::THREADS as usize);
    let needs = Needs { connections, ends: 2, cores: args.cores(), load_threads };
    if let Err(reason) =
        files::reserve(needs, |possible| format!("at most --connections {possible}"))
    {
        eprintln!("error: {reason}");
        return ExitCode::from(IMPOSSIBLE);
    }
    match run(&args) {
        Ok(verdict) => {
            report::print(&verdict, args.json);
            if verdict.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: the run could not be carried out: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the load until the planned end, and judges what has happened.
fn run(args: &Args) -> io::Result<Verdict> {
    let plan = Arc::new(Plan::new(args.connections, args.idle(), args.run()));
    let board = Arc::new(Board::new(args.connections));
    let (server, handles) = Server::start(args.cores(), plan.idle)?;
    if !args.json {
        report::print_start(args, server.pinned());
    }
    let start = Instant::now();
    let admin = admin::start(&plan, &board, handles, start)?;
    let load = load::start(&Brief {
        plan: Arc::clone(&plan),
        board: Arc::clone(&board),
        server: server.address(),
        start,
    })?;
    view::show_until(plan.end, start, &board, args);

    // The clients end first and keep their sockets; so when the server takes its counts, who is open is open on both ends.
    let mut clients = Vec::new();
    for thread in load {
        clients.extend(join(thread)??);
    }
    let admin = join(admin)?;
    let cores = server.stop();
    Ok(Verdict::reach(&Evidence {
        clients,
        admin,
        cores,
        idle: plan.idle,
        late_limit: args.late_limit(),
    }))
}

fn join<T>(thread: JoinHandle<T>) -> io::Result<T> {
    let name = thread.thread().name().unwrap_or("a thread").to_owned();
    thread.join().map_err(|_| io::Error::other(format!("{name} panicked")))
}
