//! A shard's clock, its latest reading, and the start times of turns.

use std::time::Duration;

use super::{
    Clock, ClockSource, counter,
    estimator::{Anchor, ClockEstimator},
    tick::TickLength,
};

/// Inclusive bounds on the clock's time, in nanoseconds. An exact reading has equal bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The clock's time is at or after `min`. A turn fires the timers that are due at or before
    /// this bound.
    pub(crate) min: u64,
    /// The clock's time is at or before `max`. Nonzero delays count from this bound.
    pub(crate) max: u64,
}

impl Reading {
    pub(crate) fn exact(nanos: u64) -> Self {
        Self { min: nanos, max: nanos }
    }

    /// Raises each bound to the same bound of `newer`, if that bound is later. Returns false if the
    /// clock went backwards: `newer.max` is before `self.min`.
    #[inline]
    pub(crate) fn advance_to(&mut self, newer: Self) -> bool {
        let is_monotonic = newer.max >= self.min;
        *self = Self { min: self.min.max(newer.min), max: self.max.max(newer.max) };
        is_monotonic
    }
}

/// The clock of a shard. Times are in nanoseconds of this clock.
#[derive(Debug)]
pub(crate) struct ShardClock {
    pub(crate) source_clock: Clock,
    pub(crate) tick_length: TickLength,
    /// For a [fast clock](Clock::fast): estimates the time from the processor's counter. `None` if
    /// the clock is not fast, or if a faulty counter was abandoned.
    estimator: Option<ClockEstimator>,
    /// The latest reading, merged with the earlier ones. Neither bound ever decreases.
    pub(crate) latest_reading: Reading,
    /// The lower bound of the reading at the beginning of the latest turn, or of the first reading
    /// before the first turn.
    pub(crate) turn_start: u64,
    /// The value of `turn_start` before the latest turn that was not idle, or zero if every turn
    /// was idle. If a timer was due at or before this time, the loop has not caused its lateness.
    pub(crate) turn_start_before_last_pass: u64,
    /// The number of readings that showed that the clock had gone backwards.
    pub(crate) regression_count: u64,
}

impl ShardClock {
    pub(crate) fn new(clock: Clock, tick_length: TickLength) -> Self {
        let estimator = clock.is_fast().then(ClockEstimator::new);
        let mut shard_clock = Self {
            source_clock: clock,
            tick_length,
            estimator,
            latest_reading: Reading::exact(0),
            turn_start: 0,
            turn_start_before_last_pass: 0,
            regression_count: 0,
        };
        shard_clock.read_slow();
        shard_clock.turn_start = shard_clock.latest_reading.min;
        shard_clock
    }

    /// Estimates the time of a fast clock. Returns false if the clock is not fast, or if the
    /// processor's counter gives no estimate now.
    #[inline(always)]
    pub(crate) fn try_estimate(&mut self) -> bool {
        let Some(estimator) = &mut self.estimator else { return false };
        let Some(reading) = estimator.estimate_at(counter::read()) else { return false };
        self.merge_into_latest(reading);
        true
    }

    /// Reads a manual clock. Returns false if the clock is not manual.
    #[inline(always)]
    pub(crate) fn try_read_manual(&mut self) -> bool {
        let ClockSource::Manual(manual) = &self.source_clock.0 else { return false };
        self.merge_into_latest(manual.reading());
        true
    }

    /// Reads the source clock instead of estimating its time, and updates the estimator, if there
    /// is one.
    ///
    /// The clock must be read between the two counts of the [`Anchor`]. The kernel's clock code
    /// waits until the first count has been read, and `read_ordered` waits until the clock code has
    /// completed.
    #[inline]
    pub(crate) fn read_slow(&mut self) {
        let Some(estimator) = &mut self.estimator else {
            return self.merge_into_latest(Reading::exact(self.source_clock.nanos()));
        };
        let count_before = counter::read();
        let clock_nanos = self.source_clock.nanos();
        let anchor = Anchor { count_before, clock_nanos, count_after: counter::read_ordered() };
        if !estimator.update(anchor) {
            self.estimator = None;
        }
        self.merge_into_latest(Reading::exact(clock_nanos));
    }

    /// Merges a new reading into `latest_reading`. Counts a regression if both bounds of the new
    /// reading are before `latest_reading.min`.
    #[inline(always)]
    fn merge_into_latest(&mut self, reading: Reading) {
        if reading.min >= self.latest_reading.max {
            self.latest_reading = reading;
        } else {
            self.regression_count += u64::from(!self.latest_reading.advance_to(reading));
        }
    }

