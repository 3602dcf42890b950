//! Runs lanes, which are the shell commands of `lanes.txt`, and prints how each one ended.

use std::{
    fs,
    process::ExitStatus,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{
    lanes::{self, Lane},
    process::{on_all_cores, shell, supervise, supervise_log},
    root,
};

const PASSED: &str = "passed";
const FAILED: &str = "FAILED";
const SKIPPED: &str = "SKIPPED";

struct Row {
    name: &'static str,
    outcome: &'static str,
    reason: String,
    took: Duration,
}

/// Runs the chosen lanes and prints a table of their results. Returns true if none failed.
pub(crate) fn run(is_chosen: impl Fn(&Lane) -> bool) -> Result<bool> {
    let chosen: Vec<Lane> = lanes::all().iter().filter(|lane| is_chosen(lane)).cloned().collect();
    ensure!(!chosen.is_empty(), "no lane matches");
    let (start, mut rows) = (Instant::now(), Vec::new());
    if chosen.iter().any(|lane| lane.command.contains("--workspace")) {
        rows.extend(lanes::UNBUILDABLE.iter().map(|(name, why)| skipped(name, why.clone())));
    }
    // Adjacent parallel lanes share the cores.
    for lanes in chosen.chunk_by(|lane, next| lane.is_parallel && next.is_parallel) {
        rows.extend(on_all_cores(lanes, |lane| run_lane(lane, lanes.len() > 1)));
    }
    println!();
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    for Row { name, outcome, reason, took } in &rows {
        println!("{name:width$}  {outcome:7} {:8.1} s  {reason}", took.as_secs_f64());
    }
    println!("{:width$}  total   {:8.1} s", "", start.elapsed().as_secs_f64());
    let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    let [passed, failed, skipped] = [PASSED, FAILED, SKIPPED].map(count);
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

fn skipped(name: &'static str, reason: String) -> Row {
    println!("SKIPPED {name}: {reason}");
    Row { name, outcome: SKIPPED, reason, took: Duration::ZERO }
}

/// Runs one lane. If other lanes run in parallel, prints its output at its end.
fn run_lane(lane: &Lane, is_parallel: bool) -> Row {
    let start = Instant::now();
    let (outcome, reason) = match lane.reason_not_to_run() {
        Some((reason, false)) => return skipped(lane.name, reason),
        Some((reason, true)) => (FAILED, reason),
        None => match execute(lane, is_parallel) {
            Ok(Some(status)) if status.success() => (PASSED, String::new()),
            Ok(Some(status)) => (FAILED, status.to_string()),
            Ok(None) => (FAILED, format!("killed after {:?}", lane.limit)),
            Err(error) => (FAILED, error.to_string()),
        },
    };
    Row { name: lane.name, outcome, reason, took: start.elapsed() }
}

fn execute(lane: &Lane, is_parallel: bool) -> Result<Option<ExitStatus>> {
    println!("\n==> {}\n    {}", lane.name, lane.command);
    let mut shell = shell(&lane.command);
    if !is_parallel {
        return supervise(&mut shell, lane.limit, || false);
    }
    let logs = root().join(lanes::target()).join("lanes");
    fs::create_dir_all(&logs)?;
    let log = logs.join(format!("{}.log", lane.name));
    let (status, output) = supervise_log(&log, &mut shell, lane.limit, |_| false)?;
    println!("\n==> output of {}\n{output}", lane.name);
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(group: &'static str, command: &str) -> Row {
        let (name, limit, command) = ("a test", Duration::from_secs(1), command.to_owned());
        run_lane(&Lane { group, name, limit, is_parallel: false, command }, false)
    }

    #[test]
    fn lanes_pass_fail_time_out_and_are_skipped() {
        for (command, expected) in [("true", PASSED), ("exit 3", FAILED), ("sleep 60", FAILED)] {
            let row = run("test", command);
            assert_eq!(row.outcome, expected, "{command}: {}", row.reason);
        }
        // Skipped if cargo-deny is missing, otherwise failed.
        assert_ne!(run("all", "cargo deny --no-such-option").outcome, PASSED);
    }
}
