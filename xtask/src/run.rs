//! Runs lanes one after the other, or some side by side, and says how each went.

use std::{
    fmt::{self, Display, Formatter},
    io::{self, BufRead, BufReader, PipeReader},
    num::NonZeroUsize,
    ops::Range,
    process::{Child, ExitStatus},
    sync::{
        Mutex,
        mpsc::{self, RecvTimeoutError},
    },
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

/// Runs `lanes` in order up to the first that fails, then prints a table of all of them. Neighbours that may run beside others run
/// side by side.
pub(crate) fn all(lanes: &[Lane]) -> Result<(), Failure> {
    let (start, mut times) = (Instant::now(), vec![None; lanes.len()]);
    let mut outcome = Ok(());
    let mut next = 0;
    while next < lanes.len() && outcome.is_ok() {
        let neighbours = lanes[next..].iter().take_while(|lane| lane.beside_others).count().max(1);
        let these = next..next + neighbours;
        outcome = side_by_side(lanes, these.clone(), &mut times);
        next = these.end;
    }
    summarize(lanes, &times, start.elapsed());
    outcome
}

/// When a lane ended: how long it took, and whether it succeeded.
type Time = Option<(Duration, bool)>;

/// Neighbours that run side by side.
struct Running<'times> {
    /// Those that have not begun.
    left: Range<usize>,
    times: &'times mut [Time],
    outcome: Result<(), Failure>,
}

/// Runs some of the lanes, as many at a time as there are cores; none begins after one has failed.
fn side_by_side(lanes: &[Lane], these: Range<usize>, times: &mut [Time]) -> Result<(), Failure> {
    let is_alone = these.len() == 1;
    let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(these.len());
    let running = Mutex::new(Running { left: these, times, outcome: Ok(()) });
    let lock = || running.lock().expect("nobody panics with it");
    let next = || {
        let mut running = lock();
        if running.outcome.is_ok() { running.left.next() } else { None }
    };
    let work = || {
        while let Some(index) = next() {
            let (lane, start) = (&lanes[index], Instant::now());
            let title = format!("\n==> [{}/{}] {}\n    {lane}", index + 1, lanes.len(), lane.name);
            println!("{title}");
            let outcome = if is_alone { one(lane, None) } else { beside(lane, &title) };
            let mut running = lock();
            running.times[index] = Some((start.elapsed(), outcome.is_ok()));
            if running.outcome.is_ok() {
                running.outcome = outcome;
            }
        }
    };
    thread::scope(|scope| (0..workers).for_each(|_| _ = scope.spawn(work)));
    running.into_inner().expect("nobody panics with it").outcome
}

/// Runs a lane beside others: what it prints comes when it has ended.
fn beside(lane: &Lane, title: &str) -> Result<(), Failure> {
    let mut printed = String::new();
    let outcome = one(lane, Some(&mut printed));
    println!("{title}\n{printed}");
    outcome
}

/// Runs a lane, and keeps what it prints if that is wanted.
fn one(lane: &Lane, kept: Option<&mut String>) -> Result<(), Failure> {
    let failed = |why: String| {
        let name = lane.name;
        Failure(format!(
            "lane \"{name}\" failed: {why}\n  to run it alone, from the root of the repository:\n    {lane}"
        ))
    };
    let limit = lane.limit.unwrap_or(Duration::MAX);
    let (verdict, status) =
        watched(lane, kept, limit).map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    if lane.verdict && !is_ok(&verdict) {
        return Err(failed("its last line holds no \"ok\":true".to_owned()));
    }
    Ok(())
}

/// What the process said last and how it ended; one that takes longer than `limit` is stopped.
fn watched(
    lane: &Lane,
    kept: Option<&mut String>,
    limit: Duration,
) -> io::Result<(String, ExitStatus)> {
    let (mut child, said) = started(lane, kept.is_some())?;
    let process = child.id();
    let (over, is_over) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let hangs = is_over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if hangs {
            stop::tree(process).and(Err(io::Error::from(io::ErrorKind::TimedOut)))
        } else {
            Ok(())
        }
    });
    let ended = last_line(said, kept).and_then(|last| Ok((last, child.wait()?)));
    drop(over);
    watchdog.join().unwrap_or_else(|_| Err(io::Error::other("the watchdog panicked")))?;
    ended
}

