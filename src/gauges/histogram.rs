//! A histogram that one thread writes and any thread can read.

use std::{fmt, time::Duration};

use crate::{
    limits::{HISTOGRAM_CELLS, HISTOGRAM_MIN_NANOS_LOG2},
    util::sync::{AtomicU64, Ordering},
};

/// The binary logarithm of the number of cells per octave, the range from a value to its double.
const CELLS_PER_OCTAVE_LOG2: u32 = 2;

#[derive(Debug)]
pub(crate) struct AtomicHistogram {
    cell_counts: [AtomicU64; HISTOGRAM_CELLS],
    sum_nanos: AtomicU64,
    max_nanos: AtomicU64,
}

impl Default for AtomicHistogram {
    fn default() -> Self {
        let cell_counts = [(); HISTOGRAM_CELLS].map(|()| AtomicU64::new(0));
        Self { cell_counts, sum_nanos: AtomicU64::new(0), max_nanos: AtomicU64::new(0) }
    }
}

impl AtomicHistogram {
    /// Counts a duration. Only one thread may call this method.
    #[inline]
    pub(crate) fn add_duration(&self, nanos: u64) {
        // Relaxed: only one thread writes the histogram. The Release store of the cell's count
        // publishes the sum and the maximum.
        if nanos > self.max_nanos.load(Ordering::Relaxed) {
            self.max_nanos.store(nanos, Ordering::Relaxed);
        }
        let sum = self.sum_nanos.load(Ordering::Relaxed);
        self.sum_nanos.store(sum.wrapping_add(nanos), Ordering::Relaxed);
        let cell = &self.cell_counts[cell_index_of(nanos)];
        // Relaxed: one thread writes. Release: pairs with the Acquire in `read`.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    pub(crate) fn read(&self) -> Histogram {
        // Acquire: pairs with the Release in `add_duration`.
        let cell_counts =
            self.cell_counts.iter().map(|cell| cell.load(Ordering::Acquire)).collect();
        // Relaxed: after the loads above, sum and maximum include all values in `cell_counts`, and
        // perhaps later values.
        Histogram {
            cell_counts,
            sum_nanos: self.sum_nanos.load(Ordering::Relaxed),
            max_nanos: self.max_nanos.load(Ordering::Relaxed),
        }
    }
}

/// Returns the index of the cell that counts `nanos`. The first cell counts values below 1,024.
fn cell_index_of(nanos: u64) -> usize {
    if nanos < 1 << HISTOGRAM_MIN_NANOS_LOG2 {
        return 0;
    }
    let octave = nanos.ilog2();
    let cell_in_octave =
        (nanos >> (octave - CELLS_PER_OCTAVE_LOG2)) & ((1 << CELLS_PER_OCTAVE_LOG2) - 1);
    let cell_index = 1
        + (u64::from(octave - HISTOGRAM_MIN_NANOS_LOG2) << CELLS_PER_OCTAVE_LOG2)
        + cell_in_octave;
    usize::try_from(cell_index)
        .map_or(HISTOGRAM_CELLS - 1, |cell_index| cell_index.min(HISTOGRAM_CELLS - 1))
}

/// Returns the largest value of a cell. The last cell is unbounded, so the result for this cell has
/// no meaning.
fn cell_max_nanos(cell_index: usize) -> u64 {
    let Some(cell_index) = cell_index.checked_sub(1) else {
        return (1 << HISTOGRAM_MIN_NANOS_LOG2) - 1;
    };
    let (octave, cell_in_octave) = (
        HISTOGRAM_MIN_NANOS_LOG2 as usize + (cell_index >> CELLS_PER_OCTAVE_LOG2),
        cell_index & ((1 << CELLS_PER_OCTAVE_LOG2) - 1),
    );
    ((((1 << CELLS_PER_OCTAVE_LOG2) + cell_in_octave as u64 + 1) << octave)
        >> CELLS_PER_OCTAVE_LOG2)
        - 1
}

/// A histogram of durations.
///
/// Durations are counted in 130 ranges. Durations below 1,024 ns share the first range, and
/// durations above about 73 minutes share the last. The end of any other range exceeds its
/// durations by at most a quarter.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::{thread, time::Duration};
///
/// local_timer().add(Duration::from_millis(1), || ());
/// thread::sleep(Duration::from_millis(3));
/// local_timer().turn();
///
/// let lateness = local_timer().metrics().expect("the thread has a wheel").loop_lateness;
/// assert_eq!(lateness.count(), 1);
/// assert!(lateness.max() >= Duration::from_millis(1));
/// assert_eq!(lateness.percentile(99.0), lateness.max());
/// assert_eq!(lateness.mean(), lateness.sum());
/// for (up_to, count) in lateness.ranges() {
///     println!("{count} timers were up to {up_to:?} late");
/// }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The count of each cell; empty in a default histogram.
    cell_counts: Vec<u64>,
    sum_nanos: u64,
    max_nanos: u64,
}

