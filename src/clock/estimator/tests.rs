//! Tests with a simulated machine: a true time, and a counter that runs, jumps or stops as the test
//! demands.

use super::*;

/// Counts of a 2.6 GHz counter in a microsecond.
const COUNTS_PER_MICROSECOND: u64 = 2_600;
/// The width that the documentation of the fast clock promises.
const MAX_WIDTH: u64 = 10_000;

struct World {
    random: fastrand::Rng,
    /// The clock.
    nanos: u64,
    /// The counter, in thousandths.
    counter_thousandths: u128,
    /// Counts in a thousand nanoseconds of the clock.
    speed: u64,
    /// The longest reading of the clock or the counter, in nanoseconds.
    pause: u64,
    estimator: ClockEstimator,
    is_abandoned: bool,
    /// Readings from the counter alone.
    counter_readings: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            nanos: 5_000_000,
            counter_thousandths: 77_000_000_000_000,
            speed: COUNTS_PER_MICROSECOND,
            pause: 30,
            estimator: ClockEstimator::new(),
            is_abandoned: false,
            counter_readings: 0,
        }
    }

    /// Creates a world whose estimator knows the rate and has an anchor.
    fn with_anchor(seed: u64) -> Self {
        let mut world = Self::new(seed);
        while world.counter_readings == 0 {
            world.advance(900);
            world.read_and_check();
        }
        world
    }

    fn count(&self) -> u64 {
        u64::try_from(self.counter_thousandths / 1000 % (1 << 64)).expect("cut to 64 bits")
    }

    fn advance(&mut self, nanos: u64) {
        self.nanos += nanos;
        self.counter_thousandths += u128::from(nanos) * u128::from(self.speed);
    }

    fn advance_randomly(&mut self) {
        let nanos = self.random.u64(1..=self.pause);
        self.advance(nanos);
    }

    fn jump(&mut self, counts: i64) {
        self.counter_thousandths = self
            .counter_thousandths
            .checked_add_signed(i128::from(counts) * 1000)
            .expect("a counter");
    }

    /// Reads like `ClockReader::read`. Also returns the time at which the counter was read.
    fn read(&mut self) -> (u64, Reading) {
        let (count, nanos) = (self.count(), self.nanos);
        if self.is_abandoned {
            return (nanos, Reading::exact(nanos));
        }
        if let Some(reading) = self.estimator.estimate_at(count) {
            self.counter_readings += 1;
            return (nanos, reading);
        }
        self.advance_randomly();
        let nanos = self.nanos;
        self.advance_randomly();
        self.is_abandoned = !self.estimator.update(Anchor {
            count_before: count,
            clock_nanos: nanos,
            count_after: self.count(),
        });
        (nanos, Reading::exact(nanos))
    }

    /// Asserts that the reading contains the true time.
    fn read_and_check(&mut self) {
        let (truth, reading) = self.read();
        assert!((reading.min..=reading.max).contains(&truth), "{truth} is not in {reading:?}");
        assert!(reading.max - reading.min <= MAX_WIDTH, "{reading:?} is too wide");
    }

    /// Reads at random intervals, from short to long.
    fn read_often_and_check(&mut self, readings: u32) {
        for _ in 0..readings {
            let limit = *self
                .random
                .choice([20, 200, 2_000, 20_000, 2_000_000].iter())
                .expect("one of five");
            let nanos = self.random.u64(1..limit);
            self.advance(nanos);
            self.read_and_check();
        }
    }
}

const READINGS: u32 = 20_000;

#[test]
fn it_calibrates_in_milliseconds_and_is_exact_until_then() {
    let mut world = World::new(1);
    let begun = world.nanos;
    while world.counter_readings == 0 {
        world.advance(1_000);
        let (truth, reading) = world.read();
        assert!(world.counter_readings > 0 || reading == Reading::exact(truth));
    }
    assert!(world.nanos - begun < 3 * CALIBRATION_MIN);
}

#[test]
fn a_window_reaches_from_after_the_last_count_to_its_end() {
    let mut estimator = World::with_anchor(9).estimator;
    let Window { last_count: last, end_count: end, .. } = estimator.window;
    assert_eq!([last, end + 1].map(|count| estimator.estimate_at(count)), [None, None]);
    assert!(estimator.estimate_at(end).is_some());
    assert_eq!(estimator.estimate_at(end), None, "a count is believed once");
}

