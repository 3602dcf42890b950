//! Memory per timer.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use fastrand::Rng;

use super::SEED;
use super::operations::{Churn, Delay};
use crate::alloc;
use crate::measure::{self, Sample, run_batches, warm_up_operations};
use crate::plan::{Job, Peer, Workload as W};
use crate::timers::{TimerSet, panic_not_due, payload};

/// The number of turns after the last cancel. The turns are one tick apart.
const TURNS: u64 = 10_000;

/// Bytes in use, allocated and resident.
type UsedBytes = [f64; 2];

fn used_bytes() -> UsedBytes {
    [alloc::allocated_bytes() as f64, resident()]
}

/// Returns the growth from the first `used_bytes` to the second, divided by `divisor`.
fn samples(
    job: Job,
    part: &str,
    unit: &str,
    used_bytes: [UsedBytes; 2],
    divisor: usize,
) -> [Sample; 2] {
    let [allocated, resident] =
        [0, 1].map(|i| (used_bytes[1][i] - used_bytes[0][i]) / divisor as f64);
    let rss = format!("{part}-rss");
    [job.sample(part, unit, allocated), job.sample(rss.trim_start_matches('-'), unit, resident)]
}

/// Returns the resident bytes, or 0 if the system does not report them. Allocates nothing, because
/// an allocation behind the timers in the heap would keep their memory resident.
fn resident() -> f64 {
    let mut status = [0; 4096];
    let length = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let status = str::from_utf8(&status[..length.unwrap_or(0)]).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

pub fn run<T: TimerSet>(job: Job) -> Vec<Sample> {
    alloc::start_counting();
    if job.workload == W::Memory { live_and_ended::<T>(job) } else { growth_under_churn::<T>(job) }
}

/// Measures bytes per timer: while `n` timers are live; after their cancellation, a turn and
/// `prepare_sleep`; and after 10,000 turns. The vector of handles is not counted.
fn live_and_ended<T: TimerSet>(job: Job) -> Vec<Sample> {
    let n = job.n;
    let mut rng = Rng::with_seed(SEED);
    let mut handles: Vec<Option<T::Handle>> = vec![None; n];
    let before = used_bytes();
    let mut timers = T::new();
    for (id, handle) in handles.iter_mut().enumerate() {
        *handle = Some(timers.add(Delay::MIXED.draw(&mut rng), payload(id)));
    }
    let live = used_bytes();
    rng.shuffle(&mut handles);
    for handle in &mut handles {
        let handle = handle.take().expect("filled above");
        assert!(timers.cancel(&handle), "no timer has fired");
    }
    timers.advance(1, panic_not_due);
    timers.prepare_sleep();
    let after_cancel = used_bytes();
    (2..=TURNS).for_each(|now| timers.advance(now, panic_not_due));
    let after_turns = used_bytes();
    // After the last measurement, because creating a sample allocates.
    let sample = |(part, used_bytes)| samples(job, part, "bytes/timer", [before, used_bytes], n);
    [("live", live), ("left", after_cancel), ("turned", after_turns)]
        .into_iter()
        .flat_map(sample)
        .collect()
}

fn growth_under_churn<T: TimerSet>(job: Job) -> Vec<Sample> {
    // The hash wheel keeps cancelled timers, and would need gigabytes.
    let full_scale_operations_max =
        if job.peer == Peer::HierarchicalHashWheel { 10_000_000 } else { 100_000_000 };
    let operations_max = job.scale.pick(full_scale_operations_max, 10_000_000, 10_000);
    let duration_max = Duration::from_millis(job.scale.pick(30_000, 2000, 20));
    let mut churn = Churn::<T>::new(job.n, Delay::MIXED);
    measure::expect_ready(run_batches(&mut churn, warm_up_operations(job.n), duration_max));
    let before = used_bytes();
    let timing = measure::expect_ready(run_batches(&mut churn, operations_max, duration_max));
    let mut samples = samples(job, "", "bytes", [before, used_bytes()], 1).to_vec();
    samples.push(job.sample("pairs", "million", timing.operations as f64 / 1e6));
    samples
}
