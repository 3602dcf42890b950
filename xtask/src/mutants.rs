//! Changes the library in every way that cargo-mutants knows, one place at a time, and asks whether a test notices.
//!
//! What is changed stands in `.cargo/mutants.toml`. The unit tests are asked first, of all mutants, and then, of those that are
//! left, integration tests ([`PASSES`]). Who survives is a hole in the tests, unless `mutants/survivors.txt` says why not. The command
//! fails if one survives that does not stand there, if one that stands there does not, and if too few are noticed in all.
//! (`cargo xtask break` does the same for orderings, which cargo-mutants does not touch, and with more than these tests.)

mod verdict;

use std::{fs, path::PathBuf};

use self::verdict::{Fates, Names};
use crate::{
    breakage::list::{self, Survivor},
    lane::{Lane, root, target_base},
    run::Failure,
    tools,
};

const SURVIVORS: &str = "xtask/mutants/survivors.txt";

/// The integration tests that are asked after the unit tests: first those that notice most, as to build a test takes longer than to run
/// it, and then the others that take a second or so.
const PASSES: [&[&str]; 2] = [
    &["callbacks", "cores", "future_model", "handles", "metrics", "purgatory_model", "remote", "shard_model"],
    &[
        "cancel_wait",
        "clock",
        "exports",
        "future",
        "future_timers",
        "misuse",
        "origins",
        "purgatory",
        "purgatory_cores",
        "reentrance",
        "remote_end",
        "remote_sleep",
        "shown",
        "slack",
        "sleep",
        "timer_fd",
        "virtual_time",
        "wheel_model",
    ],
];

/// How cargo-mutants ends when it has judged all: all were noticed, some were not, some hung.
const JUDGED: [i32; 3] = [0, 2, 3];

/// Which mutants.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only those of this file; may be given again.
    #[arg(long)]
    file: Vec<String>,
}

/// See the module.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    tools::provide(tools::MUTANTS)?;
    let names = Names::of(&names()?);
    let survivors = survivors()?;
    let unknown: Vec<&str> =
        survivors.iter().map(|survivor| &survivor.name[..]).filter(|name| !names.has(name)).collect();
    if !unknown.is_empty() {
        return Err(Failure(format!("{SURVIVORS} has what is no mutant:\n       {}", unknown.join("\n       "))));
    }
    let mut fates = judge(options, "--minimum-test-timeout 10 --cargo-arg=--lib")?;
    for tests in PASSES {
        let tests: Vec<String> = tests.iter().map(|test| format!("--cargo-arg=--test={test}")).collect();
        fates = fates.and_of_those_left(judge(options, &format!("--iterate {}", tests.join(" ")))?);
    }
    fates.verdict(&names, &survivors)
}

/// Who survives, and why.
fn survivors() -> Result<Vec<Survivor>, Failure> {
    let list =
        fs::read_to_string(root().join(SURVIVORS)).map_err(|error| Failure(format!("{SURVIVORS}: {error}")))?;
    list::survivors(&list).map_err(|error| Failure(format!("{SURVIVORS}: {error}")))
}

/// What cargo-mutants calls each mutant.
fn names() -> Result<String, Failure> {
    let failed = |why: String| Failure(format!("cargo-mutants lists nothing: {why}"));
    let output =
        Lane::new("list", "cargo mutants --list").process().output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

/// Where cargo-mutants writes, and builds.
fn output() -> PathBuf {
    target_base().join("mutants")
}

/// Has cargo-mutants judge the mutants with these of its arguments. (Those for cargo are not for the tests only: what is not run need
/// not be built.)
fn judge(options: &Options, how: &str) -> Result<Fates, Failure> {
    let mut lane = Lane::new("mutants", "cargo mutants --output").word(output().display().to_string());
    for file in &options.file {
        lane = lane.and("--file").word(file.clone());
    }
    let lane = lane.and(how).target("mutants/build");
    println!("    {lane}");
    fs::create_dir_all(output()).map_err(|error| Failure(format!("{}: {error}", output().display())))?;
    let status =
        lane.process().status().map_err(|error| Failure(format!("cargo-mutants cannot be started: {error}")))?;
    if !status.code().is_some_and(|code| JUDGED.contains(&code)) {
        return Err(Failure(format!("cargo-mutants did not come to its end: {status}")));
    }
    Fates::read(|list| fs::read_to_string(output().join("mutants.out").join(list)))
        .map_err(|error| Failure(format!("what cargo-mutants has found out cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_test_that_is_asked_is_there() {
        for test in super::PASSES.concat() {
            assert!(super::root().join(format!("tests/{test}.rs")).exists(), "tests/{test}.rs");
        }
    }

    #[test]
    fn every_survivor_has_a_reason() {
        let survivors = super::survivors().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(survivors.iter().all(|survivor| !survivor.why.is_empty()));
    }
}