/// The width in units of 2^-32 nanoseconds: the rates' bounds, rounded outwards, and the slack.
#[test]
fn bounds_are_rounded_outwards() {
    for seed in 0..100 {
        let mut estimator = World::with_anchor(seed).estimator;
        let Window { end_count: end, anchor, rate, .. } = estimator.window;
        let reading = estimator.estimate_at(end).expect("within the window");
        let parts = |nanos: u64| u128::from(nanos) << 32;
        let passed = |since: u64, rate: u64| u128::from(end - since) * u128::from(rate);
        let (least, most) =
            (passed(anchor.count_after, rate.min), passed(anchor.count_before, rate.max));
        let (min, max) = (
            parts(reading.min - anchor.clock_nanos),
            parts(reading.max - anchor.clock_nanos - READ_ERROR_NANOS),
        );
        assert!(min <= least && least < min + parts(1));
        assert!(most < max && max <= most + parts(1));
    }
}

#[test]
fn a_calibration_has_a_minimum_length() {
    for (length, has_learnt) in [(CALIBRATION_MIN - 1, false), (CALIBRATION_MIN, true)] {
        let mut estimator = ClockEstimator::new();
        for nanos in [0, length] {
            assert!(estimator.update(Anchor {
                count_before: nanos * 3,
                clock_nanos: nanos,
                count_after: nanos * 3
            }));
        }
        let Calibration::Calibrating { guess, .. } = estimator.state else {
            panic!("it takes two lessons")
        };
        assert_eq!(guess.is_some(), has_learnt, "in {length} ns");
    }
}

#[test]
fn calibrations_that_differ_are_discarded() {
    let mut world = World::new(3);
    for speed in [
        COUNTS_PER_MICROSECOND,
        COUNTS_PER_MICROSECOND,
        2 * COUNTS_PER_MICROSECOND,
        2 * COUNTS_PER_MICROSECOND,
    ] {
        assert!(!matches!(world.estimator.state, Calibration::Calibrated { .. }));
        world.speed = speed;
        world.advance(CALIBRATION_MIN);
        world.read_and_check();
    }
    assert!(
        matches!(world.estimator.state, Calibration::Calibrated { .. }),
        "the last two were alike"
    );
}

#[test]
fn most_readings_do_not_read_the_clock() {
    let mut world = World::with_anchor(2);
    let before = world.counter_readings;
    for _ in 0..1000 {
        world.advance(100);
        world.read_and_check();
    }
    assert!(world.counter_readings - before > 980);
}

#[test]
fn a_steered_clock_stays_in_the_interval() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        for _ in 0..20 {
            // The clock is steered by 11 % either way. A slower clock means more counts per
            // microsecond.
            world.speed = world
                .random
                .u64(COUNTS_PER_MICROSECOND * 100 / 111 + 1..COUNTS_PER_MICROSECOND * 100 / 89);
            world.read_often_and_check(READINGS / 20);
        }
        assert_eq!(world.estimator.faults, 0, "a steered clock is no fault");
        assert!(world.counter_readings > u64::from(READINGS / 4));
    }
}

#[test]
fn an_interruption_anywhere_keeps_the_bounds_true() {
    let mut world = World::new(3);
    for _ in 0..20 {
        world.pause = world.random.u64(10..5_000);
        world.read_often_and_check(READINGS / 20);
    }
    world.pause = 100_000;
    world.read_often_and_check(100);
    assert_eq!(world.estimator.faults, 0);
}

#[test]
fn a_jump_back_behind_the_anchor_is_not_believed() {
    for counts in [50, 20 * COUNTS_PER_MICROSECOND, 1_000_000 * COUNTS_PER_MICROSECOND] {
        let mut world = World::with_anchor(4);
        // Makes the next reading read the clock, so that its anchor is recent.
        world.advance(50_000);
        world.read_and_check();
        world.jump(-i64::try_from(counts + COUNTS_PER_MICROSECOND).expect("small"));
        world.read_and_check();
        assert!(
            counts < COUNTS_PER_MICROSECOND || world.estimator.faults == 1,
            "a jump by {counts} was not noticed"
        );
        world.read_often_and_check(READINGS);
    }
}

