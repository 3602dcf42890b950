//! How late timers fired: a histogram that one thread writes with plain stores and any thread reads.
//!
//! It is our own because those there are count with atomic read-modify-writes, or cannot be read by others at all.

use std::{fmt, time::Duration};

use crate::{
    limits::{LATENESS_CELLS, LATENESS_FINEST},
    sync::{AtomicU64, Ordering},
};

/// Cells to a factor of two: a value is at most a quarter less than its cell says.
const CELLS_BITS: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Cells {
    timers: [AtomicU64; LATENESS_CELLS],
    nanos: AtomicU64,
    max: AtomicU64,
}

impl Default for Cells {
    fn default() -> Self {
        let timers = [(); LATENESS_CELLS].map(|()| AtomicU64::new(0));
        Self { timers, nanos: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

impl Cells {
    /// Counts `timers` that were `nanos` late, for the one thread that does.
    pub(super) fn add(&self, nanos: u64, timers: u32) {
        // Relaxed: one thread writes, and each word is read for its own sake.
        let raise = |word: &AtomicU64, by: u64| {
            word.store(word.load(Ordering::Relaxed).saturating_add(by), Ordering::Relaxed);
        };
        raise(&self.timers[cell_of(nanos)], timers.into());
        raise(&self.nanos, nanos.saturating_mul(timers.into()));
        if nanos > self.max.load(Ordering::Relaxed) {
            self.max.store(nanos, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> Lateness {
        // Relaxed: as in `add`.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let timers = self.timers.iter().map(load).collect();
        Lateness { timers, nanos: load(&self.nanos), max: load(&self.max) }
    }
}

/// The cell that counts what is `nanos` late. The first one counts what is less than 1024.
fn cell_of(nanos: u64) -> usize {
    let Some(octave) = nanos.checked_ilog2().filter(|&octave| octave >= LATENESS_FINEST) else { return 0 };
    let part = (nanos >> (octave - CELLS_BITS)) & ((1 << CELLS_BITS) - 1);
    let cell = 1 + (u64::from(octave - LATENESS_FINEST) << CELLS_BITS) + part;
    usize::try_from(cell).map_or(LATENESS_CELLS - 1, |cell| cell.min(LATENESS_CELLS - 1))
}

/// The most that a cell counts, in nanoseconds. The last one counts everything beyond as well.
fn end_of(cell: usize) -> u64 {
    let Some(cell) = cell.checked_sub(1) else { return (1 << LATENESS_FINEST) - 1 };
    let (octave, part) = (LATENESS_FINEST as usize + (cell >> CELLS_BITS), cell & ((1 << CELLS_BITS) - 1));
    ((((1 << CELLS_BITS) + part as u64 + 1) << octave) >> CELLS_BITS) - 1
}

/// How late timers fired: how many there were in each of 129 ranges of lateness, which are a quarter wide (everything below a
/// microsecond is one range).
///
/// It is measured from a timer's deadline, rounded up to a tick, to the beginning of the turn that fired it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Lateness {
    /// By cell; empty if none has been counted.
    timers: Vec<u64>,
    nanos: u64,
    max: u64,
}

impl Lateness {
    /// How many timers.
    pub fn count(&self) -> u64 {
        self.timers.iter().sum()
    }

    /// How late the latest was.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// How late they were on average; zero if there were none.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanos.checked_div(self.count()).unwrap_or(0))
    }

    /// How late they were all together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The lateness that `percent` of the timers did not exceed, at most a quarter more than it was; zero if there were none.
    /// What is below 0 or above 100 counts as that.
    pub fn percentile(&self, percent: f64) -> Duration {
        let count = self.count();
        // As far as an f64 counts.
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let wanted = ((percent.clamp(0.0, 100.0) / 100.0 * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let cell = self.timers.iter().position(|&timers| {
            seen += timers;
            seen >= wanted
        });
        // A range's end may be later than the latest of them.
        cell.map_or(Duration::ZERO, |cell| Duration::from_nanos(end_of(cell)).min(self.max()))
    }

    /// The ranges in which there are any: the longest lateness that each counts, and how many timers.
    pub fn ranges(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counted = self.timers.iter().enumerate().filter(|&(_, &timers)| timers > 0);
        counted.map(|(cell, &timers)| (Duration::from_nanos(end_of(cell)), timers))
    }

    /// What was counted since `earlier`, an earlier reading of the same histogram. The longest is that of both.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.timers.iter().chain(std::iter::repeat(&0));
        Self {
            timers: self.timers.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect(),
            nanos: self.nanos.saturating_sub(earlier.nanos),
            max: self.max,
        }
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lateness")
            .field("count", &self.count())
            .field("median", &self.percentile(50.0))
            .field("p99", &self.percentile(99.0))
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_the_cell_whose_end_it_does_not_exceed() {
        let values = (0..64).flat_map(|bit| (0..3).map(move |by| (1_u64 << bit).wrapping_sub(1).saturating_add(by)));
        for nanos in values.chain([u64::MAX]) {
            let cell = cell_of(nanos);
            assert!(nanos <= end_of(cell) || cell == LATENESS_CELLS - 1, "{nanos}");
            assert!(cell == 0 || nanos > end_of(cell - 1), "{nanos}");
            assert!(cell == 0 || end_of(cell) - end_of(cell - 1) <= end_of(cell) / 4, "{nanos}: a range too wide");
        }
        assert!(end_of(LATENESS_CELLS - 1) > 3_600_000_000_000, "an hour is told from two");
    }

    #[test]
    fn what_was_counted_is_told() {
        let cells = Cells::default();
        assert_eq!(cells.read().percentile(99.0), Duration::ZERO);
        cells.add(0, 90);
        cells.add(5_000, 9);
        cells.add(7_000_000, 1);
        let lateness = cells.read();
        assert_eq!((lateness.count(), lateness.max()), (100, Duration::from_millis(7)));
        assert_eq!(lateness.total(), Duration::from_micros(9 * 5 + 7_000));
        assert_eq!(lateness.mean(), lateness.total() / 100);
        assert_eq!(lateness.percentile(90.0), Duration::from_nanos(1023));
        assert_eq!(lateness.percentile(100.0), Duration::from_millis(7), "no more than the latest");
        let p99 = lateness.percentile(99.0).as_nanos();
        assert!((5_000..=6_250).contains(&p99), "{p99}");
        assert_eq!(lateness.percentile(-1.0), lateness.percentile(0.0));
        assert_eq!(lateness.ranges().map(|(_, timers)| timers).collect::<Vec<_>>(), [90, 9, 1]);
    }

    #[test]
    fn two_readings_have_a_difference() {
        let cells = Cells::default();
        cells.add(2_000, 3);
        let before = cells.read();
        cells.add(9_000, 2);
        let since = cells.read().since(&before);
        assert_eq!((since.count(), since.total()), (2, Duration::from_micros(18)));
        assert_eq!(cells.read().since(&Lateness::default()), cells.read());
    }

    #[test]
    fn what_does_not_fit_saturates() {
        let cells = Cells::default();
        cells.add(u64::MAX, u32::MAX);
        cells.add(u64::MAX, 1);
        assert_eq!((cells.read().count(), cells.read().max()), (1 << 32, Duration::from_nanos(u64::MAX)));
        assert_eq!(cells.read().percentile(50.0), Duration::from_nanos(end_of(LATENESS_CELLS - 1)));
    }
}
