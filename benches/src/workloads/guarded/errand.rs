//! What a task does.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use tokio::task::yield_now;

use crate::{
    timeouts::{Operation, Timeouts},
    workloads::late::Log,
};

/// Of every timeout that is not there to end.
const LIMIT: Duration = Duration::from_secs(30);
/// When it is looked what is left of timeouts that were dropped.
const LINGER: Duration = Duration::from_millis(50);
/// Operations that are ready at once between two that let the other tasks run.
const TOGETHER: u32 = 64;

/// What a task does.
#[derive(Clone, Debug)]
pub enum Errand {
    /// Operations in timeouts, one after the other.
    Work {
        /// How many.
        operations: u32,
        /// Polls at which each is not ready.
        yields: u32,
    },
    /// Registers a timeout and drops it.
    Drop(Arc<Dropped>),
    /// Looks what is left when all have done that.
    Look(Arc<Dropped>),
    /// Waits until the time of an operation is over.
    Late(Duration, Arc<Mutex<Log>>),
}

impl Errand {
    /// Does it.
    pub(super) async fn run<T: Timeouts>(self, timeouts: T) {
        match self {
            Self::Work { operations, yields } => work(operations, yields, timeouts).await,
            Self::Drop(dropped) => dropped.add(timeouts).await,
            Self::Look(dropped) => dropped.look().await,
            Self::Late(delay, log) => {
                let due = Instant::now() + delay;
                timeouts.guard(delay, Operation::Never).await.expect_err("it is never ready");
                log.lock().unwrap_or_else(PoisonError::into_inner).fired(due);
            }
        }
    }
}

async fn work<T: Timeouts>(operations: u32, yields: u32, timeouts: T) {
    for done in 1..=operations {
        timeouts.guard(LIMIT, Operation::Yields(yields)).await.expect("nothing takes so long");
        if yields == 0 && done % TOGETHER == 0 {
            yield_now().await;
        }
    }
}

/// Timeouts that were dropped. What still holds the waker that all were polled with has not gone.
#[derive(Debug)]
pub struct Dropped {
    waker: Arc<Nobody>,
    /// To come.
    expected: AtomicUsize,
    left: AtomicUsize,
}

#[derive(Debug)]
struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

impl Dropped {
    /// So many are to come.
    pub(super) fn new(expected: usize) -> Arc<Self> {
        let [expected, left] = [expected, 0].map(AtomicUsize::new);
        Arc::new(Self { waker: Arc::new(Nobody), expected, left })
    }

    /// How many were left, at the worst.
    pub(super) fn left(&self) -> usize {
        // Relaxed: the tasks have ended.
        self.left.load(Ordering::Relaxed)
    }

    async fn add<T: Timeouts>(&self, timeouts: T) {
        {
            let mut guarded = pin!(timeouts.guard(LIMIT, Operation::Never));
            let waker = Waker::from(Arc::clone(&self.waker));
            let is_registered =
                guarded.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
            assert!(is_registered, "it is never ready");
            drop(waker);
            // It may go on in another worker.
            yield_now().await;
        }
        // AcqRel: who finds that none is to come sees what became of all.
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
