use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

pub use corewheel::future::MissedTickBehavior;
use corewheel::future::Timers;
use futures_core::Stream;

use super::{Instant, Sleep, current_timers, sleep, sleep_until};

/// The lateness beyond which a tick counts as missed.
const MISSED_TICK_LATENESS: Duration = Duration::from_millis(5);

/// Ticks every `period`, the first time at once.
///
/// # Panics
///
/// Panics if `period` is zero, or the default timers cannot be started.
///
/// # Examples
///
/// ```
/// use corewheel_tokio::time::{Duration, interval};
///
/// # #[cfg(any(target_os = "linux", target_os = "android"))]
/// corewheel_tokio::run(async {
///     let mut interval = interval(Duration::from_millis(2));
///     let first = interval.tick().await;
///     assert_eq!(interval.tick().await - first, Duration::from_millis(2));
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    Interval::new(sleep(Duration::ZERO), period)
}

/// Ticks every `period`, the first time at `start`.
///
/// # Panics
///
/// Panics if `period` is zero, or the default timers cannot be started.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval::new(sleep_until(start), period)
}

/// Ticks once a period; created by [`interval`] and [`interval_at`].
///
/// As in tokio, [`MissedTickBehavior`] applies to a tick that is returned more than 5 ms late, on
/// the clock of the interval's [timers](super#which-wheel-a-future-uses).
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    /// The timers of `sleep`; their clock measures the periods.
    timers: Timers,
    period: Duration,
    behavior: MissedTickBehavior,
}

/// Returns the deadline of the next tick, if the current tick was due at `due` and is taken at
/// `now`.
fn next_deadline(
    behavior: MissedTickBehavior,
    due: Instant,
    now: Instant,
    period: Duration,
) -> Instant {
    match behavior {
        MissedTickBehavior::Delay if now > due + MISSED_TICK_LATENESS => now.saturating_add(period),
        MissedTickBehavior::Skip if now > due + MISSED_TICK_LATENESS => {
            let time_into_period = (now - due).as_nanos() % period.as_nanos();
            let time_into_period =
                u64::try_from(time_into_period).map_or(period, Duration::from_nanos);
            now.saturating_add(period.saturating_sub(time_into_period))
        }
        _ => due.saturating_add(period),
    }
}

impl Interval {
    #[track_caller]
    fn new(sleep: Sleep, period: Duration) -> Self {
        assert!(!period.is_zero(), "`period` must be non-zero.");
        let timers = current_timers::timers();
        Self { sleep, timers, period, behavior: MissedTickBehavior::default() }
    }

    /// Waits for the next tick. Returns the instant for which the tick was scheduled. No tick is
    /// lost if the future is dropped.
    ///
    /// # Panics
    ///
    /// Panics if no timer is available, or nothing advances the [paused](super::pause) clock.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick. Returns the instant for which the tick was scheduled.
    ///
    /// # Panics
    ///
    /// Panics if no timer is available, or nothing advances the [paused](super::pause) clock.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        self.reset_at(next_deadline(self.behavior, due, self.now(), self.period));
        Poll::Ready(due)
    }

    fn now(&self) -> Instant {
        self.timers.now().into()
    }

    /// Moves the next tick to one period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Moves the next tick to the current time.
    pub fn reset_immediately(&mut self) {
        self.reset_at(self.now());
    }

    /// Moves the next tick to `after` from now.
    pub fn reset_after(&mut self, after: Duration) {
        self.reset_at(self.now().saturating_add(after));
    }

    /// Moves the next tick to `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        Pin::new(&mut self.sleep).reset(deadline);
    }

    /// Returns the behavior after a missed tick.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.behavior
    }

    /// Sets the behavior after a missed tick.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.behavior = behavior;
    }

    /// Returns the time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }
}

/// The ticks of an [`Interval`] as a `Stream` that never ends.
#[derive(Debug)]
pub struct IntervalStream(Interval);

impl IntervalStream {
    /// Makes a stream of the ticks.
    pub fn new(interval: Interval) -> Self {
        Self(interval)
    }

    /// Returns the interval.
    pub fn into_inner(self) -> Interval {
        self.0
    }
}

impl AsRef<Interval> for IntervalStream {
    fn as_ref(&self) -> &Interval {
        &self.0
    }
}

impl AsMut<Interval> for IntervalStream {
    fn as_mut(&mut self) -> &mut Interval {
        &mut self.0
    }
}

impl Stream for IntervalStream {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.0.poll_tick(cx).map(Some)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[cfg(test)]
mod tests {
    use super::{MissedTickBehavior::*, *};

    const PERIOD: Duration = Duration::from_millis(10);

    /// Returns the time from a tick's deadline to the next deadline, if the tick is taken `late` ms
    /// late.
    fn next_deadline_offset(behavior: MissedTickBehavior, late: u64) -> u128 {
        let due = Instant::now();
        let now = due + Duration::from_millis(late);
        (next_deadline(behavior, due, now, PERIOD) - due).as_millis()
    }

    #[test]
    fn a_tick_late_by_five_milliseconds_is_not_missed() {
        for behavior in [Burst, Delay, Skip] {
            assert_eq!(
                [0, 4, 5].map(|late| next_deadline_offset(behavior, late)),
                [10; 3],
                "{behavior:?}"
            );
        }
    }

    #[test]
    fn a_missed_tick_bursts_delays_or_is_skipped() {
        assert_eq!([6, 10, 35].map(|late| next_deadline_offset(Burst, late)), [10, 10, 10]);
        assert_eq!([6, 10, 35].map(|late| next_deadline_offset(Delay, late)), [16, 20, 45]);
        assert_eq!([6, 10, 35].map(|late| next_deadline_offset(Skip, late)), [10, 20, 40]);
    }

    #[test]
    fn a_period_of_duration_max_does_not_overflow() {
        let now = Instant::now();
        for behavior in [Burst, Delay, Skip] {
            assert!(next_deadline(behavior, now, now + PERIOD, Duration::MAX) > now + PERIOD);
        }
    }
}
