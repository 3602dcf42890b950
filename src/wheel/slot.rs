//! The slots of a wheel. A slot is a linked list of entries. A bitmap marks the occupied slots.
//!
//! A new entry goes to the front. An entry links to its previous and next entry; the first entry's
//! `previous` holds the slot's index. Unlinking an entry writes to its neighbors and does not read
//! them, so the unlink does not wait for their cache lines.
//!
//! ```text
//!   head of a slot    postponable entries counted since last empty (7 bits) | first entry or 0
//!   previous          of a slot's first entry: 1 (1 bit) | slot
//!                     of any other entry:      0 (1 bit) | index of the previous entry
//! ```
//!
//! Slot indices follow this order: first level, upper levels, late slot. In the bitmap, the bit of
//! the late slot has no meaning. The module `raw` explains the late slot and *postponable* entries.

#![allow(unsafe_code)]

use alloc::{boxed::Box, vec};
use core::{hint::select_unpredictable, marker::PhantomData, mem, ops::Range};

use super::{
    level::Geometry,
    storage::{Entry, Links, Storage},
};
use crate::limits::{INDEX_MAX, POSTPONABLE_PER_SLOT_MAX};

/// Marks a `previous` link that holds a slot's index instead of an entry's.
const SLOT_FLAG: u32 = 1 << 31;
/// A slot's head grows by this number for each postponable entry that the slot counts.
const POSTPONABLE_COUNT_UNIT: u32 = 1 << 25;
const FIRST_ENTRY_MASK: u32 = POSTPONABLE_COUNT_UNIT - 1;
const _: () = assert!(
    INDEX_MAX <= FIRST_ENTRY_MASK && POSTPONABLE_PER_SLOT_MAX < u32::MAX / POSTPONABLE_COUNT_UNIT,
    "an index and a count fit in a head"
);

/// All slots of a wheel: the list of each slot, and the bitmap of the occupied slots.
#[derive(Debug)]
pub(super) struct Slots<G> {
    heads: Box<[u32]>,
    /// The bit of each occupied slot is set.
    occupied_bitmap: Box<[u64]>,
    /// The last entry of the late slot, so that `splice_late_slot_into` takes constant time.
    last_late_entry: u32,
    geometry: PhantomData<G>,
}

impl<G: Geometry> Slots<G> {
    /// The mask that keeps a slot's index below the length of `heads`, which is a power of two.
    const SLOT_MASK: u32 = {
        let () = G::ASSERT_VALID;
        (G::LATE_SLOT + 1).next_power_of_two() - 1
    };

    pub(super) fn new() -> Self {
        let slots = Self::SLOT_MASK as usize + 1;
        // `vec!` allocates zeroed memory, to which the operating system usually gives physical
        // memory only page by page, at the first use.
        Self {
            heads: vec![0; slots].into(),
            occupied_bitmap: vec![0; slots.div_ceil(64)].into(),
            last_late_entry: 0,
            geometry: PhantomData,
        }
    }

    #[inline]
    fn head_word(&self, slot: u32) -> u32 {
        // SAFETY: `new` has made `SLOT_MASK + 1` heads, so the masked index is in bounds.
        unsafe { *self.heads.get_unchecked((slot & Self::SLOT_MASK) as usize) }
    }

    #[inline]
    fn head_word_mut(&mut self, slot: u32) -> &mut u32 {
        // SAFETY: `new` has made `SLOT_MASK + 1` heads, so the masked index is in bounds.
        unsafe { self.heads.get_unchecked_mut((slot & Self::SLOT_MASK) as usize) }
    }

    #[inline]
    fn occupied_word_mut(&mut self, slot: u32) -> &mut u64 {
        // SAFETY: `new` has made a bit for each head, so the masked index is in bounds.
        unsafe { self.occupied_bitmap.get_unchecked_mut((slot & Self::SLOT_MASK) as usize / 64) }
    }

    #[inline]
    fn mark_occupied(&mut self, slot: u32) {
        *self.occupied_word_mut(slot) |= 1 << (slot % 64);
    }

    #[inline]
    fn mark_empty(&mut self, slot: u32) {
        *self.occupied_word_mut(slot) &= !(1 << (slot % 64));
    }

