//! Converts nanoseconds to ticks and back, and computes the runs of periodic timers.
//!
//! A deadline is rounded up to a tick, and the time of a turn is rounded down. So no timer is early
//! (P1 in `ARCHITECTURE.md`). Times saturate at 2^64 - 1 nanoseconds, 584 years.

use std::time::Duration;

use crate::limits::TICK_NANOS_MIN;

/// The length of a tick, at least a microsecond.
///
/// # Dividing without a division
///
/// Every add and every turn divides by the length, and a 64-bit division costs more than a
/// multiplication. Let d be the length, l the number of bits of d - 1, and
/// r = ceil(2^(63 + l) / d), so that r * d = 2^(63 + l) + e with 0 <= e < d. For a reading
/// n < 2^63:
///
/// n * r / 2^(63 + l) = n / d + n * e / (d * 2^(63 + l)).
///
/// The last term is less than 1 / d, because n < 2^63 and e < d <= 2^l. The next integer above
/// n / d is at least n / d + 1 / d. So n * r / 2^(63 + l) rounded down equals n / d rounded down.
/// Readings of 2^63 or more, after 292 years, need a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickLength {
    nanos: u64,
    /// The factor r of the type's documentation. Since d exceeds 2^(l - 1), r is below 2^64.
    reciprocal: u64,
    /// The number l of the type's documentation, minus 1.
    reciprocal_shift: u32,
}

/// Numbers of at least this size are divided by the length, not multiplied by the reciprocal.
const SLOW_DIVISION_FROM: u64 = 1 << 63;

impl TickLength {
    /// Creates a tick length of at most 2^64 - 1 nanoseconds. Returns `None` if `length` is shorter
    /// than a microsecond.
    pub(crate) fn new(length: Duration) -> Option<Self> {
        let nanos = saturating_nanos(length);
        if nanos < TICK_NANOS_MIN {
            return None;
        }
        let reciprocal_shift = (nanos - 1).ilog2();
        let reciprocal = (1_u128 << (64 + reciprocal_shift)).div_ceil(nanos.into());
        let reciprocal = u64::try_from(reciprocal).expect("r is below 2^64");
        Some(Self { nanos, reciprocal, reciprocal_shift })
    }

    /// Returns the first tick that begins at or after `nanos`. For `u64::MAX` nanoseconds, returns
    /// the tick `u64::MAX`, which is never reached.
    #[inline]
    pub(crate) fn deadline_tick(self, nanos: u64) -> u64 {
        // Zero becomes `u64::MAX`, so that one comparison excludes zero and late times.
        let nanos_before = nanos.wrapping_sub(1);
        if nanos_before < SLOW_DIVISION_FROM {
            self.divide_fast(nanos_before) + 1
        } else if nanos == 0 {
            0
        } else {
            self.deadline_tick_slow(nanos)
        }
    }

    /// Computes [`deadline_tick`](Self::deadline_tick) by a division, for times too late for the
    /// reciprocal.
    #[cold]
    fn deadline_tick_slow(self, nanos: u64) -> u64 {
        if nanos == u64::MAX { u64::MAX } else { nanos.div_ceil(self.nanos) }
    }

    /// Returns the tick in progress at `nanos`.
    #[inline]
    pub(crate) fn tick_at(self, nanos: u64) -> u64 {
        if nanos < SLOW_DIVISION_FROM { self.divide_fast(nanos) } else { nanos / self.nanos }
    }

    /// Returns `nanos` divided by the length. `nanos` must be below [`SLOW_DIVISION_FROM`].
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The upper half of 128 bits.
    fn divide_fast(self, nanos: u64) -> u64 {
        ((u128::from(nanos) * u128::from(self.reciprocal)) >> 64) as u64 >> self.reciprocal_shift
    }

    /// Rounds `nanos` up to the beginning of a tick.
    pub(crate) fn round_up(self, nanos: u64) -> u64 {
        self.tick_start_nanos(self.deadline_tick(nanos))
    }

    /// Returns the deadline `nanos`. If the deadline has elapsed, subtracts a tick minus a
    /// nanosecond. The subtraction cancels the rounding up in
    /// [`deadline_tick`](Self::deadline_tick), so the next turn fires the timer.
    #[inline]
    pub(crate) fn backdate_if_elapsed(self, nanos: u64, has_elapsed: bool) -> u64 {
        // Subtracts zero if `has_elapsed` is false, because a branch would slow adds down.
        nanos.saturating_sub(if has_elapsed { self.nanos - 1 } else { 0 })
    }

    /// Returns the time from which a periodic timer counts its period after a reset to `due`. `min`
    /// and `max` are the bounds of the reset's clock reading. If the requested deadline had
    /// elapsed, the reset lowered it to at most `min`, and then
    /// [backdated](Self::backdate_if_elapsed) it. If undoing the backdating gives a time before
    /// `min`, this time is the requested deadline. If not, the requested deadline may have been as
    /// late as `max`: the function returns the later of `max` and `due`.
    pub(crate) fn period_start_after_reset(self, due: u64, min: u64, max: u64) -> u64 {
        let due_before_backdating = due.saturating_add(self.nanos - 1);
        if due_before_backdating < min { due_before_backdating } else { max.max(due) }
    }

    /// Converts a period to nanoseconds. A period shorter than a tick becomes a tick.
    pub(crate) fn clamp_period_nanos(self, period: Duration) -> u64 {
        saturating_nanos(period).max(self.nanos)
    }

