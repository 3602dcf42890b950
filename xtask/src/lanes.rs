//! Every lane of every command: to add one, add an entry.

use crate::lane::Lane;

const DENY_WARNINGS: &str = "-D warnings";
/// How many times as many random operations the long lane asks of the property and stress tests.
const LONG: &str = "100";
const LOOM: &str = "--cfg loom";
/// `crossbeam-epoch` shows itself to loom only under a flag of its own.
const LOOM_EPOCH: &str = "--cfg loom --cfg crossbeam_loom";
/// Several seeds, each another schedule; epochs keep garbage until the end and alias as tree borrows allow.
const MIRI: &str = "-Zmiri-many-seeds=0..4 -Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-disable-isolation";

/// Everything that must hold before a change is done, the quick ones first.
pub(crate) fn test() -> Vec<Lane> {
    let mut lanes = vec![
        Lane::new("format", "cargo fmt --all --check"),
        Lane::new("clippy", "cargo clippy --workspace --all-targets --locked -- -D warnings"),
        Lane::new("clippy, loom", "cargo clippy -p loom-tests --all-targets --locked -- -D warnings")
            .env("RUSTFLAGS", LOOM)
            .target("loom"),
        Lane::new(
            "clippy, loom with epochs",
            "cargo clippy -p loom-tests --all-targets --features epoch --locked -- -D warnings",
        )
        .env("RUSTFLAGS", LOOM_EPOCH)
        .target("loom-epoch"),
        Lane::new(
            "wheel alone, no_std: clippy",
            "cargo clippy -p corewheel --no-default-features --locked -- -D warnings",
        ),
        Lane::new("wheel alone, no_std: build", "cargo build -p corewheel --no-default-features --locked"),
        Lane::new("docs", "cargo doc --workspace --no-deps --locked").env("RUSTDOCFLAGS", DENY_WARNINGS),
        Lane::new("tests", "cargo test --workspace --exclude loom-tests --locked"),
        Lane::new("tests, long", "cargo test --release -p corewheel --tests --locked")
            .env("COREWHEEL_TEST_SCALE", LONG),
    ];
    lanes.extend(examples());
    lanes.extend(loom());
    lanes.extend(benches());
    lanes
}

/// That everything which measures runs; the figures are thrown away.
fn benches() -> Vec<Lane> {
    vec![
        Lane::new("benches run", "cargo bench -p corewheel-bench --locked -- --test"),
        Lane::new(
            "compare runs",
            "cargo run --release -p corewheel-bench --bin compare --locked -- --quick --n 1000 --workload churn \
             --workload drain --workload steady --workload within --workload spread",
        ),
        Lane::new(
            "schemes run",
            "cargo run --release -p corewheel-bench --bin compare --locked -- --quick --schemes",
        ),
    ]
}

/// Each example under a small load, held to its own verdict.
fn examples() -> Vec<Lane> {
    vec![
        Lane::new(
            "example: idle_timeouts",
            "cargo run --release --locked --example idle_timeouts -- --json --connections 1000",
        )
        .verdict(),
    ]
}

/// The loom models, those that need no epoch apart from those that do.
pub(crate) fn loom() -> Vec<Lane> {
    vec![
        Lane::new("loom", "cargo test --release -p loom-tests --locked -- --nocapture")
            .env("RUSTFLAGS", LOOM)
            .target("loom"),
        Lane::new("loom with epochs", "cargo test --release -p loom-tests --features epoch --locked -- --nocapture")
            .env("RUSTFLAGS", LOOM_EPOCH)
            .target("loom-epoch"),
    ]
}

/// The loom models without a bound on preemptions.
pub(crate) fn loom_exhaustive() -> Vec<Lane> {
    let unbound = |lane: Lane| lane.unset("LOOM_MAX_PREEMPTIONS").env("COREWHEEL_LOOM_EXHAUSTIVE", "1");
    loom().into_iter().map(unbound).collect()
}

/// The library's unit tests in the interpreter.
pub(crate) fn miri() -> Vec<Lane> {
    vec![
        Lane::new("miri", "cargo +nightly miri test -p corewheel --lib --locked")
            .env("MIRIFLAGS", MIRI)
            .target("miri"),
    ]
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use crate::lane::root;

    #[test]
    fn every_example_has_a_lane() {
        let lanes: BTreeSet<String> = super::examples().iter().map(|lane| lane.name.to_owned()).collect();
        for entry in fs::read_dir(root().join("examples")).expect("the repository has examples") {
            let path = entry.expect("readable").path();
            let example = path.file_stem().expect("a name").to_string_lossy();
            assert!(lanes.contains(&format!("example: {example}")), "examples/{example} has no lane");
        }
    }

    #[test]
    fn names_are_distinct() {
        let lanes = super::test();
        let names: BTreeSet<&str> = lanes.iter().map(|lane| lane.name).collect();
        assert_eq!(names.len(), lanes.len());
    }
}
