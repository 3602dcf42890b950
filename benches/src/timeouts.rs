//! Timeouts around futures: what each contender offers, so that one load can be put on all of them.

mod corewheel;
mod pingora;
mod tokio;

use std::{
    convert::Infallible,
    fmt::Debug,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

pub use self::{
    corewheel::{Here, There},
    pingora::Pingora,
    tokio::Tokio,
};

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
    /// Once in each thread: what a task does there all the time, so that they end.
    fn drive() -> impl Future<Output = ()> + 'static;
}

/// What a timeout is put around.
#[derive(Debug)]
pub enum Operation {
    /// Ready at the poll after so many that are not; it wakes its task at once each time.
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
#[derive(Debug)]
pub struct Alone(Operation);

impl Timeouts for Unguarded {
    type Elapsed = Infallible;
    type Guarded = Alone;

    fn guard(&self, _: Duration, operation: Operation) -> Alone {
        Alone(operation)
    }
}

impl LocalTimeouts for Unguarded {
    async fn drive() {}
}

impl Future for Alone {
    type Output = Result<(), Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Ok)
    }
}
