//! The example `ttl_cache` under the clients of Redis as Debian ships them, and side by side with Redis itself.

mod bench;
mod cli;
mod server;
mod versus;

use std::process::{Command, Output};

use crate::{lane::Lane, run, run::Failure, tools};

/// What to do with the tools of Redis.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure side by side with redis-server, and print a table.
    #[arg(long)]
    versus: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    tools::require(tools::REDIS_CLIENTS)?;
    if options.versus {
        tools::require(tools::REDIS_SERVER)?;
    }
    run::all(&[Lane::new("build", "cargo build --release --locked --example ttl_cache")])?;
    if options.versus { versus::run() } else { test() }
}

/// Every tool against a server of ours.
fn test() -> Result<(), Failure> {
    let server = server::Server::ours()?;
    cli::check(&server)?;
    bench::check(&server)?;
    let seen = bench::flood(&server)?;
    println!("\n==> {} keys expire within a second\n    {seen}", bench::EXPIRING);
    let late = seen.of("/exactness/late");
    if seen.is_ok() && late == 0.0 {
        println!("\nredis: ok");
        return Ok(());
    }
    Err(Failure(format!(
        "the check failed, with {late} keys after their deadline: {}",
        seen.failures()
    )))
}

/// What a tool has said; an error if it has failed.
fn said(command: &mut Command) -> Result<String, Failure> {
    let ran = command
        .output()
        .map_err(|error| Failure(format!("{command:?} cannot be started: {error}")))?;
    said_by(&format!("{command:?}"), ran)
}

fn said_by(command: &str, Output { status, stdout, stderr }: Output) -> Result<String, Failure> {
    let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if status.success() {
        return Ok(said.into_owned());
    }
    Err(Failure(format!("{command}: {status}\n{said}{complained}")))
}
