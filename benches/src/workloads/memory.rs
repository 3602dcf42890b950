//! Bytes: for live timers, after all are cancelled, and after long churn; and how often memory is asked for in the
//! steady state. The run has counted from its start.

use std::{fs::File, io::Read, time::Duration};

use fastrand::Rng;

use super::{
    SEED,
    operations::{Churn, Delay},
};
use crate::{
    alloc,
    measure::{self, Effort, Load, Sample, Timing, settled, warm_up},
    timers::{Timers, not_due, payload},
};

/// Turns after the last cancel, one tick each.
const TURNS: u64 = 10_000;

/// The memory in use, by the allocator and by the operating system.
#[derive(Clone, Copy)]
struct Used {
    allocated: f64,
    resident: f64,
}

impl Used {
    fn now() -> Self {
        Self { allocated: alloc::bytes() as f64, resident: resident() }
    }

    fn samples(self, before: Self, name: &str, n: usize, unit: &str, divisor: f64) -> Vec<Sample> {
        let sample = |name: String, after: f64, before: f64| {
            Sample::new(name, n, unit, (after - before) / divisor)
        };
        vec![
            sample(name.to_owned(), self.allocated, before.allocated),
            sample(format!("{name}-rss"), self.resident, before.resident),
        ]
    }
}

/// The memory that the process has from the operating system; zero where that cannot be asked.
/// Allocates nothing, because an allocation behind the timers would keep their memory in the
/// process.
fn resident() -> f64 {
    let mut status = [0; 4096];
    let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let status = str::from_utf8(&status[..read.unwrap_or(0)]).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

/// Bytes per timer while `n` are live over 1 to 60 s. Then bytes per former timer, when all have
/// been cancelled in random order, and the loop has turned once and announced a sleep without end;
/// and when it has turned 10,000 times. The caller's table of handles is allocated before and does
/// not count.
pub fn run<T: Timers>(n: usize) -> Vec<Sample> {
    let mut rng = Rng::with_seed(SEED);
    let mut handles: Vec<Option<T::Handle>> = vec![None; n];
    let before = Used::now();
    let mut timers = T::new();
    for (id, handle) in handles.iter_mut().enumerate() {
        *handle = Some(timers.add(Delay::MIXED.draw(&mut rng), payload(id)));
    }
    let live = Used::now();
    rng.shuffle(&mut handles);
    for handle in &mut handles {
        let handle = handle.take().expect("filled above");
        assert!(timers.cancel(&handle), "none has fired");
    }
    timers.advance(1, not_due);
    timers.prepare_sleep();
    let left = Used::now();
    (2..=TURNS).for_each(|now| timers.advance(now, not_due));
    let turned = Used::now();
    // Not before: these allocate.
    let all = [("memory-live", live), ("memory-left", left), ("memory-turned", turned)];
    let samples =
        |(name, used): (&str, Used)| used.samples(before, name, n, "bytes/timer", n as f64);
    all.into_iter().flat_map(samples).collect()
}

/// The memory that this number of churned pairs, or the largest number in the given time, adds
/// after the warm-up.
pub fn run_churn<T: Timers>(n: usize, pairs: u64, longest: Duration) -> Vec<Sample> {
    let mut churn = Churn::<T>::new(n, Delay::MIXED);
    measure::run(warm_up(&mut churn, settled(n), Effort { timed: longest, warm_up_max: longest }));
    let before = Used::now();
    let mut timing = Timing::start(longest);
    while timing.operations() < pairs && timing.goes_on() {
        timing.count(churn.batch());
    }
    let mut samples = Used::now().samples(before, "memory-churn", n, "bytes", 1.0);
    samples.push(Sample::new("memory-churn-pairs", n, "million", timing.operations() as f64 / 1e6));
    samples
}

/// Allocations in a million operations of a load that has settled.
pub fn allocations(name: &str, n: usize, load: &mut impl Load, effort: Effort) -> Sample {
    measure::run(warm_up(load, settled(n), effort));
    let before = alloc::allocations();
    let mut timing = Timing::start(effort.timed);
    while timing.goes_on() {
        timing.count(load.batch());
    }
    let allocated = alloc::allocations() - before;
    let per_million = allocated as f64 * 1e6 / timing.operations() as f64;
    Sample::new(name, n, "per million operations", per_million)
}
