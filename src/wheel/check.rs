//! Checks the invariants of the wheel, for tests.

use alloc::vec::Vec;

use super::{
    level::Geometry,
    raw::{PassStage, RawWheel},
    storage::{Entry, Location, Storage},
};

impl<G: Geometry> RawWheel<G> {
    /// Panics if an invariant is broken. `indices` must include all linked entries.
    pub(super) fn check(&self, storage: &impl Storage, indices: impl Iterator<Item = u32>) {
        assert!(self.current_tick <= self.pass_end, "`current_tick` is past the end of the pass");
        let check_level = |level| -> usize {
            let slots = G::slot_indices_of_level(level);
            slots.map(|slot| self.check_slot(storage, level, slot)).sum()
        };
        let entry_count: usize = (0..G::LEVEL_COUNT).map(check_level).sum();
        let late_entries = self.slots.entries_of(storage, G::LATE_SLOT);
        for &index in &late_entries {
            assert!(
                storage.entry(index).deadline().get() >= self.pass_end,
                "a late entry with a deadline before `pass_end`"
            );
        }
        let is_idle = late_entries.is_empty()
            && self.pass_stage == PassStage::Done
            && !self.is_cascade_pending;
        assert!(
            self.idle_until == 0 || is_idle || self.idle_until <= self.current_tick,
            "`idle_until` is in the future, but the wheel has work"
        );
        assert_eq!(
            entry_count + late_entries.len(),
            self.len(),
            "`len` differs from the number of entries in slots"
        );
        let linked_locations: Vec<Location> = indices
            .map(|index| storage.entry(index).location().get())
            .filter(|location| location.is_linked())
            .collect();
        assert_eq!(
            linked_locations.len(),
            self.len(),
            "`len` differs from the number of entries with a slot"
        );
        let in_upper_levels =
            linked_locations.iter().filter(|location| location.upper_slot().is_some());
        let upper_entries: u32 = self.upper_counts_by_slot.iter().sum();
        assert_eq!(
            in_upper_levels.count(),
            upper_entries as usize,
            "`upper_counts_by_slot` differs from the entries of the upper levels"
        );
        assert_eq!(
            self.upper_entry_count, upper_entries,
            "`upper_entry_count` differs from the sum of `upper_counts_by_slot`"
        );
    }

    /// Checks one slot and counts its entries.
    fn check_slot(&self, storage: &impl Storage, level: u32, slot: u32) -> usize {
        let entries = self.slots.entries_of(storage, slot);
        let is_marked = self.slots.first_occupied(slot..slot + 1).is_some();
        assert_eq!(is_marked, !entries.is_empty(), "the bit of slot {slot}");
        let count_with_location = |location: Location| {
            let is_at_location = |index: &&u32| storage.entry(**index).location().get() == location;
            entries.iter().filter(is_at_location).count()
        };
        if level == 0 {
            assert!(
                count_with_location(Location::POSTPONABLE)
                    <= self.slots.postponable_count(slot) as usize,
                "slot {slot} has more postponable entries than it has counted"
            );
        } else {
            assert_eq!(
                count_with_location(Location::in_upper_slot(slot)),
                self.upper_slot_entry_count(slot) as usize,
                "`upper_counts_by_slot` differs from the entries of slot {slot}"
            );
        }
        for &index in &entries {
            let entry = storage.entry(index);
            self.check_entry(level, slot, entry.deadline().get(), entry.location().get());
        }
        entries.len()
    }

    /// Checks that `level` covers an entry's slot, that a pass will visit the slot, and that the
    /// slot starts at or before the deadline. A `FIRST_LEVEL` entry's slot must start exactly at
    /// the deadline.
    fn check_entry(&self, level: u32, slot: u32, deadline: u64, location: Location) {
        let current = G::slot_number(level, self.current_tick);
        let current_slot = G::slot_index(level, current);
        let slots_ahead =
            u64::from(G::position_in_ring(level, u64::from(slot.wrapping_sub(current_slot))));
        let start = G::slot_start(level, current + slots_ahead);
        assert!(start <= deadline, "the entry would fire late");
        assert!(
            start == deadline || location != Location::FIRST_LEVEL,
            "the slot starts before the deadline, but the entry is `FIRST_LEVEL`"
        );
        let is_covered = G::level_covers(level, self.current_tick, start.max(self.current_tick));
        assert!(is_covered, "the level does not cover the slot");
        if slots_ahead == 0 {
            assert!(
                self.pass_stage != PassStage::Done,
                "the current slot has entries, but the pass is done"
            );
        } else {
            assert!(self.idle_until <= start, "an idle pass would miss the slot");
            assert!(
                self.next_slot_start_min.get() <= start,
                "`next_pass_tick` would miss the slot"
            );
        }
        assert!(
            slots_ahead != 1 || level == 0 || self.is_cascade_pending,
            "the next slot has entries, but no cascade is pending"
        );
    }
}
