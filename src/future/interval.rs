//! Async periodic ticks.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use super::{Backend, Sleep};
use crate::{clock::tick::saturating_nanos, error::AddErrorReason, local::LocalTimer};

/// Ticks once per period. Created by [`interval`](super::interval) and
/// [`Timers::interval`](super::Timers::interval).
///
/// The schedule does not drift, even if the period is not a multiple of the wheel's tick.
/// [`MissedTickBehavior`] decides what happens after a tick that is late by a period or more.
///
/// # Examples
///
/// ```
/// use corewheel::future::{VirtualTime, interval, sleep};
/// use std::time::Duration;
///
/// let time = VirtualTime::new();
/// let times = time.block_on(|| async {
///     let mut ticks = interval(Duration::from_secs(10));
///     let start = ticks.tick().await; // at once
///     let mut times = Vec::new();
///     for work in [3, 8, 1] {
///         sleep(Duration::from_secs(work)).await;
///         times.push((ticks.tick().await - start).as_secs());
///     }
///     times
/// });
/// assert_eq!(times, [10, 20, 30]); // the schedule does not drift
/// ```
#[derive(Debug)]
pub struct Interval<B: Backend = LocalTimer> {
    sleep: Sleep<B>,
    /// The time from the next tick to the origin of the wheel's clock, or zero if the tick is not
    /// before the origin. While the tick is before the origin, `sleep` ends at the origin.
    nanos_before_origin: u64,
    period_nanos: u64,
    missed_tick_behavior: MissedTickBehavior,
}

/// How an [`Interval`] handles missed ticks.
///
/// A tick is missed if its deadline has already elapsed when [`tick`](Interval::tick) returns the
/// previous tick. In `corewheel_tokio`, as in tokio, the behavior applies after each tick that is
/// returned more than 5 ms late.
///
/// For example, if the period is 10 s, and the tick due at 10 s is returned at 35 s, the ticks are
/// returned at:
///
/// | | 1st tick | 2nd | 3rd | 4th | 5th | 6th |
/// |---|---|---|---|---|---|---|
/// | `Burst` | 0 s | 35 s | at once (due at 20 s) | at once (due at 30 s) | 40 s | 50 s |
/// | `Delay` | 0 s | 35 s | 45 s | 55 s | 65 s | 75 s |
/// | `Skip` | 0 s | 35 s | 40 s | 50 s | 60 s | 70 s |
///
/// # Examples
///
/// ```
/// use corewheel::future::{MissedTickBehavior, VirtualTime, interval, sleep};
/// use std::time::Duration;
///
/// let time = VirtualTime::new();
/// let times = time.block_on(|| async {
///     let mut ticks = interval(Duration::from_secs(10));
///     ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
///     let start = ticks.tick().await;
///     sleep(Duration::from_secs(35)).await;
///     [ticks.tick().await, ticks.tick().await].map(|tick| (tick - start).as_secs())
/// });
/// assert_eq!(times, [10, 40]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissedTickBehavior {
    /// Returns the missed ticks at once, one after another.
    #[default]
    Burst,
    /// Begins a new schedule: the next tick comes one period after the late tick was returned.
    Delay,
    /// Skips missed ticks: the next tick is the first scheduled tick that is still in the future.
    Skip,
}

impl MissedTickBehavior {
    /// Returns the deadline of the next tick. The latest tick was due at `due`, and is returned at
    /// `now`. All times are in nanoseconds.
    fn deadline_after_tick(self, due: u64, now: u64, period: u64) -> u64 {
        let next_due = due.saturating_add(period);
        if now < next_due {
            return next_due;
        }
        match self {
            Self::Burst => next_due,
            Self::Delay => now.saturating_add(period),
            Self::Skip => now.saturating_add(period - (now - due) % period),
        }
    }
}

impl<B: Backend> Interval<B> {
    /// Creates an interval whose first tick comes when `sleep` ends.
    pub(super) fn new(sleep: Sleep<B>, period: Duration) -> Self {
        let mut interval = Self {
            sleep,
            nanos_before_origin: 0,
            period_nanos: 0,
            missed_tick_behavior: MissedTickBehavior::default(),
        };
        interval.set_period(period);
        interval
    }

    /// Creates an interval whose first tick comes at `start`, the deadline of `sleep`.
    pub(super) fn new_at(start: Instant, sleep: Sleep<B>, period: Duration) -> Self {
        let mut interval = Self::new(sleep, period);
        interval.set_nanos_before_origin(start);
        interval
    }

