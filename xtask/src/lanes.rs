//! Every lane of every command: to add one, add an entry.

use std::time::Duration;

use crate::lane::{Lane, target_base};

/// More than any lane of the tests takes on a slow machine.
const TEST_MAX: Duration = Duration::from_secs(20 * 60);

const DENY_WARNINGS: &str = "-D warnings";
/// How many times as many random operations the long lane asks of the property and stress tests.
const LONG: &str = "50";
/// Seeds of the long run of shuttle; the short one has ten.
const LONG_SEEDS: &str = "1000";
const LOOM: &str = "--cfg loom";
const SHUTTLE: &str = "--cfg shuttle";
/// `crossbeam-epoch` shows itself to loom only under a flag of its own.
const LOOM_EPOCH: &str = "--cfg loom --cfg crossbeam_loom";
/// How Miri runs: epochs keep garbage until the end, alias as tree borrows allow, and keep marks in pointers. Each seed is
/// another schedule.
macro_rules! miri {
    ($seeds:literal) => {
        concat!(
            "-Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-disable-isolation -Zmiri-permissive-provenance ",
            "-Zmiri-many-seeds=",
            $seeds
        )
    };
}

/// Everything that must hold before a change is done, the quick ones first.
pub(crate) fn test() -> Vec<Lane> {
    let mut lanes: Vec<Lane> = looks().map(Lane::beside_others).into();
    lanes.extend([
        Lane::new(
            "tests",
            "cargo test --workspace --exclude loom-tests --exclude shuttle-tests --features corewheel/metrics,corewheel/origins,corewheel/tracing \
             --locked",
        ),
        long_tests().env("COREWHEEL_TEST_SCALE", LONG),
    ]);
    lanes.extend(examples());
    lanes.extend(integrations());
    // A model's threads take turns on one core, in shuttle and the simulator as well; and of what measures no figure is kept.
    let models =
        loom().into_iter().chain([shuttle(), simulator().and("--minutes 1 --json").verdict()]);
    lanes.extend(models.chain(benches()).map(Lane::beside_others));
    lanes.into_iter().map(|lane| lane.limit(TEST_MAX)).collect()
}

/// All tests of the library as its users run it, with more to do.
fn long_tests() -> Lane {
    Lane::new(
        "tests, long",
        "cargo test --release -p corewheel --features fd,metrics,tracing --tests --locked",
    )
}

/// What needs no run of the library.
fn looks() -> [Lane; 13] {
    [
        Lane::new("format", "cargo fmt --all --check"),
        Lane::new("format, fuzz targets", "cargo fmt --manifest-path fuzz/Cargo.toml --check"),
        // What comes next leaves half of the machine to it.
        long_tests().named("tests, long: build").and("--no-run"),
        Lane::new(
            "clippy",
            "cargo clippy --workspace --all-targets --features corewheel/metrics,corewheel/origins,corewheel/tracing --locked -- -D warnings",
        ),
        Lane::new(
            "clippy, loom",
            "cargo clippy -p loom-tests --all-targets --locked -- -D warnings",
        )
        .env("RUSTFLAGS", LOOM)
        .target("loom"),
        Lane::new(
            "clippy, loom with epochs",
            "cargo clippy -p loom-tests --all-targets --features epoch --locked -- -D warnings",
        )
        .env("RUSTFLAGS", LOOM_EPOCH)
        .target("loom-epoch"),
        Lane::new(
            "clippy, shuttle",
            "cargo clippy -p shuttle-tests --all-targets --locked -- -D warnings",
        )
        .env("RUSTFLAGS", SHUTTLE)
        .target("shuttle"),
        Lane::new("licences", "cargo xtask licences --here"),
        Lane::new(
            "wheel alone, no_std: clippy",
            "cargo clippy -p corewheel --no-default-features --all-targets --locked -- -D warnings",
        ),
        Lane::new(
            "wheel alone, no_std: build",
            "cargo build -p corewheel --no-default-features --locked",
        ),
        Lane::new("docs", "cargo doc --workspace --no-deps --locked")
            .env("RUSTDOCFLAGS", DENY_WARNINGS),
        docs("docs of the wheel alone", "--no-default-features"),
        docs("docs with all features", "--features fd,metrics,origins,tracing"),
    ]
}

