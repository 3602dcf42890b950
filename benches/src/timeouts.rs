//! Timeouts around futures: what each contender offers, so that one load can be put on all of them.

use std::{
    convert::Infallible,
    fmt::Debug,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use corewheel::future::{self, Remote, Timers};
use pingora_timeout::fast_timeout::FastOrTokioTimeout;

use crate::peers::{LocalClock, RealTime};

/// Wraps operations in timeouts.
pub trait Timeouts: Clone + 'static {
    /// The time was over.
    type Elapsed: Debug;
    /// An operation with its timeout.
    type Guarded: Future<Output = Result<(), Self::Elapsed>> + 'static;

    /// Gives the operation up if it takes longer.
    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded;
}

/// Those that also work on the runtime of a single thread.
pub trait LocalTimeouts: Timeouts + Send + Sync {
    /// Drives the timers of a thread, in a task. Does nothing where the runtime drives them.
    fn drive() -> impl Future<Output = ()> + 'static {
        async {}
    }
}

/// The operation inside a timeout.
pub enum Operation {
    /// Ready after this number of pending polls. It wakes its task at once each time.
    Yields(u32),
    /// Waits for what does not come.
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

/// The floor: no timeout.
#[derive(Clone, Copy, Debug)]
pub struct Unguarded;

/// An operation alone.
pub struct Alone(Operation);

impl Timeouts for Unguarded {
    type Elapsed = Infallible;
    type Guarded = Alone;

    fn guard(&self, _: Duration, operation: Operation) -> Alone {
        Alone(operation)
    }
}

impl LocalTimeouts for Unguarded {}

impl Future for Alone {
    type Output = Result<(), Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Ok)
    }
}

/// `corewheel-timers`: on threads beside the runtime. `corewheel-per-worker`: on wheels of its
/// workers.
#[derive(Clone, Debug)]
pub struct There(Timers);

impl There {
    /// With as many threads, for as long as the process lives.
    pub fn on_threads(threads: usize) -> Self {
        Self(Timers::start(threads).expect("threads can be started"))
    }

    /// With a wheel for each core, for as long as the process lives.
    pub fn per_worker() -> Self {
        Self(Timers::per_worker().expect("a thread can be started"))
    }
}

impl Timeouts for There {
    type Elapsed = future::TimeoutError;
    type Guarded = future::Timeout<Operation, Remote>;

    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded {
        self.0.timeout(limit, operation)
    }
}

/// `corewheel-local`, `corewheel-local-fast`: on each thread's own.
#[derive(Clone, Copy, Debug)]
pub struct Here<const FAST: bool>;

impl<const FAST: bool> Timeouts for Here<FAST> {
    type Elapsed = future::TimeoutError;
    type Guarded = future::Timeout<Operation>;

    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded {
        future::timeout(limit, operation)
    }
}

impl<const FAST: bool> LocalTimeouts for Here<FAST> {
    fn drive() -> impl Future<Output = ()> + 'static {
        RealTime::<FAST>::install();
        async {
            let driver = corewheel_tokio::spawn_local().expect("a runtime that polls for events");
            driver.await.expect("a task that does not panic").expect("a descriptor");
        }
    }
}

/// `pingora-timeout`: timeouts that end within the same 10 ms share one entry, which stays until then.
#[derive(Clone, Copy, Debug)]
pub struct Pingora;

impl Timeouts for Pingora {
    type Elapsed = pingora_timeout::Elapsed;
    type Guarded = pingora_timeout::Timeout<Operation, FastOrTokioTimeout>;

    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded {
        pingora_timeout::timeout(limit, operation)
    }
}

/// `tokio-sleep`, `tokio-threads`, `tokio-alt`: tokio's own, on whichever runtime its task runs.
#[derive(Clone, Copy, Debug)]
pub struct Tokio;

impl Timeouts for Tokio {
    type Elapsed = tokio::time::error::Elapsed;
    type Guarded = tokio::time::Timeout<Operation>;

    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded {
        tokio::time::timeout(limit, operation)
    }
}

impl LocalTimeouts for Tokio {}
