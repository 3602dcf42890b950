//! Estimates the time from the processor's counter, for a few microseconds after each reading of
//! the clock.
//!
//! # Why the bounds hold
//!
//! An *anchor* is a reading of the clock between two readings of the counter, `count_before` and
//! `count_after`. If the clock's rate is between `min` and `max` nanoseconds per count, the time
//! since the anchor is between `(count - count_after) * min` and `(count - count_before) * max`.
//!
//! `min` is the measured rate minus 25 %, and `max` is the measured rate plus 25 %. The kernel may
//! *steer* its clock up to 11 % faster or slower, during the measurement or later. So the true rate
//! divided by the measured rate is between 0.89 / 1.11 and 1.11 / 0.89, which differ from 1 by less
//! than 25 %. An anchor is used only during its *window* of a few microseconds, so the two bounds
//! on the time stay close together.
//!
//! # A faulty counter
//!
//! A count gives an estimate only if it is greater than the count of the latest estimate and within
//! the window. Otherwise, the clock is read. So if the counter jumps ahead, the lower bound exceeds
//! the clock's time by at most the length of the window. If the counter slows, stops or goes
//! backwards, the upper bound can be before the clock's time, until the clock is next read.
//!
//! Once the rate is known, an anchor that contradicts the previous one is a *fault*, and the rate
//! is measured again. After eight faults, each within a minute of the previous one, the counter is
//! abandoned.

use super::Reading;

/// The maximum length of an anchor's window, in nanoseconds. At the counter's measured speed, a
/// window is a fifth shorter than `WINDOW_MAX_NANOS`. The bounds of a reading are at most
/// [`READING_WIDTH_MAX_NANOS`] apart. The distance between the bounds is the sum of three parts:
///
/// * the difference between the rates `min` and `max`: about two fifths of `WINDOW_MAX_NANOS`,
/// * the *anchor span*, the span between the two counts of an anchor: at most an eighth of
///   `WINDOW_MAX_NANOS`,
/// * [`EARLY_READ_MARGIN_NANOS`].
const WINDOW_MAX_NANOS: u64 = 16_000;

/// The largest distance between the bounds of a reading.
pub(crate) const READING_WIDTH_MAX_NANOS: u64 = 10_000;

/// The margin added to the upper bound of an estimate. While an earlier instruction waits for
/// memory, the processor may read the counter up to a microsecond too early.
const EARLY_READ_MARGIN_NANOS: u64 = 1_000;

/// If the anchor span, the span between an anchor's two counts, is longer than [`WINDOW_MAX_NANOS`]
/// divided by this number, the anchor gets no window. The thread was probably interrupted between
/// the two readings of the counter.
const WINDOW_TO_ANCHOR_SPAN_RATIO_MIN: u64 = 8;

/// The minimum and maximum time, in nanoseconds, over which the counter's rate is measured. A
/// shorter measurement would have a large relative error, and in a longer one,
/// [`RateBounds::measure`] could overflow.
const CALIBRATION_MIN_NANOS: u64 = 1_000_000;
const CALIBRATION_MAX_NANOS: u64 = 1_000_000_000;

/// Two rates *agree* if their ranges overlap, or if the gap between the ranges is at most the lower
/// rate divided by `RATE_TOLERANCE_DIVISOR`. A rate is *precise* if its bounds differ by at most
/// the lower bound divided by `RATE_TOLERANCE_DIVISOR`.
const RATE_TOLERANCE_DIVISOR: u64 = 64;

/// The counter is abandoned after this many faults, each within a minute of the previous one.
const FAULTS_MAX: u32 = 8;
const FAULT_FORGOTTEN_AFTER_NANOS: u64 = 60_000_000_000;

/// A reading of the clock between two readings of the counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) count_before: u64,
    pub(super) clock_nanos: u64,
    pub(super) count_after: u64,
}

/// Bounds on the time per count, in units of 2^-32 nanoseconds.
#[derive(Clone, Copy, Debug)]
struct RateBounds {
    min: u64,
    max: u64,
}

