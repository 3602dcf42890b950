//! A small replicated log on loopback, thread per core, whose requests wait for a condition or time out, under a load that
//! it brings along: `cargo run --release -p corewheel-demos --bin delayed_requests`.
//!
//! One event loop per core. A connection lives on the core that accepted it, and so do its requests that wait; a partition
//! or a group belongs to the core that its number says, and what happens to it is told there. So most requests are watched
//! for on another core than the one they wait on.
//!
//! The server, in the order to read it:
//! - `log`: what the requests ask about
//! - `delayed`: the requests that wait, as delayed operations; this is how the library is used
//! - `broker`: the requests of one core: what each changes, waits for, and tells
//! - `event_loop`, `server`: the loop of one core, and one per core
//!
//! What surrounds it:
//! - `args`, `files`: what was asked for, and whether the machine allows it
//! - `wire`, `client`: the protocol, and the records that the clients keep
//! - `plan`, `partition_cast`, `group_cast`, `load`: who does what, and what must come of it
//! - `board`, `view`, `screen`: the live view
//! - `verdict`, `accounts`, `report`: whether all was as it must be
//! - `seats`, `net`, `small`, `tally`: what the examples share, in `examples/common`, as they do `files`, `screen`

mod accounts;
mod args;
mod board;
mod broker;
mod client;
mod delayed;
mod event_loop;
#[path = "../../examples/common/files.rs"]
mod files;
mod group_cast;
mod load;
mod log;
#[path = "../../examples/common/net.rs"]
mod net;
mod partition_cast;
mod plan;
mod report;
#[path = "../../examples/common/screen.rs"]
mod screen;
#[path = "../../examples/common/seats.rs"]
mod seats;
mod server;
#[path = "../../examples/common/small.rs"]
mod small;
#[path = "../../examples/common/tally.rs"]
mod tally;
mod verdict;
mod view;
mod wire;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use args::Args;
use board::Board;
use files::Needs;
use log::Log;
use plan::{FOLLOWERS, MEMBERS, Plan};
use server::Server;
use verdict::{Evidence, Verdict};

/// What was asked for cannot be done here.
const IMPOSSIBLE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::read();
    let plan = Plan::new(args.partitions, args.groups, args.timeout(), args.duration());
    let (connections, load_threads) = (plan.connections(), load::THREADS as usize);
    let needs = Needs { connections, ends: 2, cores: args.cores(), load_threads };
    if let Err(reason) = files::reserve(needs, |_| String::from("fewer --partitions or --groups")) {
        eprintln!("error: {reason}");
        return ExitCode::from(IMPOSSIBLE);
    }
    match run(&args, plan) {
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

/// Serves the load until it has ended, and judges what has happened.
fn run(args: &Args, plan: Plan) -> io::Result<Verdict> {
    let plan = Arc::new(plan);
    let board = Arc::new(Board::new(args.cores()));
    let server = Server::start(Log::new(plan.partitions, FOLLOWERS, plan.groups, MEMBERS), &board)?;
    if !args.json {
        report::print_start(args, &plan, server.pinned());
    }
    let start = Instant::now();
    let load = load::start(&plan, &board, server.address(), start)?;
    view::show_until(
        || load.iter().all(JoinHandle::is_finished),
        plan.end,
        start,
        &board,
        args.json,
    );

    // The clients keep their sockets until the server has ended: whoever it still owes an answer is missed, not gone.
    let (mut clients, mut held_up) = (Vec::new(), Duration::ZERO);
    for thread in load {
        let seen = join(thread)??;
        clients.extend(seen.clients);
        held_up = held_up.max(seen.held_up);
    }
    let cores = server.stop();
    for client in &mut clients {
        client.receive(&board);
    }
    let (timeout, late_limit) = (plan.timeout, args.late_limit());
    Ok(Verdict::reach(&Evidence { clients, held_up, cores, timeout, late_limit }))
}

fn join<T>(thread: JoinHandle<T>) -> io::Result<T> {
    let name = thread.thread().name().unwrap_or("a thread").to_owned();
    thread.join().map_err(|_| io::Error::other(format!("{name} panicked")))
}
