//! How a load is timed, and its results.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub use rustix::time::ClockId;
use rustix::time::clock_gettime;
use serde::{Deserialize, Serialize};
use tokio::task::yield_now;

/// A load without an end, in batches that are long compared with a reading of the clock.
pub trait Load {
    /// Whether the load yields after each batch, so that the timers of its runtime have their turn.
    const YIELDS: bool = false;

    fn batch(&mut self) -> u64;
}

/// How long a run takes. A slow peer does fewer operations in it, never other ones.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub timed: Duration,
    pub warm_up_max: Duration,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub workload: String,
    /// The parameter of the timers, where that varies and not their number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub setting: String,
    /// The number of live timers.
    pub n: usize,
    pub unit: String,
    pub value: f64,
    /// For a distribution: quantiles and the values there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<(f64, f64)>,
}

impl Sample {
    pub fn new(workload: impl Into<String>, n: usize, unit: &str, value: f64) -> Self {
        let (workload, unit) = (workload.into(), unit.to_owned());
        Self { workload, setting: String::new(), n, unit, value, curve: Vec::new() }
    }

    pub fn title(&self) -> String {
        format!("{}-{}", self.workload, self.setting).trim_end_matches('-').to_owned()
    }
}

#[derive(Debug)]
pub struct Timing {
    pub operations: u64,
    pub elapsed: Duration,
}

/// Warms the load up with `operations` and then times it: ns per operation.
pub async fn ns_per_operation(load: &mut impl Load, operations: u64, effort: Effort) -> f64 {
    warm_up(load, operations, effort).await;
    batches(load, u64::MAX, effort.timed).await.ns_per_operation()
}

/// Does `operations`, or what can be done of them in the time of the warm-up.
pub async fn warm_up(load: &mut impl Load, operations: u64, effort: Effort) {
    batches(load, operations, effort.warm_up_max).await;
}

/// Does batches until `operations` are done or the time is over.
pub async fn batches<L: Load>(load: &mut L, operations: u64, time: Duration) -> Timing {
    let started = Instant::now();
    let mut timing = Timing { operations: 0, elapsed: Duration::ZERO };
    while timing.operations < operations && timing.elapsed < time {
        timing.operations += black_box(load.batch());
        if L::YIELDS {
            yield_now().await;
        }
        timing.elapsed = started.elapsed();
    }
    timing
}

impl Timing {
    pub fn ns_per_operation(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.operations as f64
    }
}

/// Runs a load that does not yield.
pub fn run<R>(load: impl Future<Output = R>) -> R {
    match pin!(load).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a load that yields runs in a task"),
    }
}

/// Returns the operations of a warm-up: each of `n` timers has been replaced or moved twice.
pub fn settled(n: usize) -> u64 {
    (2 * n as u64).max(1_000_000)
}

/// Returns the value in the middle, or the mean of the two there.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

/// Returns the median of what each round took.
pub fn median_of<R>(rounds: &[R], took: impl Fn(&R) -> f64) -> f64 {
    median(rounds.iter().map(took).collect())
}

pub fn cpu_nanos() -> f64 {
    read(ClockId::ProcessCPUTime).as_nanos() as f64
}

/// Reads a clock. CPU time leaves out other load on the machine, and is a system call.
pub fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
