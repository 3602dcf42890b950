//! What a mutant has to get past: lists of tests, each with a limit of time.

use std::{
    collections::HashMap,
    io::{self, Read},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    killers::Killer,
    record::{At, Sources},
};
use crate::{lane::Lane, lanes::Likely, run::Failure, stop};

/// How often a running test is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A build has no hang to wait for, but it may have to wait for others.
const BUILD_MAX: Duration = Duration::from_secs(3600);

/// Stands after the name of a test that did not end.
pub(super) const HANGS: &str = ", which hangs";

/// Tests that are built and run together.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: &'static str,
    lane: Lane,
    /// What the sound library took for all tests or for one, and some more; known once it has passed them.
    limits: HashMap<Which, Duration>,
}

/// Which of its tests a stage is to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Which {
    All,
    /// Those of a part that has been chosen.
    Some(Likely),
    /// One, and the file that it is in if that is known.
    Test {
        file: Option<String>,
        name: String,
    },
}

/// How a mutant got on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Survived,
    /// By the named test.
    Killed(String),
    /// By what the compiler says.
    DoesNotBuild(String),
}

/// What a command did.
struct Outcome {
    /// `None` if it was stopped.
    status: Option<ExitStatus>,
    output: String,
    took: Duration,
}

impl Stage {
    /// The tests that `lane` builds and runs.
    pub(super) fn new(lane: Lane) -> Self {
        let name = lane.name;
        Self { name, lane, limits: HashMap::new() }
    }

    /// One of its tests as who noticed a mutant.
    pub(super) fn killer(&self, test: String) -> Killer {
        Killer { stage: self.name.to_owned(), test }
    }

    /// What builds the tests, and what runs them.
    fn lanes(&self, which: &Which) -> (Lane, Lane) {
        let lane = self.lane.clone();
        let (lane, names) = match which {
            Which::All => (lane, String::new()),
            Which::Some(Likely { file, module }) => (lane.only_test(file), (*module).to_owned()),
            Which::Test { file, name } => {
                let lane = file.iter().fold(lane, |lane, file| lane.only_test(file));
                (lane, format!("--exact {name}"))
            }
        };
        // One test at a time: so its name stands before what becomes of it.
        (lane.clone().and("--no-run"), lane.and(&format!("-- --test-threads=1 {names}")))
    }

    /// Whether it is known that the sound library passes these tests.
    pub(super) fn is_sound(&self, which: &Which) -> bool {
        self.limits.contains_key(which)
    }

    /// The sound library has passed them before, in such a time.
    pub(super) fn is_proven(&mut self, which: &Which, took: Duration) {
        self.limits.insert(which.clone(), Duration::from_secs(60) + 4 * took);
    }

    /// Where it finds what it finds.
    pub(super) fn place(&self) -> At {
        At { stage: self.name, directory: self.directory(), command: self.lane.command() }
    }

    /// Where its tests are, but for those in the library.
    fn directory(&self) -> &'static str {
        match self.lane.package() {
            Some("loom-tests") => "loom-tests/",
            Some("shuttle-tests") => "shuttle-tests/",
            _ => "tests/",
        }
    }

    /// The test that has killed something, alone.
    pub(super) fn which(&self, test: &str, sources: &Sources) -> Which {
        let name = test.trim_end_matches(HANGS).to_owned();
        if name.contains(' ') {
            return Which::All;
        }
        // The library's own tests are in modules that are called so.
        let file =
            if name.contains("tests::") { None } else { sources.home(self.directory(), &name) };
        Which::Test { file, name }
    }

    /// Runs the tests on the sound library.
    ///
    /// # Errors
    ///
    /// If they fail: then they say nothing about mutants.
    pub(super) fn prove(&mut self, copy: &Path, which: &Which) -> Result<Duration, Failure> {
        let (build, run) = self.lanes(which);
        let failed = |what: &str, outcome: &Outcome| {
            let end = tail(&outcome.output, 30);
            Failure(format!("\"{}\" {what} before anything is broken:\n{end}\n  {run}", self.name))
        };
        let do_all = |lane: &Lane| {
            watch(lane.process_in(copy), BUILD_MAX, |_| false)
                .map_err(|error| Failure(format!("{lane}: {error}")))
        };
        let built = do_all(&build)?;
        if !built.succeeded() {
            return Err(failed("does not build", &built));
        }
        let tested = do_all(&run)?;
        if !tested.succeeded() {
            return Err(failed("fails", &tested));
        }
        self.is_proven(which, tested.took);
        Ok(tested.took)
    }

    /// Runs the tests on a mutant, up to the first that fails. Where not all are asked for, the others are not built.
    pub(super) fn judge(&self, copy: &Path, which: &Which) -> Result<Verdict, Failure> {
        let failed =
            |error: io::Error| Failure(format!("\"{}\" cannot be run: {error}", self.name));
        let (build, run) = self.lanes(which);
        let built = watch(build.process_in(copy), BUILD_MAX, |_| false).map_err(failed)?;
        if !built.succeeded() {
            return Ok(Verdict::DoesNotBuild(tail(&built.output, 30)));
        }
        let limit = self.limits.get(which.proof()).copied().unwrap_or(BUILD_MAX);
        let test =
            |run: &Lane, limit| watch(run.process_in(copy), limit, has_failed).map_err(failed);
        let mut tested = test(&run, limit)?;
        if tested.hangs() {
            // Or the machine is busy: then the test that was under way ends if it is alone.
            let name = culprit(&tested.output);
            let alone = test(&self.lanes(&Which::Test { file: None, name }).1, limit)?;
            tested = if alone.succeeded() { test(&run, 8 * limit)? } else { alone };
        }
        if tested.succeeded() {
            return Ok(Verdict::Survived);
        }
        let how = if tested.hangs() { HANGS } else { "" };
        Ok(Verdict::Killed(culprit(&tested.output) + how))
    }
}

