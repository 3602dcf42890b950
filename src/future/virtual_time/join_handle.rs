//! A task's handle, which returns the task's output.

use std::{
    fmt,
    future::poll_fn,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use crate::{cross_core::hooks::PanicPlace, local::ThreadWheel, util::sync::lock};

/// A handle to a task of a [`VirtualTime`](super::VirtualTime). Awaiting the handle returns the
/// output of the task. If the task panics, or is dropped with its executor, the handle is never
/// ready. Dropping the handle does not end the task.
///
/// # Examples
///
/// ```
/// use corewheel::future::{VirtualTime, sleep};
/// use std::time::Duration;
///
/// let time = VirtualTime::new();
/// let task = time.spawn(|| async {
///     sleep(Duration::from_secs(1)).await;
///     7
/// });
/// assert_eq!(time.block_on(|| task), 7);
/// ```
pub struct JoinHandle<T>(Arc<Mutex<TaskState<T>>>);

/// Whether a task is running or has finished.
enum TaskState<T> {
    /// The waker of the task that awaits the output, if there is one.
    Running(Option<Waker>),
    /// The task's output, or `None` after the output has been taken.
    Finished(Option<T>),
}

impl<T> JoinHandle<T> {
    /// Returns a task's handle, and a future that runs `future`, stores the output, and wakes the
    /// task that awaits the output.
    pub(super) fn new(future: impl Future<Output = T>) -> (Self, impl Future<Output = ()>) {
        let task = Self(Arc::new(Mutex::new(TaskState::Running(None))));
        let handle = task.clone_handle();
        let task_future = async move {
            let mut future = Box::pin(future);
            let poll_result = poll_fn(|cx| {
                catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
                    .map_or_else(|panic| Poll::Ready(Err(panic)), |poll| poll.map(Ok))
            });
            let poll_result = poll_result.await;
            // The future must not be dropped while its poll unwinds: a panic of the future's
            // destructor would abort the process.
            ThreadWheel::drop_each_catching_panic([future]);
            let output = poll_result.unwrap_or_else(|panic| resume_unwind(panic));
            let previous_state =
                mem::replace(&mut *lock(&task.0), TaskState::Finished(Some(output)));
            if let TaskState::Running(Some(waker)) = previous_state {
                ThreadWheel::catch_panic(PanicPlace::Callback, || waker.wake());
            }
        };
        (handle, task_future)
    }

    /// Returns the task's output, or `None` if the task has not finished or the output was taken
    /// before.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::VirtualTime;
    ///
    /// let time = VirtualTime::new();
    /// let task = time.spawn(|| async { 7 });
    /// assert_eq!(task.take(), None); // the task has not run
    /// time.run_until_stalled();
    /// assert_eq!((task.take(), task.take()), (Some(7), None));
    /// ```
    pub fn take(&self) -> Option<T> {
        match &mut *lock(&self.0) {
            TaskState::Running(_) => None,
            TaskState::Finished(output) => output.take(),
        }
    }

    /// Returns true if the task has finished.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::VirtualTime;
    ///
    /// let time = VirtualTime::new();
    /// let task = time.spawn(|| async { 7 });
    /// assert!(!task.is_finished());
    /// time.run_until_stalled();
    /// assert!(task.is_finished());
    /// ```
    pub fn is_finished(&self) -> bool {
        matches!(*lock(&self.0), TaskState::Finished(_))
    }

    pub(super) fn clone_handle(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    /// # Panics
    ///
    /// Panics if the output of the task has been taken before.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Cloning the new waker and dropping the old one run user code, so neither happens while
        // the state is locked.
        let mut new_or_old_waker = Some(cx.waker().clone());
        let poll_result = match &mut *lock(&self.0) {
            TaskState::Running(waker) => {
                mem::swap(waker, &mut new_or_old_waker);
                Poll::Pending
            }
            TaskState::Finished(output) => {
                Poll::Ready(output.take().expect("the output of a task was taken before"))
            }
        };
        ThreadWheel::drop_each_catching_panic(new_or_old_waker);
        poll_result
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