/// Starts the process, and captures what it says if that is to be kept, or its last line is a verdict.
fn started(lane: &Lane, is_kept: bool) -> io::Result<(Child, Option<PipeReader>)> {
    let cannot = |error| io::Error::other(format!("cannot be started: {error}"));
    let mut process = lane.process();
    if !is_kept && !lane.verdict {
        return Ok((process.spawn().map_err(cannot)?, None));
    }
    let (said, into) = io::pipe()?;
    if is_kept {
        process.stderr(into.try_clone()?);
    }
    // The process alone has the other end, once `process` is dropped.
    Ok((process.stdout(into).spawn().map_err(cannot)?, Some(said)))
}

/// Keeps captured output or passes it on, line by line; the last one is the verdict. Empty where nothing was captured.
fn last_line(said: Option<PipeReader>, mut kept: Option<&mut String>) -> io::Result<String> {
    let mut last = String::new();
    for line in said.into_iter().flat_map(|said| BufReader::new(said).lines()) {
        last = line?;
        match &mut kept {
            Some(kept) => kept.extend([last.as_str(), "\n"]),
            None => println!("{last}"),
        }
    }
    Ok(last)
}

fn is_ok(verdict: &str) -> bool {
    let packed: String = verdict.split_whitespace().collect();
    packed.starts_with('{') && packed.contains("\"ok\":true")
}

fn summarize(lanes: &[Lane], times: &[Time], total: Duration) {
    println!();
    let width = lanes.iter().map(|lane| lane.name.len()).max().unwrap_or_default();
    for (lane, time) in lanes.iter().zip(times) {
        let word = match time {
            None => "not run",
            Some((_, true)) => "ok",
            Some((_, false)) => "FAILED",
        };
        let seconds =
            time.map(|(time, _)| format!("{:8.1} s", time.as_secs_f64())).unwrap_or_default();
        println!("{:width$}  {word:7} {seconds}", lane.name);
    }
    println!("{:width$}  {:7} {:8.1} s", "", "total", total.as_secs_f64());
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
    fn lanes_that_may_run_side_by_side_and_the_others_alone() {
        let nap = || Lane::new("nap", "sleep 0.4").beside_others();
        let begun = Instant::now();
        assert!(all(&[nap(), nap()]).is_ok());
        let together = begun.elapsed();
        let is_one_core = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        assert!(together < Duration::from_millis(790) || is_one_core, "{together:?}");
        let begun = Instant::now();
        assert!(all(&[nap(), Lane::new("nap", "sleep 0.4"), nap()]).is_ok());
        assert!(begun.elapsed() >= Duration::from_millis(1_200));
    }

    #[test]
    fn after_a_failure_beside_it_no_lane_begins() {
        let mark = crate::lane::target_base().join("xtask-mark");
        let late = Lane::new("late", "touch").word(mark.display().to_string());
        let fails = Lane::new("fails", "false").beside_others();
        let failure =
            all(&[fails.clone(), fails.verdict(), late]).expect_err("it fails").to_string();
        assert!(failure.starts_with("lane \"fails\" failed: exit"), "{failure}");
        assert!(!mark.exists());
    }

    #[test]
    fn what_a_lane_prints_is_kept_and_its_last_line_is_its_verdict() {
        let version = Lane::new("version", "cargo --version");
        let mut printed = String::new();
        assert!(super::one(&version, Some(&mut printed)).is_ok());
        assert!(printed.starts_with("cargo 1.") && printed.ends_with('\n'), "{printed}");
        assert!(super::one(&version.verdict(), Some(&mut String::new())).is_err());
    }

    #[test]
    fn a_lane_that_hangs_is_stopped_with_all_it_has_started() {
        let begun = Instant::now();
        // A process that starts another, which has the output too.
        let hangs =
            Lane::new("hangs", "timeout 60 sleep 60").verdict().limit(Duration::from_millis(300));
        let failure = all(&[hangs]).expect_err("it was stopped").to_string();
        assert!(failure.starts_with("lane \"hangs\" failed: timed out"), "{failure}");
        assert!(begun.elapsed() < Duration::from_secs(30), "the sleep holds the output open");
    }
}