impl Histogram {
    /// Returns the number of durations.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    ///
    /// let lateness = local_timer().metrics().expect("the thread has a wheel").loop_lateness;
    /// println!("{} timers have fired", lateness.count());
    /// ```
    pub fn count(&self) -> u64 {
        self.cell_counts.iter().sum()
    }

    /// Returns the longest duration.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    ///
    /// let lateness = local_timer().metrics().expect("the thread has a wheel").loop_lateness;
    /// println!("timers were up to {:?} late", lateness.max());
    /// ```
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_nanos)
    }

    /// Returns the average duration, or zero if the histogram is empty. The average is too low
    /// after the [`sum`](Self::sum) has wrapped.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    ///
    /// let lateness = local_timer().metrics().expect("the thread has a wheel").loop_lateness;
    /// println!("timers were {:?} late on average", lateness.mean());
    /// ```
    pub fn mean(&self) -> Duration {
        // The sum may include newer durations than the count, so the quotient may exceed the
        // maximum.
        let mean = self.sum_nanos.checked_div(self.count()).unwrap_or(0);
        Duration::from_nanos(mean).min(self.max())
    }

    /// Returns the sum of the durations, which wraps after 584 years.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    ///
    /// let lateness = local_timer().metrics().expect("the thread has a wheel").loop_lateness;
    /// println!("timers were {:?} late in total", lateness.sum());
    /// ```
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos)
    }

    /// Returns the duration that `percent` percent of the durations do not exceed, or zero if the
    /// histogram is empty.
    ///
    /// The result may exceed the exact value by up to a quarter, or by about a microsecond. Above
    /// about 73 minutes, the result is the longest duration. Clamps `percent` to the range from 0
    /// to 100.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    ///
    /// let lateness = local_timer().metrics().expect("the thread has a wheel").loop_lateness;
    /// println!("99 % of the timers were up to {:?} late", lateness.percentile(99.0));
    /// ```
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn percentile(&self, percent: f64) -> Duration {
        let count = self.count();
        // An `f64` represents each count up to 2^53 exactly.
        let rank = ((percent.clamp(0.0, 100.0) * count as f64 / 100.0).ceil() as u64)
            .clamp(1, count.max(1));
        let mut seen_count = 0;
        let cell_index = self.cell_counts.iter().position(|&count| {
            seen_count += count;
            seen_count >= rank
        });
        // The end of a range may exceed the longest duration, but the result must not.
        cell_index.map_or(Duration::ZERO, |cell_index| self.range_end(cell_index).min(self.max()))
    }

    fn range_end(&self, cell_index: usize) -> Duration {
        if cell_index == HISTOGRAM_CELLS - 1 {
            self.max()
        } else {
            Duration::from_nanos(cell_max_nanos(cell_index))
        }
    }

    /// Returns each nonempty range: its end, and the number of durations in the range.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    ///
    /// let lateness = local_timer().metrics().expect("the thread has a wheel").loop_lateness;
    /// for (up_to, count) in lateness.ranges() {
    ///     println!("{count} timers were up to {up_to:?} late");
    /// }
    /// ```
    pub fn ranges(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let nonempty_cells = self.cell_counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        nonempty_cells.map(|(cell_index, &count)| (self.range_end(cell_index), count))
    }

    /// Returns a histogram of the durations counted since `earlier`, a previous reading of the same
    /// histogram. The result's maximum is the longest duration ever counted, even before `earlier`.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    ///
    /// let lateness = || local_timer().metrics().expect("the thread has a wheel").loop_lateness;
    /// let before = lateness();
    /// local_timer().turn();
    /// assert_eq!(lateness().since(&before).count(), 0); // no timer fired in between
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let earlier_counts = earlier.cell_counts.iter().chain(std::iter::repeat(&0));
        let cell_counts = self
            .cell_counts
            .iter()
            .zip(earlier_counts)
            .map(|(count, earlier_count)| count.saturating_sub(*earlier_count));
        // The sum may have wrapped between the two readings.
        let sum_nanos = self.sum_nanos.wrapping_sub(earlier.sum_nanos);
        Self { cell_counts: cell_counts.collect(), sum_nanos, max_nanos: self.max_nanos }
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

    fn histogram_of<const N: usize>(counted: [(u64, u32); N]) -> Histogram {
        let cells = AtomicHistogram::default();
        for (nanos, times) in counted {
            cells.add_duration(nanos);
            let extra_count = u64::from(times) - 1;
            cells.cell_counts[cell_index_of(nanos)].fetch_add(extra_count, Ordering::Relaxed);
            cells.sum_nanos.fetch_add(nanos.wrapping_mul(extra_count), Ordering::Relaxed);
        }
        cells.read()
    }

    #[test]
    fn each_value_is_in_the_cell_whose_range_contains_it() {
        let octave_eighths = (3..64)
            .flat_map(|bit| (8_u64..16).map(move |octave_eighths| octave_eighths << (bit - 3)));
        let values = octave_eighths.flat_map(|value| [value - 1, value, value + 1]).chain(0..8);
        for nanos in values.chain([u64::MAX]) {
            let cell = cell_index_of(nanos);
            assert!(nanos <= cell_max_nanos(cell) || cell == HISTOGRAM_CELLS - 1, "{nanos}");
            assert!(cell == 0 || nanos > cell_max_nanos(cell - 1), "{nanos}");
            assert!(
                cell == 0
                    || cell_max_nanos(cell) - cell_max_nanos(cell - 1) <= cell_max_nanos(cell) / 4,
                "{nanos}: the range is too wide"
            );
        }
        assert!(cell_max_nanos(HISTOGRAM_CELLS - 1) > 3_600_000_000_000, "longer than an hour");
    }

    #[test]
    fn a_histogram_reports_count_sum_mean_and_percentiles() {
        assert_eq!(histogram_of([]).percentile(99.0), Duration::ZERO);
        let histogram = histogram_of([(0, 90), (5_000, 9), (7_000_000, 1)]);
        assert_eq!((histogram.count(), histogram.max()), (100, Duration::from_millis(7)));
        assert_eq!(histogram.sum(), Duration::from_micros(9 * 5 + 7_000));
        assert_eq!(histogram.mean(), histogram.sum() / 100);
        assert_eq!(histogram.percentile(90.0), Duration::from_nanos(1023));
        assert_eq!(histogram.percentile(100.0), Duration::from_millis(7), "at most the maximum");
        let p99 = histogram.percentile(99.0).as_nanos();
        assert!((5_000..=6_250).contains(&p99), "{p99}");
        assert_eq!(histogram.percentile(-1.0), histogram.percentile(0.0));
        for (count, percent) in [(1_000, 99.9), (10_000, 99.99), (1_000_000, 99.9999)] {
            let read = histogram_of([(1_000, count - 1), (9_000_000, 1)]).percentile(percent);
            assert_eq!(read, Duration::from_nanos(1_023), "{percent} % of {count}");
        }
        assert_eq!(histogram.ranges().map(|(_, count)| count).collect::<Vec<_>>(), [90, 9, 1]);
    }

    #[test]
    fn counted_values_are_in_the_sum_and_the_maximum() {
        let (cells, last) = (AtomicHistogram::default(), if cfg!(miri) { 30 } else { 100_000 });
        thread::scope(|scope| {
            scope.spawn(|| (1..=last).for_each(|nanos| cells.add_duration(nanos * 2_000)));
            let mut count = 0;
            while count < last {
                let histogram = cells.read();
                count = histogram.count();
                assert!(
                    histogram.max_nanos >= count * 2_000
                        && histogram.sum_nanos >= count * (count + 1) * 1_000,
                    "{histogram:?}"
                );
            }
        });
    }

    #[test]
    fn since_returns_the_difference_of_two_readings() {
        let cells = AtomicHistogram::default();
        (0..3).for_each(|_| cells.add_duration(2_000));
        let before = cells.read();
        (0..2).for_each(|_| cells.add_duration(9_000));
        let since = cells.read().since(&before);
        assert_eq!((since.count(), since.sum()), (2, Duration::from_micros(18)));
        cells.add_duration(u64::MAX - 10_000);
        let before = cells.read();
        (0..3).for_each(|_| cells.add_duration(9_000));
        let since = cells.read().since(&before);
        assert_eq!(since.sum(), Duration::from_micros(27), "the sum has wrapped");
        assert_eq!(cells.read().since(&Histogram::default()), cells.read());
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let read = histogram_of([(u64::MAX, u32::MAX), (u64::MAX, 1)]);
        assert_eq!((read.count(), read.max()), (1 << 32, Duration::from_nanos(u64::MAX)));
        assert_eq!(read.percentile(50.0), read.max());
    }

    #[test]
    fn values_in_the_last_range_are_reported_as_the_maximum() {
        let hours = Duration::from_secs(8 * 3_600);
        let read = histogram_of([(8 * 3_600_000_000_000, 100), (5_000_000_000_000, 1)]);
        assert_eq!([1.0, 50.0, 100.0].map(|percent| read.percentile(percent)), [hours; 3]);
        assert_eq!(read.ranges().collect::<Vec<_>>(), [(hours, 101)]);
        // 2^42 ns, or 73 minutes, is the first value of the last range.
        let read = histogram_of([((1 << 42) - 1, 1), (1 << 42, 1)]);
        let ranges: Vec<_> = read.ranges().map(|(end, count)| (end.as_nanos(), count)).collect();
        assert_eq!(ranges, [((1 << 42) - 1, 1), (1 << 42, 1)]);
    }
}
