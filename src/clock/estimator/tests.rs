//! Tests with a simulated machine, whose counter runs, jumps or stops.

use super::*;

const COUNTS_PER_MICROSECOND: u64 = 2_600;

fn anchor(count_before: u64, clock_nanos: u64, count_after: u64) -> Anchor {
    Anchor { count_before, clock_nanos, count_after }
}

/// A simulated clock and counter, and the estimator under test.
struct SimulatedMachine {
    random: fastrand::Rng,
    /// The true time, which the clock shows.
    nanos: u64,
    /// The counter, in thousandths of a count.
    counter_thousandths: u128,
    /// The counter's speed, in counts per microsecond.
    counter_speed: u64,
    /// The maximum time, in nanoseconds, between two consecutive readings of an anchor. An anchor
    /// reads the counter, the clock, and again the counter.
    max_pause_nanos: u64,
    estimator: ClockEstimator,
    is_abandoned: bool,
    /// The number of clock readings that were estimated from the counter alone.
    counter_readings: u64,
}

impl SimulatedMachine {
    fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            nanos: 5_000_000,
            counter_thousandths: 77_000_000_000_000,
            counter_speed: COUNTS_PER_MICROSECOND,
            max_pause_nanos: 30,
            estimator: ClockEstimator::new(),
            is_abandoned: false,
            counter_readings: 0,
        }
    }

    fn calibrated(seed: u64) -> Self {
        let mut machine = Self::new(seed);
        while machine.counter_readings == 0 {
            machine.advance(900);
            machine.read_and_check();
        }
        machine
    }

    fn count(&self) -> u64 {
        u64::try_from(self.counter_thousandths / 1000 % (1 << 64)).expect("cut to 64 bits")
    }

    fn advance(&mut self, nanos: u64) {
        self.nanos += nanos;
        self.counter_thousandths += u128::from(nanos) * u128::from(self.counter_speed);
    }

    fn advance_randomly(&mut self) {
        let nanos = self.random.u64(1..=self.max_pause_nanos);
        self.advance(nanos);
    }

    fn jump_counter(&mut self, counts: i64) {
        self.counter_thousandths =
            self.counter_thousandths.saturating_add_signed(i128::from(counts) * 1000);
    }

    /// Reads the clock as a `ShardClock` does. Returns the true time and the reading.
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
        self.is_abandoned = !self.estimator.update(anchor(count, nanos, self.count()));
        (nanos, Reading::exact(nanos))
    }

    fn read_and_check(&mut self) {
        let (true_nanos, reading) = self.read();
        assert!(
            (reading.min..=reading.max).contains(&true_nanos),
            "{true_nanos} is not in {reading:?}"
        );
        assert!(reading.max - reading.min <= READING_WIDTH_MAX_NANOS, "{reading:?} is too wide");
    }

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

const READING_COUNT: u32 = 20_000;

#[test]
fn readings_are_exact_during_the_short_calibration() {
    let mut machine = SimulatedMachine::new(1);
    let start_nanos = machine.nanos;
    while machine.counter_readings == 0 {
        machine.advance(1_000);
        let (true_nanos, reading) = machine.read();
        assert!(machine.counter_readings > 0 || reading == Reading::exact(true_nanos));
    }
    assert!(machine.nanos - start_nanos < 3 * CALIBRATION_MIN_NANOS);
}

#[test]
fn a_window_excludes_its_last_count_and_includes_its_end() {
    let mut estimator = SimulatedMachine::calibrated(9).estimator;
    let AnchorWindow { last_count: last, end_count: end, .. } = estimator.window;
    assert_eq!([last, end + 1].map(|count| estimator.estimate_at(count)), [None, None]);
    assert!(estimator.estimate_at(end).is_some());
    assert_eq!(estimator.estimate_at(end), None, "a count is used once");
}

