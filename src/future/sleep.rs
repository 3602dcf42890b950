//! A sleep: a timer whose callback is a waker.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use super::{
    Backend,
    waker_callback::{WakerCallback, WakerId},
};
use crate::{
    clock::tick::saturating_nanos,
    cross_core::{call_site::CallSite, handle::TimerHandle},
    error::AddErrorReason,
    limits::ELAPSED_CHECK_MAX_SLEEP_NANOS,
    local::LocalTimer,
};

/// A future that becomes ready at its deadline. Created by [`sleep`](super::sleep) and
/// [`Timers::sleep`](super::Timers::sleep).
///
/// A sleep is `Unpin`, so a `select!` in a loop can poll `&mut sleep`. Once a poll has returned
/// ready, every poll is ready until the next [reset](Self::reset). Dropping the sleep cancels its
/// timer.
///
/// Cost: creating a sleep from a duration reads the clock. The first poll usually reads the clock
/// again and adds a timer. For a duration over a second, the first poll does not read the clock.
/// Later polls with the same waker only check whether the timer is pending.
///
/// # Panics
///
/// A poll that must add a timer panics if [no timer is available](super#without-a-timer), or if the
/// thread has [no driver](super#without-a-driver). If no timer is available,
/// [`poll_elapsed`](Self::poll_elapsed) returns an error instead.
///
/// # Examples
///
/// An idle timeout that each packet resets:
///
/// ```
/// use corewheel::future::{VirtualTime, sleep};
/// use std::time::Duration;
///
/// const IDLE: Duration = Duration::from_secs(30);
/// let time = VirtualTime::new();
/// time.spawn(|| async {
///     let mut idle = sleep(IDLE);
///     for _packet in 0..3 {
///         sleep(Duration::from_secs(20)).await;
///         idle.reset_after(IDLE);
///     }
///     idle.await;
/// });
/// assert_eq!(time.run(), 0);
/// assert_eq!(time.elapsed(), Duration::from_secs(3 * 20 + 30));
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Sleep<B: Backend = LocalTimer> {
    pub(super) backend: B,
    /// The deadline, in nanoseconds of the backend's clock.
    pub(super) deadline: u64,
    call_site: CallSite,
    state: SleepState,
}

/// The action of a sleep's next poll.
#[derive(Clone, Copy, Debug)]
enum SleepState {
    /// The duration exceeds [`ELAPSED_CHECK_MAX_SLEEP_NANOS`], and no poll has tried to add a
    /// timer. To save a clock reading, the first poll adds a timer without checking whether the
    /// deadline has elapsed.
    LongUnpolled,
    /// The delay is zero: the next poll is ready, even without a wheel.
    ZeroDelay,
    /// The sleep has no pending timer. The next poll compares the deadline with the clock.
    Unarmed,
    /// The sleep has a timer, whose callback is the waker with this identifier. The timer may have
    /// fired. If `elapsed_at_reset` is true, the sleep was reset to an elapsed deadline: the timer
    /// wakes the task, and the next poll is ready.
    Armed { handle: TimerHandle, waker_id: WakerId, elapsed_at_reset: bool },
    /// A poll has returned ready.
    Completed,
    /// The thread had no wheel, so the deadline could not be converted to nanoseconds.
    NoWheel(AddErrorReason),
}

impl<B: Backend> Sleep<B> {
    #[inline]
    #[track_caller]
    pub(super) fn with_delay(backend: B, delay_nanos: u64) -> Self {
        let deadline = backend.nanos_after(delay_nanos);
        let state = match delay_nanos {
            0 => SleepState::ZeroDelay,
            1..=ELAPSED_CHECK_MAX_SLEEP_NANOS => SleepState::Unarmed,
            _ => SleepState::LongUnpolled,
        };
        Self::new(backend, deadline, state)
    }

    #[track_caller]
    pub(super) fn with_deadline(backend: B, instant: Instant) -> Self {
        let deadline = backend.nanos_at(instant);
        Self::new(backend, deadline, SleepState::Unarmed)
    }

