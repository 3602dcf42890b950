//! Where entries are kept: each slot is a list through the nodes.
//!
//! An entry that comes is put first. An entry's link knows its neighbours, or of the first one the slot, so taking an entry out
//! needs nothing but its link and theirs, an entry is in at most one slot, and nothing is left behind that could fire
//! a second time. Neighbours are only written to, which a processor does not wait for, and nothing branches on where in a
//! list an entry is, which it could not foresee: with a million entries the cost of a removal is that of finding its node and its link.
//!
//! (Also tried, in the same harness. Cache lines of twelve entries each, linked per slot: they fire as fast as lists whose
//! walk is prepared, see `ahead`, and at 100 000 entries cost more than twice as much to remove from. Raw pointers for
//! indices, which spare the look-ups: a tenth faster with a thousand entries, a quarter slower with a million, where nodes of
//! 56 bytes are touched instead of links of 8, and `unsafe`. Arrays with dead entries in them need compaction.)
//!
//! ```text
//!   head of a slot    entries that came since it was empty (7 bits, up to `CROWD`) | index of the first, 0: none
//!   previous          1 | slot: the entry is the first      0 | index
//! ```

use alloc::{boxed::Box, vec};
use core::{hint::select_unpredictable, mem};

use super::nodes::{Link, Nodes, Standing};
use crate::limits::{CROWD, INDEX_MAX};

/// In `previous`: the rest is a slot.
const SLOT: u32 = 1 << 31;
/// One entry more, in a head.
const ONE: u32 = 1 << 25;
const FIRST: u32 = ONE - 1;
const _: () =
    assert!(INDEX_MAX <= FIRST && CROWD < u32::MAX / ONE, "an index and a count fit a head");

/// All slots of a wheel and the nodes of its entries.
#[derive(Debug)]
pub(super) struct Slots<T> {
    heads: Box<[u32]>,
    pub(super) nodes: Nodes<T>,
    /// The slot whose last entry is known, so that it can be moved as a whole.
    movable: u32,
    /// That entry; 0 if there is none.
    last: u32,
}

/// Whether taking an entry out has emptied its slot.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Left {
    /// The slot, if it is empty; otherwise any number.
    pub(super) slot: u32,
    pub(super) is_empty: bool,
}

/// An entry that was the first of its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Popped {
    pub(super) index: u32,
    pub(super) deadline: u64,
    pub(super) stood: Standing,
    pub(super) left: Left,
}

impl<T> Slots<T> {
    /// `movable` is the slot that `append_to` empties.
    pub(super) fn new(slots: usize, movable: u32) -> Self {
        // An array of zeros, because the operating system gives those away: only slots that are used cost memory.
        Self { heads: vec![0; slots].into_boxed_slice(), nodes: Nodes::new(), movable, last: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self, slot: u32) -> bool {
        self.heads[slot as usize] == 0
    }

    /// The first entry of a slot; 0 if there is none.
    #[inline]
    pub(super) fn first(&self, slot: u32) -> u32 {
        self.heads[slot as usize] & FIRST
    }

    /// A new entry in a slot, from which it is handed down if it is `far`. Its index and its generation.
    #[inline]
    pub(super) fn insert(&mut self, slot: u32, far: bool, deadline: u64) -> (u32, u32) {
        let head = &mut self.heads[slot as usize];
        let (index, node, link) = self.nodes.take();
        let (first, near) = (*head & FIRST, standing(*head));
        *head = one_more(*head) | index;
        let generation = node.generation;
        node.deadline = deadline;
        node.standing = if far { Standing::far(slot) } else { near };
        (link.previous, link.next) = (SLOT | slot, first);
        self.nodes.links[first].previous = index;
        (index, generation)
    }

    /// Puts an entry that is in no slot into one that is not handed down.
    #[inline]
    pub(super) fn put_near(&mut self, slot: u32, index: u32) {
        let standing = standing(self.heads[slot as usize]);
        self.put(slot, index, standing);
    }

    /// Puts an entry that is in no slot into this one.
    #[inline]
    pub(super) fn put(&mut self, slot: u32, index: u32, standing: Standing) {
        self.nodes.node(index).standing = standing;
        let head = &mut self.heads[slot as usize];
        let first = *head & FIRST;
        *head = one_more(*head) | index;
        let link = &mut self.nodes.links[index];
        (link.previous, link.next) = (SLOT | slot, first);
        self.nodes.links[first].previous = index;
        if slot == self.movable && first == 0 {
            self.last = index;
        }
    }

    /// Takes the first entry out of a slot, which is not the movable one, if it has any.
    #[inline]
    pub(super) fn pop(&mut self, slot: u32) -> Option<Popped> {
        let head = &mut self.heads[slot as usize];
        let index = *head & FIRST;
        if index == 0 {
            return None;
        }
        let links = &mut self.nodes.links;
        let next = links[index].next;
        *head = next | *head & !FIRST & all_or_none(next != 0);
        links[next].previous = SLOT | slot;
        let node = self.nodes.node(index);
        let stood = mem::take(&mut node.standing);
        Some(Popped {
            index,
            deadline: node.deadline,
            stood,
            left: Left { slot, is_empty: next == 0 },
        })
    }

    /// Takes an entry out of the slot it is in.
    #[inline]
    pub(super) fn take(&mut self, index: u32) -> Left {
        self.nodes.node(index).standing = Standing::OUT;
        let link = self.nodes.links[index];
        self.bypass(index, link)
    }

    /// The entry `index`, which stood between these two, is not there any more.
    #[inline]
    pub(super) fn bypass(&mut self, index: u32, Link { previous, next }: Link) -> Left {
        let links = &mut self.nodes.links;
        links[next].previous = previous;
        let (is_first, slot) = (previous & SLOT != 0, previous & !SLOT);
        let is_empty = is_first && next == 0;
        // Both ways are prepared and one is chosen: a branch here would guess, and wait for the link to find out.
        let head = &mut self.heads[if is_first { slot } else { 0 } as usize];
        let count = *head & !FIRST & all_or_none(!is_empty);
        let link = &mut links[if is_first { 0 } else { previous }].next;
        *select_unpredictable(is_first, head, link) = next | count & all_or_none(is_first);
        if index == self.last {
            self.last = if is_first { 0 } else { previous };
        }
        Left { slot, is_empty }
    }

    /// Moves all entries of the movable slot, which has some, before those of another one, in constant time.
    pub(super) fn append_to(&mut self, slot: u32) {
        let from = mem::take(&mut self.heads[self.movable as usize]);
        let first = mem::replace(&mut self.heads[slot as usize], from) & FIRST;
        self.nodes.links[from & FIRST].previous = SLOT | slot;
        self.nodes.links[first].previous = self.last;
        self.nodes.links[self.last].next = first;
        self.last = 0;
    }

    /// Brings an entry closer.
    #[inline]
    pub(super) fn fetch(&self, index: u32) {
        self.nodes.links.prefetch(index);
        self.nodes.prefetch(index);
    }

    /// The entries of a slot; panics if a link is wrong.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn entries(&self, slot: u32) -> alloc::vec::Vec<u32> {
        let (mut at, mut previous) = (self.first(slot), SLOT | slot);
        assert!(at != 0 || self.is_empty(slot), "a count without entries");
        let mut entries = alloc::vec::Vec::new();
        while at != 0 {
            assert_eq!(self.nodes.links[at].previous, previous, "entry {at} of slot {slot}");
            entries.push(at);
            (previous, at) = (at, self.nodes.links[at].next);
        }
        let last = entries.last().copied().unwrap_or(0);
        assert!(slot != self.movable || self.last == last, "the last entry of the movable slot");
        entries
    }
}