/// The span of time after an anchor in which the counter is read instead of the clock.
#[derive(Debug)]
struct AnchorWindow {
    /// The count of the latest estimate in this window, or the anchor's `count_after` before the
    /// first estimate. Only a count greater than this one gives an estimate, so `u64::MAX` disables
    /// the window.
    last_count: u64,
    end_count: u64,
    anchor: Anchor,
    /// The calibrated time per count, which the estimates in this window use.
    rate: RateBounds,
}

/// The progress of measuring the counter's rate.
#[derive(Clone, Copy, Debug)]
enum CalibrationState {
    NoAnchor,
    /// The rate is being measured between `start_anchor` and a later anchor. `previous_rate` is the
    /// rate measured before `start_anchor`. Two consecutive rates that agree end the calibration.
    Calibrating {
        start_anchor: Anchor,
        previous_rate: Option<RateBounds>,
    },
    /// The window has the latest anchor and the rate.
    Calibrated,
}

/// Estimates a clock's time from the processor's counter, for one shard.
#[derive(Debug)]
pub(super) struct ClockEstimator {
    window: AnchorWindow,
    calibration: CalibrationState,
    recent_fault_count: u32,
    last_fault_nanos: u64,
}

impl ClockEstimator {
    pub(super) fn new() -> Self {
        let anchor = Anchor { count_before: 0, clock_nanos: 0, count_after: 0 };
        let window = AnchorWindow {
            last_count: u64::MAX,
            end_count: 0,
            anchor,
            rate: RateBounds { min: 0, max: 0 },
        };
        Self {
            window,
            calibration: CalibrationState::NoAnchor,
            recent_fault_count: 0,
            last_fault_nanos: 0,
        }
    }

    /// Returns bounds on the clock's time at `count`. Returns `None` if the caller must read the
    /// clock and pass the reading to [`update`](Self::update).
    #[inline]
    pub(super) fn estimate_at(&mut self, count: u64) -> Option<Reading> {
        let window = &mut self.window;
        if count <= window.last_count || count > window.end_count {
            return None;
        }
        window.last_count = count;
        let AnchorWindow {
            anchor: Anchor { count_before, clock_nanos, count_after },
            rate: RateBounds { min, max },
            ..
        } = *window;
        // The products cannot overflow: in units of 2^-32 nanoseconds, they are less than 2^47.
        let elapsed_min = ((count - count_after) * min) >> 32;
        let elapsed_max = ((count - count_before) * max) >> 32;
        Some(Reading {
            min: clock_nanos.saturating_add(elapsed_min),
            max: clock_nanos.saturating_add(elapsed_max + 1 + EARLY_READ_MARGIN_NANOS),
        })
    }

    /// Updates the rate and the anchor with a reading of the clock. Returns false if the counter
    /// was faulty too often and must not be used again.
    pub(super) fn update(&mut self, anchor: Anchor) -> bool {
        self.window.last_count = u64::MAX;
        match self.calibration {
            CalibrationState::NoAnchor => {
                self.calibration =
                    CalibrationState::Calibrating { start_anchor: anchor, previous_rate: None }
            }
            CalibrationState::Calibrating { start_anchor, previous_rate } => {
                self.advance_calibration(start_anchor, previous_rate, anchor);
            }
            CalibrationState::Calibrated => {
                let AnchorWindow { anchor: previous_anchor, rate, .. } = self.window;
                if !rate.is_consistent_with(previous_anchor, anchor) {
                    return self.record_fault(anchor);
                }
                self.set_anchor(rate, anchor);
            }
        }
        true
    }

    fn advance_calibration(
        &mut self,
        start_anchor: Anchor,
        previous_rate: Option<RateBounds>,
        anchor: Anchor,
    ) {
        if anchor.clock_nanos.saturating_sub(start_anchor.clock_nanos) < CALIBRATION_MIN_NANOS {
            return;
        }
        match (previous_rate, RateBounds::measure(start_anchor, anchor)) {
            (Some(previous_rate), Some(rate)) if rate.agrees_with(previous_rate) => {
                self.set_anchor(rate.widen_bounds(), anchor);
            }
            (_, rate) => {
                self.calibration =
                    CalibrationState::Calibrating { start_anchor: anchor, previous_rate: rate }
            }
        }
    }

