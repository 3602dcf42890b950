//! The table of lanes, `lanes.txt`, and the tools that lanes need.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
    time::Duration,
};

use crate::root;

/// One shell command with a name.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    /// The time after which it is killed.
    pub(crate) limit: Duration,
    /// Whether it may run at the same time as neighbours that may.
    pub(crate) beside: bool,
    /// The command, ready for a shell.
    pub(crate) command: String,
}

/// Returns every lane of the table.
pub(crate) fn all() -> &'static [Lane] {
    static LANES: LazyLock<Vec<Lane>> = LazyLock::new(|| parse(include_str!("../lanes.txt")));
    &LANES
}

/// Returns the names of the groups that are commands.
pub(crate) fn campaigns() -> Vec<&'static str> {
    let mut groups: Vec<_> = all().iter().map(|lane| lane.group).collect();
    groups.dedup();
    groups.retain(|group| !["test", "all", "break"].contains(group));
    groups
}

fn parse(table: &'static str) -> Vec<Lane> {
    let (mut lanes, mut group) = (Vec::<Lane>::new(), "");
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix('[') {
            group = heading.trim_end_matches(']');
        } else if let Some(command) = line.strip_prefix("    ") {
            let lane = lanes.last_mut().expect("a command follows the name of its lane");
            lane.command += if lane.command.is_empty() { "" } else { " " };
            lane.command += &expand(command);
        } else {
            let mut words = line.split(' ');
            let name = words.next().expect("split returns at least one word");
            let minutes: u64 = words.next().and_then(|word| word.parse().ok()).expect("minutes");
            let limit = Duration::from_secs(60 * minutes);
            let beside = words.next() == Some("beside");
            lanes.push(Lane { group, name, limit, beside, command: String::new() });
        }
    }
    lanes
}

impl Lane {
    /// Returns whether `test --all` runs it.
    pub(crate) fn is_test(&self) -> bool {
        matches!(self.group, "test" | "all")
    }

    /// Returns the first reason why it cannot run here, and whether that is a failure.
    pub(crate) fn obstacle(&self) -> Option<(String, bool)> {
        let names = |package: &str| self.command.contains(&format!("-p {package} "));
        if let Some((_, reason)) = unbuildable().iter().find(|(package, _)| names(package)) {
            return Some((reason.clone(), false));
        }
        // Only the tools that come with Rust are required.
        let is_needed = self.group == "test" && !self.command.contains("xtask cost");
        missing_tool(&self.command).map(|reason| (reason, is_needed))
    }
}

/// Returns why a command cannot run here, if it lacks a tool, and how to install it.
pub(crate) fn missing_tool(command: &str) -> Option<String> {
    let (_, probe, install) = TOOLS
        .into_iter()
        .find(|(word, probe, _)| command.contains(&expand(word)) && !succeeds(&expand(probe)))?;
    Some(format!("`{}` fails; install with: {}", expand(probe), expand(install)))
}

/// A part of a command that needs a tool, a command that succeeds if it is there, and one that
/// installs it.
const TOOLS: [(&str, &str, &str); 10] = [
    ("cargo fmt", "cargo fmt --version", "rustup component add rustfmt"),
    ("cargo clippy", "cargo clippy --version", "rustup component add clippy"),
    ("+nightly", "cargo +nightly --version", "rustup toolchain install nightly"),
    (
        " miri ",
        "cargo +nightly miri --version",
        "rustup component add --toolchain nightly miri rust-src",
    ),
    (
        "-Zbuild-std",
        "test -d $(rustc +nightly --print sysroot)/lib/rustlib/src/rust",
        "rustup component add --toolchain nightly rust-src",
    ),
    (" fuzz ", "cargo fuzz --version", "cargo install cargo-fuzz --locked"),
    ("cargo deny", "cargo deny --version", "cargo install cargo-deny --locked"),
    ("llvm-cov", "cargo llvm-cov --version", "cargo install cargo-llvm-cov --locked"),
    ("xtask cost", "valgrind --version", "apt-get install valgrind"),
    ("+$MSRV", "cargo +$MSRV --version", "rustup toolchain install $MSRV"),
];

fn succeeds(command: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}

/// Replaces the table's placeholders.
pub(crate) fn expand(command: &str) -> String {
    const MIRI: &str = "-Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-disable-isolation \
                        -Zmiri-permissive-provenance -Zmiri-many-seeds";
    // The programs of `tests/` for the sanitizers. The others count allocations, measure pauses, fork,
    // need more features, read the source, or need more memory than a sanitizer leaves.
    const SANITIZED: &str = r"$(ls tests/*.rs tests/*/main.rs | sed -E 's,tests/([^/.]+).*,--test \1,' |
        grep -vwE 'exports|fork|idle_connections|memory|no_pauses|origins|shard_limit|tidy')";
    const FEATURES: &str = "corewheel/fd,corewheel/metrics,corewheel/origins,corewheel/tracing";
    let command = command
        .replace("$TARGET", &target().to_string_lossy())
        .replace("$BREAK", &root().join(target()).join("break").to_string_lossy())
        .replace("$FEATURES", FEATURES)
        .replace("$MIRI", MIRI)
        .replace("$SANITIZED", SANITIZED)
        .replace("$VERSION", env!("CARGO_PKG_VERSION"))
        .replace("$MSRV", env!("CARGO_PKG_RUST_VERSION"));
    let excluded = unbuildable().iter().map(|(package, _)| format!(" --exclude {package}"));
    command.replace(" --workspace", &format!(" --workspace{}", excluded.collect::<String>()))
}

