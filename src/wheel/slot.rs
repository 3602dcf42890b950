//! Where entries are kept: each slot is a doubly linked list through small records, apart from the values.
//!
//! A record has 16 bytes: two links and the deadline. The links at the ends of a list name the slot itself, so a
//! record knows where it is: taking one out needs nothing but the record and its neighbours, an entry is in at most
//! one slot, and nothing is left behind that could fire a second time.
//!
//! (Arrays of small entries fire faster, because their reader can look ahead, but leave an entry behind for each one
//! that was removed. Lists are the simple beginning.)

use crate::{limits::INDEX_MAX, paged::Paged};

/// A link is an entry's index, or this bit and the number of the slot whose end it is, or 0: in no slot.
const SLOT: u32 = 1 << 31;
const _: () = assert!(INDEX_MAX < SLOT, "an index must not look like a slot");

/// What the wheel knows of one entry.
#[derive(Debug, Default)]
struct Record {
    previous: u32,
    next: u32,
    deadline: u64,
}

/// The first and the last entry of a slot; 0 if it has none. An array of zeros, because the operating system gives those
/// away: only slots that are used cost memory.
type Ends = [u32; 2];

const FIRST: usize = 0;
const LAST: usize = 1;

/// All slots of a wheel and the records of its entries.
#[derive(Debug)]
pub(super) struct Slots {
    ends: Box<[Ends]>,
    records: Paged<Record>,
}

/// What taking an entry out of its slot did to the slot.
#[must_use]
pub(super) enum Unlinked {
    /// The slot still has entries.
    Remaining,
    /// It was the slot's only entry.
    Emptied(u32),
}

impl Slots {
    pub(super) fn new(slots: usize) -> Self {
        Self { ends: vec![[0, 0]; slots].into_boxed_slice(), records: Paged::new() }
    }

    /// Prepares the records up to `index`.
    #[inline]
    pub(super) fn grow_to(&mut self, index: u32) {
        self.records.grow_to(index);
    }

    pub(super) fn is_empty(&self, slot: u32) -> bool {
        self.ends[slot as usize][FIRST] == 0
    }

    /// The entry of a slot that came first; `None` if it has none.
    pub(super) fn first(&self, slot: u32) -> Option<u32> {
        let first = self.ends[slot as usize][FIRST];
        (first != 0).then_some(first)
    }

    /// Whether an entry is in a slot at all.
    pub(super) fn is_linked(&self, index: u32) -> bool {
        self.records[index].next != 0
    }

    pub(super) fn deadline(&self, index: u32) -> u64 {
        self.records[index].deadline
    }

    pub(super) fn set_deadline(&mut self, index: u32, deadline: u64) {
        self.records[index].deadline = deadline;
    }

    /// Puts an entry at the end of a slot.
    #[inline]
    pub(super) fn link(&mut self, slot: u32, index: u32) {
        debug_assert!(!self.is_linked(index));
        let last = self.ends[slot as usize][LAST];
        if last == 0 {
            self.records[index].previous = SLOT | slot;
            self.ends[slot as usize][FIRST] = index;
        } else {
            self.records[index].previous = last;
            self.records[last].next = index;
        }
        self.records[index].next = SLOT | slot;
        self.ends[slot as usize][LAST] = index;
    }

    /// Takes an entry out of the slot it is in.
    #[inline]
    pub(super) fn unlink(&mut self, index: u32) -> Unlinked {
        debug_assert!(self.is_linked(index));
        let record = &mut self.records[index];
        let (previous, next) = (record.previous, record.next);
        (record.previous, record.next) = (0, 0);
        let (first, last) = (previous & SLOT != 0, next & SLOT != 0);
        if first {
            self.ends[(previous ^ SLOT) as usize][FIRST] = if last { 0 } else { next };
        } else {
            self.records[previous].next = next;
        }
        if last {
            self.ends[(next ^ SLOT) as usize][LAST] = if first { 0 } else { previous };
        } else {
            self.records[next].previous = previous;
        }
        if first && last { Unlinked::Emptied(next ^ SLOT) } else { Unlinked::Remaining }
    }

    /// Moves all entries of the slot `from`, which has some, to the end of the slot `to`, in constant time.
    pub(super) fn append(&mut self, from: u32, to: u32) {
        let moved = std::mem::take(&mut self.ends[from as usize]);
        let last = self.ends[to as usize][LAST];
        if last == 0 {
            self.records[moved[FIRST]].previous = SLOT | to;
            self.ends[to as usize][FIRST] = moved[FIRST];
        } else {
            self.records[moved[FIRST]].previous = last;
            self.records[last].next = moved[FIRST];
        }
        self.records[moved[LAST]].next = SLOT | to;
        self.ends[to as usize][LAST] = moved[LAST];
    }

    /// The entries of a slot in order; panics if a link is wrong.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn entries(&self, slot: u32) -> Vec<u32> {
        let ends = self.ends[slot as usize];
        assert_eq!(ends[FIRST] == 0, ends[LAST] == 0, "slot {slot} has one end only");
        let mut entries = Vec::new();
        let (mut previous, mut at) = (SLOT | slot, ends[FIRST]);
        while at != 0 && at != SLOT | slot {
            assert_eq!(self.records[at].previous, previous, "entry {at} of slot {slot}");
            entries.push(at);
            (previous, at) = (at, self.records[at].next);
        }
        assert_eq!(entries.last().copied().unwrap_or(0), ends[LAST], "the end of slot {slot}");
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_from_everywhere() {
        for gone in 1..=3 {
            let mut slots = Slots::new(2);
            slots.grow_to(3);
            (1..=3).for_each(|index| slots.link(1, index));
            assert!(matches!(slots.unlink(gone), Unlinked::Remaining));
            let left: Vec<u32> = (1..=3).filter(|&index| index != gone).collect();
            assert_eq!(slots.entries(1), left);
            assert!(!slots.is_linked(gone));
            assert!(matches!(slots.unlink(left[0]), Unlinked::Remaining));
            assert!(matches!(slots.unlink(left[1]), Unlinked::Emptied(1)));
            assert!(slots.is_empty(1));
        }
    }

    #[test]
    fn a_slot_moves_as_a_whole() {
        for present in 0..=2 {
            let mut slots = Slots::new(2);
            slots.grow_to(5);
            (1..=present).for_each(|index| slots.link(0, index));
            (4..=5).for_each(|index| slots.link(1, index));
            slots.append(1, 0);
            assert!(slots.is_empty(1));
            assert_eq!(slots.entries(0), (1..=present).chain(4..=5).collect::<Vec<_>>());
        }
    }
}