    /// Returns the first occupied slot in a non-empty range.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Slot indices are below 2^23.
    pub(super) fn first_occupied(&self, slots: Range<u32>) -> Option<u32> {
        let first_word = slots.start as usize / 64;
        let words = &self.occupied_bitmap[first_word..slots.end.div_ceil(64) as usize];
        let remaining_bits = words[0] >> (slots.start % 64);
        let found_slot = if remaining_bits == 0 {
            // Checks 16 words at a time, which takes hardly longer than checking one word.
            let (chunks, _) = words[1..].as_chunks::<16>();
            let is_empty = |chunk: &&[u64; 16]| chunk.iter().fold(0, |all, word| all | word) == 0;
            let searched_words = 1 + 16 * chunks.iter().take_while(is_empty).count();
            let word_number =
                searched_words + words[searched_words..].iter().position(|&bits| bits != 0)?;
            (first_word + word_number) as u32 * 64 + words[word_number].trailing_zeros()
        } else {
            slots.start + remaining_bits.trailing_zeros()
        };
        (found_slot < slots.end).then_some(found_slot)
    }

    pub(super) fn count_occupied(&self, slots: Range<u32>) -> u32 {
        let count_in_word = |word: u32| {
            let (first_bit, end_bit) = (slots.start.max(64 * word), slots.end.min(64 * word + 64));
            let bits = u64::MAX >> (64 - (end_bit - first_bit)) << (first_bit % 64);
            (self.occupied_bitmap[word as usize] & bits).count_ones()
        };
        (slots.start / 64..slots.end.div_ceil(64)).map(count_in_word).sum()
    }

    #[inline]
    pub(super) fn is_empty(&self, slot: u32) -> bool {
        self.head_word(slot) == 0
    }

    /// Returns the first entry of a slot; 0 if there is none.
    #[inline]
    pub(super) fn first_entry(&self, slot: u32) -> u32 {
        self.head_word(slot) & FIRST_ENTRY_MASK
    }

    /// Returns true if a slot can count one more postponable entry.
    #[inline]
    pub(super) fn has_room_for_postponable(&self, slot: u32) -> bool {
        self.head_word(slot) < POSTPONABLE_PER_SLOT_MAX * POSTPONABLE_COUNT_UNIT
    }

    /// Counts one more postponable entry in a slot. Returns false if the count is at its maximum.
    #[inline]
    pub(super) fn try_increment_postponable_count(&mut self, slot: u32) -> bool {
        let has_room = self.has_room_for_postponable(slot);
        if has_room {
            *self.head_word_mut(slot) += POSTPONABLE_COUNT_UNIT;
        }
        has_room
    }

    /// Links an entry to the front of a slot.
    #[inline(always)]
    pub(super) fn link<S: Storage>(&mut self, storage: &S, slot: u32, entry: S::Entry<'_>) {
        self.mark_occupied(slot);
        let head = self.head_word_mut(slot);
        let next = *head & FIRST_ENTRY_MASK;
        *head ^= next ^ entry.index();
        storage.entry(next).links().previous.set(entry.index());
        entry.links().previous.set(SLOT_FLAG | slot);
        entry.links().next.set(next);
    }

