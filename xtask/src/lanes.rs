//! The table of lanes, which are the shell commands of `lanes.txt`, and the tools that lanes need.

use std::{env, path::PathBuf, sync::LazyLock, time::Duration};

use serde_json::Value;

use crate::{process::stdout_of, root};

#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) limit: Duration,
    /// True if the lane may run in parallel with adjacent parallel lanes.
    pub(crate) is_parallel: bool,
    pub(crate) command: String,
}

struct Table {
    lanes: Vec<Lane>,
    /// For each tool: text in a command that needs it, a command that succeeds if the tool is
    /// installed, and a command that installs it.
    tools: Vec<[String; 3]>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| parse(include_str!("../lanes.txt")));

pub(crate) fn all_lanes() -> &'static [Lane] {
    &TABLE.lanes
}

/// Returns the names of the groups that are commands of their own.
pub(crate) fn command_groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = all_lanes().iter().map(|lane| lane.group).collect();
    groups.dedup();
    groups.retain(|group| !["test", "all", "break"].contains(group));
    groups
}

fn parse(table: &'static str) -> Table {
    let (mut lanes, mut tools, mut group) = (Vec::<Lane>::new(), Vec::new(), "");
    let mut words = vec![
        ("$TARGET", target_directory().display().to_string()),
        ("$BREAK", root().join(target_directory()).join("break").display().to_string()),
        ("$VERSION", env!("CARGO_PKG_VERSION").to_owned()),
        ("$MSRV", env!("CARGO_PKG_RUST_VERSION").to_owned()),
    ];
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut expanded = line.to_owned();
        for (word, value) in &words {
            expanded = expanded.replace(word, value);
        }
        if let Some(heading) = line.strip_prefix('[') {
            group = heading.trim_end_matches(']');
        } else if group == "words" {
            let (word, value) = line.split_once(' ').expect("a word has a meaning");
            words.push((word, value.to_owned()));
        } else if group == "tools" {
            let mut parts = expanded.split(" | ").map(str::to_owned);
            tools.push([(); 3].map(|()| parts.next().expect("a tool has three parts")));
        } else if let Some(command) = expanded.strip_prefix("    ") {
            let lane = lanes.last_mut().expect("a command follows the name of its lane");
            lane.command += if lane.command.is_empty() { "" } else { " " };
            lane.command += command;
        } else {
            let mut words = line.split(' ');
            let name = words.next().expect("split returns at least one word");
            let minutes: u64 = words.next().and_then(|word| word.parse().ok()).expect("minutes");
            let limit = Duration::from_secs(60 * minutes);
            let is_parallel = words.next() == Some("parallel");
            lanes.push(Lane { group, name, limit, is_parallel, command: String::new() });
        }
    }
    let excluded = UNBUILDABLE_PACKAGES.iter().map(|(package, _)| format!(" --exclude {package}"));
    let workspace = format!(" --workspace{}", excluded.collect::<String>());
    for lane in &mut lanes {
        lane.command = lane.command.replace(" --workspace", &workspace);
    }
    let expand_package = |lane: Lane| {
        let names =
            if lane.name == "$PACKAGE" { integration_directories() } else { vec![lane.name] };
        let command = move |name| lane.command.replace("$PACKAGE", name);
        names.into_iter().map(move |name| Lane { name, command: command(name), ..lane })
    };
    Table { lanes: lanes.into_iter().flat_map(expand_package).collect(), tools }
}

/// Returns the directories of the packages below `integrations/`.
fn integration_directories() -> Vec<&'static str> {
    let name = |package: &'static Value| {
        let path = package["manifest_path"].as_str()?.strip_suffix("/Cargo.toml")?;
        Some(path.rsplit_once("/integrations/")?.1)
    };
    PACKAGES.iter().filter_map(name).collect()
}

impl Lane {
    pub(crate) fn is_test(&self) -> bool {
        matches!(self.group, "test" | "all")
    }

    /// Returns the first reason why the lane cannot run here, and whether that is a failure.
    pub(crate) fn reason_not_to_run(&self) -> Option<(String, bool)> {
        let names = |package: &str| self.command.contains(&format!("-p {package} "));
        if let Some((_, reason)) = UNBUILDABLE_PACKAGES.iter().find(|(package, _)| names(package)) {
            return Some((reason.clone(), false));
        }
        // In the group `test`, a missing tool is a failure, because these tools come with Rust.
        // Only `cost` needs another tool, valgrind.
        let is_needed = self.group == "test" && !self.command.contains("xtask cost");
        missing_tool(&self.command).map(|reason| (reason, is_needed))
    }
}

/// Returns which tool of a command is missing, and how to install it.
pub(crate) fn missing_tool(command: &str) -> Option<String> {
    let is_missing =
        |[part, probe, _]: &&[String; 3]| command.contains(part) && stdout_of(probe).is_err();
    let [_, probe, install] = TABLE.tools.iter().find(is_missing)?;
    Some(format!("`{probe}` fails; install with: {install}"))
}

/// Returns the target directory of cargo, absolute or relative to the root.
pub(crate) fn target_directory() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

