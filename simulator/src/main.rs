//! The simulation as a program: for so long, or so many operations, and then a table of what was done.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use corewheel_simulator::{Coverage, Extent, simulate};
use serde_json::json;

/// From so many operations on, each pair of fault and operation must have come.
const ALL_PAIRS_FROM: u64 = 20_000_000;

/// Simulate many cores in virtual time, with every fault, and check everything against a model.
#[derive(Debug, Parser)]
struct Options {
    /// The seed of the first episode; the next ones follow.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// So many operations.
    #[arg(long)]
    operations: Option<u64>,
    /// So long.
    #[arg(long)]
    minutes: Option<f64>,
    /// The result as JSON, in the last line.
    #[arg(long)]
    json: bool,
}

impl Options {
    /// A minute, if nothing else is said.
    fn extent(&self) -> Extent {
        let minutes = self.minutes.or(self.operations.is_none().then_some(1.0));
        let time = minutes
            .map_or(Duration::MAX, |minutes| Duration::from_secs_f64(60.0 * minutes.max(0.0)));
        Extent { operations: self.operations.unwrap_or(u64::MAX), time }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    // One thread runs at a time, and hands over twice as fast if it need not wake another processor.
    if let Some(core) = core_affinity::get_core_ids().and_then(|mut cores| cores.pop()) {
        core_affinity::set_for_current(core);
    }
    let begun = Instant::now();
    let mut told = begun;
    let progress = |coverage: &Coverage| {
        if told.elapsed() > Duration::from_secs(20) {
            told = Instant::now();
            eprintln!(
                "{} million operations, {:.0} virtual years",
                coverage.operations() / 1_000_000,
                coverage.years()
            );
        }
    };
    match simulate(options.seed, options.extent(), None, progress) {
        Ok(coverage) => report(&coverage, begun.elapsed(), options.json),
        Err(found) => {
            println!("{found}");
            if options.json {
                println!(
                    "{}",
                    json!({ "ok": false, "seed": found.seed, "what": found.failure.what })
                );
            }
            ExitCode::FAILURE
        }
    }
}

fn report(coverage: &Coverage, took: Duration, as_json: bool) -> ExitCode {
    let missing = coverage.missing();
    let is_ok = missing.is_empty() || coverage.operations() < ALL_PAIRS_FROM;
    if as_json {
        let mut report = coverage.json();
        report["seconds"] = took.as_secs_f64().into();
        report["ok"] = is_ok.into();
        println!("{report}");
    } else {
        println!("{}", coverage.table());
        println!("{:.0} s", took.as_secs_f64());
    }
    for (fault, operation) in &missing {
        eprintln!("never: \"{operation}\" after \"{fault}\"");
    }
    if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
