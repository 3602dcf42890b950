//! Slots: each is a list through the links of its entries.
//!
//! A new entry goes to the front. An entry links to its previous and next entry; the first entry's
//! `previous` is the slot. So unlinking writes only to the entry and its neighbours. An entry is in
//! at most one slot, so no leftover can fire a second time. Neighbours are only written to, which a
//! processor does not wait for, and no branch depends on where in a list of several an entry is,
//! which it could not predict.
//!
//! ```text
//!   head of a slot    entries linked since it was empty (7 bits) | first entry, 0: none
//!   previous          1 | slot: the entry is the first      0 | index
//! ```

use alloc::{boxed::Box, vec};
use core::{hint::select_unpredictable, mem};

use super::storage::{Entry, Links, Location, Placement, Storage};
use crate::limits::{CROWDED_FROM, INDEX_MAX};

/// In `previous`: the rest is a slot.
const SLOT: u32 = 1 << 31;
/// One entry more, in a head.
const COUNT_ONE: u32 = 1 << 25;
const FIRST: u32 = COUNT_ONE - 1;
const _: () = assert!(
    INDEX_MAX <= FIRST && CROWDED_FROM < u32::MAX / COUNT_ONE,
    "an index and a count fit a head"
);

/// The heads of all slots of a wheel.
#[derive(Debug)]
pub(super) struct Slots {
    heads: Box<[u32]>,
    /// The only slot whose last entry is tracked, so that the whole list can be spliced in constant
    /// time.
    splice_slot: u32,
    /// The last entry of that slot; 0 if there is none, or if the first one is.
    last: u32,
}

/// What unlinking an entry did to its slot.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Unlinked {
    /// The slot, if it is empty now; otherwise any number.
    pub(super) slot: u32,
    pub(super) is_empty: bool,
    /// Where the entry was.
    pub(super) location: Location,
}

/// An entry that was the first of its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Popped<E> {
    pub(super) entry: E,
    pub(super) deadline: u64,
    pub(super) unlinked: Unlinked,
}

impl Slots {
    /// `splice_slot` is the slot that `splice` empties.
    pub(super) fn new(slots: usize, splice_slot: u32) -> Self {
        // The operating system provides zeros: only slots that are used cost memory.
        Self { heads: vec![0; slots].into_boxed_slice(), splice_slot, last: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self, slot: u32) -> bool {
        self.heads[slot as usize] == 0
    }

    /// Returns the first entry of a slot; 0 if there is none.
    #[inline]
    pub(super) fn first(&self, slot: u32) -> u32 {
        self.heads[slot as usize] & FIRST
    }

    /// Links an entry into a slot from which it expires.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it would save and restore registers")]
    pub(super) fn link_near<S: Storage>(
        &mut self,
        storage: &S,
        slot: u32,
        entry: S::Entry<'_>,
        deadline: u64,
    ) {
        let location = near_location(self.heads[slot as usize]);
        self.link(storage, slot, entry, deadline, location);
    }

    /// Links an entry into a slot from which it is cascaded.
    #[inline]
    pub(super) fn link_far<S: Storage>(
        &mut self,
        storage: &S,
        slot: u32,
        entry: S::Entry<'_>,
        deadline: u64,
    ) {
        self.link(storage, slot, entry, deadline, Location::far(slot));
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it would save and restore registers")]
    fn link<S: Storage>(
        &mut self,
        storage: &S,
        slot: u32,
        entry: S::Entry<'_>,
        deadline: u64,
        location: Location,
    ) {
        let head = &mut self.heads[slot as usize];
        let next = *head & FIRST;
        *head = one_more(*head) | entry.index();
        let links = Links { previous: SLOT | slot, next };
        entry.place(Placement { deadline, links, location });
        storage.set_previous(next, entry.index());
    }

    /// Notes that this entry is the only one of the slot that can be spliced.
    #[inline]
    pub(super) fn set_splice_tail(&mut self, index: u32) {
        self.last = index;
    }

    /// Unlinks the first entry of a slot, which is not the one that can be spliced.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it would save and restore registers")]
    pub(super) fn pop<'s, S: Storage>(
        &mut self,
        storage: &'s S,
        slot: u32,
    ) -> Option<Popped<S::Entry<'s>>> {
        let head = &mut self.heads[slot as usize];
        let index = *head & FIRST;
        if index == 0 {
            return None;
        }
        let entry = storage.entry(index);
        let Placement { deadline, links: Links { next, .. }, location } = entry.displace();
        let is_empty = next == 0;
        if is_empty {
            *head = 0;
        } else {
            *head = next | *head & !FIRST;
            storage.set_previous(next, SLOT | slot);
        }
        let unlinked = Unlinked { slot, is_empty, location };
        Some(Popped { entry, deadline, unlinked })
    }