/// All bits, or none.
#[inline]
fn all_or_none(all: bool) -> u32 {
    u32::from(all).wrapping_neg()
}

/// How an entry stands that comes to a slot of the first level with this head.
#[inline]
fn standing(head: u32) -> Standing {
    if head >= CROWD * ONE { Standing::CROWDED } else { Standing::NEAR }
}

/// The count of a slot that one more entry comes to.
#[inline]
fn one_more(head: u32) -> u32 {
    let count = head & !FIRST;
    if head >= CROWD * ONE { count } else { count + ONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(slots: &mut Slots<()>, slot: u32) -> u32 {
        slots.insert(slot, false, 0).0
    }

    #[test]
    fn entries_leave_from_everywhere() {
        for gone in 0..3 {
            let mut slots = Slots::new(2, 0);
            let mut entries: Vec<u32> = (0..3).map(|_| insert(&mut slots, 1)).collect();
            let left = slots.take(entries.remove(gone));
            assert!(!left.is_empty);
            entries.reverse();
            assert_eq!(slots.entries(1), entries);
            assert!(!slots.take(entries[0]).is_empty);
            let left = slots.take(entries[1]);
            assert!(left.is_empty && left.slot == 1);
            assert!(slots.is_empty(1));
        }
    }

    #[test]
    fn a_slot_moves_as_a_whole() {
        for present in 0..=2 {
            let mut slots = Slots::new(2, 0);
            let mut entries: Vec<u32> = (0..present).map(|_| insert(&mut slots, 1)).collect();
            for _ in 0..3 {
                let (index, ..) = slots.nodes.take();
                slots.put(0, index, Standing::NEAR);
                entries.push(index);
            }
            // The last one is looked after also when another one leaves.
            assert!(!slots.take(entries[present]).is_empty);
            entries.remove(present);
            slots.append_to(1);
            assert!(slots.is_empty(0));
            entries.reverse();
            assert_eq!(slots.entries(1), entries);
        }
    }

    /// Who has left counts until the slot is empty.
    #[test]
    fn who_comes_to_a_crowd_is_crowded() {
        let mut slots = Slots::new(2, 0);
        // So that indices are no small numbers.
        (0..5).for_each(|_| _ = insert(&mut slots, 0));
        for round in 0..2 {
            for came in 0..200 {
                let index = insert(&mut slots, 1);
                let crowded = slots.nodes.node(index).standing == Standing::CROWDED;
                assert_eq!(crowded, came >= CROWD, "entry {came} of round {round}");
            }
            for gone in 0..200 {
                // From the middle, from the end, and from the beginning in both ways.
                let entries = slots.entries(1);
                match gone % 4 {
                    0 => _ = slots.take(entries[entries.len() / 2]),
                    1 => _ = slots.take(entries[entries.len() - 1]),
                    2 => _ = slots.take(entries[0]),
                    _ => assert!(slots.pop(1).is_some()),
                }
                if gone < 199 {
                    let index = insert(&mut slots, 1);
                    assert_eq!(
                        slots.nodes.node(index).standing,
                        Standing::CROWDED,
                        "after {gone} have left"
                    );
                    _ = slots.take(index);
                }
            }
            assert!(slots.is_empty(1));
        }
    }
}
