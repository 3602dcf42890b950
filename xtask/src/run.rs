//! Runs lanes one after the other and says how each went.

use std::{
    fmt::{self, Display, Formatter},
    io::{self, BufRead, BufReader},
    process::{Child, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::{lane::Lane, stop};

/// Why a command did not succeed, for the person who called it.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs `lanes` in order up to the first that fails, then prints a table of all of them.
pub(crate) fn all(lanes: &[Lane]) -> Result<(), Failure> {
    let mut times = Vec::new();
    let mut outcome = Ok(());
    for (index, lane) in lanes.iter().enumerate() {
        println!("\n==> [{}/{}] {}\n    {lane}", index + 1, lanes.len(), lane.name);
        let start = Instant::now();
        outcome = one(lane);
        times.push(start.elapsed());
        if outcome.is_err() {
            break;
        }
    }
    summarize(lanes, &times, outcome.is_ok());
    outcome
}

fn one(lane: &Lane) -> Result<(), Failure> {
    let failed = |why: String| {
        let name = lane.name;
        Failure(format!(
            "lane \"{name}\" failed: {why}\n  to run it alone, from the root of the repository:\n    {lane}"
        ))
    };
    let mut process = lane.process();
    if lane.verdict {
        process.stdout(Stdio::piped());
    }
    let mut child = process.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
    let limit = lane.limit.unwrap_or(Duration::MAX);
    let (verdict, status) = watched(&mut child, limit).map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    if lane.verdict && !is_ok(&verdict) {
        return Err(failed("its last line holds no \"ok\":true".to_owned()));
    }
    Ok(())
}

/// What the process said last and how it ended; one that takes longer than `limit` is stopped.
fn watched(child: &mut Child, limit: Duration) -> io::Result<(String, ExitStatus)> {
    let process = child.id();
    let (over, is_over) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let hangs = is_over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if hangs { stop::tree(process).and(Err(io::Error::from(io::ErrorKind::TimedOut))) } else { Ok(()) }
    });
    let ended = last_line(child).and_then(|last| Ok((last, child.wait()?)));
    drop(over);
    watchdog.join().unwrap_or_else(|_| Err(io::Error::other("the watchdog panicked")))?;
    ended
}

/// Passes captured output on, line by line; the last one is the verdict. Empty where nothing was captured.
fn last_line(child: &mut Child) -> io::Result<String> {
    let mut last = String::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            last = line?;
            println!("{last}");
        }
    }
    Ok(last)
}

fn is_ok(verdict: &str) -> bool {
    let packed: String = verdict.split_whitespace().collect();
    packed.starts_with('{') && packed.contains("\"ok\":true")
}

fn summarize(lanes: &[Lane], times: &[Duration], all_ok: bool) {
    println!();
    let width = lanes.iter().map(|lane| lane.name.len()).max().unwrap_or_default();
    for (index, lane) in lanes.iter().enumerate() {
        let word = match index + 1 {
            done if done > times.len() => "not run",
            done if done == times.len() && !all_ok => "FAILED",
            _ => "ok",
        };
        let seconds = times.get(index).map(|time| format!("{:8.1} s", time.as_secs_f64())).unwrap_or_default();
        println!("{:width$}  {word:7} {seconds}", lane.name);
    }
    println!("{:width$}  {:7} {:8.1} s", "", "total", times.iter().sum::<Duration>().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{all, is_ok};
    use crate::lane::Lane;

    #[test]
    fn a_verdict_is_a_json_object_that_says_ok() {
        assert!(is_ok(r#"{"connections": 10, "ok": true}"#));
        assert!(!is_ok(r#"{"connections": 10, "ok": false}"#));
        assert!(!is_ok("ok"));
        assert!(!is_ok(""));
    }

    #[test]
    fn a_lane_that_fails_or_gives_no_verdict_is_a_failure() {
        let version = Lane::new("version", "cargo --version");
        let unknown = Lane::new("unknown", "cargo no-such-command");
        assert!(all(std::slice::from_ref(&version)).is_ok());
        assert!(all(&[version.clone().verdict()]).is_err());
        let failure = all(&[version, unknown]).expect_err("cargo refuses it").to_string();
        assert!(failure.starts_with("lane \"unknown\" failed: "), "{failure}");
        assert!(failure.ends_with("    cargo no-such-command"), "{failure}");
    }

    #[test]
    fn a_lane_that_hangs_is_stopped_with_all_it_has_started() {
        let begun = Instant::now();
        // A process that starts another, which has the output too.
        let hangs = Lane::new("hangs", "timeout 60 sleep 60").verdict().limit(Duration::from_millis(300));
        let failure = all(&[hangs]).expect_err("it was stopped").to_string();
        assert!(failure.starts_with("lane \"hangs\" failed: timed out"), "{failure}");
        assert!(begun.elapsed() < Duration::from_secs(30), "the sleep holds the output open");
    }
}
