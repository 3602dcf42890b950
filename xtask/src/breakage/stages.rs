//! The stages of tests that run on a mutant, which is a library with one planted defect. The stages
//! are the lanes of the group `break`. The *sound* library has no planted defect.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde_json::Value;

use super::{Mutant, break_directory};
use crate::{
    lanes::{self, Lane},
    process::{shell_command, supervise_and_log},
    root,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Test {
    stage: &'static str,
    command: String,
    /// The test's name; empty for all tests.
    name: String,
    /// The time limit for the sound library.
    limit: Duration,
}

impl Test {
    /// Creates a test of a stage. `programs` are the options that choose test programs; `None`
    /// chooses all programs of the stage.
    fn new(stage: &'static Lane, programs: Option<&str>, name: &str) -> Self {
        let (start, all) = stage.command.split_once('{').expect("programs are in braces");
        let command = format!("{start}{}", programs.unwrap_or(all.trim_end_matches('}')));
        Self { stage: stage.name, command, name: name.to_owned(), limit: stage.limit }
    }

    /// Returns the stages that can notice a mutant. Only loom and Miri notice a weaker ordering
    /// reliably, because the other tests depend on this processor's memory order.
    pub(super) fn all(mutant: &Mutant) -> impl Iterator<Item = Self> {
        let sees_orderings = |name| matches!(name, "loom" | "loom-epoch" | "miri");
        stages()
            .filter(move |stage| mutant.is_planted || sees_orderings(stage.name))
            .map(|stage| Self::new(stage, None, ""))
    }

    pub(super) fn expected(mutant: &Mutant) -> Option<Self> {
        let (stage, name) = mutant.noticed_by.as_ref()?.split_once(": ")?;
        let stage = stages().find(|lane| lane.name == stage)?;
        let declaration = format!("fn {}(", name.rsplit("::").next()?);
        if name.contains("tests::") {
            let is_unit_test = any_file_contains(&root().join("src"), &declaration);
            return is_unit_test.then(|| Self::new(stage, Some("--lib"), name));
        }
        let is_run_by_stage = |package: &&Value| {
            let option = package["name"].as_str().map(|name| format!("-p {name} "));
            option.is_some_and(|option| stage.command.contains(&option))
        };
        let package = lanes::PACKAGES.iter().find(is_run_by_stage)?;
        let declares_test = |program: &&Value| {
            let path = program["src_path"].as_str().unwrap_or_default();
            let path = Path::new(path.trim_end_matches("main.rs"));
            program["kind"][0] == "test" && any_file_contains(path, &declaration)
        };
        let program =
            package["targets"].as_array()?.iter().find(declares_test)?["name"].as_str()?;
        Some(Self::new(stage, Some(&format!("--test {program}")), name))
    }
}

fn stages() -> impl Iterator<Item = &'static Lane> {
    lanes::all_lanes().iter().filter(|lane| lane.group == "break")
}

/// The copy of the repository, and the tests that the sound library has passed there.
pub(super) struct Stages {
    pub(super) copy: PathBuf,
    pub(super) sound_durations: HashMap<Test, Duration>,
}

impl Stages {
    /// Runs a test on the sound library, unless the test has passed before.
    pub(super) fn ensure_sound_passes(&mut self, test: &Test) -> Result<()> {
        if !self.sound_durations.contains_key(test) {
            let start = Instant::now();
            if let Some(failed_test) = self.run_test(test)? {
                bail!("the sound library fails {failed_test}");
            }
            println!("    sound: {} {}", test.stage, test.name);
            self.sound_durations.insert(test.clone(), start.elapsed());
        }
        Ok(())
    }

    /// Runs one or all tests of a stage in the copy, which may contain a mutant. Returns the stage
    /// and the name of the first test that fails, or `None` if all pass.
    pub(super) fn run_test(&self, test: &Test) -> Result<Option<String>> {
        let Test { stage, command, name, limit } = test;
        let log = break_directory()?.join("output.log");
        let (build, copy) = (format!("{command} --no-run"), &self.copy);
        let (status, output) =
            supervise_and_log(&log, shell_command(&build).current_dir(copy), *limit, |_| false)?;
        if !status.is_some_and(|status| status.success()) {
            bail!("\"{build}\" fails:\n{output}");
        }
        let exact = if name.is_empty() { "" } else { "--exact" };
        let run_limit = self
            .sound_durations
            .get(test)
            .map_or(*limit, |duration| Duration::from_secs(60) + 5 * *duration);
        let mut run = shell_command(&format!("{command} -- {exact} {name}"));
        let (status, output) =
            supervise_and_log(&log, run.current_dir(&self.copy), run_limit, has_failed)?;
        let has_passed = status.is_some_and(|status| status.success());
        Ok((!has_passed).then(|| format!("{stage}: {}", failing_test(&output))))
    }
}

fn any_file_contains(path: &Path, text: &str) -> bool {
    if let Ok(mut entries) = fs::read_dir(path) {
        return entries
            .any(|entry| entry.is_ok_and(|entry| any_file_contains(&entry.path(), text)));
    }
    fs::read_to_string(path).is_ok_and(|source| source.contains(text))
}

fn has_failed(output: &str) -> bool {
    results(output).any(|(_, result)| result.ends_with("FAILED"))
}

/// Returns the names and results of the tests that have begun, in order.
fn results(output: &str) -> impl Iterator<Item = (&str, &str)> {
    output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
}

/// Returns the test that failed or was running at the end, or else the first error.
fn failing_test(output: &str) -> String {
    let failed = results(output).find(|(_, result)| result.ends_with("FAILED"));
    let unfinished =
        |(_, result): &(&str, &str)| !["ok", "ignored"].iter().any(|word| result.starts_with(word));
    let named = failed.or_else(|| results(output).filter(unfinished).last());
    let name = named.map(|(name, _)| name.trim_end_matches(" - should panic"));
    // A process that aborts may not have printed the test's name. The panic message contains the
    // test's name as the name of the thread.
    let thread = || {
        let panic = output.lines().find_map(|line| line.strip_prefix("thread '"))?;
        panic.split('\'').next()
    };
    let error = || output.lines().find(|line| line.starts_with("error: "));
    name.or_else(thread).or_else(error).unwrap_or("it does not end").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_culprit_is_the_failed_or_unfinished_test() {
        for (output, expected) in [
            ("running 3 tests\ntest a ... ok\ntest b::c ... FAILED\ntest d ... ok\n", "b::c"),
            ("test a ... ok\ntest b - should panic ... a word\nthread panicked. aborting.\n", "b"),
            ("test a ... ok\ntest b ... ", "b"),
            ("running 1 test\nthread 'b' (7) panicked at src/b.rs:1:1:\naborting\n", "b"),
            ("test a ... ok\nerror: Undefined Behavior: gone\n", "error: Undefined Behavior: gone"),
            ("test a ... ignored, slow\n", "it does not end"),
        ] {
            assert_eq!(failing_test(output), expected);
            assert_eq!(has_failed(output), output.contains("FAILED"));
        }
    }
}