    fn set_anchor(&mut self, rate: RateBounds, anchor: Anchor) {
        self.calibration = CalibrationState::Calibrated;
        let window_counts = (WINDOW_MAX_NANOS << 32) / rate.max;
        let anchor_span_max = window_counts / WINDOW_TO_ANCHOR_SPAN_RATIO_MIN;
        let anchor_span = anchor.count_after.checked_sub(anchor.count_before);
        let is_open = anchor_span.is_some_and(|span| span <= anchor_span_max);
        self.window = AnchorWindow {
            last_count: if is_open { anchor.count_after } else { u64::MAX },
            end_count: anchor.count_after.saturating_add(window_counts),
            anchor,
            rate,
        };
    }

    /// Records a fault of the counter. Returns false if the counter must not be used again.
    fn record_fault(&mut self, anchor: Anchor) -> bool {
        let previous_fault_is_forgotten =
            anchor.clock_nanos.saturating_sub(self.last_fault_nanos) > FAULT_FORGOTTEN_AFTER_NANOS;
        self.recent_fault_count =
            if previous_fault_is_forgotten { 1 } else { self.recent_fault_count + 1 };
        self.last_fault_nanos = anchor.clock_nanos;
        self.calibration =
            CalibrationState::Calibrating { start_anchor: anchor, previous_rate: None };
        self.recent_fault_count < FAULTS_MAX
    }
}

impl RateBounds {
    /// Measures the rate between two anchors. Returns `None` if these anchors do not give a precise
    /// rate.
    fn measure(start_anchor: Anchor, anchor: Anchor) -> Option<Self> {
        let fixed_point_nanos = anchor
            .clock_nanos
            .checked_sub(start_anchor.clock_nanos)
            .filter(|&nanos| nanos <= CALIBRATION_MAX_NANOS)?
            << 32;
        let counts_min = anchor.count_before.checked_sub(start_anchor.count_after)?;
        let counts_max = anchor.count_after.checked_sub(start_anchor.count_before)?;
        let rate = Self {
            min: fixed_point_nanos.checked_div(counts_max)?,
            max: fixed_point_nanos.checked_div(counts_min)? + 1,
        };
        // If the thread was interrupted while it took an anchor, the bounds are far apart. If the
        // interrupted thread moved to a core whose counter lags, `rate.min` may exceed `rate.max`.
        let width = rate.max.checked_sub(rate.min)?;
        (width <= rate.min / RATE_TOLERANCE_DIVISOR).then_some(rate)
    }

    fn agrees_with(self, other: Self) -> bool {
        let max_with_tolerance = |rate: Self| rate.max + rate.max / RATE_TOLERANCE_DIVISOR;
        self.min <= max_with_tolerance(other) && other.min <= max_with_tolerance(self)
    }

    /// Widens the bounds by 25 %, so that they hold while the kernel steers its clock.
    fn widen_bounds(self) -> Self {
        Self { min: self.min / 4 * 3, max: self.max / 4 * 5 + 5 }
    }

    /// Returns true if both anchors can be correct at this rate.
    fn is_consistent_with(self, start_anchor: Anchor, anchor: Anchor) -> bool {
        let elapsed_nanos = |from: u64, to: u64, rate: u64| {
            Some((u128::from(to.checked_sub(from)?) * u128::from(rate)) >> 32)
        };
        let (Some(nanos), Some(elapsed_min), Some(elapsed_max)) = (
            anchor.clock_nanos.checked_sub(start_anchor.clock_nanos).map(u128::from),
            elapsed_nanos(start_anchor.count_after, anchor.count_before, self.min),
            elapsed_nanos(start_anchor.count_before, anchor.count_after, self.max),
        ) else {
            return false;
        };
        // The tolerance of a nanosecond covers the clock's rounding.
        elapsed_min <= nanos + 1 && nanos <= elapsed_max + 1
    }
}

// Miri would take too long for these tests, and the tested code has no `unsafe`.
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