pub(crate) static PACKAGES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let json =
        stdout_of("cargo metadata --no-deps --format-version 1 --locked").expect("cargo runs");
    let metadata: Value = serde_json::from_str(&json).expect("valid JSON");
    metadata["packages"].as_array().expect("packages").clone()
});

/// The packages of the workspace that cannot be built here, each with the reason: it needs a newer
/// Rust, or its manifest names a tool that is not installed.
pub(crate) static UNBUILDABLE_PACKAGES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let rustc = stdout_of("rustc --version").expect("rustc runs");
    let version = rustc.split(' ').nth(1).unwrap_or_default();
    let reason = |package: &Value| {
        let name = package["name"].as_str()?;
        Some((name.to_owned(), reason_to_skip(package, version)?))
    };
    PACKAGES.iter().filter_map(reason).collect()
});

fn reason_to_skip(package: &Value, version: &str) -> Option<String> {
    let numbers = |version: &str| -> Vec<u32> {
        version.split(['.', '-']).map_while(|number| number.parse().ok()).collect()
    };
    if let Some(minimum_rust) = package["rust_version"].as_str()
        && numbers(minimum_rust) > numbers(version)
    {
        return Some(format!("needs Rust {minimum_rust}, this is {version}"));
    }
    let mut tools = package["metadata"]["xtask"]["needs-tools"].as_str()?.split(' ');
    let missing = tools.find(|tool| stdout_of(&format!("command -v {tool}")).is_err())?;
    Some(format!("needs the tool `{missing}`"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::process::shell_command;

    #[test]
    fn a_lane_fails_if_its_tool_fails() {
        // Not in the root, because the lane `lateness` rewrites a file.
        let directory = root().join(target_directory()).join("failing-lanes");
        fs::create_dir_all(directory.join("doc")).expect("writable");
        fs::write(directory.join("doc/lateness.md"), "").expect("writable");
        // The lane `semver` passes if there is no release.
        for lane in all_lanes().iter().filter(|it| it.group != "break" && it.name != "semver") {
            let tools = if lane.command.contains("valgrind --tool") {
                "cargo() { true; }; valgrind() { false; };"
            } else {
                "cargo() { false; };"
            };
            let mut shell = shell_command(&format!("{tools} {}", lane.command));
            let output = shell.current_dir(&directory).output().expect("started");
            assert!(!output.status.success(), "{} passes", lane.name);
        }
    }

    #[test]
    fn every_example_and_demo_has_a_lane() {
        let targets = PACKAGES.iter().filter_map(|package| package["targets"].as_array());
        for target in targets.flatten() {
            let (kind, name) = (&target["kind"][0], target["name"].as_str().expect("a name"));
            let path = target["src_path"].as_str().expect("a path");
            let words = match kind.as_str() {
                Some("example") if !path.contains("/integrations/") => format!("--example {name} "),
                Some("bin") if path.contains("/demos/") => format!("--bin {name} "),
                _ => continue,
            };
            let has_lane =
                all_lanes().iter().any(|lane| format!("{} ", lane.command).contains(&words));
            assert!(has_lane, "{path} has no lane");
        }
    }

    #[test]
    fn the_readme_names_the_minimum_rust() {
        let readme = fs::read_to_string(root().join("README.md")).expect("readable");
        let minimum = concat!("minimum Rust version is ", env!("CARGO_PKG_RUST_VERSION"));
        assert!(readme.contains(minimum));
    }

    #[test]
    fn a_package_is_skipped_for_a_newer_rust_or_a_missing_tool() {
        for (rust, tools, expected) in [
            ("1.90", "sh cargo", None),
            ("1.100", "sh", Some("needs Rust 1.100, this is 1.90.1")),
            ("1.90.2", "sh", Some("needs Rust 1.90.2, this is 1.90.1")),
            ("1.90.1", "sh no-such-tool", Some("needs the tool `no-such-tool`")),
        ] {
            let metadata = json!({ "xtask": { "needs-tools": tools } });
            let package = json!({ "rust_version": rust, "metadata": metadata });
            assert_eq!(reason_to_skip(&package, "1.90.1").as_deref(), expected);
        }
    }

    #[test]
    fn published_packages_have_metadata_and_a_lane() {
        for package in PACKAGES.iter() {
            let name = package["name"].as_str().expect("a name");
            let path = package["manifest_path"].as_str().expect("a path");
            if name != "corewheel" && !path.contains("/integrations/") {
                continue;
            }
            assert!(package["publish"].is_null(), "{name} is not published");
            assert_eq!(package["documentation"], format!("https://docs.rs/{name}"));
            for key in ["description", "license"] {
                assert!(package[key].is_string(), "{name} has no {key}");
            }
            for key in ["keywords", "categories"] {
                assert_ne!(package[key], json!([]), "{name} has no {key}");
            }
            let option = format!("-p {name} ");
            let publishes =
                |it: &Lane| it.command.contains("publish") && it.command.contains(&option);
            let has_lane = all_lanes().iter().any(publishes);
            assert!(has_lane, "no lane packages {name}");
        }
    }
}