/// The library's docs with other features, each beside the others.
fn docs(name: &'static str, features: &str) -> Lane {
    let lane = Lane::new(name, "cargo doc -p corewheel --no-deps --locked");
    lane.and(features).env("RUSTDOCFLAGS", DENY_WARNINGS).target("doc-features")
}

/// That everything which measures runs; the figures are thrown away.
fn benches() -> Vec<Lane> {
    vec![
        Lane::new("benches run", "cargo bench -p corewheel-bench --locked -- --test"),
        Lane::new(
            "compare runs",
            "cargo run --release -p corewheel-bench --bin compare --locked -- --quick --n 1000 --workload churn \
             --workload drain --workload steady --workload within --workload spread --workload async --workload asked",
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
        Lane::new(
            "example: delayed_requests",
            "cargo run --release --locked -p corewheel-demos --bin delayed_requests -- --json --partitions 16 --groups 16 --duration 8",
        )
        .verdict(),
        Lane::new(
            "demo: ttl_cache",
            "cargo run --release --locked -p corewheel-demos --bin ttl_cache -- --self-check --json --expiring 200000",
        )
        .verdict(),
        Lane::new("example: mio_loop", "cargo run --release --locked --example mio_loop"),
        Lane::new("example: timer_fd", "cargo run --release --locked --features fd --example timer_fd"),
    ]
}

/// The examples of `integrations/`, each held to its own verdict.
fn integrations() -> Vec<Lane> {
    vec![
        Lane::new(
            "integration: io-uring/idle",
            "cargo run --release --locked -p corewheel-io-uring --example idle",
        ),
        Lane::new(
            "integration: tokio/per_core",
            "cargo run --release --locked -p corewheel-tokio --example per_core",
        ),
        Lane::new(
            "integration: tokio/work_stealing",
            "cargo run --release --locked -p corewheel-tokio --example work_stealing",
        ),
        Lane::new(
            "integration: compio/echo",
            "cargo run --release --locked -p corewheel-compio --example echo",
        ),
    ]
}

/// The loom models, those that need no epoch apart from those that do, of which two take half of the time. The longer ones first, as
/// they run side by side.
pub(crate) fn loom() -> Vec<Lane> {
    explored().map(Lane::beside_others).into()
}

fn explored() -> [Lane; 3] {
    let [plain, epochs] = models().map(|lane| lane.and("-- --nocapture"));
    let epochs = epochs.target("loom-epoch");
    let drains = epochs.clone().named("loom with epochs, drains").and("_last_drain_");
    [drains, epochs.and("--skip _last_drain_"), plain.target("loom")]
}

fn models() -> [Lane; 2] {
    [
        Lane::new("loom", "cargo test --release -p loom-tests --locked").env("RUSTFLAGS", LOOM),
        Lane::new(
            "loom with epochs",
            "cargo test --release -p loom-tests --features epoch --locked",
        )
        .env("RUSTFLAGS", LOOM_EPOCH),
    ]
}

/// The loom models without a bound on preemptions, each for so many minutes.
pub(crate) fn loom_exhaustive(minutes: u64) -> Vec<Lane> {
    let unbound = |lane: Lane| {
        lane.unset("LOOM_MAX_PREEMPTIONS").env("COREWHEEL_LOOM_EXHAUSTIVE", &minutes.to_string())
    };
    explored().map(unbound).into()
}

/// Four threads and hundreds of timers in random interleavings, a few of them.
pub(crate) fn shuttle() -> Lane {
    Lane::new("shuttle", "cargo test --release -p shuttle-tests --locked -- --nocapture")
        .env("RUSTFLAGS", SHUTTLE)
        .target("shuttle")
}

/// The same, many of them.
pub(crate) fn shuttle_long() -> Vec<Lane> {
    vec![shuttle().env("COREWHEEL_SHUTTLE_SEEDS", LONG_SEEDS)]
}

/// Four cores in virtual time, with every fault, held to a model.
pub(crate) fn simulator() -> Lane {
    Lane::new("simulate", "cargo run --release --locked -p corewheel-simulator --bin simulate --")
}

/// What Miri interprets: the library's unit tests; those of them with threads, `unsafe` or atomics and short races, in 16 schedules;
/// and then all as two other kinds of machine would run them. (What has one thread and no `unsafe` does the same under every seed.)
pub(crate) fn miri() -> Vec<Lane> {
    let lane = |name, command, flags| {
        // A backtrace is interpreted as well, and takes minutes.
        Lane::new(name, command).env("MIRIFLAGS", flags).env("RUST_BACKTRACE", "0").target("miri")
    };
    vec![
        lane(
            "miri: unit tests",
            "cargo +nightly miri test -p corewheel --lib --locked",
            miri!("0..1"),
        ),
        lane(
            "miri: what threads share",
            "cargo +nightly miri test -p corewheel --lib --locked -- callback:: gate:: gauges:: mailbox:: parcel:: parker:: reclaim:: \
             shard:: shared:: slab:: state::",
            miri!("0..16"),
        ),
        lane(
            "miri: races",
            "cargo +nightly miri test -p corewheel --test races --locked",
            miri!("0..16"),
        ),
        lane(
            "miri: 32 bits",
            "cargo +nightly miri test -p corewheel --lib --test races --locked --target i686-unknown-linux-gnu",
            miri!("0..1"),
        ),
        lane(
            "miri: big endian",
            "cargo +nightly miri test -p corewheel --lib --test races --locked --target s390x-unknown-linux-gnu",
            miri!("0..1"),
        ),
    ]
}

/// The programs of `tests/` in which threads meet, for the sanitizers.
const THREADED: [&str; 5] = ["across_cores", "api", "history", "races", "stress"];

/// The tests with threads, under a sanitizer, and not those of the wheel, which has neither threads nor `unsafe`, nor what one thread
/// does at random and a model knows: without `--target`, build scripts and macros would be built with it as well. One test leaks, as its
/// name says.
fn sanitized(name: &'static str, cargo: &'static str) -> Lane {
    let lane = Lane::new(name, cargo)
        .and("-p corewheel --features fd --locked --target x86_64-unknown-linux-gnu --lib --test");
    lane.and(&THREADED.join(" --test ")).and("-- --skip wheel:: --skip _model:: --skip has_leaked")
}

/// `AddressSanitizer`: memory that is used after it was freed, or never freed.
pub(crate) fn asan() -> Vec<Lane> {
    vec![
        sanitized("asan", "cargo +nightly test")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("LSAN_OPTIONS", "suppressions=xtask/lsan.supp")
            .target("asan"),
    ]
}

/// `ThreadSanitizer`: accesses that nothing orders. The standard library is built with it, or every lock would be unknown to it.
pub(crate) fn tsan() -> Vec<Lane> {
    vec![
        sanitized("tsan", "cargo +nightly test -Zbuild-std")
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            .target("tsan"),
    ]
}

/// That the oldest supported Rust builds the library: with all that is public, and the wheel alone.
pub(crate) fn msrv() -> Vec<Lane> {
    vec![
        Lane::new(
            "oldest Rust",
            "cargo +1.88 check -p corewheel --features fd,metrics,origins,tracing --locked",
        )
        .target("msrv"),
        Lane::new(
            "oldest Rust, no_std",
            "cargo +1.88 check -p corewheel --no-default-features --locked",
        )
        .target("msrv"),
    ]
}

/// The package as others would get it, and its tests from there.
pub(crate) fn package() -> Vec<Lane> {
    let unpacked = concat!("package/corewheel-", env!("CARGO_PKG_VERSION"), "/Cargo.toml");
    vec![
        Lane::new("publish, dry run", "cargo publish --dry-run -p corewheel --locked"),
        Lane::new(
            "tests of the package",
            "cargo test --features fd,metrics,tracing --locked --manifest-path",
        )
        .word(target_base().join(unpacked).display().to_string()),
    ]
}

/// What a broken library is shown to, the quick ones first; see `breakage`.
pub(crate) fn proving() -> Vec<Lane> {
    let [plain, epochs] = models().map(|lane| lane.env("COREWHEEL_LOOM_NO_FLOOR", "1"));
    vec![
        Lane::new("unit", "cargo test -p corewheel --features fd --locked --lib").target("break/debug").env("CARGO_INCREMENTAL", "1"),
        plain.target("break/loom").env("CARGO_INCREMENTAL", "1"),
        Lane::new(
            "tests",
            "cargo test -p corewheel --features fd,metrics,tracing --locked --test races --test across_cores --test api --test memory --test stress \
             --test shard_limit --test exports",
        )
        .target("break/debug"),
        Lane::new("shuttle", "cargo test --release -p shuttle-tests --locked --test everything")
            .env("RUSTFLAGS", SHUTTLE)
            .target("break/shuttle"),
        epochs.target("break/loom-epoch").env("CARGO_INCREMENTAL", "1"),
        Lane::new("miri", "cargo +nightly miri test -p corewheel --locked --lib --test races")
            .env("MIRIFLAGS", miri!("0..4"))
            .env("RUST_BACKTRACE", "0")
            .target("break/miri"),
    ]
}

/// Tests of a lane: those of a file, or of a module in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Likely {
    pub(crate) file: &'static str,
    pub(crate) module: &'static str,
}

