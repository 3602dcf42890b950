//! A thread-per-core key-value server whose keys expire, for clients of Redis as they are:
//! `cargo run --release --example ttl_cache`, and then `redis-cli -p 6380`.
//!
//! One event loop per core. A key belongs to the core that its hash says, and lives there with a timer for its deadline;
//! a connection lives on the core that accepted it, with an idle timeout. A command whose key is another core's goes
//! there and back through the timers of the cores.
//!
//! The server, in the order to read it:
//! - `keys`, `index`, `record`, `moment`: the keys of a core and their timers; this is how the library is used
//! - `crossing`, `gather`: the ways between the cores
//! - `resp`, `input`, `reply`, `replies`: the protocol
//! - `connection`, `connections`: what one client sends and is owed, and all clients of a core
//! - `dispatch`, `here`, `event_loop`, `server`: one command, one core, its loop, and all of them
//!
//! What it can do:
//! - `commands`: which commands there are
//! - `strings`, `setting`, `deadlines`, `unit`: those about keys
//! - `session`, `board`: those about the server
//!
//! What surrounds it:
//! - `args`, `files`: what was asked for, and whether the machine allows it
//! - `view`, `screen`, `timers`: what the timers do, live (`--live`)
//! - `check`: a check of the server from outside (`--self-check`), or of another one
//! - `seats`, `net`: what the examples share, in `examples/common`, as they do `files`, `screen` and `timers`

mod args;
mod board;
mod check;
mod commands;
mod connection;
mod connections;
mod crossing;
mod deadlines;
mod dispatch;
mod event_loop;
#[path = "../common/files.rs"]
mod files;
mod gather;
mod here;
mod index;
mod input;
mod keys;
mod moment;
#[path = "../common/net.rs"]
mod net;
mod record;
mod replies;
mod reply;
mod resp;
#[path = "../common/screen.rs"]
mod screen;
#[path = "../common/seats.rs"]
mod seats;
mod server;
mod session;
mod setting;
mod strings;
#[path = "../common/timers.rs"]
mod timers;
mod unit;
mod view;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use args::Args;
use check::verdict::Verdict;
use files::Needs;
use server::Server;

/// What was asked for cannot be done here.
const IMPOSSIBLE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let needs =
        Needs { connections: args.max_clients(), ends: 1, cores: args.cores(), load_threads: 0 };
    if let Err(reason) =
        files::reserve(needs, |possible| format!("at most --max-clients {possible}"))
    {
        eprintln!("error: {reason}");
        return ExitCode::from(IMPOSSIBLE);
    }
    let done = match args.against {
        Some(server) => check::other(&args, server).map(|verdict| conclude(&verdict, &args)),
        None if args.self_check => check::own(&args).map(|verdict| conclude(&verdict, &args)),
        None => serve(&args).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn conclude(verdict: &Verdict, args: &Args) -> ExitCode {
    verdict.print(args.json);
    if verdict.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Serves until somebody ends the process, or an error ends the server.
fn serve(args: &Args) -> io::Result<()> {
    let server = Server::start(args, args.port)?;
    println!("ready at {}, {} event loops", server.address(), server.pinned().len());
    if args.live {
        view::start(&server.board)?;
    }
    let ends = server.wait().into_iter().enumerate();
    let failures: Vec<String> =
        ends.filter_map(|(core, end)| Some(format!("core {core} {}", end.err()?))).collect();
    if failures.is_empty() { Ok(()) } else { Err(io::Error::other(failures.join("; "))) }
}
