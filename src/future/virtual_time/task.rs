//! What has become of a task.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// A task of a [`VirtualTime`](super::VirtualTime): ready, as a future, with what the task gave. Dropping it does not end the
/// task.
pub struct Task<T>(Arc<Mutex<State<T>>>);

enum State<T> {
    /// Somebody may wait for it.
    Runs(Option<Waker>),
    /// `None`: it has been taken.
    Finished(Option<T>),
}

impl<T> Task<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Runs(None))))
    }

    /// What the task gave. `None`: it has not finished, or this was taken before.
    pub fn take(&self) -> Option<T> {
        match &mut *self.state() {
            State::Runs(_) => None,
            State::Finished(output) => output.take(),
        }
    }

    /// Whether it has finished.
    pub fn is_finished(&self) -> bool {
        matches!(*self.state(), State::Finished(_))
    }

    /// Runs `future`; another `Task` of the same one tells.
    pub(super) async fn run(self, future: impl Future<Output = T>) {
        let output = future.await;
        let before = std::mem::replace(&mut *self.state(), State::Finished(Some(output)));
        if let State::Runs(Some(waker)) = before {
            waker.wake();
        }
    }

    pub(super) fn same(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    /// # Panics
    ///
    /// If what the task gave has been taken before.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut *self.state() {
            State::Runs(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Finished(output) => {
                Poll::Ready(output.take().expect("what a task gives is taken once"))
            }
        }
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}