/// The tests which most likely notice what is broken in a source, to be run before the others.
pub(crate) fn likely<'of>(lane: &'of str, source: &'of str) -> impl Iterator<Item = Likely> + 'of {
    const TESTS: [(&str, &str, &str, &str); 17] = [
        ("loom", "src/clock/", "clock", ""),
        ("loom", "src/gate.rs", "guest", ""),
        ("loom", "src/guests.rs", "guest", ""),
        ("loom", "src/gauges/", "metrics", ""),
        ("loom", "src/local/", "sleep", ""),
        ("loom", "src/mailbox.rs", "mailbox", ""),
        ("loom", "src/parcel.rs", "guest", ""),
        ("loom", "src/parker.rs", "sleep", ""),
        ("loom", "src/purgatory/", "purgatory", ""),
        ("loom", "src/shard/messages.rs", "guest", ""),
        ("loom", "src/shared.rs", "reset", ""),
        ("loom", "src/state/", "cancel", ""),
        ("loom", "src/state/", "reset", ""),
        ("miri", "src/reclaim.rs", "races", ""),
        ("tests", "src/hooks.rs", "api", "callbacks::"),
        ("tests", "src/purgatory/", "api", "purgatory_cores::"),
        ("tests", "src/shard/end.rs", "api", "remote_end::"),
    ];
    let found =
        TESTS.iter().filter(move |&&(of, place, ..)| of == lane && source.starts_with(place));
    found.map(|&(.., file, module)| Likely { file, module })
}

