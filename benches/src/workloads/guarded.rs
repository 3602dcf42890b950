//! Tasks that wrap one short operation after another in a timeout of 30 s.

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
use crate::measure::{Sample, cpu_nanos, median_of};
use crate::peers::{LocalClock, RealTime};
use crate::plan::{Job, Workload as W};

/// After the tasks of a stretch, whose work on other threads belongs to it.
const SETTLE: Duration = Duration::from_millis(25);
/// Of every timeout that is not there to end.
const LIMIT: Duration = Duration::from_secs(30);
/// When it is looked what is left of timeouts that were dropped.
const LINGER: Duration = Duration::from_millis(50);
/// Operations that are ready at once between two that let the other tasks run.
const TOGETHER: u32 = 64;

pub enum Operation {
    /// Ready after this number of pending polls. It wakes its task at once each time.
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

pub trait Guard<F>: Fn(Duration, Operation) -> F + Clone + 'static {}

impl<F, G: Fn(Duration, Operation) -> F + Clone + 'static> Guard<F> for G {}

fn unguarded(
    _: Duration,
    mut operation: Operation,
) -> impl Future<Output = Result<(), Infallible>> + Send {
    poll_fn(move |cx| Pin::new(&mut operation).poll(cx).map(Ok))
}

/// Measures operations in timeouts, without timeouts, and the difference, as medians of the
/// stretches after one for the warm-up; and what is left of as many timeouts as there are tasks.
pub fn run(job: Job, stage: Stage<'_>) -> Vec<Sample> {
    if job.workload == W::AsyncLate {
        return late(job, stage);
    }
    let (operations, stretches) = job.scale.pick((500, 10), (100, 3), (5, 1));
    let work = Errand::Work { operations, yields: u32::from(job.workload == W::Async) };
    let count = job.n as f64 * f64::from(operations);
    let stretch = |with_timeouts| {
        let errands = vec![work.clone(); job.n];
        let (cpu, began) = (cpu_nanos(), Instant::now());
        stage(errands, with_timeouts);
        let took = began.elapsed();
        thread::sleep(SETTLE);
        Stretch { cpu: (cpu_nanos() - cpu) / count, rate: count / took.as_secs_f64() / 1e3 }
    };
    let all: Vec<_> = (0..=stretches).map(|_| [false, true].map(stretch)).collect();
    let stretches = &all[1..];
    vec![
        job.sample("timeout", "ns", median_of(stretches, |[floor, own]| own.cpu - floor.cpu)),
        job.sample("cpu", "ns", median_of(stretches, |[_, own]| own.cpu)),
        job.sample("floor", "ns", median_of(stretches, |[floor, _]| floor.cpu)),
        job.sample("rate", "k/s", median_of(stretches, |[_, own]| own.rate)),
        job.sample("left", "timeouts", left(job.n, stage) as f64),
    ]
}

struct Stretch {
    /// Nanoseconds.
    cpu: f64,
    /// Thousands a second.
    rate: f64,
}

/// One look on each core, where the cores have their own tasks.
fn left(timeouts: usize, stage: Stage<'_>) -> usize {
    let dropped = Dropped::new(timeouts);
    let mut errands = vec![Errand::Drop(Arc::clone(&dropped)); timeouts];
    errands.insert(0, Errand::Look(Arc::clone(&dropped)));
    errands.push(Errand::Look(Arc::clone(&dropped)));
    stage(errands, true);
    // Relaxed: the tasks have ended.
    dropped.left.load(Ordering::Relaxed)
}

/// Tasks whose timeouts do end.
fn late(job: Job, stage: Stage<'_>) -> Vec<Sample> {
    late::run(job, |size| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let late = late::delays(size).map(|delay| Errand::Late(delay, Arc::clone(&log)));
        stage(late.collect(), true);
        mem::take(&mut log.lock())
    })
}

/// The work of a task.
#[derive(Clone)]
pub enum Errand {
    /// Operations in timeouts, one after the other.
    Work {
        operations: u32,
        /// Polls at which each is not ready.
        yields: u32,
    },
    /// Registers a timeout and drops it.
    Drop(Arc<Dropped>),
    /// Looks what is left when all have done that.
    Look(Arc<Dropped>),
    /// Waits until the time of an operation is over.
    Late(Duration, Arc<Mutex<Vec<f64>>>),
}

