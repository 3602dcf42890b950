use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub use rustix::time::ClockId;
use rustix::time::clock_gettime;
use serde::{Deserialize, Serialize};
use tokio::task::yield_now;

/// An endless load, in batches that take much longer than a clock reading.
pub trait Load {
    /// True if the load must yield after each batch, so that the runtime runs its timers.
    const MUST_YIELD: bool = false;

    /// Runs a batch; returns its number of operations.
    fn batch(&mut self) -> u64;
}

/// How long the parts of a run last. A slower peer does fewer operations in the same time.
#[derive(Clone, Copy, Debug)]
pub struct Durations {
    pub timed: Duration,
    pub warm_up_max: Duration,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub workload: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub setting: String,
    /// The size: the number of timers, tasks, keys, requests or connections.
    pub n: usize,
    pub unit: String,
    pub value: f64,
    /// For a distribution: pairs `(x, y)`, where at least one in `x` values is `y` or more.
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

pub async fn ns_per_operation(load: &mut impl Load, operations: u64, durations: Durations) -> f64 {
    warm_up(load, operations, durations).await;
    run_batches(load, u64::MAX, durations.timed).await.ns_per_operation()
}

pub async fn warm_up(load: &mut impl Load, operations: u64, durations: Durations) {
    run_batches(load, operations, durations.warm_up_max).await;
}

pub async fn run_batches<L: Load>(load: &mut L, operations: u64, time: Duration) -> Timing {
    let started = Instant::now();
    let mut timing = Timing { operations: 0, elapsed: Duration::ZERO };
    while timing.operations < operations && timing.elapsed < time {
        timing.operations += black_box(load.batch());
        if L::MUST_YIELD {
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

pub fn expect_ready<R>(load: impl Future<Output = R>) -> R {
    match pin!(load).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("the load yields, so it must run in a task"),
    }
}

/// Returns enough operations to replace or move each of `n` timers twice on average.
pub fn warm_up_operations(n: usize) -> u64 {
    (2 * n as u64).max(1_000_000)
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

pub fn median_of<R>(rounds: &[R], value: impl Fn(&R) -> f64) -> f64 {
    median(rounds.iter().map(value).collect())
}

pub fn process_cpu_nanos() -> f64 {
    read_clock(ClockId::ProcessCPUTime).as_nanos() as f64
}

/// Reads a clock. CPU time excludes other load on the machine, but reading it is a system call.
pub fn read_clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
