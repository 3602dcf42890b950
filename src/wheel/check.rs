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
        assert!(wheel.current <= wheel.pass_end, "time ran past the pass");
        let entries: usize = (0..LEVELS).map(|level| self.check_level(level)).sum();
        let late = wheel.slots.entries(storage, Geometry::<BITS, LEVELS>::LATE);
        for &index in &late {
            assert!(
                storage.entry(index).deadline() >= wheel.pass_end,
                "a late entry of another pass"
            );
        }
        let is_calm = late.is_empty() && wheel.stage == Stage::Done && !wheel.cascade_pending;
        assert!(
            wheel.idle_until == 0 || is_calm || wheel.idle_until <= wheel.current,
            "calm, and something is left"
        );
        assert_eq!(entries + late.len(), wheel.len(), "entries in slots and entries counted");
        let linked: Vec<Location> = indices
            .map(|index| storage.entry(index).location())
            .filter(|location| location.is_linked())
            .collect();
        assert_eq!(linked.len(), wheel.len(), "entries with a location");
        let far = linked.iter().filter(|location| location.upper_slot().is_some());
        let waiting: u32 = wheel.uncascaded.iter().sum();
        assert_eq!(far.count(), waiting as usize, "entries of the upper levels");
        assert_eq!(wheel.uncascaded_total, waiting, "the same, of all together");
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
            assert_eq!(is_marked, !entries.is_empty(), "the mark of slot {position}");
            let is_deferred =
                |&&index: &&u32| storage.entry(index).location() == Location::DEFERRED;
            let deferred = entries.iter().filter(is_deferred).count();
            assert!(deferred <= wheel.slots.deferred(position) as usize, "uncounted resets");
            return self.check_entries(0, position, &entries);
        }
        let slot = Geometry::<BITS, LEVELS>::upper_slot(level, position);
        let (plain, aligned) = (
            wheel.slots.entries(storage, slot),
            wheel.slots.entries(storage, Geometry::<BITS, LEVELS>::aligned_slot(level, position)),
        );
        let marked = wheel.slots.is_marked(slot);
        assert_eq!(
            marked,
            !plain.is_empty() || !aligned.is_empty(),
            "the mark of slot {position} of level {level}"
        );
        let waiting =
            plain.iter().filter(|&&index| storage.entry(index).location() == Location::far(slot));
        assert_eq!(
            waiting.count(),
            wheel.uncascaded[(slot - Geometry::<BITS, LEVELS>::upper_slot(1, 0)) as usize] as usize,
            "who waits there"
        );
        self.check_entries(level, position, &plain) + self.check_entries(level, position, &aligned)
    }

    fn check_entries(&self, level: usize, position: u32, entries: &[u32]) -> usize {
        for &index in entries {
            let storage = self.storage;
            let (deadline, location) =
                (storage.entry(index).deadline(), storage.entry(index).location());
            self.check_entry(level, position, deadline, location);
        }
        entries.len()
    }

    /// Checks that `level` reaches an entry's slot, that the slot does not start after the
    /// deadline, and that a pass will visit the slot.
    fn check_entry(&self, level: usize, position: u32, deadline: u64, location: Location) {
        let wheel = self.wheel;
        let current = Geometry::<BITS, LEVELS>::slot_number(level, wheel.current);
        let here = Geometry::<BITS, LEVELS>::position(level, current);
        let ahead = u64::from(Geometry::<BITS, LEVELS>::position(
            level,
            u64::from(position.wrapping_sub(here)),
        ));
        let start = Geometry::<BITS, LEVELS>::slot_start(level, current + ahead);
        assert!(start <= deadline, "an entry that would fire late");
        let is_exact = matches!(location, Location::NEAR | Location::ALIGNED);
        assert!(start == deadline || !is_exact, "a reset that was not counted");
        let is_within_reach =
            Geometry::<BITS, LEVELS>::reaches(level, wheel.current, start.max(wheel.current));
        assert!(is_within_reach, "an entry that was passed over");
        if ahead == 0 {
            assert!(wheel.stage != Stage::Done, "a slot that has begun and is not being worked on");
        } else {
            assert!(wheel.idle_until <= start, "a slot that would be missed");
        }
        let has_plain = level > 0
            && !wheel.slots.is_empty(Geometry::<BITS, LEVELS>::upper_slot(level, position));
        assert!(
            ahead != 1 || !has_plain || wheel.cascade_pending,
            "a slot that is not being handed down"
        );
    }
}
