//! How late timers fired and how long callbacks took: a histogram that one thread writes with plain stores and any thread reads.
//!
//! It is our own because those there are count with atomic read-modify-writes, or cannot be read by others at all.

use std::{fmt, time::Duration};

use crate::{
    limits::{HISTOGRAM_CELLS, HISTOGRAM_FINEST},
    sync::{AtomicU64, Ordering},
};

/// Cells to a factor of two: a value is at most a quarter less than its cell says.
const CELLS_BITS: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Cells {
    counts: [AtomicU64; HISTOGRAM_CELLS],
    nanos: AtomicU64,
    max: AtomicU64,
}

impl Default for Cells {
    fn default() -> Self {
        let counts = [(); HISTOGRAM_CELLS].map(|()| AtomicU64::new(0));
        Self { counts, nanos: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

impl Cells {
    /// Counts `nanos` so many `times`, for the one thread that does.
    pub(super) fn add(&self, nanos: u64, times: u32) {
        // Relaxed, also below: one thread writes. The count comes last, and publishes the others.
        if nanos > self.max.load(Ordering::Relaxed) {
            self.max.store(nanos, Ordering::Relaxed);
        }
        let total =
            self.nanos.load(Ordering::Relaxed).saturating_add(nanos.saturating_mul(times.into()));
        self.nanos.store(total, Ordering::Relaxed);
        let cell = &self.counts[cell_of(nanos)];
        // Release: whoever sees it counted sees it in the sum and the maximum; pairs with the Acquire in `read`.
        cell.store(cell.load(Ordering::Relaxed).saturating_add(times.into()), Ordering::Release);
    }

    pub(super) fn read(&self) -> Histogram {
        // Acquire: pairs with the Release in `add`.
        let counts = self.counts.iter().map(|cell| cell.load(Ordering::Acquire)).collect();
        // Relaxed: what was counted is in them, and perhaps some more.
        Histogram {
            counts,
            nanos: self.nanos.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
        }
    }
}

/// The cell that counts `nanos`. The first one counts what is less than 1024.
fn cell_of(nanos: u64) -> usize {
    let Some(octave) = nanos.checked_ilog2().filter(|&octave| octave >= HISTOGRAM_FINEST) else {
        return 0;
    };
    let part = (nanos >> (octave - CELLS_BITS)) & ((1 << CELLS_BITS) - 1);
    let cell = 1 + (u64::from(octave - HISTOGRAM_FINEST) << CELLS_BITS) + part;
    usize::try_from(cell).map_or(HISTOGRAM_CELLS - 1, |cell| cell.min(HISTOGRAM_CELLS - 1))
}

/// The most that a cell counts, in nanoseconds, but for the last one, which counts everything beyond.
fn end_of(cell: usize) -> u64 {
    let Some(cell) = cell.checked_sub(1) else { return (1 << HISTOGRAM_FINEST) - 1 };
    let (octave, part) =
        (HISTOGRAM_FINEST as usize + (cell >> CELLS_BITS), cell & ((1 << CELLS_BITS) - 1));
    ((((1 << CELLS_BITS) + part as u64 + 1) << octave) >> CELLS_BITS) - 1
}

/// Durations, counted: how many there were in each of 130 ranges, which are a quarter wide (everything below a microsecond is one
/// range, and so is everything above 73 minutes, which is told as the longest there was).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By cell; empty if none has been counted.
    counts: Vec<u64>,
    nanos: u64,
    max: u64,
}

impl Histogram {
    /// How many.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The average; zero if there were none.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanos.checked_div(self.count()).unwrap_or(0))
    }

    /// All of them together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// What `percent` of them did not exceed, at most a quarter more than it was (or a microsecond, if that is more); zero if there
    /// were none. What is below 0 or above 100 counts as that.
    pub fn percentile(&self, percent: f64) -> Duration {
        let count = self.count();
        // As far as an f64 counts.
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let wanted = ((percent.clamp(0.0, 100.0) * count as f64 / 100.0).ceil() as u64)
            .clamp(1, count.max(1));
        let mut seen = 0;
        let cell = self.counts.iter().position(|&count| {
            seen += count;
            seen >= wanted
        });
        // A range's end may be beyond the longest of them.
        cell.map_or(Duration::ZERO, |cell| self.longest_in(cell).min(self.max()))
    }

    fn longest_in(&self, cell: usize) -> Duration {
        if cell == HISTOGRAM_CELLS - 1 { self.max() } else { Duration::from_nanos(end_of(cell)) }
    }

    /// The ranges in which there are any: the longest duration that each counts, and how many.
    pub fn ranges(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counted = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        counted.map(|(cell, &count)| (self.longest_in(cell), count))
    }

    /// What was counted since `earlier`, an earlier reading of the same histogram. The longest is that of both.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.counts.iter().chain(std::iter::repeat(&0));
        Self {
            counts: self
                .counts
                .iter()
                .zip(before)
                .map(|(now, before)| now.saturating_sub(*before))
                .collect(),
            nanos: self.nanos.saturating_sub(earlier.nanos),
            max: self.max,
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("median", &self.percentile(50.0))
            .field("p99", &self.percentile(99.0))
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_value_is_in_the_cell_whose_end_it_does_not_exceed() {
        // Around each eighth between two powers of two.
        let eighths = (3..64).flat_map(|bit| (8_u64..16).map(move |eighths| eighths << (bit - 3)));
        let values = eighths.flat_map(|value| [value - 1, value, value + 1]).chain(0..8);
        for nanos in values.chain([u64::MAX]) {
            let cell = cell_of(nanos);
            assert!(nanos <= end_of(cell) || cell == HISTOGRAM_CELLS - 1, "{nanos}");
            assert!(cell == 0 || nanos > end_of(cell - 1), "{nanos}");
            assert!(
                cell == 0 || end_of(cell) - end_of(cell - 1) <= end_of(cell) / 4,
                "{nanos}: a range too wide"
            );
        }
        assert!(end_of(HISTOGRAM_CELLS - 1) > 3_600_000_000_000, "an hour is told from two");
    }

    #[test]
    fn what_was_counted_is_told() {
        let cells = Cells::default();
        assert_eq!(cells.read().percentile(99.0), Duration::ZERO);
        cells.add(0, 90);
        cells.add(5_000, 9);
        cells.add(7_000_000, 1);
        let histogram = cells.read();
        assert_eq!((histogram.count(), histogram.max()), (100, Duration::from_millis(7)));
        assert_eq!(histogram.total(), Duration::from_micros(9 * 5 + 7_000));
        assert_eq!(histogram.mean(), histogram.total() / 100);
        assert_eq!(histogram.percentile(90.0), Duration::from_nanos(1023));
        assert_eq!(
            histogram.percentile(100.0),
            Duration::from_millis(7),
            "no more than the latest"
        );
        let p99 = histogram.percentile(99.0).as_nanos();
        assert!((5_000..=6_250).contains(&p99), "{p99}");
        assert_eq!(histogram.percentile(-1.0), histogram.percentile(0.0));
        // Of so many, the last one is above them.
        for (count, percent) in [(1_000, 99.9), (10_000, 99.99), (1_000_000, 99.9999)] {
            let cells = Cells::default();
            cells.add(1_000, count - 1);
            cells.add(9_000_000, 1);
            assert_eq!(
                cells.read().percentile(percent),
                Duration::from_nanos(1_023),
                "{percent} % of {count}"
            );
        }
        assert_eq!(histogram.ranges().map(|(_, count)| count).collect::<Vec<_>>(), [90, 9, 1]);
    }

    /// Otherwise a percentile is cut off at a maximum that does not count what it does.
    #[test]
    fn what_is_counted_is_in_the_sum_and_the_maximum() {
        let (cells, last) = (Cells::default(), if cfg!(miri) { 30 } else { 100_000 });
        thread::scope(|scope| {
            scope.spawn(|| (1..=last).for_each(|nanos| cells.add(nanos * 2_000, 1)));
            let mut count = 0;
            while count < last {
                let histogram = cells.read();
                count = histogram.count();
                assert!(
                    histogram.max >= count * 2_000
                        && histogram.nanos >= count * (count + 1) * 1_000,
                    "{histogram:?}"
                );
            }
        });
    }

    #[test]
    fn two_readings_have_a_difference() {
        let cells = Cells::default();
        cells.add(2_000, 3);
        let before = cells.read();
        cells.add(9_000, 2);
        let since = cells.read().since(&before);
        assert_eq!((since.count(), since.total()), (2, Duration::from_micros(18)));
        assert_eq!(cells.read().since(&Histogram::default()), cells.read());
    }

    #[test]
    fn what_does_not_fit_saturates() {
        let cells = Cells::default();
        cells.add(u64::MAX, u32::MAX);
        cells.add(u64::MAX, 1);
        assert_eq!(
            (cells.read().count(), cells.read().max()),
            (1 << 32, Duration::from_nanos(u64::MAX))
        );
        assert_eq!(cells.read().percentile(50.0), Duration::from_nanos(u64::MAX));
    }

    /// As of leases that ran out while the machine slept.
    #[test]
    fn what_is_beyond_the_last_range_is_told_as_the_longest() {
        let (cells, hours) = (Cells::default(), Duration::from_secs(8 * 3_600));
        cells.add(u64::try_from(hours.as_nanos()).expect("it fits"), 100);
        cells.add(5_000_000_000_000, 1);
        let read = cells.read();
        assert_eq!([1.0, 50.0, 100.0].map(|percent| read.percentile(percent)), [hours; 3]);
        assert_eq!(read.ranges().collect::<Vec<_>>(), [(hours, 101)]);
        // 2^42 ns, which are 73 minutes, are the first beyond it.
        let cells = Cells::default();
        for nanos in [(1 << 42) - 1, 1 << 42] {
            cells.add(nanos, 1);
        }
        let ranges: Vec<_> =
            cells.read().ranges().map(|(end, count)| (end.as_nanos(), count)).collect();
        assert_eq!(ranges, [((1 << 42) - 1, 1), (1 << 42, 1)]);
    }
}
