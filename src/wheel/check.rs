//! Checks the invariants of the wheel, for tests.

use alloc::vec::Vec;

use super::{
    level::Geometry,
    raw::{RawWheel, Stage},
    storage::{Entry, Location, Storage},
};

/// Panics if an invariant is broken. `indices` must include all linked entries.
pub(super) fn check<S: Storage, const BITS: u32, const LEVELS: usize>(
    wheel: &RawWheel<BITS, LEVELS>,
    storage: &S,
    indices: impl Iterator<Item = u32>,
) {
    Check { wheel, storage }.run(indices);
}

struct Check<'w, S, const BITS: u32, const LEVELS: usize> {
    wheel: &'w RawWheel<BITS, LEVELS>,
    storage: &'w S,
}

impl<S: Storage, const BITS: u32, const LEVELS: usize> Check<'_, S, BITS, LEVELS> {
    fn run(&self, indices: impl Iterator<Item = u32>) {
        let Self { wheel, storage } = *self;
        assert!(wheel.current <= wheel.pass_end, "`current` is past the end of the pass");
        let entries: usize = (0..LEVELS).map(|level| self.check_level(level)).sum();
        let late = wheel.slots.entries(storage, Geometry::<BITS, LEVELS>::LATE_SLOT);
        for &index in &late {
            assert!(
                storage.entry(index).deadline().get() >= wheel.pass_end,
                "a late entry with a deadline before `pass_end`"
            );
        }
        let is_idle = late.is_empty() && wheel.stage == Stage::Done && !wheel.cascade_pending;
        assert!(
            wheel.idle_until == 0 || is_idle || wheel.idle_until <= wheel.current,
            "`idle_until` is in the future, but the wheel has work"
        );
        assert_eq!(
            entries + late.len(),
            wheel.len(),
            "`len` differs from the number of entries in slots"
        );
        let linked: Vec<Location> = indices
            .map(|index| storage.entry(index).location().get())
            .filter(|location| location.is_linked())
            .collect();
        assert_eq!(
            linked.len(),
            wheel.len(),
            "`len` differs from the number of entries with a slot"
        );
        let far = linked.iter().filter(|location| location.far_slot().is_some());
        let waiting: u32 = wheel.uncascaded_counts.iter().sum();
        assert_eq!(
            far.count(),
            waiting as usize,
            "`uncascaded_counts` differs from the entries of the upper levels"
        );
        assert_eq!(
            wheel.uncascaded_total, waiting,
            "`uncascaded_total` differs from the sum of `uncascaded_counts`"
        );
    }

    /// Checks one level and counts its entries.
    fn check_level(&self, level: usize) -> usize {
        let ring = if level == 0 {
            Geometry::<BITS, LEVELS>::NEAR_SLOT_COUNT
        } else {
            Geometry::<BITS, LEVELS>::FAR_SLOT_COUNT
        };
        (0..u32::try_from(ring).expect("small"))
            .map(|position| self.check_slot(level, position))
            .sum()
    }

    fn check_slot(&self, level: usize, position: u32) -> usize {
        let Self { wheel, storage } = *self;
        if level == 0 {
            let entries = wheel.slots.entries(storage, position);
            let is_marked = wheel.slots.is_marked(position);
            assert_eq!(is_marked, !entries.is_empty(), "the bit of slot {position}");
            let is_postponed =
                |&&index: &&u32| storage.entry(index).location().get() == Location::POSTPONED;
            let postponed = entries.iter().filter(is_postponed).count();
            assert!(
                postponed <= wheel.slots.postponed_since_empty(position) as usize,
                "more postponed entries than the slot has counted"
            );
            return self.check_entries(0, position, &entries);
        }
        let slot = Geometry::<BITS, LEVELS>::far_slot(level, position);
        let entries = wheel.slots.entries(storage, slot);
        let is_marked = wheel.slots.is_marked(slot);
        assert_eq!(is_marked, !entries.is_empty(), "the bit of slot {position} of level {level}");
        let waiting = entries
            .iter()
            .filter(|&&index| storage.entry(index).location().get() == Location::far(slot));
        assert_eq!(
            waiting.count(),
            wheel.uncascaded_counts[(slot - Geometry::<BITS, LEVELS>::far_slot(1, 0)) as usize]
                as usize,
            "`uncascaded_counts` differs from the entries of slot {position} of level {level}"
        );
        self.check_entries(level, position, &entries)
    }

    fn check_entries(&self, level: usize, position: u32, entries: &[u32]) -> usize {
        for &index in entries {
            let storage = self.storage;
            let (deadline, location) =
                (storage.entry(index).deadline().get(), storage.entry(index).location().get());
            self.check_entry(level, position, deadline, location);
        }
        entries.len()
    }

    /// Checks that `level` reaches an entry's slot, that the slot does not start after the
    /// deadline, and that a pass will visit the slot. Also checks that a `NEAR` entry is in the
    /// slot of its deadline.
    fn check_entry(&self, level: usize, position: u32, deadline: u64, location: Location) {
        let wheel = self.wheel;
        let current = Geometry::<BITS, LEVELS>::slot_number(level, wheel.current);
        let here = Geometry::<BITS, LEVELS>::position(level, current);
        let ahead = u64::from(Geometry::<BITS, LEVELS>::position(
            level,
            u64::from(position.wrapping_sub(here)),
        ));
        let start = Geometry::<BITS, LEVELS>::slot_start(level, current + ahead);
        assert!(start <= deadline, "the entry would fire late");
        assert!(
            start == deadline || location != Location::NEAR,
            "the slot starts before the deadline, but the entry is not postponed"
        );
        let is_within_reach =
            Geometry::<BITS, LEVELS>::reaches(level, wheel.current, start.max(wheel.current));
        assert!(is_within_reach, "the level does not reach the slot");
        if ahead == 0 {
            assert!(
                wheel.stage != Stage::Done,
                "the current slot has entries, but the pass is done"
            );
        } else {
            assert!(wheel.idle_until <= start, "an idle pass would miss the slot");
        }
        assert!(
            ahead != 1 || level == 0 || wheel.cascade_pending,
            "the next slot has entries, but no cascade is pending"
        );
    }
}