    /// Returns the present time in nanoseconds, or the lower bound of the latest reading if that is
    /// later.
    pub(crate) fn now(&self) -> u64 {
        self.source_clock.nanos().max(self.latest_reading.min)
    }

    /// Returns the duration from `now`, a new reading of the clock, until `end`. Returns zero if
    /// `end` is at or before `latest_reading.min`, even if the clock went backwards.
    pub(crate) fn time_until(&self, end: u64, now: u64) -> Duration {
        let wait_nanos = if end > self.latest_reading.min { end.saturating_sub(now) } else { 0 };
        Duration::from_nanos(wait_nanos)
    }

    /// Returns the wake-up time that the owner publishes for its next turn; `u64::MAX` means never.
    /// The result is after `turn_start`, because other threads assume that a turn has handled all
    /// wake-up times up to its beginning.
    pub(crate) fn wake_up_time_to_publish(&self, next_turn: Option<u64>) -> u64 {
        next_turn.map_or(u64::MAX, |nanos| nanos.max(self.turn_start.saturating_add(1)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        env, thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::clock::READING_WIDTH_MAX_NANOS;

    fn shard_clock(clock: &Clock) -> ShardClock {
        let tick = TickLength::new(Duration::from_millis(1)).expect("valid");
        ShardClock::new(clock.clone(), tick)
    }

    fn read(time: &mut ShardClock) -> Reading {
        // Clears `latest_reading`, because a shard's clock merges each new reading into
        // `latest_reading`.
        time.latest_reading = Reading::exact(0);
        if !time.try_estimate() {
            time.read_slow();
        }
        time.latest_reading
    }

    #[test]
    fn advance_to_never_lowers_a_bound() {
        let mut latest = Reading { min: 10, max: 20 };
        assert!(latest.advance_to(Reading { min: 12, max: 18 }), "within the latest reading");
        assert_eq!(latest, Reading { min: 12, max: 20 });
        assert!(!latest.advance_to(Reading { min: 3, max: 11 }));
        assert_eq!(latest, Reading { min: 12, max: 20 });
        assert!(latest.advance_to(Reading::exact(25)));
        assert_eq!(latest, Reading::exact(25));
    }

    fn test_duration() -> Duration {
        let scale =
            env::var("COREWHEEL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
        Duration::from_millis(if cfg!(miri) { 1 } else { 300 }) * scale
    }

    fn assert_readings_hold(clock: &Clock, seed: u64) {
        let (mut random, mut reader, start) =
            (fastrand::Rng::with_seed(seed), shard_clock(clock), Instant::now());
        let mut latest = read(&mut reader);
        while start.elapsed() < test_duration() {
            for _ in 0..random.u32(1..3000) {
                let before = clock.nanos_at(Instant::now());
                let reading = read(&mut reader);
                let after = clock.nanos_at(Instant::now());
                assert!(
                    reading.min <= after && before <= reading.max,
                    "{reading:?} misses {before}..={after}"
                );
                assert!(
                    reading.min <= reading.max
                        && reading.max - reading.min <= READING_WIDTH_MAX_NANOS,
                    "{reading:?}"
                );
                assert!(latest.advance_to(reading), "back to {reading:?} from {latest:?}");
            }
            match random.u32(..8) {
                0 => thread::sleep(Duration::from_micros(random.u64(..20_000))),
                1..4 => thread::yield_now(),
                _ => (0..random.u32(..1000)).for_each(|_| std::hint::spin_loop()),
            }
        }
    }

    #[test]
    fn readings_contain_the_time_of_a_fast_clock() {
        let clock = Clock::fast();
        // Uses several threads, so that some may migrate to other cores.
        thread::scope(|scope| {
            for seed in 0..4 {
                let clock = &clock;
                scope.spawn(move || assert_readings_hold(clock, seed));
            }
        });
    }

    #[test]
    fn a_fast_clock_is_estimated_after_calibration() {
        let (clock, begun) = (Clock::fast(), Instant::now());
        let mut reader = shard_clock(&clock);
        while clock.is_fast() {
            let Reading { min, max } = read(&mut reader);
            if min < max {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "calibration takes too long");
        }
    }

    #[test]
    fn other_clocks_are_read_exactly() {
        for clock in [Clock::monotonic(), Clock::boot_time()] {
            let reading = read(&mut shard_clock(&clock));
            assert_eq!(reading.min, reading.max);
        }
    }
}
