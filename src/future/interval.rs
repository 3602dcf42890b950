//! Ticks at equal distances.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use super::{Home, Sleep};
use crate::{error::AddErrorReason, local::LocalTimer, tick::saturating_nanos};

/// Ticks once a period; from [`interval`](super::interval) and [`Timers::interval`](super::Timers::interval).
///
/// Ticks keep to their schedule: the period does not drift, whatever the timer's tick is and however late within a period a tick is
/// taken. What happens when a whole period or more was missed, [`MissedTickBehavior`] says.
#[derive(Debug)]
pub struct Interval<H: Home = LocalTimer> {
    /// Until the next tick.
    sleep: Sleep<H>,
    /// In nanoseconds.
    period: u64,
    missed: MissedTickBehavior,
}

/// What an [`Interval`] does when a tick is taken so late that the moment of the next one has come as well.
///
/// With a period of 10 s, and a second tick that is taken at 35 s, these come at:
///
/// | | | | | | | |
/// |---|---|---|---|---|---|---|
/// | `Burst` | 0 s | 35 s (the one of 10 s) | at once (20 s) | at once (30 s) | 40 s | 50 s |
/// | `Delay` | 0 s | 35 s | 45 s | 55 s | 65 s | 75 s |
/// | `Skip` | 0 s | 35 s | 40 s | 50 s | 60 s | 70 s |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissedTickBehavior {
    /// What was missed is made up for, at once: there are as many ticks as periods.
    #[default]
    Burst,
    /// A new schedule begins: the next tick is a period from now. (Only if one was missed: one that is taken late, but before the
    /// next is due, leaves the schedule as it is, where tokio's begins anew after 5 ms.)
    Delay,
    /// What was missed is left out: the next tick is the next one of the schedule that is still to come.
    Skip,
}

impl MissedTickBehavior {
    /// When the next tick is due, in nanoseconds, if one that was due at `tick` is taken `now`.
    fn next(self, tick: u64, now: u64, period: u64) -> u64 {
        let next = tick.saturating_add(period);
        if now < next {
            return next;
        }
        match self {
            Self::Burst => next,
            Self::Delay => now.saturating_add(period),
            Self::Skip => now.saturating_add(period - (now - tick) % period),
        }
    }
}

impl<H: Home> Interval<H> {
    /// `sleep` waits for the first tick.
    pub(super) fn new(sleep: Sleep<H>, period: Duration) -> Self {
        // Without a timer there is no tick to which to round, and there will be no tick.
        let period =
            sleep.home().period_nanos(period).unwrap_or_else(|_| saturating_nanos(period).max(1));
        Self { sleep, period, missed: MissedTickBehavior::default() }
    }

    /// Waits for the next tick; gives the instant for which it was scheduled.
    ///
    /// The future may be dropped before it is ready: no tick is lost.
    ///
    /// # Panics
    ///
    /// If [no timer can be had](super#without-a-timer), or the thread has [no driver](super#without-a-driver).
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// As [`tick`](Self::tick), polled.
    ///
    /// # Panics
    ///
    /// If [no timer can be had](super#without-a-timer), or the thread has [no driver](super#without-a-driver).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        self.try_poll_tick(cx)
            .map(|tick| tick.unwrap_or_else(|reason| panic!("cannot tick: {reason}")))
    }

    /// As [`poll_tick`](Self::poll_tick), with an error instead of a panic.
    ///
    /// # Errors
    ///
    /// If [no timer can be had](super#without-a-timer). Polled again, it tries again.
    ///
    /// # Panics
    ///
    /// If it would wait on a thread [without a driver](super#without-a-driver).
    pub fn try_poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Result<Instant, AddErrorReason>> {
        ready!(self.sleep.poll_elapsed(cx))?;
        let now = self.sleep.home().nanos_after(Duration::ZERO)?;
        let (tick, instant) = (self.sleep.deadline_nanos(), self.sleep.deadline());
        self.sleep.reset_to(self.missed.next(tick, now, self.period));
        Poll::Ready(Ok(instant))
    }

    /// The next tick is a period from now, and the schedule goes on from there.
    pub fn reset(&mut self) {
        self.reset_after(Duration::from_nanos(self.period));
    }

    /// Moves the next tick to now, where the schedule starts again: the next poll is ready. A task that waits for a tick is woken at the
    /// timer's next one.
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// The next tick is `duration` from now, and the schedule goes on from there.
    pub fn reset_after(&mut self, duration: Duration) {
        self.sleep.reset_after(duration);
    }

    /// The next tick is at `deadline`, an instant of the timer's clock, and the schedule goes on from there.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
    }

    /// The time between two ticks: at least a tick of the timer.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// What happens to missed ticks; at first [`MissedTickBehavior::Burst`].
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Says what happens to missed ticks from now on.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::MissedTickBehavior::{Burst, Delay, Skip};

    #[test]
    fn a_tick_taken_within_its_period_keeps_to_the_schedule() {
        for behavior in [Burst, Delay, Skip] {
            assert_eq!([100, 105, 109].map(|now| behavior.next(100, now, 10)), [110; 3]);
        }
    }

    #[test]
    fn a_missed_tick_is_made_up_for_or_begins_anew_or_is_left_out() {
        assert_eq!([110, 111, 135, 140].map(|now| Burst.next(100, now, 10)), [110; 4]);
        assert_eq!([110, 111, 135, 140].map(|now| Delay.next(100, now, 10)), [120, 121, 145, 150]);
        assert_eq!([110, 111, 135, 140].map(|now| Skip.next(100, now, 10)), [120, 120, 140, 150]);
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        for behavior in [Burst, Delay, Skip] {
            assert_eq!(behavior.next(u64::MAX - 1, u64::MAX, 10), u64::MAX);
            assert_eq!(behavior.next(0, 5, u64::MAX), u64::MAX);
        }
    }
}
