//! Runs lanes, which are the shell commands of `lanes.txt`, and prints how each one ended.

use std::{
    fs,
    process::ExitStatus,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{
    lanes::{self, Lane},
    process::{on_all_cores, shell_command, supervise, supervise_and_log},
    root,
};

const PASSED: &str = "passed";
const FAILED: &str = "FAILED";
const SKIPPED: &str = "SKIPPED";

struct LaneResult {
    name: &'static str,
    outcome: &'static str,
    reason: String,
    elapsed: Duration,
}

/// Runs the chosen lanes and prints a table of their results. Returns true if none failed.
pub(crate) fn run(is_chosen: impl Fn(&Lane) -> bool) -> Result<bool> {
    let chosen: Vec<Lane> =
        lanes::all_lanes().iter().filter(|lane| is_chosen(lane)).cloned().collect();
    ensure!(!chosen.is_empty(), "no lane matches");
    let (start, mut results) = (Instant::now(), Vec::new());
    if chosen.iter().any(|lane| lane.command.contains("--workspace")) {
        results.extend(
            lanes::UNBUILDABLE_PACKAGES.iter().map(|(name, why)| skipped_result(name, why.clone())),
        );
    }
    // Adjacent parallel lanes share the cores.
    for lanes in chosen.chunk_by(|lane, next| lane.is_parallel && next.is_parallel) {
        results.extend(on_all_cores(lanes, |lane| run_lane(lane, lanes.len() > 1)));
    }
    println!();
    let width = results.iter().map(|result| result.name.len()).max().unwrap_or_default();
    for LaneResult { name, outcome, reason, elapsed } in &results {
        println!("{name:width$}  {outcome:7} {:8.1} s  {reason}", elapsed.as_secs_f64());
    }
    println!("{:width$}  total   {:8.1} s", "", start.elapsed().as_secs_f64());
    let count = |outcome| results.iter().filter(|result| result.outcome == outcome).count();
    let [passed, failed, skipped] = [PASSED, FAILED, SKIPPED].map(count);
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

fn skipped_result(name: &'static str, reason: String) -> LaneResult {
    println!("SKIPPED {name}: {reason}");
    LaneResult { name, outcome: SKIPPED, reason, elapsed: Duration::ZERO }
}

/// Runs one lane. If other lanes run at the same time, prints the output of this lane when it ends.
fn run_lane(lane: &Lane, is_parallel: bool) -> LaneResult {
    let start = Instant::now();
    let (outcome, reason) = match lane.reason_not_to_run() {
        Some((reason, false)) => return skipped_result(lane.name, reason),
        Some((reason, true)) => (FAILED, reason),
        None => match run_command_of(lane, is_parallel) {
            Ok(Some(status)) if status.success() => (PASSED, String::new()),
            Ok(Some(status)) => (FAILED, status.to_string()),
            Ok(None) => (FAILED, format!("killed after {:?}", lane.limit)),
            Err(error) => (FAILED, error.to_string()),
        },
    };
    LaneResult { name: lane.name, outcome, reason, elapsed: start.elapsed() }
}

fn run_command_of(lane: &Lane, is_parallel: bool) -> Result<Option<ExitStatus>> {
    println!("\n==> {}\n    {}", lane.name, lane.command);
    let mut shell = shell_command(&lane.command);
    if !is_parallel {
        return supervise(&mut shell, lane.limit, || false);
    }
    let logs = root().join(lanes::target_directory()).join("lanes");
    fs::create_dir_all(&logs)?;
    let log = logs.join(format!("{}.log", lane.name));
    let (status, output) = supervise_and_log(&log, &mut shell, lane.limit, |_| false)?;
    println!("\n==> output of {}\n{output}", lane.name);
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(group: &'static str, command: &str) -> LaneResult {
        let (name, limit, command) = ("a test", Duration::from_secs(1), command.to_owned());
        run_lane(&Lane { group, name, limit, is_parallel: false, command }, false)
    }

    #[test]
    fn lanes_pass_fail_time_out_and_are_skipped() {
        for (command, expected) in [("true", PASSED), ("exit 3", FAILED), ("sleep 60", FAILED)] {
            let result = run("test", command);
            assert_eq!(result.outcome, expected, "{command}: {}", result.reason);
        }
        // Skipped if cargo-deny is missing, otherwise failed.
        assert_ne!(run("all", "cargo deny --no-such-option").outcome, PASSED);
    }
}