#[test]
fn bounds_are_rounded_outwards() {
    for seed in 0..100 {
        let mut estimator = SimulatedMachine::calibrated(seed).estimator;
        let AnchorWindow { end_count: end, anchor, rate, .. } = estimator.window;
        let reading = estimator.estimate_at(end).expect("within the window");
        // Converts nanoseconds to units of 2^-32 nanoseconds.
        let to_fixed_point = |nanos: u64| u128::from(nanos) << 32;
        let elapsed =
            |start_count: u64, rate: u64| u128::from(end - start_count) * u128::from(rate);
        let (elapsed_min, elapsed_max) =
            (elapsed(anchor.count_after, rate.min), elapsed(anchor.count_before, rate.max));
        let (min, max) = (
            to_fixed_point(reading.min - anchor.clock_nanos),
            to_fixed_point(reading.max - anchor.clock_nanos - EARLY_READ_MARGIN_NANOS),
        );
        assert!(min <= elapsed_min && elapsed_min < min + to_fixed_point(1));
        assert!(elapsed_max < max && max <= elapsed_max + to_fixed_point(1));
    }
}

#[test]
fn a_calibration_has_a_minimum_length() {
    for (length, is_measured) in [(CALIBRATION_MIN_NANOS - 1, false), (CALIBRATION_MIN_NANOS, true)]
    {
        let mut estimator = ClockEstimator::new();
        for nanos in [0, length] {
            assert!(estimator.update(anchor(nanos * 3, nanos, nanos * 3)));
        }
        let CalibrationState::Calibrating { previous_rate, .. } = estimator.calibration else {
            panic!("calibrated after one rate")
        };
        assert_eq!(previous_rate.is_some(), is_measured, "in {length} ns");
    }
}

#[test]
fn calibration_ends_when_two_rates_agree() {
    let mut machine = SimulatedMachine::new(3);
    for factor in [1, 1, 2, 2] {
        assert!(!matches!(machine.estimator.calibration, CalibrationState::Calibrated));
        machine.counter_speed = factor * COUNTS_PER_MICROSECOND;
        machine.advance(CALIBRATION_MIN_NANOS);
        machine.read_and_check();
    }
    assert!(matches!(machine.estimator.calibration, CalibrationState::Calibrated));
}

#[test]
fn most_readings_do_not_read_the_clock() {
    let mut machine = SimulatedMachine::calibrated(2);
    let before = machine.counter_readings;
    for _ in 0..1000 {
        machine.advance(100);
        machine.read_and_check();
    }
    assert!(machine.counter_readings - before > 980);
}

#[test]
fn readings_contain_the_time_of_a_steered_clock() {
    for seed in 0..8 {
        let mut machine = SimulatedMachine::new(seed);
        for _ in 0..20 {
            // Makes the simulated clock up to 11 % faster or slower, as the kernel may do. With a
            // slower clock, the counter counts more per microsecond of the clock.
            machine.counter_speed = machine
                .random
                .u64(COUNTS_PER_MICROSECOND * 100 / 111 + 1..COUNTS_PER_MICROSECOND * 100 / 89);
            machine.read_often_and_check(READING_COUNT / 20);
        }
        assert_eq!(machine.estimator.recent_fault_count, 0, "a steered clock causes no fault");
        assert!(machine.counter_readings > u64::from(READING_COUNT / 4));
    }
}

#[test]
fn readings_contain_the_time_despite_interruptions() {
    let mut machine = SimulatedMachine::new(3);
    for _ in 0..20 {
        machine.max_pause_nanos = machine.random.u64(10..5_000);
        machine.read_often_and_check(READING_COUNT / 20);
    }
    machine.max_pause_nanos = 100_000;
    machine.read_often_and_check(100);
    assert_eq!(machine.estimator.recent_fault_count, 0);
}

#[test]
fn readings_stay_correct_after_a_jump_behind_the_anchor() {
    for counts in [50, 20 * COUNTS_PER_MICROSECOND, 1_000_000 * COUNTS_PER_MICROSECOND] {
        let mut machine = SimulatedMachine::calibrated(4);
        // Advances past the end of the anchor's window, so that the next reading sets a new anchor.
        machine.advance(50_000);
        machine.read_and_check();
        machine.jump_counter(-(counts + COUNTS_PER_MICROSECOND).cast_signed());
        machine.read_and_check();
        assert!(
            counts < COUNTS_PER_MICROSECOND || machine.estimator.recent_fault_count == 1,
            "jump by {counts}"
        );
        machine.read_often_and_check(READING_COUNT);
    }
}

