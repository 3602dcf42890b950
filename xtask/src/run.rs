//! Runs lanes and prints how each one ended.

use std::{
    fs::{self, File},
    io,
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

use crate::{
    Result,
    lanes::{self, Lane},
    process::{on_all_cores, supervise},
    root,
};

/// A row of the table at the end.
struct Row {
    name: String,
    outcome: Outcome,
    took: Duration,
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Runs the chosen lanes and prints a table of all of them. Returns whether none failed.
pub(crate) fn run(is_chosen: impl Fn(&Lane) -> bool) -> Result<bool> {
    let chosen: Vec<Lane> = lanes::all().iter().filter(|lane| is_chosen(lane)).cloned().collect();
    if chosen.is_empty() {
        return Err("no lane has that in its name".into());
    }
    let (start, mut rows) = (Instant::now(), Vec::new());
    if chosen.iter().any(|lane| lane.command.contains("--workspace")) {
        for (name, reason) in lanes::unbuildable() {
            rows.push(skipped(name, reason.clone()));
        }
    }
    rows.extend(run_each(&chosen));
    print_table(&rows, start.elapsed());
    Ok(!rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_))))
}

fn skipped(name: &str, reason: String) -> Row {
    println!("SKIPPED {name}: {reason}");
    Row { name: name.to_owned(), outcome: Outcome::Skipped(reason), took: Duration::ZERO }
}

/// Runs the lanes in order; neighbours that may run beside each other share the cores.
fn run_each(lanes: &[Lane]) -> Vec<Row> {
    let neighbours = lanes.chunk_by(|lane, next| lane.beside && next.beside);
    let run = |lanes: &[Lane]| on_all_cores(lanes, |lane| run_lane(lane, lanes.len() > 1));
    neighbours.flat_map(run).collect()
}

/// Runs one lane. Its output is printed at its end if it has company.
fn run_lane(lane: &Lane, has_company: bool) -> Row {
    let start = Instant::now();
    let outcome = match lane.obstacle() {
        Some((reason, false)) => return skipped(lane.name, reason),
        Some((reason, true)) => Outcome::Failed(reason),
        None => match execute(lane, has_company) {
            Ok(Some(status)) if status.success() => Outcome::Passed,
            Ok(Some(status)) => Outcome::Failed(status.to_string()),
            Ok(None) => Outcome::Failed(format!("killed after {:?}", lane.limit)),
            Err(error) => Outcome::Failed(error.to_string()),
        },
    };
    Row { name: lane.name.to_owned(), outcome, took: start.elapsed() }
}

fn execute(lane: &Lane, has_company: bool) -> io::Result<Option<ExitStatus>> {
    println!("\n==> {}\n    {}", lane.name, lane.command);
    let mut shell = Command::new("sh");
    shell.args(["-c", &lane.command]).current_dir(root());
    if !has_company {
        return supervise(&mut shell, lane.limit, |_| false);
    }
    let logs = root().join(lanes::target()).join("lanes");
    fs::create_dir_all(&logs)?;
    let path = logs.join(format!("{}.log", lane.name));
    let log = File::create(&path)?;
    shell.stdout(log.try_clone()?).stderr(log);
    let status = supervise(&mut shell, lane.limit, |_| false);
    let output = String::from_utf8_lossy(&fs::read(path)?).into_owned();
    println!("\n==> output of {}\n{output}", lane.name);
    status
}

/// Prints each row, and in the last line how many lanes ended in which way.
fn print_table(rows: &[Row], total: Duration) {
    println!();
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let mut counts = [0; 3];
    for Row { name, outcome, took } in rows {
        let (index, word, reason) = match outcome {
            Outcome::Passed => (0, "passed", ""),
            Outcome::Failed(reason) => (1, "FAILED", &reason[..]),
            Outcome::Skipped(reason) => (2, "SKIPPED", &reason[..]),
        };
        counts[index] += 1;
        println!("{name:width$}  {word:7} {:8.1} s  {reason}", took.as_secs_f64());
    }
    println!("{:width$}  total   {:8.1} s", "", total.as_secs_f64());
    println!("{} passed, {} failed, {} skipped", counts[0], counts[1], counts[2]);
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn lane(group: &'static str, beside: bool, command: &str) -> Lane {
        let (name, limit) = ("a test of xtask", Duration::from_secs(1));
        Lane { group, name, limit, beside, command: command.to_owned() }
    }

    #[test]
    fn lanes_pass_fail_time_out_and_are_skipped() {
        for (command, passes) in [("true", true), ("exit 3", false), ("sleep 60", false)] {
            let outcome = run_lane(&lane("test", false, command), false).outcome;
            assert_eq!(outcome == Outcome::Passed, passes, "{command}: {outcome:?}");
        }
        // It is skipped where cargo-deny is missing and fails elsewhere.
        let row = run_lane(&lane("all", false, "cargo deny --no-such-option"), false);
        assert_ne!(row.outcome, Outcome::Passed);
    }

    #[test]
    fn neighbours_run_at_the_same_time_and_others_alone() {
        let nap = |beside| lane("all", beside, "sleep 0.4");
        let took = |lanes: &[Lane]| {
            let start = Instant::now();
            assert_eq!(run_each(lanes).len(), lanes.len());
            start.elapsed()
        };
        let is_one_core = thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        assert!(took(&[nap(true), nap(true)]) < Duration::from_millis(790) || is_one_core);
        assert!(took(&[nap(true), nap(false), nap(true)]) >= Duration::from_millis(1_200));
    }
}