impl Errand {
    async fn run<F: Future<Output = Result<(), E>>, E: Debug>(self, guard: impl Guard<F>) {
        match self {
            Self::Work { operations, yields } => {
                for done in 1..=operations {
                    let guarded = guard(LIMIT, Operation::Yields(yields));
                    guarded.await.expect("nothing takes so long");
                    if yields == 0 && done % TOGETHER == 0 {
                        yield_now().await;
                    }
                }
            }
            Self::Drop(dropped) => dropped.add(guard).await,
            Self::Look(dropped) => dropped.look().await,
            Self::Late(delay, log) => {
                let due = Instant::now() + delay;
                guard(delay, Operation::Never).await.expect_err("it is never ready");
                let lateness = late::lateness(due);
                log.lock().push(lateness);
            }
        }
    }
}

/// Timeouts that were dropped. What still holds the waker that all were polled with has not gone.
pub struct Dropped {
    waker: Arc<Nobody>,
    /// To come.
    expected: AtomicUsize,
    /// At the worst.
    left: AtomicUsize,
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

impl Dropped {
    fn new(expected: usize) -> Arc<Self> {
        let [expected, left] = [expected, 0].map(AtomicUsize::new);
        Arc::new(Self { waker: Arc::new(Nobody), expected, left })
    }

    async fn add<F: Future>(&self, guard: impl Guard<F>) {
        {
            let mut guarded = pin!(guard(LIMIT, Operation::Never));
            let waker = Waker::from(Arc::clone(&self.waker));
            let is_pending = guarded.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
            assert!(is_pending, "it is never ready");
            drop(waker);
            // It may go on in another worker.
            yield_now().await;
        }
        // AcqRel: the thread that finds the last one sees the results of all.
        self.expected.fetch_sub(1, Ordering::AcqRel);
    }

    async fn look(&self) {
        // Acquire: see above.
        while self.expected.load(Ordering::Acquire) > 0 {
            yield_now().await;
        }
        tokio::time::sleep(LINGER).await;
        // Relaxed: read when the tasks have ended.
        self.left.fetch_max(Arc::strong_count(&self.waker) - 1, Ordering::Relaxed);
    }
}

/// Runs tasks until all are over, with timeouts or without.
pub type Stage<'a> = &'a dyn Fn(Vec<Errand>, bool);

/// Runs tasks on the workers of a runtime, which move tasks between them.
pub fn on_workers<F, E>(
    runtime: Runtime,
    guard: impl Guard<F> + Send + Sync,
) -> impl Fn(Vec<Errand>, bool)
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Debug + 'static,
{
    move |errands, with_timeouts| {
        runtime.block_on(join(errands, |errand| {
            if with_timeouts {
                tokio::spawn(errand.run(guard.clone()))
            } else {
                tokio::spawn(errand.run(unguarded))
            }
        }));
    }
}

/// Runs tasks on a runtime on each of two cores. `drive` starts the timers of a core.
pub fn on_two_cores<F, E>(
    guard: impl Guard<F> + Send + Sync,
    drive: fn(),
) -> impl Fn(Vec<Errand>, bool)
where
    F: Future<Output = Result<(), E>> + 'static,
    E: Debug + 'static,
{
    move |mut errands, with_timeouts| {
        let others = errands.split_off(errands.len() / 2);
        let run = |errands| {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            LocalSet::new().block_on(&runtime, async {
                if with_timeouts {
                    drive();
                    join(errands, |errand| spawn_local(errand.run(guard.clone()))).await;
                } else {
                    join(errands, |errand| spawn_local(errand.run(unguarded))).await;
                }
            });
        };
        cores::on_two(|| run(errands), || run(others));
    }
}

/// Drives corewheel's timers of the thread in a task, by the fast clock or the monotonic one.
pub fn drive_corewheel<const FAST: bool>() {
    RealTime::<FAST>::install();
    let driver = corewheel_tokio::spawn_local().expect("a runtime that polls for events");
    spawn_local(async { driver.await.expect("a task that does not panic").expect("a descriptor") });
}

async fn join(errands: Vec<Errand>, spawn: impl Fn(Errand) -> JoinHandle<()>) {
    let tasks: Vec<_> = errands.into_iter().map(spawn).collect();
    for task in tasks {
        task.await.expect("a task that does not panic");
    }
}
