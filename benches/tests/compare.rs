//! The program itself: what it writes can be read.

use std::{fs, path::Path, process::Command};

use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Line {
    peer: String,
    workload: String,
    n: usize,
    unit: String,
    median: f64,
    min: f64,
    max: f64,
}

/// What `compare` writes with these arguments.
fn compare(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_compare")).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn json_lines_and_plots_come_out() {
    let plots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plots");
    let mut compare = Command::new(env!("CARGO_BIN_EXE_compare"));
    compare.args([
        "--quick",
        "--json",
        "--n",
        "1000",
        "--n",
        "10000",
        "--peer",
        "corewheel-shard",
        "--peer",
        "btree",
    ]);
    compare.args(["--workload", "churn", "--workload", "spread", "--plots"]).arg(&plots);
    let output = compare.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Line> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        assert!(0.0 < line.min && line.min <= line.median && line.median <= line.max, "{line:?}");
    }
    for peer in ["corewheel-shard", "btree"] {
        let has = |workload: &str, n: usize, unit: &str| {
            let of_peer = lines.iter().filter(|line| line.peer == peer);
            of_peer
                .filter(|line| {
                    (line.workload.as_str(), line.n, line.unit.as_str()) == (workload, n, unit)
                })
                .count()
                == 1
        };
        assert!(has("churn", 1000, "ns") && has("churn", 10_000, "ns"), "{peer}: {text}");
        assert!(has("spread-most-1s", 100_000, "timers"), "{peer}: {text}");
    }
    for plot in ["churn.svg", "spread-most.svg"] {
        let svg = fs::read_to_string(plots.join(plot)).expect(plot);
        assert!(svg.starts_with("<svg") && svg.contains("corewheel-shard"), "{plot}");
    }
    fs::remove_dir_all(plots).expect("ours");
}

/// Those of another kind are left out, and a floor is held against.
#[test]
fn two_cores_come_out() {
    let peers = [
        "--peer",
        "btree",
        "--peer",
        "corewheel-shard",
        "--peer",
        "floor",
        "--peer",
        "stack",
        "--peer",
        "ring",
    ];
    let workloads = ["--workload", "xcancel", "--workload", "mailbox", "--workload", "scaling"];
    let text = compare(&[&["--quick", "--n", "1000"], &peers[..], &workloads[..]].concat());
    for title in [
        "## xcancel, ns",
        "## xcancel-both-call, ns",
        "## mailbox-push, ns",
        "## scaling-share, times",
    ] {
        assert!(text.contains(title), "{title}: {text}");
    }
    assert!(
        text.contains("corewheel-shard, times its floor")
            && text.contains("stack, times its floor"),
        "{text}"
    );
    assert!(!text.contains("btree |") && text.contains("Not in scaling: floor (is what"), "{text}");
}