    #[inline]
    pub(crate) fn tick_start_nanos(self, tick: u64) -> u64 {
        tick.saturating_mul(self.nanos)
    }
}

/// The next run and the period of a timer, in nanoseconds of the shard's clock. A one-shot timer
/// has period zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimerSchedule {
    /// The time of the next run, not rounded to a tick, because rounding would make the runs drift.
    pub(crate) due: u64,
    pub(crate) period: u64,
}

impl TimerSchedule {
    /// Advances `due` by at least one whole period, until `due` is after `now`. So missed runs are
    /// skipped. Returns the new `due`. The period must not be zero.
    pub(crate) fn advance_past(&mut self, now: u64) -> u64 {
        let missed_runs = now.saturating_sub(self.due) / self.period;
        self.due =
            self.due.saturating_add(self.period.saturating_mul(missed_runs.saturating_add(1)));
        self.due
    }
}

/// Converts a duration to nanoseconds. A duration above 584 years becomes 584 years.
#[inline]
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    let (seconds, nanos) = (duration.as_secs(), u64::from(duration.subsec_nanos()));
    // Avoids the 128-bit arithmetic of `as_nanos`. Below 2^34 seconds, the result fits in 64 bits.
    if seconds >> 34 == 0 {
        seconds * 1_000_000_000 + nanos
    } else {
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_at_least_a_microsecond() {
        assert_eq!(TickLength::new(Duration::ZERO), None);
        assert_eq!(TickLength::new(Duration::from_nanos(999)), None);
        assert!(TickLength::new(Duration::from_micros(1)).is_some());
        assert!(TickLength::new(Duration::MAX).is_some());
    }

    /// Returns tick lengths in nanoseconds: powers of two and of ten, their neighbors, and the
    /// longest lengths.
    fn test_tick_lengths() -> Vec<u64> {
        let powers_of_two = (10..64).map(|bits| 1_u64 << bits);
        let powers_of_ten = (3..20).map(|digits| 10_u64.pow(digits));
        let with_neighbors =
            powers_of_two.chain(powers_of_ten).flat_map(|power| [power - 1, power, power + 1]);
        with_neighbors
            .chain([u64::MAX, u64::MAX - 1])
            .filter(|&length| length >= TICK_NANOS_MIN)
            .collect()
    }

    fn agrees_with_division(length: u64, nanos: u64) {
        let tick = TickLength::new(Duration::from_nanos(length)).expect("long enough");
        assert_eq!(tick.tick_at(nanos), nanos / length, "{nanos} / {length}");
        let deadline = if nanos == u64::MAX { u64::MAX } else { nanos.div_ceil(length) };
        assert_eq!(tick.deadline_tick(nanos), deadline, "{nanos} / {length}, rounded up");
    }

    #[test]
    fn the_reciprocal_divides_exactly_at_the_edges() {
        let step = if cfg!(miri) { 29 } else { 1 };
        let lengths = test_tick_lengths();
        for &length in lengths.iter().step_by(step) {
            let last = u64::MAX / length;
            let multiples_of_length =
                [1, 2, 3, last / 2, last - 1, last].map(|count| length.wrapping_mul(count));
            let boundary_times =
                multiples_of_length.into_iter().chain(lengths.iter().copied()).chain([0, u64::MAX]);
            for nanos in boundary_times.step_by(step) {
                for time in [nanos.saturating_sub(1), nanos, nanos.saturating_add(1)] {
                    agrees_with_division(length, time);
                }
            }
        }
    }

    #[test]
    fn the_reciprocal_divides_exactly_at_random() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut random_u64 = move || random.u64(..) >> random.u32(..64);
        for _ in 0..if cfg!(miri) { 200 } else { 200_000 } {
            let (length, nanos) = (random_u64().max(TICK_NANOS_MIN), random_u64());
            agrees_with_division(length, nanos);
            let last = nanos - nanos % length;
            agrees_with_division(length, last);
            agrees_with_division(length, last.saturating_sub(1));
        }
    }

    #[test]
    fn durations_beyond_64_bits_of_nanos_saturate() {
        let longest = Duration::from_nanos(u64::MAX);
        for duration in
            [Duration::ZERO, Duration::from_nanos(999_999_999), Duration::from_secs(1), longest]
        {
            assert_eq!(u128::from(saturating_nanos(duration)), duration.as_nanos());
        }
        for too_long in
            [longest + Duration::from_nanos(1), Duration::from_secs(18_446_744_074), Duration::MAX]
        {
            assert_eq!(saturating_nanos(too_long), u64::MAX);
        }
    }

    #[test]
    fn the_largest_tick_does_not_overflow() {
        let tick = TickLength::new(Duration::from_micros(1)).expect("long enough");
        assert_eq!(tick.tick_start_nanos(u64::MAX), u64::MAX);
        assert_eq!(tick.tick_start_nanos(tick.deadline_tick(u64::MAX)), u64::MAX);
    }

    fn next(due: u64, period: u64, now: u64) -> u64 {
        TimerSchedule { due, period }.advance_past(now)
    }

    #[test]
    fn advance_past_keeps_the_phase_and_skips_missed_runs() {
        assert_eq!(next(100, 10, 100), 110);
        assert_eq!(next(100, 10, 109), 110);
        assert_eq!(next(100, 10, 110), 120);
        assert_eq!(next(100, 10, 1_005), 1_010);
        assert_eq!(next(u64::MAX - 5, 10, u64::MAX), u64::MAX);
        assert_eq!(next(0, u64::MAX, 0), u64::MAX);
    }
}
