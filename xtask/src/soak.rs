//! The example `idle_timeouts` at full load for a long time. Fails if its verdict is not ok, if its
//! memory grows after the warm-up, or if its timers fire later in the second half of the run.

use std::{
    fs::{self, File},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::Value;

use crate::{
    lanes,
    process::{output, shell, supervise},
    root,
};

/// As many connections as 20,000 open files allow, each with three packets a second. That keeps two
/// cores a third busy. Load and server share the cores, so the limit of lateness is a wide one.
const LOAD: &str = "--json --connections 9000 --idle-ms 1000 --late-limit-ms 100";

/// Connections are made in the first sixth of a run and have all talked a while later. The wheels
/// touch new slots for two minutes more.
const WARM: f64 = 0.3;
/// Memory must not grow in the last part of a run.
const END: f64 = 0.75;

/// Runs the example for some minutes. Returns whether memory and lateness stayed as they were.
pub(crate) fn run(minutes: &str) -> Result<bool> {
    let run = Duration::from_secs(60 * minutes.parse::<u64>()?);
    let build = "cargo build --release --features fd --locked --example idle_timeouts";
    let program = lanes::target().join("release/examples/idle_timeouts");
    let example = format!("{} {LOAD} --seconds {}", program.display(), run.as_secs());
    println!("    {build} && {example}");
    output(build)?;
    let log = root().join(lanes::target()).join("soak.json");
    let (start, mut samples) = (Instant::now(), Vec::new());
    let look = |process| {
        let share = start.elapsed().as_secs_f64() / run.as_secs_f64();
        samples.extend(resident_kib(process).map(|kib| (share, kib)));
        false
    };
    // The shell becomes the example.
    let mut example = shell(&format!("exec {example}"));
    let limit = run + Duration::from_secs(300);
    let ended = supervise(example.stdout(File::create(&log)?), limit, look)?;
    let verdict = fs::read_to_string(&log)?;
    println!("{verdict}");
    let is_ok = ended.is_some_and(|status| status.success());
    let verdict = serde_json::from_str(&verdict).unwrap_or_default();
    let complaints = [
        (!is_ok).then(|| "the example's verdict is not ok".to_owned()),
        growth(&samples),
        drift(&verdict, "p50", 500),
        drift(&verdict, "p99", 5_000),
    ];
    for complaint in complaints.iter().flatten() {
        println!("FAILED: {complaint}");
    }
    Ok(complaints.iter().all(Option::is_none))
}

/// Returns the memory of a process.
fn resident_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.split_once("VmRSS:")?.1.split_whitespace().next()?.parse().ok()
}

/// Complains if memory at the end is more than before, by more than 2 % and 1 MiB: an allocator may
/// keep some pages, and the slots of two wheels are 1 MiB.
fn growth(samples: &[(f64, u64)]) -> Option<String> {
    let most = |from: f64, to: f64| {
        let part = samples.iter().filter(|(share, _)| (from..to).contains(share));
        part.map(|(_, kib)| *kib).max()
    };
    let (Some(warm), Some(end)) = (most(WARM, END), most(END, f64::INFINITY)) else {
        return Some("memory was not seen: no /proc, or the run was too short".to_owned());
    };
    println!("memory: at most {warm} KiB after the warm-up, at most {end} KiB at the end");
    (end > warm + warm / 50 + 1_024).then(|| format!("memory grew from {warm} to {end} KiB"))
}

/// Compares the median lateness of the stretches in both halves; one bad moment does not move it.
/// Complains if it grows by more than half and by more than `allowed` microseconds.
fn drift(verdict: &Value, percentile: &str, allowed: u64) -> Option<String> {
    let stretches = verdict["lateness_us_by_stretch"].as_array();
    let late = stretches.into_iter().flatten().filter_map(|stretch| stretch[percentile].as_u64());
    let mut late: Vec<u64> = late.collect();
    let middle = |half: &mut [u64]| {
        half.sort_unstable();
        half.get(half.len() / 2).copied()
    };
    let half = late.len() / 2;
    let (first, second) = late.split_at_mut(half);
    let (Some(before), Some(after)) = (middle(first), middle(second)) else {
        return Some("the example says nothing of lateness in the course of the run".to_owned());
    };
    println!("lateness, {percentile}: {before} us in the first half, {after} us in the second");
    (after > before + allowed.max(before / 2))
        .then(|| format!("the {percentile} of lateness went from {before} to {after} us"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn late(p50: [u64; 4]) -> Option<String> {
        let stretches = p50.map(|p50| json!({ "p50": p50, "p99": 2_000 }));
        drift(&json!({ "lateness_us_by_stretch": stretches, "p50": 1 }), "p50", 500)
    }

    #[test]
    fn only_growth_drift_and_silence_are_failures() {
        assert_eq!(late([1_000, 1_100, 1_050, 1_000]), None);
        let message = "the p50 of lateness went from 1100 to 1900 us";
        assert_eq!(late([1_000, 1_100, 1_800, 1_900]).as_deref(), Some(message));
        assert_eq!(growth(&[(0.1, 100), (0.35, 50_000), (0.85, 50_900)]), None);
        let message = "memory grew from 51000 to 80000 KiB";
        assert_eq!(growth(&[(0.6, 51_000), (0.85, 80_000)]).as_deref(), Some(message));
        assert!(growth(&[]).is_some() && drift(&Value::Null, "p50", 500).is_some());
    }
}
