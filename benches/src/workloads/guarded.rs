//! Tasks that wrap each of their short operations in a timeout of 30 s.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use std::{mem, thread};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};

use super::late;
use crate::cores;
use crate::measure::{Sample, median_of, process_cpu_nanos};
use crate::peers::{LocalClock, RealTime};
use crate::plan::{Job, Workload as W};

/// A pause after each measured interval, so that timer threads finish their work.
const SETTLE_TIME: Duration = Duration::from_millis(25);
/// The timeout of the measured operations, which end before it.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time from the last drop of a timeout to the count of registered timeouts.
const COUNT_DELAY: Duration = Duration::from_millis(50);
/// Number of operations between two yields, if operations are ready at once.
const OPERATIONS_PER_YIELD: u32 = 64;

pub enum Operation {
    /// The operation is ready after this number of pending polls, each of which wakes the task.
    Yields(u32),
    Never,
}

impl Future for Operation {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            Self::Yields(0) => return Poll::Ready(()),
            Self::Yields(left) => {
                *left -= 1;
                cx.waker().wake_by_ref();
            }
            Self::Never => (),
        }
        Poll::Pending
    }
}

pub trait TimeoutFn<F>: Fn(Duration, Operation) -> F + Clone + 'static {}

impl<F, G: Fn(Duration, Operation) -> F + Clone + 'static> TimeoutFn<F> for G {}

fn without_timeout(
    _: Duration,
    mut operation: Operation,
) -> impl Future<Output = Result<(), Infallible>> + Send {
    poll_fn(move |cx| Pin::new(&mut operation).poll(cx).map(Ok))
}

/// Measures operations with timeouts, without timeouts, and the difference, as medians of the
/// intervals after a warm-up. Also counts dropped timeouts that are still registered.
pub fn run(job: Job, run_tasks: RunTasks<'_>) -> Vec<Sample> {
    if job.workload == W::AsyncLate {
        return measure_lateness(job, run_tasks);
    }
    // Shorter intervals measure cold tasks and a fast clock that is not calibrated.
    let (operations, intervals) = job.scale.pick((500, 10), (500, 3), (5, 1));
    let work = TaskWork::Work { operations, pending_polls: u32::from(job.workload == W::Async) };
    let count = job.n as f64 * f64::from(operations);
    let interval = |with_timeouts| {
        let tasks = vec![work.clone(); job.n];
        let (cpu, start) = (process_cpu_nanos(), Instant::now());
        run_tasks(tasks, with_timeouts);
        let elapsed = start.elapsed();
        thread::sleep(SETTLE_TIME);
        IntervalCost {
            cpu_nanos: (process_cpu_nanos() - cpu) / count,
            kilo_operations_per_second: count / elapsed.as_secs_f64() / 1e3,
        }
    };
    let costs: Vec<_> = (0..=intervals).map(|_| [false, true].map(interval)).collect();
    let intervals = &costs[1..];
    vec![
        job.sample(
            "timeout",
            "ns",
            median_of(intervals, |[without, with]| with.cpu_nanos - without.cpu_nanos),
        ),
        job.sample("cpu", "ns", median_of(intervals, |[_, with]| with.cpu_nanos)),
        job.sample("floor", "ns", median_of(intervals, |[without, _]| without.cpu_nanos)),
        job.sample(
            "rate",
            "k/s",
            median_of(intervals, |[_, with]| with.kilo_operations_per_second),
        ),
        job.sample("left", "timeouts", measure_still_registered(job.n, run_tasks) as f64),
    ]
}

struct IntervalCost {
    /// Nanoseconds per operation.
    cpu_nanos: f64,
    /// Thousands of operations per second.
    kilo_operations_per_second: f64,
}

/// Returns how many dropped timeouts are still registered: the larger of two counts, one on each
/// core of [`on_two_cores`].
fn measure_still_registered(timeouts: usize, run_tasks: RunTasks<'_>) -> usize {
    let dropped_timeouts = DroppedTimeouts::new(timeouts);
    let mut tasks = vec![TaskWork::Drop(Arc::clone(&dropped_timeouts)); timeouts];
    tasks.insert(0, TaskWork::CountStillRegistered(Arc::clone(&dropped_timeouts)));
    tasks.push(TaskWork::CountStillRegistered(Arc::clone(&dropped_timeouts)));
    run_tasks(tasks, true);
    // Relaxed: the tasks have ended.
    dropped_timeouts.still_registered.load(Ordering::Relaxed)
}

fn measure_lateness(job: Job, run_tasks: RunTasks<'_>) -> Vec<Sample> {
    late::run(job, |size| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let tasks = late::delays(size).map(|delay| TaskWork::Late(delay, Arc::clone(&log)));
        run_tasks(tasks.collect(), true);
        mem::take(&mut log.lock())
    })
}

#[derive(Clone)]
pub enum TaskWork {
    Work {
        operations: u32,
        /// The pending polls of each operation.
        pending_polls: u32,
    },
    Drop(Arc<DroppedTimeouts>),
    /// Counts the timeouts that are still registered after all drops.
    CountStillRegistered(Arc<DroppedTimeouts>),
    /// Waits for a timeout that expires, and logs its lateness.
    Late(Duration, Arc<Mutex<Vec<f64>>>),
}

