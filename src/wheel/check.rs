//! The invariants of the wheel, as code. The property tests check them after every operation.

use alloc::vec::Vec;

use super::{
    level::Geometry,
    raw::{Here, RawWheel},
    storage::{Entry, Location, Storage},
};

impl<const BITS: u32, const LEVELS: usize> RawWheel<BITS, LEVELS> {
    /// Panics if an invariant is broken. `indices` has all indices of the storage, used or free.
    pub(crate) fn check(&self, storage: &impl Storage, indices: impl Iterator<Item = u32>) {
        assert!(self.position <= self.target, "time ran past the pass");
        let entries: usize = (0..LEVELS).map(|level| self.check_level(storage, level)).sum();
        let late = self.slots.entries(storage, Geometry::<BITS, LEVELS>::LATE);
        for &index in &late {
            assert!(storage.entry(index).deadline() >= self.target, "a late entry of another pass");
        }
        let is_calm = late.is_empty() && self.here == Here::Nothing && !self.handing_down;
        assert!(
            self.idle_until == 0 || is_calm || self.idle_until <= self.position,
            "calm, and something is left"
        );
        assert_eq!(entries + late.len(), self.len(), "entries in slots and entries counted");
        let linked: Vec<Location> = indices
            .map(|index| storage.entry(index).location())
            .filter(|location| location.is_linked())
            .collect();
        assert_eq!(linked.len(), self.len(), "entries with a location");
        let far = linked.iter().filter(|location| location.far_slot().is_some());
        let waiting: u32 = self.waiting.iter().sum();
        assert_eq!(far.count(), waiting as usize, "entries of the upper levels");
        assert_eq!(self.waiting_in_all, waiting, "the same, of all together");
    }

    /// Checks one level and counts its entries.
    fn check_level(&self, storage: &impl Storage, level: usize) -> usize {
        let ring = if level == 0 {
            Geometry::<BITS, LEVELS>::NEAR_RING
        } else {
            Geometry::<BITS, LEVELS>::FAR_RING
        };
        (0..u32::try_from(ring).expect("small"))
            .map(|position| self.check_slot(storage, level, position))
            .sum()
    }

    fn check_slot(&self, storage: &impl Storage, level: usize, position: u32) -> usize {
        if level == 0 {
            let entries = self.slots.entries(storage, position);
            assert_eq!(
                self.near.contains(position),
                !entries.is_empty(),
                "the mark of slot {position}"
            );
            return self.check_entries(storage, 0, position, &entries);
        }
        let slot = Geometry::<BITS, LEVELS>::far_slot(level, position);
        let (plain, aligned) = (
            self.slots.entries(storage, slot),
            self.slots.entries(storage, Geometry::<BITS, LEVELS>::aligned_slot(level, position)),
        );
        let marked = self.far[level - 1].contains(position);
        assert_eq!(
            marked,
            !plain.is_empty() || !aligned.is_empty(),
            "the mark of slot {position} of level {level}"
        );
        let waiting =
            plain.iter().filter(|&&index| storage.entry(index).location() == Location::far(slot));
        assert_eq!(
            waiting.count(),
            self.waiting[(slot - Geometry::<BITS, LEVELS>::far_slot(1, 0)) as usize] as usize,
            "who waits there"
        );
        self.check_entries(storage, level, position, &plain)
            + self.check_entries(storage, level, position, &aligned)
    }

    fn check_entries(
        &self,
        storage: &impl Storage,
        level: usize,
        position: u32,
        entries: &[u32],
    ) -> usize {
        for &index in entries {
            let (deadline, location) =
                (storage.entry(index).deadline(), storage.entry(index).location());
            self.check_entry(level, position, deadline, location);
        }
        entries.len()
    }

    /// Checks that an entry is in a slot within reach, which does not start after its deadline and
    /// will be visited.
    fn check_entry(&self, level: usize, position: u32, deadline: u64, location: Location) {
        let current = Geometry::<BITS, LEVELS>::number(level, self.position);
        let here = Geometry::<BITS, LEVELS>::position(level, current);
        let ahead = u64::from(Geometry::<BITS, LEVELS>::position(
            level,
            u64::from(position.wrapping_sub(here)),
        ));
        let start = Geometry::<BITS, LEVELS>::start(level, current + ahead);
        assert!(start <= deadline, "an entry that would fire late");
        // A late entry may be in an upper slot, if the wheel is behind with that slot.
        let is_crowded = location == Location::CROWDED && deadline > self.target;
        assert!(start == deadline || !is_crowded, "a crowd that would be re-placed at once");
        let is_within_reach =
            Geometry::<BITS, LEVELS>::reaches(level, self.position, start.max(self.position));
        assert!(is_within_reach, "an entry that was passed over");
        if ahead == 0 {
            assert!(self.here != Here::Nothing, "a slot that has begun and is not being worked on");
        } else {
            assert!(self.idle_until <= start, "a slot that would be missed");
        }
        let has_plain =
            level > 0 && !self.slots.is_empty(Geometry::<BITS, LEVELS>::far_slot(level, position));
        assert!(
            ahead != 1 || !has_plain || self.handing_down,
            "a slot that is not being handed down"
        );
    }
}