#[test]
fn a_jump_ahead_out_of_the_window_is_not_believed() {
    for counts in [17 * COUNTS_PER_MICROSECOND, 1_000_000 * COUNTS_PER_MICROSECOND] {
        let mut world = World::with_anchor(5);
        world.jump(i64::try_from(counts).expect("small"));
        world.read_and_check();
        assert_eq!(world.estimator.faults, 1);
        world.read_often_and_check(READINGS);
    }
}

#[test]
fn a_counter_that_stands_still_is_not_believed() {
    let mut world = World::with_anchor(6);
    let counter_readings = world.counter_readings;
    world.read_and_check();
    world.speed = 0;
    world.advance(1);
    world.read_often_and_check(100);
    assert!(world.counter_readings <= counter_readings + 1, "at most the one in between");
    assert!(world.estimator.faults > 0);
    world.speed = COUNTS_PER_MICROSECOND;
    world.read_often_and_check(READINGS);
}

#[test]
fn a_counter_that_wraps_around_is_not_believed_for_a_moment() {
    let mut world = World::new(7);
    world.counter_thousandths = ((1 << 64) - 20_000 * u128::from(COUNTS_PER_MICROSECOND)) * 1000;
    while world.count() > u64::MAX / 2 {
        world.advance(120);
        world.read_and_check();
    }
    world.read_often_and_check(READINGS);
    assert!(world.estimator.faults <= 1 && !world.is_abandoned);
}

#[test]
fn a_jump_inside_the_window_is_wrong_by_no_more_than_that_and_noticed_next() {
    let jump = 8 * COUNTS_PER_MICROSECOND;
    let mut world = World::with_anchor(8);
    world.advance(100_000);
    world.read_and_check();
    world.jump(i64::try_from(jump).expect("small"));
    world.advance(100);
    let (truth, reading) = world.read();
    assert!(reading.min <= truth + 8_000);
    world.advance(12_000);
    world.read_and_check();
    assert_eq!(world.estimator.faults, 1);
    world.read_often_and_check(READINGS);
}

#[test]
fn a_wrong_counter_puts_min_ahead_by_at_most_a_window() {
    let mut world = World::new(9);
    for _ in 0..READINGS {
        if world.random.u32(..50) == 0 {
            let magnitude = world.random.u32(..40);
            let jump = world.random.i64(-(1 << magnitude)..=1 << magnitude);
            world.counter_thousandths =
                world.counter_thousandths.saturating_add_signed(i128::from(jump) * 1000);
            world.estimator.faults = 0;
        }
        let nanos = world.random.u64(1..5_000);
        world.advance(nanos);
        let (truth, reading) = world.read();
        assert!(reading.min <= truth + MAX_WIDTH, "{reading:?} is ahead of {truth}");
        assert!(reading.min <= reading.max);
    }
}

#[test]
fn a_counter_that_stays_wrong_is_abandoned() {
    let mut world = World::with_anchor(10);
    let begun = world.nanos;
    while !world.is_abandoned {
        let counter_readings = world.counter_readings;
        world.advance(700);
        world.read();
        if world.counter_readings > counter_readings {
            // The counter changes its speed after it has become trusted.
            world.speed = if world.speed == COUNTS_PER_MICROSECOND {
                COUNTS_PER_MICROSECOND * 2
            } else {
                COUNTS_PER_MICROSECOND
            };
            world.advance(20_000);
        }
    }
    assert!(world.nanos - begun < 100 * CALIBRATION_MIN);
    world.read_often_and_check(100);
}

#[test]
fn a_rare_fault_is_forgiven() {
    let mut world = World::with_anchor(11);
    for _ in 0..2 * FAULTS_MAX {
        world.jump(i64::try_from(1000 * COUNTS_PER_MICROSECOND).expect("small"));
        world.read_and_check();
        assert_eq!(world.estimator.faults, 1);
        world.advance(FAULT_MEMORY_NANOS + 1);
        world.read_often_and_check(READINGS / 100);
    }
    assert!(!world.is_abandoned);
}