/// Returns the directory that cargo builds in, as its caller has named it.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// Returns the files and directories from which cargo makes a program each.
pub(crate) fn programs(directory: &Path) -> Vec<PathBuf> {
    let mut paths = entries(directory);
    paths.retain(|path| {
        path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists()
    });
    paths
}

/// Returns each package of the workspace that cannot be built here, with the reason to skip it: it needs a newer Rust, or its
/// manifest names a tool that is not installed.
pub(crate) fn unbuildable() -> &'static [(String, String)] {
    static PACKAGES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
        let output = Command::new("rustc").arg("--version").output().expect("rustc runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let directories = entries(root()).into_iter().chain(entries(&root().join("integrations")));
        let manifests =
            directories.filter_map(|path| fs::read_to_string(path.join("Cargo.toml")).ok());
        let reasons = manifests.filter_map(|manifest| {
            let reason = reason_to_skip(&manifest, &version)?;
            Some((value(&manifest, "name")?.to_owned(), reason))
        });
        reasons.collect()
    });
    &PACKAGES
}

fn reason_to_skip(manifest: &str, version: &str) -> Option<String> {
    let is_missing = |tool: &&str| !succeeds(&format!("command -v {tool}"));
    let too_new = value(manifest, "rust-version").filter(|needs| minor(needs) > minor(version));
    let tool = value(manifest, "needs-tools").and_then(|tools| tools.split(' ').find(is_missing));
    let too_new = too_new.map(|needs| format!("needs Rust {needs}, this is {version}"));
    too_new.or_else(|| tool.map(|tool| format!("needs the tool `{tool}`")))
}

/// Returns the value of a key of a manifest, if it is a string.
fn value<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    manifest.split_once(&format!("\n{key} = \""))?.1.split('"').next()
}

/// Returns the second number of a version of Rust.
fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

/// Returns what is in a directory, in order; nothing if there is none.
pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Returns a file's name without its extension.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().expect("a path with a name").to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_commands_and_distinct_names() {
        for lane in all() {
            assert!(!lane.group.is_empty() && !lane.command.is_empty(), "{}", lane.name);
            let is_same = |other: &&Lane| (other.group, other.name) == (lane.group, lane.name);
            assert_eq!(all().iter().filter(is_same).count(), 1, "{}", lane.name);
        }
    }

    #[test]
    fn every_example_and_demo_has_a_lane() {
        let packages = entries(&root().join("integrations")).into_iter().chain([root().to_owned()]);
        let examples = packages.flat_map(|package| programs(&package.join("examples")));
        for path in examples.chain(programs(&root().join("demos"))) {
            let name = stem(&path);
            let runs = |pair: &[&str]| matches!(pair[0], "--example" | "--bin") && pair[1] == name;
            let has_lane = all()
                .iter()
                .any(|lane| lane.command.split(' ').collect::<Vec<_>>().windows(2).any(runs));
            assert!(has_lane, "{} has no lane", path.display());
        }
    }

    #[test]
    fn the_readme_names_the_minimum_rust() {
        let readme = fs::read_to_string(root().join("README.md")).expect("readable");
        assert!(readme.contains(&expand("minimum Rust version is $MSRV")));
    }

    #[test]
    fn a_package_is_skipped_for_a_newer_rust_or_a_missing_tool() {
        let reason = |key: &str, value: &str| {
            reason_to_skip(&format!("[package]\nname = \"a\"\n{key} = \"{value}\"\n"), "1.90.1")
        };
        assert_eq!(reason("rust-version", "1.90"), None);
        assert!(reason("rust-version", "1.91").is_some_and(|reason| reason.contains("1.91")));
        assert_eq!(reason("needs-tools", "sh cargo"), None);
        let missing = reason("needs-tools", "sh no-such-tool");
        assert!(missing.is_some_and(|reason| reason.contains("no-such-tool")));
    }

    #[test]
    fn packages_to_publish_describe_themselves() {
        let published =
            entries(&root().join("integrations")).into_iter().chain([root().to_owned()]);
        for path in published {
            let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("readable");
            let name = value(&manifest, "name").expect("a name");
            assert!(!manifest.contains("publish = false"), "{name}");
            assert!(value(&manifest, "description").is_some(), "{name} has no description");
            let documentation = format!("https://docs.rs/{name}");
            assert_eq!(value(&manifest, "documentation"), Some(&documentation[..]));
            for key in ["license.workspace = true", "keywords = [", "categories = ["] {
                assert!(manifest.contains(&format!("\n{key}")), "{name} has no {key}");
            }
            let has_lane = all().iter().any(|lane| {
                lane.command.contains("publish") && lane.command.contains(&format!("-p {name} "))
            });
            assert!(has_lane, "{name} is packed by no lane");
        }
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(minor("1.100.0") > minor("1.88"));
    }
}