    #[inline]
    #[track_caller]
    fn new(backend: B, deadline: Result<u64, AddErrorReason>, state: SleepState) -> Self {
        let (deadline, state) = match deadline {
            Ok(deadline) => (deadline, state),
            Err(_) if matches!(state, SleepState::ZeroDelay) => (0, state),
            Err(reason) => (0, SleepState::NoWheel(reason)),
        };
        Self { backend, deadline, call_site: CallSite::caller(), state }
    }

    /// Returns the deadline, an instant of the wheel's clock. If the thread had no wheel when the
    /// sleep was created or last reset, the result is unspecified.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{future::sleep, local_timer};
    /// use std::time::Duration;
    ///
    /// let sleep = sleep(Duration::from_secs(5));
    /// assert!(sleep.deadline() <= local_timer().now() + Duration::from_secs(5));
    /// ```
    pub fn deadline(&self) -> Instant {
        self.backend.instant_at(self.deadline)
    }

    /// Returns true if the timer has fired or is firing, its wheel has ended, or a poll has
    /// returned ready. Does not read the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// time.block_on(|| async {
    ///     let mut idle = sleep(Duration::from_secs(5));
    ///     assert!(!idle.is_elapsed());
    ///     (&mut idle).await;
    ///     assert!(idle.is_elapsed());
    /// });
    /// ```
    pub fn is_elapsed(&self) -> bool {
        match self.state {
            SleepState::Completed => true,
            SleepState::Armed { handle, .. } => !self.backend.is_pending(handle),
            SleepState::LongUnpolled
            | SleepState::ZeroDelay
            | SleepState::Unarmed
            | SleepState::NoWheel(_) => false,
        }
    }

