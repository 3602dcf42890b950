//! The loads. In virtual time, a tick is a millisecond.

pub mod asked;
pub mod contended;
pub mod guarded;
pub mod late;
pub mod memory;
pub mod operations;
pub mod packets;
pub mod pause;
pub mod purgatory;
pub mod scaling;
pub mod scheme;
pub mod slack;
pub mod waking;
pub mod xcancel;

use std::ops::RangeInclusive;
use std::thread;

use crate::measure::Sample;
use crate::plan::Job;

/// A timeout of 30 s in ticks of 1 ms.
pub const TIMEOUT: u64 = 30_000;

/// A million operations per second, with ticks of 1 ms.
pub const OPERATIONS_PER_TICK: usize = 1000;

const SEED: u64 = 1;

/// Delays that do not elapse within a run, even in real time.
const NOT_DUE_MS: RangeInclusive<u64> = 20_000..=60_000;

pub fn in_thread<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(run).join().expect("the run does not panic"))
}

/// Runs each setting in a new thread, because some peers are thread-local.
fn run_in_settings<S: Copy + Sync>(
    settings: &[(&str, S)],
    run: impl Fn(S) -> Vec<Sample> + Sync,
) -> Vec<Sample> {
    let run_in_setting = |&(name, setting): &(&str, S)| {
        let mut samples = in_thread(|| run(setting));
        for sample in &mut samples {
            name.clone_into(&mut sample.setting);
        }
        samples
    };
    settings.iter().flat_map(run_in_setting).collect()
}

/// Sorts the values and returns the quantiles that are shown.
fn quantiles(job: Job, unit: &str, values: &mut [f64]) -> Vec<Sample> {
    values.sort_by(f64::total_cmp);
    let shown = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
    shown.map(|(part, share)| job.sample(part, unit, quantile(values, share))).into()
}

/// Returns the smallest value such that at least this share of the values is not larger.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let sorted: Vec<f64> = (1..=1000).map(f64::from).collect();
        let shown = [0.0, 0.5, 0.999, 1.0].map(|share| quantile(&sorted, share).to_bits());
        assert_eq!(shown, [1.0, 500.0, 999.0, 1000.0].map(f64::to_bits));
    }
}
