//! What time it is: the machine's monotonic clock, or virtual time that a test moves by hand.
//!
//! # The contract of a clock
//!
//! A clock counts nanoseconds from an origin of its own and can translate an [`Instant`] into that count. It need
//! not be monotonic: a shard holds the latest reading it has seen, so a clock that goes back stands still for its
//! timers until it has caught up, and [`Counts::clock_regressions`](crate::Counts::clock_regressions) tells. Readings
//! saturate after 2^64 nanoseconds, 584 years after the origin.

mod manual;

use std::time::{Duration, Instant};

pub use self::manual::ManualClock;
use crate::tick::saturating_nanos;

/// The clock of a shard.
///
/// Cloning gives the same clock: shards that share one agree on the time.
///
/// # Examples
///
/// ```
/// use corewheel::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let manual = ManualClock::new();
/// let clock = Clock::from(&manual);
/// let before = clock.now();
/// manual.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now() - before, Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Monotonic { origin: Instant },
    Manual(ManualClock),
}

impl Clock {
    /// The machine's monotonic clock: what [`Instant::now`] reads. A reading costs about 25 ns.
    pub fn monotonic() -> Self {
        Self(Source::Monotonic { origin: Instant::now() })
    }

    /// What time it is by this clock.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::Monotonic { .. } => Instant::now(),
            Source::Manual(manual) => manual.now(),
        }
    }

    /// Nanoseconds since the origin.
    pub(crate) fn nanos(&self) -> u64 {
        match &self.0 {
            Source::Monotonic { origin } => saturating_nanos(origin.elapsed()),
            Source::Manual(manual) => manual.nanos(),
        }
    }

    /// The reading this clock shows at `instant`; zero if that was before the origin.
    pub(crate) fn nanos_at(&self, instant: Instant) -> u64 {
        saturating_nanos(instant.saturating_duration_since(self.origin()))
    }

    /// The instant at which this clock shows `nanos`.
    pub(crate) fn instant_at(&self, nanos: u64) -> Instant {
        let origin = self.origin();
        // On a platform whose `Instant` cannot hold 584 years, a year from the origin stands for "out of sight".
        origin.checked_add(Duration::from_nanos(nanos)).unwrap_or_else(|| origin + Duration::from_secs(365 * 86_400))
    }

    fn origin(&self) -> Instant {
        match &self.0 {
            Source::Monotonic { origin } => *origin,
            Source::Manual(manual) => manual.origin(),
        }
    }
}

impl Default for Clock {
    /// The monotonic clock.
    fn default() -> Self {
        Self::monotonic()
    }
}

impl From<ManualClock> for Clock {
    fn from(manual: ManualClock) -> Self {
        Self(Source::Manual(manual))
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Self {
        Self::from(manual.clone())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nanos_and_instants_agree() {
        let manual = ManualClock::new();
        manual.set(Duration::from_nanos(1_234_567_891));
        for clock in [Clock::monotonic(), Clock::from(manual)] {
            let nanos = clock.nanos();
            assert_eq!(clock.nanos_at(clock.instant_at(nanos)), nanos);
            assert!(clock.now() >= clock.instant_at(nanos));
        }
    }

    #[test]
    fn instants_before_the_origin_are_its_zero() {
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(Clock::monotonic().nanos_at(before), 0);
    }

    #[test]
    fn the_end_of_time_is_an_instant() {
        let clock = Clock::monotonic();
        assert!(clock.instant_at(u64::MAX) > clock.now());
    }
}
