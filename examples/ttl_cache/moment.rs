//! Moments of the server's clock: microseconds of Unix time.
//!
//! The wall clock is read once, when the server starts; from there on time is counted by the monotonic clock, as the
//! timers count it. So a deadline given as a moment and one given as a delay mean the same on every core, and stay as
//! far away as they are when somebody sets the wall clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const MICROS_PER_MS: i64 = 1_000;

/// A moment of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// The server's clock; all copies show the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    started_at: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_at: micros(since_epoch) }
    }

    /// Rounded down.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.started_at + micros(self.started.elapsed()))
    }

    /// Rounded up.
    fn soon(&self) -> Moment {
        Moment(self.now().0 + 1)
    }

    /// So many milliseconds from now, not earlier. `None` if that cannot be told.
    pub(crate) fn after(&self, millis: i64) -> Option<Moment> {
        let now = i64::try_from(self.soon().0).ok()?;
        let micros = millis.checked_mul(MICROS_PER_MS)?.checked_add(now)?;
        Some(Moment(u64::try_from(micros.max(0)).ok()?))
    }

    /// How many milliseconds are left until then, one that has begun counts as whole.
    pub(crate) fn millis_until(&self, at: Moment) -> i64 {
        i64::try_from(at.0.saturating_sub(self.soon().0).div_ceil(1_000)).unwrap_or(i64::MAX)
    }
}

impl Moment {
    /// Of milliseconds of Unix time. `None` if that is too far away; a moment before 1970 is long past either way.
    pub(crate) fn of_unix_millis(millis: i64) -> Option<Self> {
        Some(Self(u64::try_from(millis.max(0).checked_mul(MICROS_PER_MS)?).ok()?))
    }

    /// Rounded up.
    pub(crate) fn unix_millis(self) -> i64 {
        i64::try_from(self.0.div_ceil(1_000)).unwrap_or(i64::MAX)
    }

    /// How long it is from `now` until then: nothing if it has passed.
    pub(crate) fn since(self, now: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(now.0))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