#[test]
fn readings_stay_correct_after_a_jump_beyond_the_window() {
    for counts in [17 * COUNTS_PER_MICROSECOND, 1_000_000 * COUNTS_PER_MICROSECOND] {
        let mut machine = SimulatedMachine::calibrated(5);
        machine.jump_counter(counts.cast_signed());
        machine.read_and_check();
        assert_eq!(machine.estimator.recent_fault_count, 1);
        machine.read_often_and_check(READING_COUNT);
    }
}

#[test]
fn readings_stay_correct_while_the_counter_stops() {
    let mut machine = SimulatedMachine::calibrated(6);
    let counter_readings = machine.counter_readings;
    machine.read_and_check();
    machine.counter_speed = 0;
    machine.advance(1);
    machine.read_often_and_check(100);
    assert!(machine.counter_readings <= counter_readings + 1, "a stopped counter was used");
    assert!(machine.estimator.recent_fault_count > 0);
    machine.counter_speed = COUNTS_PER_MICROSECOND;
    machine.read_often_and_check(READING_COUNT);
}

#[test]
fn readings_stay_correct_when_the_counter_wraps_around() {
    let mut machine = SimulatedMachine::new(7);
    machine.counter_thousandths = ((1 << 64) - 20_000 * u128::from(COUNTS_PER_MICROSECOND)) * 1000;
    while machine.count() > u64::MAX / 2 {
        machine.advance(120);
        machine.read_and_check();
    }
    machine.read_often_and_check(READING_COUNT);
    assert!(machine.estimator.recent_fault_count <= 1 && !machine.is_abandoned);
}

#[test]
fn a_jump_within_the_window_is_detected_by_the_next_anchor() {
    let jump = 8 * COUNTS_PER_MICROSECOND;
    let mut machine = SimulatedMachine::calibrated(8);
    machine.advance(100_000);
    machine.read_and_check();
    machine.jump_counter(jump.cast_signed());
    machine.advance(100);
    let (true_nanos, reading) = machine.read();
    assert!(reading.min <= true_nanos + 8_000);
    machine.advance(12_000);
    machine.read_and_check();
    assert_eq!(machine.estimator.recent_fault_count, 1);
    machine.read_often_and_check(READING_COUNT);
}

#[test]
fn min_exceeds_the_time_by_at_most_max_width() {
    let mut machine = SimulatedMachine::new(9);
    for _ in 0..READING_COUNT {
        if machine.random.u32(..50) == 0 {
            let jump_bits = machine.random.u32(..40);
            let jump = machine.random.i64(-(1 << jump_bits)..=1 << jump_bits);
            machine.jump_counter(jump);
            machine.estimator.recent_fault_count = 0;
        }
        let nanos = machine.random.u64(1..5_000);
        machine.advance(nanos);
        let (true_nanos, reading) = machine.read();
        assert!(
            reading.min <= true_nanos + READING_WIDTH_MAX_NANOS,
            "{reading:?} is ahead of {true_nanos}"
        );
        assert!(reading.min <= reading.max);
    }
}

#[test]
fn a_counter_with_repeated_faults_is_abandoned() {
    let mut machine = SimulatedMachine::calibrated(10);
    let start_nanos = machine.nanos;
    while !machine.is_abandoned {
        let counter_readings = machine.counter_readings;
        machine.advance(700);
        machine.read();
        if machine.counter_readings > counter_readings {
            // Changes the counter's speed after each clock reading that was estimated from the
            // counter alone.
            machine.counter_speed = 3 * COUNTS_PER_MICROSECOND - machine.counter_speed;
            machine.advance(20_000);
        }
    }
    assert!(machine.nanos - start_nanos < 100 * CALIBRATION_MIN_NANOS);
    machine.read_often_and_check(100);
}

#[test]
fn faults_more_than_a_minute_apart_are_forgiven() {
    let mut machine = SimulatedMachine::calibrated(11);
    for _ in 0..2 * FAULTS_MAX {
        machine.jump_counter((1000 * COUNTS_PER_MICROSECOND).cast_signed());
        machine.read_and_check();
        assert_eq!(machine.estimator.recent_fault_count, 1);
        machine.advance(FAULT_FORGOTTEN_AFTER_NANOS + 1);
        machine.read_often_and_check(READING_COUNT / 100);
    }
    assert!(!machine.is_abandoned);
}

