//! The invariants of the wheel, as code. The property tests ask for them after every operation.

use super::{level::Geometry, raw::RawWheel};

impl<const BITS: u32, const LEVELS: usize> RawWheel<BITS, LEVELS> {
    /// Panics if an invariant is broken.
    pub(crate) fn check(&self) {
        assert!(self.position <= self.target, "time ran past the pass");
        let entries: usize = (0..LEVELS).map(|level| self.check_level(level)).sum();
        let late = self.slots.entries(Self::LATE);
        assert!(late.iter().all(|&index| self.slots.deadline(index) == self.target), "a late entry of another pass");
        assert_eq!(entries + late.len(), self.len, "entries in slots and entries counted");
    }

    /// Checks one level and counts its entries.
    fn check_level(&self, level: usize) -> usize {
        let positions = 0..1 << BITS;
        positions.map(|position| self.check_slot(level, position)).sum()
    }

    fn check_slot(&self, level: usize, position: u32) -> usize {
        let entries = self.slots.entries(Self::slot(level, position));
        let marked = self.occupied[level].contains(position);
        assert_eq!(marked, !entries.is_empty(), "the mark of slot {position} of level {level}");
        for &index in &entries {
            self.check_entry(level, position, self.slots.deadline(index));
        }
        entries.len()
    }

    fn check_entry(&self, level: usize, position: u32, deadline: u64) {
        let number = Geometry::<BITS, LEVELS>::number(level, deadline);
        let current = Geometry::<BITS, LEVELS>::number(level, self.position);
        assert_eq!(Geometry::<BITS, LEVELS>::position(number), position, "an entry of another slot");
        assert!(deadline >= self.position, "an entry that was passed over");
        assert!(number - current < Geometry::<BITS, LEVELS>::SLOTS, "an entry of another revolution");
        if number == current {
            assert_eq!(level, 0, "a slot that began and did not cascade");
        } else {
            assert!(self.earliest <= Geometry::<BITS, LEVELS>::start(level, number), "a slot that would be missed");
        }
    }
}