impl Which {
    /// What the sound library must have passed before a failure of these says something.
    pub(super) fn proof(&self) -> &Self {
        match self {
            Self::All | Self::Some(_) => &Self::All,
            // One that is asked first, as it has killed before: then all need not be run.
            Self::Test { .. } => self,
        }
    }

    /// The test, if it is one.
    pub(super) fn test(&self) -> Option<&str> {
        match self {
            Self::All | Self::Some(_) => None,
            Self::Test { name, .. } => Some(name),
        }
    }
}

impl Outcome {
    /// It took too long, and no test has failed.
    fn hangs(&self) -> bool {
        self.status.is_none() && !has_failed(&self.output)
    }

    fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Runs `command` until it ends, it has taken `limit`, or its output so far is `enough`.
fn watch(
    mut command: Command,
    limit: Duration,
    enough: impl Fn(&str) -> bool,
) -> io::Result<Outcome> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let output = Arc::new(Mutex::new(String::new()));
    let readers = [
        child.stdout.take().map(|from| collect(from, &output)),
        child.stderr.take().map(|from| collect(from, &output)),
    ];
    let so_far = || output.lock().unwrap_or_else(PoisonError::into_inner);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > limit || enough(&so_far()) {
            stop::tree(child.id())?;
            child.wait()?;
            break None;
        }
        thread::sleep(LOOK);
    };
    for reader in readers.into_iter().flatten() {
        let _ = reader.join();
    }
    let output = so_far().clone();
    Ok(Outcome { status, output, took: start.elapsed() })
}

/// Appends what `from` says to `output`, as it comes.
fn collect(
    mut from: impl Read + Send + 'static,
    output: &Arc<Mutex<String>>,
) -> thread::JoinHandle<()> {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut part) {
            let text = String::from_utf8_lossy(&part[..length]);
            output.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    })
}

/// A test has failed, and the rest need not run.
fn has_failed(output: &str) -> bool {
    tests(output).any(|(_, result)| result.ends_with("FAILED"))
}

/// The tests that have begun, in order, and what their lines say of each.
fn tests(output: &str) -> impl Iterator<Item = (&str, &str)> {
    output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
}

/// The test that failed, or that was under way when all ended; if none was, the first complaint.
fn culprit(output: &str) -> String {
    let unfinished =
        |result: &str| !matches!(result, "ok" | "ignored") && !result.starts_with("ignored,");
    let failed = tests(output).find(|(_, result)| result.ends_with("FAILED"));
    let named = failed.or_else(|| tests(output).filter(|(_, result)| unfinished(result)).last());
    let name = named.map(|(name, _)| name.trim_end_matches(" - should panic"));
    let complaint =
        || output.lines().find(|line| line.starts_with("error: ") || line.contains("panicked at"));
    name.or_else(complaint).unwrap_or("an unknown failure").to_owned()
}

/// The last lines of `text`.
fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_culprit_is_the_test_that_failed_or_was_under_way() {
        let failed =
            "running 3 tests\ntest a ... ok\ntest b::c ... FAILED\ntest d ... ok\n\nfailures:\n";
        assert_eq!(culprit(failed), "b::c");
        assert!(has_failed(failed));
        let aborted = "test a ... ok\ntest b - should panic ... a word\nthread caused non-unwinding panic. aborting.\n";
        assert_eq!(culprit(aborted), "b");
        assert_eq!(culprit("test a ... ok\ntest b ... "), "b");
        assert!(!has_failed("test a ... ok\ntest b ... "));
        assert_eq!(
            culprit("test a ... ok\nerror: Undefined Behavior: gone\n"),
            "error: Undefined Behavior: gone"
        );
    }

    #[test]
    fn a_command_that_hangs_is_stopped_with_all_it_has_started() {
        let begun = Instant::now();
        let hung = watch(
            shell("echo test a ...; sleep 60 & sleep 60"),
            Duration::from_millis(300),
            |_| false,
        );
        let hung = hung.expect("started");
        assert!(hung.status.is_none() && !hung.succeeded());
        assert!(begun.elapsed() < Duration::from_secs(30), "the sleeps hold the output open");
    }

    #[test]
    fn a_command_is_stopped_when_its_output_is_enough() {
        let begun = Instant::now();
        let script = "echo test a ... FAILED; sleep 60";
        let enough = watch(shell(script), Duration::from_secs(60), has_failed).expect("started");
        assert!(enough.status.is_none() && has_failed(&enough.output));
        assert!(begun.elapsed() < Duration::from_secs(30));
        let ended = watch(shell("echo one; echo two >&2"), Duration::from_secs(60), has_failed)
            .expect("started");
        assert!(ended.succeeded() && ended.output.len() == 8);
    }

    #[test]
    fn the_tail_is_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