    /// Links an entry to the front of the late slot.
    pub(super) fn link_late<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        let late_slot = G::LATE_SLOT;
        if self.is_empty(late_slot) {
            self.last_late_entry = entry.index();
        }
        self.link(storage, late_slot, entry);
    }

    /// Unlinks `first_entry` from the front of a slot other than the late slot; `next_entry` is the
    /// entry after `first_entry`, or 0. Returns false if the slot is empty now.
    #[inline(always)]
    pub(super) fn pop_and_has_more<S: Storage>(
        &mut self,
        storage: &S,
        slot: u32,
        first_entry: u32,
        next_entry: u32,
    ) -> bool {
        let head = self.head_word_mut(slot);
        if next_entry == 0 {
            *head = 0;
            self.mark_empty(slot);
            return false;
        }
        *head ^= first_entry ^ next_entry;
        storage.entry(next_entry).links().previous.set(SLOT_FLAG | slot);
        true
    }

    /// Returns true if the entry with these links is alone in its slot.
    #[inline]
    pub(super) fn is_only_entry(links: &Links) -> bool {
        // Only a slot's first entry has the bit `SLOT_FLAG` in `previous`. Only for the last entry,
        // whose `next` is 0, does `next - 1` have this bit.
        links.previous.get() & links.next.get().wrapping_sub(1) & SLOT_FLAG != 0
    }

    /// Unlinks the entry with these links. For a late entry, the caller must first call
    /// [`update_last_late_before_unlinking`](Self::update_last_late_before_unlinking).
    #[inline(always)]
    pub(super) fn unlink<S: Storage>(&mut self, storage: &S, links: &Links) {
        let (previous, next) = (links.previous.get(), links.next.get());
        let (is_first, slot) = (previous & SLOT_FLAG != 0, previous & !SLOT_FLAG);
        if Self::is_only_entry(links) {
            *self.head_word_mut(slot) = 0;
            return self.mark_empty(slot);
        }
        storage.entry(next).links().previous.set(previous);
        // Always makes both writes below, because a branch on the entry's position in the list
        // would be unpredictable. For a slot's first entry, the write of a link goes to index 0,
        // whose links are never read. For any other entry, the head of slot 0 is overwritten with
        // its own value.
        storage.entry(select_unpredictable(is_first, 0, previous)).links().next.set(next);
        let head = self.head_word_mut(select_unpredictable(is_first, slot, 0));
        *head = select_unpredictable(is_first, next | *head & !FIRST_ENTRY_MASK, *head);
    }

    /// Updates `last_late_entry` before a late entry is unlinked.
    pub(super) fn update_last_late_before_unlinking(&mut self, entry: impl Entry) {
        if entry.index() == self.last_late_entry {
            let previous = entry.links().previous.get();
            self.last_late_entry = if previous & SLOT_FLAG == 0 { previous } else { 0 };
        }
    }

    /// Moves all entries of the late slot to the front of another slot, in constant time. The late
    /// slot must not be empty.
    pub(super) fn splice_late_slot_into(&mut self, storage: &impl Storage, slot: u32) {
        self.mark_occupied(slot);
        let first_late = mem::take(self.head_word_mut(G::LATE_SLOT));
        let head = self.head_word_mut(slot);
        let first_entry = *head & FIRST_ENTRY_MASK;
        *head ^= first_entry ^ first_late;
        storage.entry(first_late).links().previous.set(SLOT_FLAG | slot);
        storage.entry(first_entry).links().previous.set(self.last_late_entry);
        storage.entry(self.last_late_entry).links().next.set(first_entry);
        self.last_late_entry = 0;
    }

    /// Returns the entries of a slot; panics if a link is wrong.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn entries_of(&self, storage: &impl Storage, slot: u32) -> alloc::vec::Vec<u32> {
        let (mut index, mut previous) = (self.first_entry(slot), SLOT_FLAG | slot);
        assert!(index != 0 || self.is_empty(slot), "a count without entries");
        let mut entries = alloc::vec::Vec::new();
        while index != 0 {
            let entry = storage.entry(index);
            assert_eq!(entry.links().previous.get(), previous, "entry {index} of slot {slot}");
            entries.push(index);
            (previous, index) = (index, entry.links().next.get());
        }
        let last = entries.last().copied().unwrap_or(0);
        let is_late = slot == G::LATE_SLOT;
        assert!(!is_late || self.last_late_entry == last, "the last entry of the late slot");
        entries
    }

    /// Returns how many postponable entries a slot has counted since it was last empty.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn postponable_count(&self, slot: u32) -> u32 {
        self.head_word(slot) / POSTPONABLE_COUNT_UNIT
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::wheel::{entries::Entries, level::Levels, storage::Location};

    type TinyLevels = Levels<2, 32>;

    struct TestSlots {
        slots: Slots<TinyLevels>,
        entries: Entries<()>,
    }

    impl TestSlots {
        fn new() -> Self {
            Self { slots: Slots::new(), entries: Entries::new() }
        }

        fn link(&mut self, slot: u32) -> u32 {
            let index = self.entries.allocate_index().expect("there is room");
            let entry = self.entries.entry(index);
            if slot == TinyLevels::LATE_SLOT {
                self.slots.link_late(&self.entries, entry);
            } else {
                self.slots.link(&self.entries, slot, entry);
            }
            entry.location().set(Location::FIRST_LEVEL);
            index
        }

        fn unlink(&mut self, index: u32) {
            let entry = self.entries.entry(index);
            self.slots.update_last_late_before_unlinking(entry);
            self.slots.unlink(&self.entries, entry.links());
        }

        fn entries_in(&self, slot: u32) -> Vec<u32> {
            self.slots.entries_of(&self.entries, slot)
        }
    }

    #[test]
    fn an_entry_at_any_position_can_be_unlinked() {
        for position in 0..3 {
            let mut list = TestSlots::new();
            let mut entries: Vec<u32> = (0..3).map(|_| list.link(1)).collect();
            list.unlink(entries.remove(position));
            entries.reverse();
            assert_eq!(list.entries_in(1), entries);
            list.unlink(entries[0]);
            assert_eq!(list.slots.first_occupied(0..8), Some(1));
            list.unlink(entries[1]);
            assert!(list.slots.is_empty(1) && list.slots.first_occupied(0..8).is_none());
        }
    }

    #[test]
    fn the_late_slot_is_spliced_as_a_whole() {
        for linked_count in 0..=2 {
            let mut list = TestSlots::new();
            let mut entries: Vec<u32> = (0..linked_count).map(|_| list.link(1)).collect();
            entries.extend((0..3).map(|_| list.link(TinyLevels::LATE_SLOT)));
            list.unlink(entries[linked_count]);
            entries.remove(linked_count);
            list.slots.splice_late_slot_into(&list.entries, 1);
            assert!(list.slots.is_empty(TinyLevels::LATE_SLOT));
            entries.reverse();
            assert_eq!(list.entries_in(1), entries);
        }
    }

    #[test]
    fn a_slot_postpones_a_bounded_number_of_entries() {
        let mut list = TestSlots::new();
        // Uses up the low indices, so that no entry of slot 1 has index 1.
        (0..5).for_each(|_| _ = list.link(0));
        for _ in 0..2 {
            let entries = [(); 4].map(|()| list.link(1));
            for count in 0..10 {
                assert_eq!(
                    list.slots.try_increment_postponable_count(1),
                    count < POSTPONABLE_PER_SLOT_MAX
                );
                assert_eq!(
                    list.slots.postponable_count(1),
                    POSTPONABLE_PER_SLOT_MAX.min(count + 1)
                );
            }
            // Unlinks from the middle, the end and the front, and pops from the front.
            for position in [1, 0, 3] {
                list.unlink(entries[position]);
            }
            let last_linked = list.link(1);
            assert!(list.slots.pop_and_has_more(&list.entries, 1, last_linked, entries[2]));
            assert!(!list.slots.try_increment_postponable_count(1));
            assert!(!list.slots.pop_and_has_more(&list.entries, 1, entries[2], 0));
            assert!(list.slots.is_empty(1));
        }
    }

    #[test]
    fn occupied_slots_agree_with_a_set() {
        let rounds = if cfg!(miri) { 50 } else { 3000 };
        for bits in [1, 5, 6, 7, 9] {
            let (first, end) = (8, 8 + (1 << bits));
            let mut slots = Slots::<Levels<4, 16>>::new();
            slots.mark_occupied(first - 1);
            slots.mark_occupied(end);
            let mut model = BTreeSet::new();
            let mut random = fastrand::Rng::with_seed(bits);
            for _ in 0..rounds {
                let slot = random.u32(first..end);
                if model.insert(slot) {
                    slots.mark_occupied(slot);
                } else {
                    model.remove(&slot);
                    slots.mark_empty(slot);
                }
                let search_start = random.u32(first..end);
                assert_eq!(
                    slots.first_occupied(search_start..end),
                    model.range(search_start..).next().copied()
                );
                assert_eq!(slots.count_occupied(first..end) as usize, model.len());
            }
        }
    }
}
