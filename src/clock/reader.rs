//! Reads a shard's clock. A reading gives a lower and an upper bound on the time.

use super::{
    Clock, counter,
    estimator::{Anchor, ClockEstimator},
};

/// Inclusive bounds on the clock's time, in nanoseconds. An exact reading has equal bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The time is not before `min`. Turns use this bound.
    pub(crate) min: u64,
    /// The time is not after `max`. Deadlines use this bound.
    pub(crate) max: u64,
}

impl Reading {
    pub(crate) fn exact(nanos: u64) -> Self {
        Self { min: nanos, max: nanos }
    }

    /// Moves each bound forward to the bound of `next`, unless that bound is earlier. Returns false
    /// if the clock went backwards: both bounds of `next` are before `self.min`.
    #[inline]
    pub(crate) fn advance_to(&mut self, next: Self) -> bool {
        let is_monotonic = next.max >= self.min;
        *self = Self { min: self.min.max(next.min), max: self.max.max(next.max) };
        is_monotonic
    }
}

/// Reads the clock of one shard. The reader of a fast clock has an estimator, until a faulty
/// time-stamp counter is abandoned.
#[derive(Debug)]
pub(crate) struct ClockReader(Option<ClockEstimator>);

impl ClockReader {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self(clock.is_fast().then(ClockEstimator::new))
    }

    /// Returns bounds on the current time of `clock`, which must be this reader's clock. Returns
    /// `None` if the caller must use [`read_slow`](Self::read_slow).
    #[inline(always)]
    pub(crate) fn try_read(&mut self, clock: &Clock) -> Option<Reading> {
        match &mut self.0 {
            Some(estimator) => estimator.estimate_at(counter::read()),
            None => clock.manual_nanos().map(Reading::exact),
        }
    }

    /// Reads the clock itself, and updates the estimator, if there is one.
    ///
    /// The clock must be read between the two counts of the [`Anchor`]. The processor keeps this
    /// order: the kernel's clock code waits until the first count has been read, and `read_ordered`
    /// reads the second count after the clock code has completed.
    pub(crate) fn read_slow(&mut self, clock: &Clock) -> Reading {
        let Some(estimator) = &mut self.0 else { return Reading::exact(clock.nanos()) };
        let count_before = counter::read();
        let clock_nanos = clock.nanos();
        let anchor = Anchor { count_before, clock_nanos, count_after: counter::read_ordered() };
        if !estimator.update(anchor) {
            self.0 = None;
        }
        Reading::exact(clock_nanos)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        env, thread,
        time::{Duration, Instant},
    };

    use super::*;

    fn read(reader: &mut ClockReader, clock: &Clock) -> Reading {
        reader.try_read(clock).unwrap_or_else(|| reader.read_slow(clock))
    }

    #[test]
    fn a_reading_is_clamped_at_both_ends() {
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

    fn check_readings(clock: &Clock, seed: u64) {
        let (mut random, mut reader, begun) =
            (fastrand::Rng::with_seed(seed), ClockReader::new(clock), Instant::now());
        let mut latest = read(&mut reader, clock);
        while begun.elapsed() < test_duration() {
            for _ in 0..random.u32(1..3000) {
                let before = clock.nanos_at(Instant::now());
                let reading = read(&mut reader, clock);
                let after = clock.nanos_at(Instant::now());
                assert!(
                    reading.min <= after && before <= reading.max,
                    "{reading:?} misses {before}..={after}"
                );
                assert!(
                    reading.min <= reading.max && reading.max - reading.min <= 10_000,
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
                scope.spawn(move || check_readings(clock, seed));
            }
        });
    }

    #[test]
    fn a_fast_clock_ends_up_reading_the_counter() {
        let (clock, begun) = (Clock::fast(), Instant::now());
        let mut reader = ClockReader::new(&clock);
        while clock.is_fast() {
            let Reading { min, max } = read(&mut reader, &clock);
            if min < max {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "calibration takes too long");
        }
    }

    #[test]
    fn other_clocks_are_read_exactly() {
        for clock in [Clock::monotonic(), Clock::boot_time()] {
            let reading = read(&mut ClockReader::new(&clock), &clock);
            assert_eq!(reading.min, reading.max);
        }
    }
}
