//! Runs the fuzz targets one after the other, each for a time. What they have learnt is kept below the target directory
//! and is where the next run begins; what breaks one lies in `fuzz/artifacts`, and libFuzzer says how to run it again.

use std::{fs, time::Duration};

use crate::{
    lane::{Lane, target_base},
    run::{self, Failure},
    tools,
};

/// Which targets, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this one.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
    /// For so many seconds each.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// Those of `fuzz/fuzz_targets`.
const TARGETS: [&str; 3] = ["wheel_tiny", "wheel", "shard"];

/// What building a target may take besides.
const BUILD_MAX: Duration = Duration::from_secs(20 * 60);

/// See the module.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    tools::provide(tools::FUZZ)?;
    let is_asked = |target: &&&str| options.target.as_deref().is_none_or(|asked| asked == **target);
    let chosen: Vec<&str> = TARGETS.iter().filter(is_asked).copied().collect();
    let lanes = chosen
        .into_iter()
        .map(|target| lane(target, options.seconds))
        .collect::<Result<Vec<_>, _>>()?;
    run::all(&lanes)
}

/// One input may take 10 s at most, and 2 GiB.
fn lane(target: &'static str, seconds: u64) -> Result<Lane, Failure> {
    let corpus = target_base().join("fuzz/corpus").join(target);
    fs::create_dir_all(&corpus)
        .map_err(|error| Failure(format!("{}: {error}", corpus.display())))?;
    // There is no `unsafe` in a wheel and the example, and without a sanitizer more inputs are tried.
    let sanitizer = if target == "shard" { "address" } else { "none" };
    let lane = Lane::new(target, "cargo +nightly fuzz run --sanitizer")
        .and(sanitizer)
        .and("--target-dir")
        .word(target_base().join("fuzz").display().to_string())
        .and(target)
        .word(corpus.display().to_string())
        .and(&format!(
            "-- -max_total_time={seconds} -timeout=10 -rss_limit_mb=2048 -len_control=10 -print_final_stats=1"
        ))
        .limit(BUILD_MAX + Duration::from_secs(seconds));
    Ok(lane)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::TARGETS;
    use crate::lane::root;

    #[test]
    fn every_target_is_run() {
        let files = fs::read_dir(root().join("fuzz/fuzz_targets")).expect("a directory");
        let names = files
            .map(|file| file.expect("readable").path().file_stem().expect("a name").to_owned());
        let names: BTreeSet<_> = names.map(|name| name.into_string().expect("a name")).collect();
        assert_eq!(names, TARGETS.map(str::to_owned).into());
    }
}