/// Those of `proving` that take minutes.
pub(crate) const SLOW: [&str; 2] = ["loom with epochs", "miri"];

/// Whether one of `proving` cannot notice that an ordering in a source is weaker.
pub(crate) fn is_blind_to_ordering(lane: &str, source: &str) -> bool {
    match lane {
        // They run as this processor has it, or one after the other.
        "unit" | "tests" | "shuttle" => true,
        // The pointers there are `crossbeam-epoch`'s, and not loom's.
        "loom" => source == "src/reclaim.rs",
        // What its models are made of has none of these.
        "loom with epochs" => {
            let left_out =
                ["clock/", "gate.rs", "guests.rs", "parcel.rs", "parker.rs", "purgatory/"];
            left_out
                .iter()
                .any(|part| source.strip_prefix("src/").is_some_and(|file| file.starts_with(part)))
        }
        // Only what stands in for the standard library in loom's models has any there.
        "miri" => source == "src/sync.rs",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::Likely;
    use crate::lane::root;

    #[test]
    fn every_example_has_a_lane() {
        let lanes: BTreeSet<String> =
            super::examples().iter().map(|lane| lane.name.to_owned()).collect();
        // What they have in common is none.
        for example in
            names_in(&root().join("examples")).into_iter().filter(|name| name != "common")
        {
            assert!(
                lanes.contains(&format!("example: {example}")),
                "examples/{example} has no lane"
            );
        }
    }

    #[test]
    fn every_example_of_an_integration_has_a_lane() {
        let lanes: BTreeSet<String> =
            super::integrations().iter().map(|lane| lane.name.to_owned()).collect();
        for package in names_in(&root().join("integrations")) {
            for example in names_in(&root().join("integrations").join(&package).join("examples")) {
                assert!(
                    lanes.contains(&format!("integration: {package}/{example}")),
                    "integrations/{package}/examples/{example} has no lane"
                );
            }
        }
    }

    /// Or says why it need not be under a sanitizer.
    #[test]
    fn every_test_with_threads_is_under_the_sanitizers() {
        // They count allocations, measure pauses, fork, ask for more features, or for all shards there can be, which is more memory than
        // the machine has where each byte has shadows.
        const EXCUSED: [&str; 7] = [
            "exports",
            "fork",
            "idle_connections",
            "memory",
            "no_pauses",
            "origins",
            "shard_limit",
        ];
        for file in names_in(&root().join("tests")) {
            let source = source_of(&root().join("tests"), &file);
            let has_threads = ["thread::spawn", "thread::scope", "Cores::"]
                .iter()
                .any(|word| source.contains(word));
            let is_known =
                super::THREADED.contains(&file.as_str()) || EXCUSED.contains(&file.as_str());
            assert!(!has_threads || is_known, "tests/{file}.rs has threads and is in no list");
        }
    }

    /// All files of a test; nothing of what is none.
    fn source_of(tests: &Path, name: &str) -> String {
        let read = |file: PathBuf| fs::read_to_string(file).expect("readable");
        let directory = tests.join(name);
        if !directory.is_dir() {
            return read(tests.join(format!("{name}.rs")));
        }
        let files =
            if directory.join("main.rs").exists() { names_in(&directory) } else { Vec::new() };
        files.iter().map(|file| read(directory.join(format!("{file}.rs")))).collect()
    }

    /// What is in a directory, without extensions.
    fn names_in(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory)
            .expect("a directory")
            .map(|entry| entry.expect("readable").path());
        entries
            .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
            .collect()
    }

    /// Where the oldest Rust is named: here, for rustup, for cargo, and for readers.
    #[test]
    fn the_oldest_rust_is_the_declared_one() {
        let read = |file: &str| fs::read_to_string(root().join(file)).expect("readable");
        let manifest = read("Cargo.toml");
        let declared =
            manifest.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next());
        let declared = declared.expect("Cargo.toml declares it");
        assert!(
            super::msrv()
                .iter()
                .all(|lane| lane.to_string().contains(&format!("cargo +{declared} ")))
        );
        assert!(
            read("xtask/src/tools.rs").contains(&format!("rustup toolchain install {declared} "))
        );
        assert!(read("README.md").contains(&format!("minimum Rust version is {declared}")));
    }

    #[test]
    fn likely_tests_are_there() {
        let sources = [
            "src/clock/manual.rs",
            "src/gate.rs",
            "src/parker.rs",
            "src/purgatory/group.rs",
            "src/shard/end.rs",
        ];
        for source in sources {
            assert!(root().join(source).exists());
            let likely = [("loom", "loom-tests/tests"), ("tests", "tests")].map(|(lane, tests)| {
                super::likely(lane, source).all(|Likely { file, module }| {
                    match module.strip_suffix("::") {
                        Some(module) => root().join(format!("{tests}/{file}/{module}.rs")).exists(),
                        None => root().join(format!("{tests}/{file}.rs")).exists(),
                    }
                })
            });
            assert_eq!(likely, [true; 2]);
        }
        let files: Vec<&str> =
            super::likely("loom", "src/state/owner.rs").map(|likely| likely.file).collect();
        assert_eq!(files, ["cancel", "reset"]);
        assert_eq!(super::likely("shuttle", "src/gate.rs").count(), 0);
    }

    #[test]
    fn names_are_distinct() {
        let lanes = super::test();
        let names: BTreeSet<&str> = lanes.iter().map(|lane| lane.name).collect();
        assert_eq!(names.len(), lanes.len());
    }
}