#[test]
fn a_wide_anchor_opens_no_window() {
    let mut world = World::with_anchor(12);
    let before = world.count();
    world.advance(3_000);
    let nanos = world.nanos;
    world.advance(3_000);
    let after = world.count();
    assert!(world.estimator.update(Anchor {
        count_before: before,
        clock_nanos: nanos,
        count_after: after
    }));
    assert_eq!(world.estimator.estimate_at(after + 10), None);
}

/// Between the two readings, the thread moved to a core whose counter lags.
#[test]
fn an_inverted_anchor_gives_no_rate() {
    let since = Anchor { count_before: 100_000, clock_nanos: 0, count_after: 70_000 };
    let anchor = Anchor { count_before: 3_100_000, clock_nanos: 1_000_000, count_after: 3_100_150 };
    assert!(Rate::measured(since, anchor).is_none());
}

#[test]
fn a_measured_rate_encloses_what_both_anchors_allow() {
    let since = Anchor { count_before: 1_000, clock_nanos: 5_000_000, count_after: 1_200 };
    let anchor = Anchor { count_before: 2_601_000, clock_nanos: 6_000_000, count_after: 2_601_300 };
    let Rate { min, max } = Rate::measured(since, anchor).expect("a good lesson");
    // At least 2,599,800 and at most 2,600,300 counts have passed in a million nanoseconds.
    let nanos = |counts: u128, rate: u64| (counts * u128::from(rate)) >> 32;
    assert!((999_999..=1_000_000).contains(&nanos(2_600_300, min)));
    assert_eq!(nanos(2_599_800, max), 1_000_000);
    let Rate { min: slower, max: quicker } = Rate { min, max }.with_margin();
    assert!((740_000..=750_000).contains(&nanos(2_600_300, slower)));
    assert!((1_250_000..1_260_000).contains(&nanos(2_599_800, quicker)));
}

#[test]
fn a_calibration_too_long_or_too_vague_is_discarded() {
    let measured = |nanos, vague| {
        let since = Anchor { count_before: 0, clock_nanos: 0, count_after: 0 };
        Rate::measured(
            since,
            Anchor { count_before: nanos, clock_nanos: nanos, count_after: nanos + vague },
        )
        .is_some()
    };
    assert!(measured(CALIBRATION_MAX, 0) && !measured(CALIBRATION_MAX + 1, 0));
    assert!(measured(6_400_000, 90_000) && !measured(6_400_000, 110_000), "one part in 64");
}

#[test]
fn rates_agree_to_one_part_in_64() {
    let rate = |min, max| Rate { min, max };
    for (other, are_alike) in [(6_400, true), (6_500, true), (6_501, false)] {
        assert_eq!(rate(6_400, 6_400).agrees_with(rate(other, other)), are_alike, "{other}");
        assert_eq!(rate(other, other).agrees_with(rate(6_400, 6_400)), are_alike, "{other}");
    }
    assert!(rate(1_000, 9_000).agrees_with(rate(6_400, 6_400)), "it lies within");
}

#[test]
fn anchors_are_consistent_to_the_nanosecond() {
    // One nanosecond per count.
    let rate = Rate { min: 1 << 32, max: 1 << 32 };
    let at = |count, nanos| Anchor { count_before: count, clock_nanos: nanos, count_after: count };
    let is_consistent = |nanos: u64| rate.is_consistent(at(7, 5), at(1_007, 5 + nanos));
    assert_eq!(
        [998, 999, 1_000, 1_001, 1_002].map(is_consistent),
        [false, true, true, true, false]
    );
    assert!(!rate.is_consistent(at(7, 5), at(1_007, 4)), "the clock went back");
    assert!(!rate.is_consistent(at(7, 5), at(6, 1_005)), "the counter went back");
    // Tests each bound alone, without counts before the first and after the last reading.
    let [min, max] = [(1 << 31, 1 << 32), (1 << 32, 1 << 33)].map(|(min, max)| Rate { min, max });
    assert!(
        min.is_consistent(at(0, 0), at(1_000, 500)) && !min.is_consistent(at(0, 0), at(1_000, 498))
    );
    assert!(
        max.is_consistent(at(0, 0), at(1_000, 2_001))
            && !max.is_consistent(at(0, 0), at(1_000, 2_002))
    );
}