    fn set_nanos_before_origin(&mut self, deadline: Instant) {
        let origin = self.sleep.backend.instant_at(0);
        self.nanos_before_origin = saturating_nanos(origin.saturating_duration_since(deadline));
    }

    /// Raises the deadline of an immediate tick to the current time. Without this call, the
    /// deadline may be slightly in the past, and the next tick would come less than a period after
    /// the immediate tick.
    pub(super) fn raise_deadline_to_now(&mut self) {
        if let Ok(now) = self.sleep.backend.now_nanos() {
            self.sleep.deadline = self.sleep.deadline.max(now);
        }
    }

    /// Waits for the next tick. Returns the instant for which the tick was scheduled.
    ///
    /// Dropping a pending future loses no tick, so the future can be a branch of a `select!`.
    ///
    /// # Panics
    ///
    /// A call that must add a timer panics if [no timer is available](super#without-a-timer), or if
    /// the thread has [no driver](super#without-a-driver).
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick. Returns the instant for which the tick was scheduled.
    ///
    /// # Panics
    ///
    /// A call that must add a timer panics if [no timer is available](super#without-a-timer), or if
    /// the thread has [no driver](super#without-a-driver).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{future::interval, local_timer};
    /// use std::{task::{Context, Waker}, time::Duration};
    ///
    /// local_timer().register_driver(); // this program's loop turns the wheel
    /// let mut ticks = interval(Duration::from_secs(10));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(ticks.poll_tick(&mut context).is_ready()); // the first tick comes at once
    /// assert!(ticks.poll_tick(&mut context).is_pending());
    /// ```
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        self.try_poll_tick(cx)
            .map(|tick| tick.unwrap_or_else(|reason| panic!("cannot tick: {reason}")))
    }

    /// Polls for the next tick. Returns an error if no timer is available.
    ///
    /// # Errors
    ///
    /// Fails if [no timer is available](super#without-a-timer). After an error, the next poll
    /// usually tries again to add a timer.
    ///
    /// # Panics
    ///
    /// Panics if the poll must add a timer on a thread [without a driver](super#without-a-driver).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{AddErrorReason, Config, future::interval, local_timer};
    /// use std::{task::{Context, Poll, Waker}, time::Duration};
    ///
    /// Config::new().limit(0).install()?;
    /// local_timer().register_driver();
    /// let mut ticks = interval(Duration::from_secs(10));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(matches!(ticks.try_poll_tick(&mut context), Poll::Ready(Ok(_)))); // at once
    /// let refused = ticks.try_poll_tick(&mut context);
    /// assert_eq!(refused, Poll::Ready(Err(AddErrorReason::Full)));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn try_poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Result<Instant, AddErrorReason>> {
        ready!(self.sleep.poll_elapsed(cx))?;
        let now = self.sleep.backend.now_nanos()?;
        // If the tick is before the origin, `due`, `now` and `next_due` count from the tick.
        let nanos_before_origin = self.nanos_before_origin;
        let (due, now) = (self.sleep.deadline, now.saturating_add(nanos_before_origin));
        let instant = self.sleep.deadline();
        let tick_instant =
            instant.checked_sub(Duration::from_nanos(nanos_before_origin)).unwrap_or(instant);
        let next_due = self.missed_tick_behavior.deadline_after_tick(due, now, self.period_nanos);
        self.nanos_before_origin = nanos_before_origin.saturating_sub(next_due);
        self.sleep.set_deadline_unarmed(Ok(next_due.saturating_sub(nanos_before_origin)));
        Poll::Ready(Ok(tick_instant))
    }

    /// Restarts the schedule: the next tick comes one period from now.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, interval};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let waited = time.block_on(|| async {
    ///     let mut ticks = interval(Duration::from_secs(10));
    ///     let start = ticks.tick().await;
    ///     corewheel::future::sleep(Duration::from_secs(4)).await;
    ///     ticks.reset();
    ///     (ticks.tick().await - start).as_secs()
    /// });
    /// assert_eq!(waited, 14);
    /// ```
    pub fn reset(&mut self) {
        self.reset_after(Duration::from_nanos(self.period_nanos));
    }

    /// Restarts the schedule with an immediate tick: the next poll is ready. A waiting task is
    /// woken at the wheel's next tick at the latest.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, interval};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let waited = time.block_on(|| async {
    ///     let mut ticks = interval(Duration::from_secs(10));
    ///     let start = ticks.tick().await;
    ///     ticks.reset_immediately();
    ///     (ticks.tick().await - start).as_secs()
    /// });
    /// assert_eq!(waited, 0);
    /// ```
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Restarts the schedule: the next tick comes `duration` from now.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, interval};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let waited = time.block_on(|| async {
    ///     let mut ticks = interval(Duration::from_secs(10));
    ///     let start = ticks.tick().await;
    ///     ticks.reset_after(Duration::from_secs(25));
    ///     (ticks.tick().await - start).as_secs()
    /// });
    /// assert_eq!(waited, 25);
    /// ```
    pub fn reset_after(&mut self, duration: Duration) {
        self.sleep.reset_after(duration);
        self.nanos_before_origin = 0;
        if duration.is_zero() {
            self.raise_deadline_to_now();
        }
    }

    /// Restarts the schedule: the next tick comes at `deadline`, an instant of the wheel's clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, interval};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let waited = time.block_on(|| async {
    ///     let mut ticks = interval(Duration::from_secs(10));
    ///     let start = ticks.tick().await;
    ///     ticks.reset_at(start + Duration::from_secs(25));
    ///     (ticks.tick().await - start).as_secs()
    /// });
    /// assert_eq!(waited, 25);
    /// ```
    pub fn reset_at(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
        self.set_nanos_before_origin(deadline);
    }

    /// Returns the time between two scheduled ticks, at least one tick of the wheel.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::interval;
    /// use std::time::Duration;
    ///
    /// assert_eq!(interval(Duration::from_secs(10)).period(), Duration::from_secs(10));
    /// assert_eq!(interval(Duration::ZERO).period(), Duration::from_millis(1)); // a tick of the wheel
    /// ```
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period_nanos)
    }

    /// Changes the time between two ticks. A period below one tick of the wheel becomes one tick.
    /// The next tick keeps its deadline. To change the next deadline too, call
    /// [`reset`](Self::reset) afterwards.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, interval};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let task = time.spawn(|| async {
    ///     let mut polls = interval(Duration::from_secs(1));
    ///     let start = polls.tick().await;
    ///     polls.set_period(Duration::from_secs(10));
    ///     [polls.tick().await - start, polls.tick().await - start]
    /// });
    /// assert_eq!(time.run(), 0);
    /// assert_eq!(task.take().unwrap().map(|tick| tick.as_secs()), [1, 11]);
    /// ```
    pub fn set_period(&mut self, period: Duration) {
        let nanos = self.sleep.backend.clamp_period_nanos(period);
        // Without a wheel, no tick length is known, so the minimum period is a nanosecond.
        self.period_nanos = nanos.unwrap_or_else(|_| saturating_nanos(period).max(1));
    }

    /// Returns the behavior for missed ticks; initially [`MissedTickBehavior::Burst`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{MissedTickBehavior, interval};
    /// use std::time::Duration;
    ///
    /// let ticks = interval(Duration::from_secs(10));
    /// assert_eq!(ticks.missed_tick_behavior(), MissedTickBehavior::Burst);
    /// ```
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed_tick_behavior
    }

    /// Sets the behavior for missed ticks from now on.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{MissedTickBehavior, interval};
    /// use std::time::Duration;
    ///
    /// let mut ticks = interval(Duration::from_secs(10));
    /// ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    /// assert_eq!(ticks.missed_tick_behavior(), MissedTickBehavior::Skip);
    /// ```
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed_tick_behavior = behavior;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::MissedTickBehavior::{Burst, Delay, Skip};

    #[test]
    fn a_tick_returned_within_its_period_keeps_to_the_schedule() {
        for behavior in [Burst, Delay, Skip] {
            assert_eq!(
                [100, 105, 109].map(|now| behavior.deadline_after_tick(100, now, 10)),
                [110; 3]
            );
        }
    }

    #[test]
    fn each_behavior_sets_the_deadline_after_a_missed_tick() {
        assert_eq!(
            [110, 111, 135, 140].map(|now| Burst.deadline_after_tick(100, now, 10)),
            [110; 4]
        );
        assert_eq!(
            [110, 111, 135, 140].map(|now| Delay.deadline_after_tick(100, now, 10)),
            [120, 121, 145, 150]
        );
        assert_eq!(
            [110, 111, 135, 140].map(|now| Skip.deadline_after_tick(100, now, 10)),
            [120, 120, 140, 150]
        );
    }

    #[test]
    fn the_largest_deadline_does_not_overflow() {
        for behavior in [Burst, Delay, Skip] {
            assert_eq!(behavior.deadline_after_tick(u64::MAX - 1, u64::MAX, 10), u64::MAX);
            assert_eq!(behavior.deadline_after_tick(0, 5, u64::MAX), u64::MAX);
        }
    }
}
