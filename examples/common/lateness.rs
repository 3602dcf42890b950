//! Compares the lateness of a runtime's own timer with corewheel's, in an idle runtime and beside
//! busy tasks.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corewheel::metrics;
use hdrhistogram::Histogram;

/// A task of the program's runtime, or its join handle.
use super::Task;

/// A task that never moves to another thread.
#[allow(dead_code, reason = "unused if tasks move between threads")]
pub(crate) type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

type SleepFn = fn(Duration) -> Task;

/// The two timers are measured alternately, each in this many rounds.
const ROUNDS: u64 = 4;
const SLEEPER_COUNT: u64 = 32;
const SLEEPS_PER_TASK: u64 = 50;
const BUSY_TASK_COUNT: usize = 4;
/// A busy task computes for this long, and then sleeps for `BUSY_TASK_PAUSE` with the runtime's own
/// timer.
const BUSY_TIME: Duration = Duration::from_micros(200);
const BUSY_TASK_PAUSE: Duration = Duration::from_micros(200);
/// How long the program waits for all shards to publish their counts.
const PUBLISH_WAIT: Duration = Duration::from_millis(50);

/// Measures both timers in `runtime`, and prints a row of a table for each, in microseconds.
/// `own_sleep` sleeps with the runtime's own timer, which has this `resolution`.
pub(crate) async fn compare(
    runtime: &str,
    resolution: &str,
    spawn: impl Fn(Task) -> Task,
    own_sleep: SleepFn,
    corewheel_sleep: SleepFn,
) {
    let mut lateness = [(); 2].map(|()| [(); 2].map(|()| empty_histogram()));
    for _ in 0..ROUNDS {
        for ((sleep, expected), lateness) in
            [(own_sleep, 0), (corewheel_sleep, 2 * SLEEPER_COUNT * SLEEPS_PER_TASK)]
                .into_iter()
                .zip(&mut lateness)
        {
            let before = count_fired(own_sleep).await;
            for (busy_tasks, lateness) in [0, BUSY_TASK_COUNT].into_iter().zip(lateness) {
                *lateness += measure(&spawn, own_sleep, sleep, busy_tasks).await;
            }
            let fired = count_fired(own_sleep).await - before;
            assert_eq!(fired, expected, "wrong number of corewheel timers");
        }
    }
    eprintln!("| runtime | timer | resolution | idle p50 | idle p99 | busy p50 | busy p99 |");
    let tick = format!("{} us", metrics::shards()[0].levels[0].slot_span.as_micros());
    let names = [("its own", resolution), ("corewheel", &tick)];
    for ((name, resolution), lateness) in names.into_iter().zip(lateness) {
        print!("| {runtime} | {name} | {resolution} |");
        for lateness in lateness {
            for quantile in [0.5, 0.99] {
                print!(" {} |", lateness.value_at_quantile(quantile) / 1_000);
            }
        }
        println!();
    }
}

/// Prints a row that says why the runtime cannot be measured on this machine.
#[allow(dead_code, reason = "most runtimes need no io_uring")]
pub(crate) fn print_skipped(runtime: &str, error: &std::io::Error) {
    println!("| {runtime} | left out: the kernel refuses io_uring: {error} |");
}

fn empty_histogram() -> Histogram<u64> {
    Histogram::new(3).expect("valid precision")
}

/// Returns the number of timers that have fired in all shards.
async fn count_fired(own_sleep: SleepFn) -> u64 {
    own_sleep(PUBLISH_WAIT).await;
    metrics::shards().iter().map(|shard| shard.counts.fired).sum()
}

/// Measures the lateness of many sleeps, in nanoseconds.
async fn measure(
    spawn: impl Fn(Task) -> Task,
    own_sleep: SleepFn,
    sleep: SleepFn,
    busy_tasks: usize,
) -> Histogram<u64> {
    let lateness = Arc::new(Mutex::new(empty_histogram()));
    let is_over = Arc::new(AtomicBool::new(false));
    let busy: Vec<Task> = (0..busy_tasks)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            spawn(Box::pin(async move {
                // Relaxed: the flag publishes no other data.
                while !is_over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    while start.elapsed() < BUSY_TIME {}
                    own_sleep(BUSY_TASK_PAUSE).await;
                }
            }))
        })
        .collect();
    let sleepers: Vec<Task> = (0..SLEEPER_COUNT)
        .map(|seed| {
            let lateness = Arc::clone(&lateness);
            spawn(Box::pin(async move {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..SLEEPS_PER_TASK {
                    let delay = Duration::from_micros(random.u64(1_000..8_000));
                    let start = Instant::now();
                    sleep(delay).await;
                    let late = start.elapsed().checked_sub(delay).expect("a sleep ended early");
                    let late = u64::try_from(late.as_nanos()).expect("less than 584 years");
                    lateness.lock().expect("no panic").record(late).expect("the histogram resizes");
                }
            }))
        })
        .collect();
    for sleeper in sleepers {
        sleeper.await;
    }
    // Relaxed: the flag publishes no other data.
    is_over.store(true, Ordering::Relaxed);
    for task in busy {
        task.await;
    }
    lateness.lock().expect("no panic").clone()
}