    /// Unlinks an entry from its slot.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it would save and restore registers")]
    pub(super) fn unlink<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) -> Unlinked {
        let Placement { links: Links { previous, next }, location, .. } = entry.displace();
        let (is_first, slot) = (previous & SLOT != 0, previous & !SLOT);
        if entry.index() == self.last {
            self.last = if is_first { 0 } else { previous };
        }
        let is_empty = is_first && next == 0;
        if is_empty {
            self.heads[slot as usize] = 0;
        } else {
            storage.set_previous(next, previous);
            // Makes both writes, one of them to the sink: the branch on the entry's position in the
            // list would be unpredictable.
            storage.set_next(select_unpredictable(is_first, 0, previous), next);
            let head = &mut self.heads[select_unpredictable(is_first, slot, 0) as usize];
            *head = select_unpredictable(is_first, next | *head & !FIRST, *head);
        }
        Unlinked { slot, is_empty, location }
    }

    /// Moves all entries of the slot that can be spliced, which has some, to the front of another,
    /// in constant time.
    pub(super) fn splice(&mut self, storage: &impl Storage, slot: u32) {
        let from = mem::take(&mut self.heads[self.splice_slot as usize]);
        let first = mem::replace(&mut self.heads[slot as usize], from) & FIRST;
        storage.set_previous(from & FIRST, SLOT | slot);
        storage.set_previous(first, self.last);
        storage.set_next(self.last, first);
        self.last = 0;
    }

    /// Returns the entries of a slot; panics if a link is wrong.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn entries(&self, storage: &impl Storage, slot: u32) -> alloc::vec::Vec<u32> {
        let (mut at, mut previous) = (self.first(slot), SLOT | slot);
        assert!(at != 0 || self.is_empty(slot), "a count without entries");
        let mut entries = alloc::vec::Vec::new();
        while at != 0 {
            let links = storage.entry(at).links();
            assert_eq!(links.previous, previous, "entry {at} of slot {slot}");
            entries.push(at);
            (previous, at) = (at, links.next);
        }
        let last = entries.last().copied().unwrap_or(0);
        assert!(
            slot != self.splice_slot || self.last == last,
            "the last entry of the spliced slot"
        );
        entries
    }
}

/// Returns the location of an entry that is linked into a slot of the first level with this head.
#[inline]
fn near_location(head: u32) -> Location {
    if head >= CROWDED_FROM * COUNT_ONE { Location::CROWDED } else { Location::NEAR }
}

/// Returns the count of a slot after one more entry was linked.
#[inline]
fn one_more(head: u32) -> u32 {
    let count = head & !FIRST;
    if head >= CROWDED_FROM * COUNT_ONE { count } else { count + COUNT_ONE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wheel::entries::Entries;

    struct List {
        slots: Slots,
        entries: Entries<()>,
    }

    impl List {
        fn new() -> Self {
            Self { slots: Slots::new(2, 0), entries: Entries::new() }
        }

        fn link(&mut self, slot: u32) -> u32 {
            let index = self.entries.insert(());
            let was_empty = self.slots.is_empty(slot);
            self.slots.link_near(&self.entries, slot, self.entries.entry(index), 0);
            if slot == 0 && was_empty {
                self.slots.set_splice_tail(index);
            }
            index
        }

        fn unlink(&mut self, index: u32) -> Unlinked {
            self.slots.unlink(&self.entries, self.entries.entry(index))
        }

        fn of(&self, slot: u32) -> Vec<u32> {
            self.slots.entries(&self.entries, slot)
        }

        fn is_crowded(&self, index: u32) -> bool {
            self.entries.entry(index).location() == Location::CROWDED
        }
    }

    #[test]
    fn entries_are_unlinked_from_everywhere() {
        for gone in 0..3 {
            let mut list = List::new();
            let mut entries: Vec<u32> = (0..3).map(|_| list.link(1)).collect();
            let unlinked = list.unlink(entries.remove(gone));
            assert!(!unlinked.is_empty);
            entries.reverse();
            assert_eq!(list.of(1), entries);
            assert!(!list.unlink(entries[0]).is_empty);
            let unlinked = list.unlink(entries[1]);
            assert!(unlinked.is_empty && unlinked.slot == 1);
            assert!(list.slots.is_empty(1));
        }
    }

    #[test]
    fn a_slot_is_spliced_as_a_whole() {
        for present in 0..=2 {
            let mut list = List::new();
            let mut entries: Vec<u32> = (0..present).map(|_| list.link(1)).collect();
            entries.extend((0..3).map(|_| list.link(0)));
            // The last entry is tracked when it leaves.
            assert!(!list.unlink(entries[present]).is_empty);
            entries.remove(present);
            list.slots.splice(&list.entries, 1);
            assert!(list.slots.is_empty(0));
            entries.reverse();
            assert_eq!(list.of(1), entries);
        }
    }

    /// Entries that have left count until the slot is empty.
    #[test]
    fn an_entry_linked_into_a_crowd_is_crowded() {
        let mut list = List::new();
        // So that indices are no small numbers.
        (0..5).for_each(|_| _ = list.link(0));
        for round in 0..2 {
            for came in 0..10 {
                let index = list.link(1);
                assert_eq!(
                    list.is_crowded(index),
                    came >= CROWDED_FROM,
                    "entry {came} of round {round}"
                );
            }
            for gone in 0..10 {
                // From the middle, from the end, and from the front in both ways.
                let entries = list.of(1);
                match gone % 4 {
                    0 => _ = list.unlink(entries[entries.len() / 2]),
                    1 => _ = list.unlink(entries[entries.len() - 1]),
                    2 => _ = list.unlink(entries[0]),
                    _ => assert!(list.slots.pop(&list.entries, 1).is_some()),
                }
                if gone < 9 {
                    let index = list.link(1);
                    assert!(list.is_crowded(index), "after {gone} have left");
                    _ = list.unlink(index);
                }
            }
            assert!(list.slots.is_empty(1));
        }
    }
}
