use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::task::coop;

use super::{Instant, Sleep, error::Elapsed, sleep, sleep_until};

/// Gives up on `future` if it is not ready within `duration` from now.
///
/// # Panics
///
/// Panics if the default timers cannot be started.
///
/// # Examples
///
/// ```
/// use corewheel_tokio::time::{Duration, timeout};
/// use std::{future, io};
///
/// async fn fetch() -> io::Result<()> {
///     timeout(Duration::from_millis(5), future::pending::<()>()).await?;
///     Ok(())
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let error = runtime.block_on(fetch()).unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::TimedOut);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep(duration) }
}

/// Gives up on `future` if it is not ready by `deadline`.
///
/// # Panics
///
/// Panics if the default timers cannot be started.
#[track_caller]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep_until(deadline) }
}

pin_project! {
    /// Gives up on a future at a deadline; created by [`timeout`] and [`timeout_at`].
    ///
    /// Each poll polls the future first, and checks the deadline only if the future is pending. A
    /// future that is ready at its first poll adds no timer.
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Timeout<T> {
        #[pin]
        future: T,
        sleep: Sleep,
    }
}

impl<T> Timeout<T> {
    /// Returns a reference to the future.
    pub fn get_ref(&self) -> &T {
        &self.future
    }

    /// Returns a mutable reference to the future.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.future
    }

    /// Returns the future without its timeout.
    pub fn into_inner(self) -> T {
        self.future
    }
}

impl<T: Future> Future for Timeout<T> {
    type Output = Result<T::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let had_budget = coop::has_budget_remaining();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // A future that uses up the task's budget in each poll must still time out.
        let future_used_up_budget = had_budget && !coop::has_budget_remaining();
        let sleep_poll = if future_used_up_budget {
            this.sleep.poll_unconstrained(cx)
        } else {
            Pin::new(this.sleep).poll(cx)
        };
        sleep_poll.map(|()| Err(Elapsed(())))
    }
}
