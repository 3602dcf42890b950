//! Changes the library in every way that cargo-mutants knows, one place at a time, and asks whether a test notices.
//!
//! What is changed stands in `.cargo/mutants.toml`. The unit tests are asked first, of all mutants, and then, of those that are
//! left, integration tests ([`PASSES`]). Who survives is a hole in the tests, unless `mutants/survivors.txt` says why not. The command
//! fails if one survives that does not stand there, if one that stands there does not, and if too few are noticed in all.
//! (`cargo xtask break` does the same for orderings, which cargo-mutants does not touch, and with more than these tests.)

mod verdict;

use std::{fs, num::NonZero, path::PathBuf, thread};

use self::verdict::{Fates, Names};
use crate::{
    breakage::list::{self, Survivor},
    lane::{Lane, root, target_base},
    run::Failure,
    tools,
};

const SURVIVORS: &str = "xtask/mutants/survivors.txt";

/// Who is asked, of all mutants and then of those that are left: first those that notice most in the least time.
const PASSES: [Pass; 3] = [
    Pass { built: &["--lib"], skipped: &["with_tiny_limits"] },
    Pass { built: &["--test=api"], skipped: &["_model::", "no_wake_up_is_lost"] },
    Pass {
        built: &[
            "--lib",
            "--test=api",
            "--test=across_cores",
            "--test=exports",
            "--test=history",
            "--test=idle_connections",
            "--test=memory",
            "--test=no_pauses",
            "--test=origins",
        ],
        skipped: &[],
    },
];

/// Tests: what is built, and what of that is not run.
struct Pass {
    built: &'static [&'static str],
    skipped: &'static [&'static str],
}

/// More than any test takes that ends, in seconds.
const HANGS: &str = "--minimum-test-timeout 20";

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
    let unknown: Vec<&str> = survivors
        .iter()
        .map(|survivor| &survivor.name[..])
        .filter(|name| !names.has(name))
        .collect();
    if !unknown.is_empty() {
        return Err(Failure(format!(
            "{SURVIVORS} has what is no mutant:\n       {}",
            unknown.join("\n       ")
        )));
    }
    let [first, then @ ..] = PASSES;
    let mut fates = judge(options, "", &first)?;
    for pass in &then {
        fates = fates.and_of_those_left(judge(options, "--iterate", pass)?);
    }
    fates.verdict(&names, &survivors)
}

/// Who survives, and why.
fn survivors() -> Result<Vec<Survivor>, Failure> {
    let list = fs::read_to_string(root().join(SURVIVORS))
        .map_err(|error| Failure(format!("{SURVIVORS}: {error}")))?;
    list::survivors(&list).map_err(|error| Failure(format!("{SURVIVORS}: {error}")))
}

/// What cargo-mutants calls each mutant.
fn names() -> Result<String, Failure> {
    let failed = |why: String| Failure(format!("cargo-mutants lists nothing: {why}"));
    let output = Lane::new("list", "cargo mutants --list")
        .process()
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

/// Where cargo-mutants writes, and builds.
fn output() -> PathBuf {
    target_base().join("mutants")
}

/// Has cargo-mutants judge the mutants by these tests. (Its arguments for cargo are not for the run only: what is not run need not be
/// built. Each core has a copy of the workspace, with a target directory of its own.)
fn judge(options: &Options, which: &str, by: &Pass) -> Result<Fates, Failure> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut lane =
        Lane::new("mutants", "cargo mutants --output").word(output().display().to_string());
    lane = lane.and(&format!("--jobs {cores} {HANGS} {which}")).unset("CARGO_TARGET_DIR");
    for file in &options.file {
        lane = lane.and("--file").word(file.clone());
    }
    for built in by.built {
        lane = lane.and(&format!("--cargo-arg={built}"));
    }
    lane = lane.and("-- --");
    for skipped in by.skipped {
        lane = lane.and(&format!("--skip {skipped}"));
    }
    println!("    {lane}");
    fs::create_dir_all(output())
        .map_err(|error| Failure(format!("{}: {error}", output().display())))?;
    let status = lane
        .process()
        .status()
        .map_err(|error| Failure(format!("cargo-mutants cannot be started: {error}")))?;
    if !status.code().is_some_and(|code| JUDGED.contains(&code)) {
        return Err(Failure(format!("cargo-mutants did not come to its end: {status}")));
    }
    Fates::read(|list| fs::read_to_string(output().join("mutants.out").join(list))).map_err(
        |error| Failure(format!("what cargo-mutants has found out cannot be read: {error}")),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_test_that_is_asked_is_there() {
        for test in super::PASSES
            .iter()
            .flat_map(|pass| pass.built)
            .filter_map(|built| built.strip_prefix("--test="))
        {
            let places =
                ["", "/main"].map(|file| super::root().join(format!("tests/{test}{file}.rs")));
            assert!(places.iter().any(|place| place.exists()), "tests/{test}.rs");
        }
    }

    #[test]
    fn every_survivor_has_a_reason() {
        let survivors = super::survivors().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(survivors.iter().all(|survivor| !survivor.why.is_empty()));
    }
}
