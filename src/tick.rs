//! From nanoseconds to ticks and back.
//!
//! The two roundings that keep P1 live here and nowhere else: a deadline is rounded up, a turn's now is rounded down.
//! So a timer whose deadline's tick has been reached has waited at least as long as it was asked to. Everything
//! saturates: 2^64 nanoseconds are 584 years.

use std::{num::NonZeroU64, time::Duration};

use crate::limits::TICK_NANOS_MIN;

/// The length of a tick: at least a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickLength(NonZeroU64);

impl TickLength {
    /// `None` if `length` is shorter than a microsecond. A longer one than 2^64 nanoseconds is that long.
    pub(crate) fn new(length: Duration) -> Option<Self> {
        let nanos = saturating_nanos(length);
        if nanos < TICK_NANOS_MIN { None } else { NonZeroU64::new(nanos).map(Self) }
    }

    /// The first tick that is not before `nanos`.
    pub(crate) fn deadline(self, nanos: u64) -> u64 {
        nanos.div_ceil(self.0.get())
    }

    /// The last tick that has begun at `nanos`.
    pub(crate) fn now(self, nanos: u64) -> u64 {
        nanos / self.0
    }

    /// When `tick` begins.
    pub(crate) fn start(self, tick: u64) -> u64 {
        tick.saturating_mul(self.0.get())
    }
}

/// A duration in nanoseconds; what does not fit is 584 years.
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(length: u64) -> TickLength {
        TickLength::new(Duration::from_micros(length)).expect("long enough")
    }

    #[test]
    fn a_tick_is_at_least_a_microsecond() {
        assert_eq!(TickLength::new(Duration::ZERO), None);
        assert_eq!(TickLength::new(Duration::from_nanos(999)), None);
        assert!(TickLength::new(Duration::from_micros(1)).is_some());
        assert!(TickLength::new(Duration::MAX).is_some());
    }

    #[test]
    fn deadlines_round_up_and_now_rounds_down() {
        let tick = micros(1);
        assert_eq!([0, 1, 999, 1000, 1001].map(|nanos| tick.deadline(nanos)), [0, 1, 1, 1, 2]);
        assert_eq!([0, 1, 999, 1000, 1999].map(|nanos| tick.now(nanos)), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_reached_deadline_is_never_early() {
        for length in [1, 3, 1000] {
            let tick = micros(length);
            let edge = if cfg!(miri) { 50 } else { 20_000 };
            for nanos in (0..edge).chain(u64::MAX - edge..=u64::MAX) {
                let deadline = tick.deadline(nanos);
                assert!(tick.start(deadline) >= nanos);
                assert!(deadline == 0 || tick.start(deadline - 1) < nanos);
                assert!(tick.now(nanos) <= deadline);
            }
        }
    }

    #[test]
    fn nothing_overflows() {
        let tick = micros(1);
        assert_eq!(saturating_nanos(Duration::MAX), u64::MAX);
        assert_eq!(tick.start(u64::MAX), u64::MAX);
        assert_eq!(tick.start(tick.deadline(u64::MAX)), u64::MAX);
    }
}
