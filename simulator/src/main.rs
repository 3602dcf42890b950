//! The program `simulate`, which runs random episodes, one per seed, and reports the first failure.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use corewheel_simulator::{Coverage, simulate};

/// A run of at least this many operations must include each kind of operation and of fault.
const FULL_COVERAGE_FROM: u64 = 1_000_000;

/// Simulate cores in virtual time, with faults, and check every answer against a model.
#[derive(Debug, Parser)]
struct Options {
    /// The seed of the first episode; later episodes use the following seeds.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop after this number of operations.
    #[arg(long)]
    operations: Option<u64>,
    /// Stop after this number of minutes; 1 unless `--operations` is given.
    #[arg(long)]
    minutes: Option<f64>,
}

fn main() -> ExitCode {
    let Options { seed, operations, minutes } = Options::parse();
    // One thread runs at a time, and hand-overs are faster on one processor.
    if let Some(core) = core_affinity::get_core_ids().and_then(|mut cores| cores.pop()) {
        core_affinity::set_for_current(core);
    }
    let minutes = minutes.or(operations.is_none().then_some(1.0));
    let time = minutes.map_or(Duration::MAX, |m| Duration::from_secs_f64(60.0 * m.max(0.0)));
    let begun = Instant::now();
    let mut last_report = begun;
    let is_enough = |coverage: &Coverage| {
        if last_report.elapsed() > Duration::from_secs(20) {
            last_report = Instant::now();
            eprintln!("{} million operations", coverage.operations() / 1_000_000);
        }
        coverage.operations() >= operations.unwrap_or(u64::MAX) || begun.elapsed() >= time
    };
    let (is_ok, text) = match simulate(seed, false, is_enough) {
        Ok(coverage) => {
            let missing = coverage.missing();
            if !missing.is_empty() {
                eprintln!("never occurred: {}", missing.join("; "));
            }
            (missing.is_empty() || coverage.operations() < FULL_COVERAGE_FROM, coverage.table())
        }
        Err(found) => (false, found.to_string()),
    };
    println!("{text}\n{:.0} s", begun.elapsed().as_secs_f64());
    if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