impl TaskWork {
    async fn run<F: Future<Output = Result<(), E>>, E: Debug>(
        self,
        with_timeout: impl TimeoutFn<F>,
    ) {
        match self {
            Self::Work { operations, pending_polls } => {
                for done in 1..=operations {
                    let guarded = with_timeout(TIMEOUT, Operation::Yields(pending_polls));
                    guarded.await.expect("the operation ends before its timeout");
                    if pending_polls == 0 && done % OPERATIONS_PER_YIELD == 0 {
                        yield_now().await;
                    }
                }
            }
            Self::Drop(dropped_timeouts) => dropped_timeouts.register_and_drop(with_timeout).await,
            Self::CountStillRegistered(dropped_timeouts) => {
                dropped_timeouts.count_still_registered().await;
            }
            Self::Late(delay, log) => {
                let due = Instant::now() + delay;
                with_timeout(delay, Operation::Never)
                    .await
                    .expect_err("the operation is never ready");
                let lateness = late::lateness(due);
                log.lock().push(lateness);
            }
        }
    }
}

/// Counts dropped timeouts that are still registered, by the references to the one waker with which
/// all timeouts are polled.
pub struct DroppedTimeouts {
    waker: Arc<NoopWake>,
    not_dropped: AtomicUsize,
    /// The largest count of registered timeouts.
    still_registered: AtomicUsize,
}

struct NoopWake;

impl Wake for NoopWake {
    fn wake(self: Arc<Self>) {}
}

impl DroppedTimeouts {
    fn new(timeouts: usize) -> Arc<Self> {
        let [not_dropped, still_registered] = [timeouts, 0].map(AtomicUsize::new);
        Arc::new(Self { waker: Arc::new(NoopWake), not_dropped, still_registered })
    }

    async fn register_and_drop<F: Future>(&self, with_timeout: impl TimeoutFn<F>) {
        {
            let mut guarded = pin!(with_timeout(TIMEOUT, Operation::Never));
            let waker = Waker::from(Arc::clone(&self.waker));
            let is_pending = guarded.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
            assert!(is_pending, "the operation is never ready");
            drop(waker);
            // After the yield, the task may drop the timeout on another worker.
            yield_now().await;
        }
        // AcqRel: the thread that reads 0 sees all drops.
        self.not_dropped.fetch_sub(1, Ordering::AcqRel);
    }

    async fn count_still_registered(&self) {
        // Acquire: pairs with the AcqRel in `register_and_drop`.
        while self.not_dropped.load(Ordering::Acquire) > 0 {
            yield_now().await;
        }
        tokio::time::sleep(COUNT_DELAY).await;
        // Relaxed: read when the tasks have ended.
        self.still_registered.fetch_max(Arc::strong_count(&self.waker) - 1, Ordering::Relaxed);
    }
}

/// Runs tasks to completion, with or without timeouts.
pub type RunTasks<'a> = &'a dyn Fn(Vec<TaskWork>, bool);

/// Returns a function that runs tasks on the workers of a runtime, between which tasks may move.
pub fn on_workers<F, E>(
    runtime: Runtime,
    with_timeout: impl TimeoutFn<F> + Send + Sync,
) -> impl Fn(Vec<TaskWork>, bool)
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Debug + 'static,
{
    move |tasks, with_timeouts| {
        runtime.block_on(join_all(tasks, |work| {
            if with_timeouts {
                tokio::spawn(work.run(with_timeout.clone()))
            } else {
                tokio::spawn(work.run(without_timeout))
            }
        }));
    }
}

/// Returns a function that runs half of the tasks on each of two current-thread runtimes.
/// `spawn_driver` starts the driver of a core's timers.
pub fn on_two_cores<F, E>(
    with_timeout: impl TimeoutFn<F> + Send + Sync,
    spawn_driver: fn(),
) -> impl Fn(Vec<TaskWork>, bool)
where
    F: Future<Output = Result<(), E>> + 'static,
    E: Debug + 'static,
{
    move |mut tasks, with_timeouts| {
        let other_tasks = tasks.split_off(tasks.len() / 2);
        let run = |tasks| {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            LocalSet::new().block_on(&runtime, async {
                if with_timeouts {
                    spawn_driver();
                    join_all(tasks, |work| spawn_local(work.run(with_timeout.clone()))).await;
                } else {
                    join_all(tasks, |work| spawn_local(work.run(without_timeout))).await;
                }
            });
        };
        cores::run_on_two(|| run(tasks), || run(other_tasks));
    }
}

/// Drives the thread's corewheel timers in a task, with the fast clock if `FAST`.
pub fn spawn_corewheel_driver<const FAST: bool>() {
    RealTime::<FAST>::install();
    let driver = corewheel_tokio::spawn_driver().expect("a runtime that polls for events");
    spawn_local(async { driver.await.expect("the task does not panic").expect("a descriptor") });
}

async fn join_all(tasks: Vec<TaskWork>, spawn: impl Fn(TaskWork) -> JoinHandle<()>) {
    let tasks: Vec<_> = tasks.into_iter().map(spawn).collect();
    for task in tasks {
        task.await.expect("the task does not panic");
    }
}
