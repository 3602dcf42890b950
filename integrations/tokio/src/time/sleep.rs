use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use corewheel::future::{self, SharedWheel};
use tokio::task::coop;

use super::{
    Instant,
    current_timers::current_timers,
    virtual_time::{panic_if_stuck, request_event_polls},
};

/// Waits until `duration` from now. A sleep of zero is ready at the first poll.
///
/// # Panics
///
/// Panics if the default timers cannot be started.
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    let inner = current_timers().sleep(duration);
    Sleep { deadline: inner.deadline().into(), inner }
}

/// Waits until `deadline`. A sleep whose deadline has passed is ready at the first poll.
///
/// # Panics
///
/// Panics if the default timers cannot be started.
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { inner: current_timers().sleep_until(deadline.into_std()), deadline }
}

/// Waits until its deadline; created by [`sleep`] and [`sleep_until`]. A timer rounds the deadline
/// up to a tick: 1 ms by default, and 100 us on a wheel that [`run`](crate::run) creates.
///
/// Once ready, a sleep stays ready until it is [reset](Self::reset). Dropping a sleep cancels its
/// timer.
///
/// # Examples
///
/// An idle timeout that each packet moves:
///
/// ```
/// use corewheel_tokio::time::{self, Duration, Instant};
///
/// # #[cfg(any(target_os = "linux", target_os = "android"))]
/// corewheel_tokio::run(async {
///     let idle = time::sleep(Duration::from_millis(20));
///     tokio::pin!(idle);
///     for _packet in 0..3 {
///         idle.as_mut().reset(Instant::now() + Duration::from_millis(20));
///     }
///     idle.await;
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    inner: future::Sleep<SharedWheel>,
    /// The requested deadline; the deadline of `inner` is limited to the range of the clock.
    deadline: Instant,
}

impl Sleep {
    /// Returns the deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the deadline, limited to the range of the clock.
    pub(super) fn clamped_deadline(&self) -> Instant {
        self.inner.deadline().into()
    }

    /// Returns true if the timer has fired, or a poll found that the deadline had passed.
    pub fn is_elapsed(&self) -> bool {
        self.inner.is_elapsed()
    }

    /// Moves the deadline, earlier or later, even after it has passed. A waiting task is woken at
    /// the new deadline, without another poll.
    ///
    /// A `Sleep` is `Unpin`, so it need not be pinned: call `Pin::new(&mut sleep).reset(deadline)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel_tokio::time::{self, Duration, Instant};
    /// use std::pin::Pin;
    ///
    /// # #[cfg(any(target_os = "linux", target_os = "android"))]
    /// corewheel_tokio::run(async {
    ///     let mut idle = time::sleep(Duration::from_secs(60));
    ///     Pin::new(&mut idle).reset(Instant::now() + Duration::from_millis(5));
    ///     (&mut idle).await;
    ///     assert!(idle.is_elapsed());
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        self.inner.reset(deadline.into_std());
    }

    /// Polls without consuming the task's cooperative budget.
    pub(super) fn poll_unconstrained(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        request_event_polls();
        Pin::new(&mut self.inner).poll(cx).map(|()| panic_if_stuck())
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let budget = ready!(coop::poll_proceed(cx));
        ready!(self.poll_unconstrained(cx));
        budget.made_progress();
        Poll::Ready(())
    }
}
