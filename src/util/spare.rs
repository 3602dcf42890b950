//! Which empty pages of a table are kept for the next entries, and which are freed.
//!
//! Equal batches of timers, added and cancelled each round, must not allocate in every round. So a
//! page is freed only if a whole interval of [`TURNS_PER_INTERVAL`] turns did not need it. The
//! surplus is the smallest number of empty pages during the interval, minus the minimum.

use crate::limits::{SPARE_PAGES_MIN, TURNS_PER_INTERVAL};

/// The empty pages of one table.
#[derive(Debug)]
pub(crate) struct Spare {
    empty: u32,
    /// The smallest number of empty pages since the interval began.
    low: u32,
    /// Pages that the last interval did not need.
    surplus: u32,
    /// Pages that are never freed.
    min: u32,
    turns: u32,
}

impl Spare {
    pub(crate) const fn new() -> Self {
        Self { empty: 0, low: 0, surplus: 0, min: SPARE_PAGES_MIN, turns: 0 }
    }

    /// Keeps at least `min` empty pages.
    pub(crate) fn keep(&mut self, min: u32) {
        self.min = self.min.max(min);
    }

    /// Counts a page that has become empty.
    #[inline]
    pub(crate) fn add(&mut self) {
        self.empty += 1;
    }

    /// Counts an empty page that is used again, or has been freed.
    #[inline]
    pub(crate) fn remove(&mut self) {
        self.empty -= 1;
        self.low = self.low.min(self.empty);
        self.surplus = self.surplus.min(self.empty.saturating_sub(self.min));
    }

    /// Replaces the count of empty pages by one that was kept elsewhere. `low` is its minimum since
    /// the last call.
    #[cfg(feature = "std")]
    pub(crate) fn observe(&mut self, empty: u32, low: u32) {
        self.empty = empty;
        self.low = self.low.min(low);
        self.surplus = self.surplus.min(low.saturating_sub(self.min));
    }

    /// Returns true if there are more empty pages than are always kept: then each turn calls
    /// [`turn`](Self::turn).
    #[inline]
    pub(crate) fn is_worth_a_look(&self) -> bool {
        self.empty > self.min
    }

    /// Counts a turn. Returns true if an empty page is to be freed.
    pub(crate) fn turn(&mut self) -> bool {
        self.turns += 1;
        if self.turns >= TURNS_PER_INTERVAL {
            self.turns = 0;
            self.surplus = self.low.saturating_sub(self.min);
            self.low = self.empty;
        }
        self.surplus > 0
    }

    /// Returns true if the last interval had pages to free that are still there.
    #[cfg(test)]
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus > 0
    }

    #[cfg(any(test, debug_assertions))]
    pub(crate) fn empty(&self) -> u32 {
        self.empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends the current interval.
    fn end_interval(spare: &mut Spare) {
        while {
            spare.turn();
            spare.turns != 0
        } {}
    }

    #[test]
    fn pages_needed_in_every_interval_are_kept() {
        let mut spare = Spare::new();
        for _ in 0..10 {
            (0..20).for_each(|_| spare.add());
            (0..20).for_each(|_| spare.remove());
            (0..20).for_each(|_| spare.add());
            end_interval(&mut spare);
            assert!(!spare.has_surplus());
            (0..20).for_each(|_| spare.remove());
        }
    }

    #[test]
    #[cfg(feature = "std")]
    fn pages_not_needed_for_an_interval_are_freed_but_for_the_minimum() {
        let mut spare = Spare::new();
        spare.keep(7);
        (0..20).for_each(|_| spare.add());
        end_interval(&mut spare);
        assert!(!spare.has_surplus(), "they became empty in this interval");
        end_interval(&mut spare);
        let mut freed = 0;
        while spare.turn() {
            spare.remove();
            freed += 1;
        }
        assert_eq!((freed, spare.empty()), (13, 7));
    }
}
