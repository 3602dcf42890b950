//! Whether memory stayed and timers were as punctual in the end as in the beginning.

use serde_json::Value;

use crate::run::Failure;

/// A look at memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When, as a share of the run.
    pub(super) share: f64,
    pub(super) kib: u64,
}

/// How late timers fired in one stretch of the run, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    p50: u64,
    p99: u64,
    max: u64,
}

/// The connections are made in the first sixth of a run and have all talked a while later: then memory has what it needs, but for
/// the slots of the wheels, which are touched for the first time for two minutes.
const WARM: f64 = 0.3;
/// The last part of a run, which must not have more memory than what comes before it.
const END: f64 = 0.75;
/// How much more, in percent, and besides: what an allocator does with its pages is not ours. (The slots of two wheels are 1 MiB.)
const GROWTH_PERCENT: u64 = 2;
const GROWTH_KIB: u64 = 1_024;

/// How much later timers may be in the second half: half as much again, or so many microseconds. Half a tick in the median, some
/// ticks among the latest, of which a busy machine has some.
const DRIFT_PERCENT: u64 = 50;
const DRIFT_P50: u64 = 500;
const DRIFT_P99: u64 = 5_000;

impl Late {
    /// In the course of the run.
    pub(super) fn all(verdict: &Value) -> Vec<Self> {
        let late = |stretch: &Value| {
            let number = |name: &str| stretch[name].as_u64();
            Some(Self { p50: number("p50")?, p99: number("p99")?, max: number("max")? })
        };
        verdict["lateness_us_by_stretch"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(late)
            .collect()
    }
}

/// A table of the run in ten parts: those of the whole for memory, and for lateness those from the first closing to the last.
pub(super) fn print(samples: &[Sample], late: &[Late]) {
    println!("part of the run  memory, KiB   late p50, us        p99        max");
    for (tenth, late) in (0_u32..).zip(late) {
        let (from, to) = (f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0);
        let kib = most(samples, from, to).map_or("-".to_owned(), |kib| kib.to_string());
        let Late { p50, p99, max } = late;
        println!(
            "{:3.0} to {:3.0} %     {kib:>11}   {p50:>12} {p99:>10} {max:>10}",
            from * 100.0,
            to * 100.0
        );
    }
}

/// The most memory between two points of the run.
fn most(samples: &[Sample], from: f64, to: f64) -> Option<u64> {
    samples
        .iter()
        .filter(|sample| (from..to).contains(&sample.share))
        .map(|sample| sample.kib)
        .max()
}

/// Fails with all that is wrong.
pub(super) fn verdict(verdict: &Value, samples: &[Sample], late: &[Late]) -> Result<(), Failure> {
    let mut complaints = Vec::new();
    if verdict["ok"] != Value::Bool(true) {
        complaints.push(format!("the example's verdict: {}", verdict["failures"]));
    }
    complaints.extend(growth(samples));
    complaints.extend(drift("median", DRIFT_P50, late, |late| late.p50));
    complaints.extend(drift("99th percentile", DRIFT_P99, late, |late| late.p99));
    if complaints.is_empty() {
        println!("memory and lateness stayed as they were");
        return Ok(());
    }
    Err(Failure(complaints.join("\n       ")))
}

fn growth(samples: &[Sample]) -> Option<String> {
    let (Some(warm), Some(end)) = (most(samples, WARM, END), most(samples, END, f64::INFINITY))
    else {
        return Some(
            "memory was never seen: there is no /proc, or the run was too short".to_owned(),
        );
    };
    let allowed = warm + warm * GROWTH_PERCENT / 100 + GROWTH_KIB;
    (end > allowed).then(|| format!("memory grew from {warm} to {end} KiB after the warm-up"))
}

/// The halves are compared by what is in the middle of their stretches: one bad moment is none of ours.
fn drift(what: &str, allowed: u64, late: &[Late], of: impl Fn(&Late) -> u64) -> Option<String> {
    let (first, second) = late.split_at(late.len() / 2);
    let middle = |half: &[Late]| {
        // In one that nothing was closed in, nothing was late.
        let mut all: Vec<u64> = half.iter().filter(|late| late.max > 0).map(&of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    };
    let (Some(before), Some(after)) = (middle(first), middle(second)) else {
        return Some(
            "the example has said nothing of lateness in the course of the run".to_owned(),
        );
    };
    (after > before + allowed.max(before * DRIFT_PERCENT / 100))
        .then(|| format!("the {what} of lateness went from {before} to {after} us"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Late, Sample, verdict};

    fn samples(kib: [u64; 4]) -> Vec<Sample> {
        (0_u32..)
            .zip(kib)
            .map(|(at, kib)| Sample { share: f64::from(at) / 4.0 + 0.1, kib })
            .collect()
    }

    fn late(p50: [u64; 4]) -> Vec<Late> {
        let stretches: Vec<_> =
            p50.map(|p50| json!({ "p50": p50, "p99": 2_000, "max": 9_000 })).into();
        Late::all(&json!({ "lateness_us_by_stretch": stretches }))
    }

    #[test]
    fn what_stays_as_it_was_is_well() {
        let (memory, late) =
            (samples([100, 50_000, 50_000, 50_900]), late([1_000, 1_100, 1_050, 1_000]));
        assert!(verdict(&json!({ "ok": true }), &memory, &late).is_ok());
    }

    #[test]
    fn growth_drift_and_a_bad_verdict_are_told() {
        let (memory, late) =
            (samples([100, 50_000, 51_000, 80_000]), late([1_000, 1_100, 1_800, 1_900]));
        let failure = verdict(&json!({ "ok": false, "failures": ["early"] }), &memory, &late)
            .expect_err("all wrong");
        assert_eq!(
            failure.to_string(),
            "the example's verdict: [\"early\"]\n       memory grew from 51000 to 80000 KiB after the warm-up\n       \
             the median of lateness went from 1100 to 1900 us"
        );
    }

    #[test]
    fn nothing_seen_is_a_failure() {
        assert!(verdict(&json!({ "ok": true }), &[], &late([1; 4])).is_err());
        assert!(verdict(&json!({ "ok": true }), &samples([1; 4]), &[]).is_err());
    }
}