#[test]
fn a_wide_anchor_opens_no_window() {
    let mut machine = SimulatedMachine::calibrated(12);
    let before = machine.count();
    machine.advance(3_000);
    let nanos = machine.nanos;
    machine.advance(3_000);
    let after = machine.count();
    assert!(machine.estimator.update(anchor(before, nanos, after)));
    assert_eq!(machine.estimator.estimate_at(after + 10), None);
}

/// Between the two counts of `start_anchor`, the thread moved to a core whose counter lags.
#[test]
fn an_inverted_anchor_gives_no_rate() {
    let start_anchor = anchor(100_000, 0, 70_000);
    assert!(RateBounds::measure(start_anchor, anchor(3_100_000, 1_000_000, 3_100_150)).is_none());
}

#[test]
fn a_measured_rate_has_the_bounds_of_its_anchors() {
    let start_anchor = anchor(1_000, 5_000_000, 1_200);
    let rate = RateBounds::measure(start_anchor, anchor(2_601_000, 6_000_000, 2_601_300));
    let RateBounds { min, max } = rate.expect("precise anchors");
    // At least 2,599,800 and at most 2,600,300 counts have passed in a million nanoseconds.
    let nanos = |counts: u128, rate: u64| (counts * u128::from(rate)) >> 32;
    assert!((999_999..=1_000_000).contains(&nanos(2_600_300, min)));
    assert_eq!(nanos(2_599_800, max), 1_000_000);
    let RateBounds { min: slower, max: quicker } = RateBounds { min, max }.widen_bounds();
    assert!((740_000..=750_000).contains(&nanos(2_600_300, slower)));
    assert!((1_250_000..1_260_000).contains(&nanos(2_599_800, quicker)));
}

#[test]
fn a_rate_from_a_long_or_imprecise_span_is_rejected() {
    let is_measurable = |nanos, anchor_span| {
        RateBounds::measure(anchor(0, 0, 0), anchor(nanos, nanos, nanos + anchor_span)).is_some()
    };
    assert!(is_measurable(CALIBRATION_MAX_NANOS, 0));
    assert!(!is_measurable(CALIBRATION_MAX_NANOS + 1, 0));
    assert!(is_measurable(6_400_000, 90_000), "one part in 64");
    assert!(!is_measurable(6_400_000, 110_000), "one part in 64");
}

#[test]
fn rates_agree_to_one_part_in_64() {
    let rate = |min, max| RateBounds { min, max };
    for (other, agree) in [(6_400, true), (6_500, true), (6_501, false)] {
        assert_eq!(rate(6_400, 6_400).agrees_with(rate(other, other)), agree, "{other}");
        assert_eq!(rate(other, other).agrees_with(rate(6_400, 6_400)), agree, "{other}");
    }
    assert!(rate(1_000, 9_000).agrees_with(rate(6_400, 6_400)), "the rate is within the bounds");
}

#[test]
fn anchors_are_consistent_to_the_nanosecond() {
    // One nanosecond per count.
    let rate = RateBounds { min: 1 << 32, max: 1 << 32 };
    let exact_anchor = |count, nanos| anchor(count, nanos, count);
    let is_consistent =
        |nanos: u64| rate.is_consistent_with(exact_anchor(7, 5), exact_anchor(1_007, 5 + nanos));
    assert_eq!(
        [998, 999, 1_000, 1_001, 1_002].map(is_consistent),
        [false, true, true, true, false]
    );
    assert!(
        !rate.is_consistent_with(exact_anchor(7, 5), exact_anchor(1_007, 4)),
        "the clock went back"
    );
    assert!(
        !rate.is_consistent_with(exact_anchor(7, 5), exact_anchor(6, 1_005)),
        "the counter went back"
    );
    // Tests each bound alone.
    let [min, max] =
        [(1 << 31, 1 << 32), (1 << 32, 1 << 33)].map(|(min, max)| RateBounds { min, max });
    assert!(
        min.is_consistent_with(exact_anchor(0, 0), exact_anchor(1_000, 500))
            && !min.is_consistent_with(exact_anchor(0, 0), exact_anchor(1_000, 498))
    );
    assert!(
        max.is_consistent_with(exact_anchor(0, 0), exact_anchor(1_000, 2_001))
            && !max.is_consistent_with(exact_anchor(0, 0), exact_anchor(1_000, 2_002))
    );
}