    /// Sets another deadline, earlier or later, even if the sleep has elapsed.
    ///
    /// Resets a pending timer to wake the task of the latest poll at the new deadline. If the new
    /// deadline has elapsed, the next poll is ready, and a waiting task is woken at the wheel's
    /// next tick at the latest.
    ///
    /// Cost if a timer is pending: usually one reading of the clock, and the reset itself. On this
    /// thread's wheel, a reset to a later deadline is usually one store.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// time.block_on(|| async {
    ///     let mut idle = sleep(Duration::from_secs(5));
    ///     let later = idle.deadline() + Duration::from_secs(5);
    ///     idle.reset(later);
    ///     idle.await;
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(10));
    /// ```
    #[inline]
    pub fn reset(&mut self, deadline: Instant) {
        if let SleepState::Armed { handle, waker_id, .. } = self.state
            && let Some((nanos, elapsed_at_reset)) = self.backend.reset_at(handle, deadline)
        {
            self.deadline = nanos;
            self.state = SleepState::Armed { handle, waker_id, elapsed_at_reset };
        } else {
            self.set_deadline_unarmed(self.backend.nanos_at(deadline));
        }
    }

    /// Reads the clock, and sets a deadline `duration` from now. See [`reset`](Self::reset).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// time.block_on(|| async {
    ///     let mut idle = sleep(Duration::from_secs(5));
    ///     for _packet in 0..3 {
    ///         sleep(Duration::from_secs(4)).await;
    ///         idle.reset_after(Duration::from_secs(5));
    ///     }
    ///     idle.await;
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(17));
    /// ```
    #[inline]
    pub fn reset_after(&mut self, duration: Duration) {
        let delay_nanos = saturating_nanos(duration);
        if let SleepState::Armed { handle, waker_id, .. } = self.state
            && let Some(nanos) = self.backend.reset_after(handle, delay_nanos)
        {
            self.deadline = nanos;
            self.state = SleepState::Armed { handle, waker_id, elapsed_at_reset: delay_nanos == 0 };
        } else {
            self.set_deadline_unarmed(self.backend.nanos_after(delay_nanos));
            if delay_nanos == 0 {
                self.state = SleepState::ZeroDelay;
            }
        }
    }

    /// Sets another deadline for a sleep that has no pending timer.
    pub(super) fn set_deadline_unarmed(&mut self, deadline: Result<u64, AddErrorReason>) {
        self.state = match deadline {
            Ok(deadline) => {
                self.deadline = deadline;
                SleepState::Unarmed
            }
            Err(reason) => SleepState::NoWheel(reason),
        };
    }

    /// Polls the sleep without a `Pin`. Returns an error if no timer is available.
    ///
    /// # Errors
    ///
    /// Fails if [no timer is available](super#without-a-timer). After an error, the next poll
    /// usually tries again to add a timer.
    ///
    /// # Panics
    ///
    /// Panics if the poll must add a timer on a thread [without a driver](super#without-a-driver).
    /// Also panics if cloning the waker panics; the sleep keeps its deadline and its pending timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::sleep;
    /// use std::{future::poll_fn, time::Duration};
    ///
    /// async fn pause() -> Result<(), corewheel::AddErrorReason> {
    ///     let mut sleep = sleep(Duration::from_millis(100));
    ///     poll_fn(|cx| sleep.poll_elapsed(cx)).await
    /// }
    /// ```
    #[inline]
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AddErrorReason>> {
        if let SleepState::Armed { handle, waker_id, elapsed_at_reset: false } = self.state
            && waker_id == WakerId::from_waker(cx.waker())
            && self.backend.is_pending(handle)
        {
            return Poll::Pending;
        }
        self.poll_slow(cx)
    }

    /// Polls a sleep that is ready, that has no pending timer, or whose waker must be replaced.
    #[inline(never)]
    fn poll_slow(&mut self, cx: &Context<'_>) -> Poll<Result<(), AddErrorReason>> {
        let waker = match self.state {
            SleepState::Completed | SleepState::ZeroDelay => return self.set_completed(),
            SleepState::NoWheel(reason) => return Poll::Ready(Err(reason)),
            SleepState::Armed { handle, elapsed_at_reset: true, .. } => {
                self.backend.cancel(handle);
                return self.set_completed();
            }
            SleepState::Armed { handle, .. } => {
                let is_pending = self.backend.is_pending(handle);
                let new_waker = is_pending.then(|| WakerCallback::new(cx.waker()));
                let is_cancelled = is_pending && self.backend.cancel(handle);
                self.state = SleepState::Unarmed;
                match new_waker {
                    // Adds no timer after the deadline: if a turn's budget has deferred the old
                    // timer, the budget could defer each new timer too.
                    Some(new_waker)
                        if is_cancelled && self.backend.has_elapsed(self.deadline) != Ok(true) =>
                    {
                        new_waker
                    }
                    // A timer that has ended does not prove that the deadline has elapsed: its
                    // wheel may have ended before the deadline.
                    unused_waker => {
                        self.backend.drop_refused_callback(unused_waker);
                        return self.poll_slow(cx);
                    }
                }
            }
            SleepState::Unarmed if self.backend.has_elapsed(self.deadline)? => {
                return self.set_completed();
            }
            SleepState::LongUnpolled | SleepState::Unarmed => WakerCallback::new(cx.waker()),
        };
        self.state = SleepState::Unarmed;
        let waker_id = waker.id(cx.waker());
        let add_result = self.backend.try_add(&mut self.deadline, self.call_site, waker);
        // A sleep whose deadline has elapsed needs no timer, so it completes even if the add was
        // refused. A poll in the state `LongUnpolled` has not checked the deadline yet.
        if add_result.is_err() && self.backend.has_elapsed(self.deadline)? {
            return self.set_completed();
        }
        let handle = add_result?;
        self.state = SleepState::Armed { handle, waker_id, elapsed_at_reset: false };
        Poll::Pending
    }

    fn set_completed(&mut self) -> Poll<Result<(), AddErrorReason>> {
        self.state = SleepState::Completed;
        Poll::Ready(Ok(()))
    }
}

impl<B: Backend> Future for Sleep<B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_elapsed(cx)
            .map(|elapsed| elapsed.unwrap_or_else(|reason| panic!("cannot sleep: {reason}")))
    }
}

impl<B: Backend> Drop for Sleep<B> {
    fn drop(&mut self) {
        if let SleepState::Armed { handle, .. } = self.state {
            self.backend.cancel(handle);
        }
    }
}

impl<B: Backend> fmt::Debug for Sleep<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("backend", &self.backend)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
