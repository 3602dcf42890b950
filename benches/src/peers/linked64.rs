//! A hierarchical wheel as in tokio: 64 slots a level, each a doubly linked list of
//! cache-line-sized nodes. A node is in the lowest level that distinguishes its deadline from the
//! current time. When time reaches the start of an upper slot, its nodes cascade to lower levels.
//! The wheel takes any delay, and fires at the exact tick.

use super::table::{Handle, Linked, NIL, Node, Table};
use crate::timers::{Payload, ReportsDeadline, TimerSet};

const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Eleven levels of 6 bits each cover 64 bits.
const LEVELS: usize = 11;

pub struct Linked64 {
    timers: Table<Linked<Timer>, CacheLine>,
    /// The first node of each slot.
    heads: [u32; LEVELS * SLOTS],
    /// For each level, a bitmap of the slots that have nodes.
    occupied: [u64; LEVELS],
    now: u64,
    relinked: u64,
}

#[derive(Debug, Default)]
struct Timer {
    payload: Payload,
    deadline: u64,
}

#[repr(align(64))]
struct CacheLine;

const _: () = assert!(size_of::<Node<Linked<Timer>, CacheLine>>() == 64);

impl Linked64 {
    /// Returns the slot, at the level of the highest bit in which `deadline` and `now` differ.
    fn slot_of(&self, deadline: u64) -> u32 {
        let level = ((self.now ^ deadline) | 1).ilog2() / LEVEL_BITS;
        let position = (deadline >> (level * LEVEL_BITS)) % SLOTS as u64;
        level << LEVEL_BITS | position as u32
    }

    fn link(&mut self, index: u32) {
        let slot = self.slot_of(self.timers[index].value.timer.deadline);
        if self.timers.link(&mut self.heads, slot, index) {
            self.occupied[slot as usize / SLOTS] |= 1 << (slot as usize % SLOTS);
        }
    }

    fn unlink(&mut self, index: u32) {
        if let Some(slot) = self.timers.unlink(&mut self.heads, index) {
            self.occupied[slot as usize / SLOTS] &= !(1 << (slot as usize % SLOTS));
        }
    }

    /// Returns the first slot that has nodes, and the tick at which it starts.
    fn next_slot(&self) -> Option<(usize, u64)> {
        let level = self.occupied.iter().position(|&occupied| occupied != 0)?;
        let position = self.occupied[level].trailing_zeros() as usize;
        let shift = level as u32 * LEVEL_BITS;
        let above = self.now.checked_shr(shift + LEVEL_BITS).unwrap_or(0);
        let start = above.checked_shl(shift + LEVEL_BITS).unwrap_or(0) | (position as u64) << shift;
        Some((level * SLOTS + position, start))
    }

    fn take_slot(&mut self, slot: usize) -> u32 {
        self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        std::mem::replace(&mut self.heads[slot], NIL)
    }

    fn cascade(&mut self, mut index: u32) {
        while index != NIL {
            self.relinked += 1;
            let next = self.timers[index].next;
            self.link(index);
            index = next;
        }
    }

    fn fire(&mut self, mut index: u32, on_fire: &mut impl FnMut(Payload)) {
        while index != NIL {
            let node = &self.timers[index];
            let (next, payload) = (node.next, node.value.timer.payload);
            self.timers.end(index);
            on_fire(payload);
            index = next;
        }
    }
}

impl TimerSet for Linked64 {
    type Handle = Handle;

    fn new() -> Self {
        let heads = [NIL; LEVELS * SLOTS];
        Self { timers: Table::new(), heads, occupied: [0; LEVELS], now: 0, relinked: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let handle = self.timers.allocate();
        self.timers[handle.index].value.timer = Timer { payload, deadline };
        self.link(handle.index);
        handle
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let live = self.timers.is_live(*handle);
        if live {
            self.unlink(handle.index);
            self.timers.end(handle.index);
        }
        live
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let live = self.timers.is_live(*handle);
        if live {
            self.unlink(handle.index);
            self.timers[handle.index].value.timer.deadline = deadline;
            self.link(handle.index);
        }
        live
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        while let Some((slot, start)) = self.next_slot().filter(|&(_, start)| start <= now) {
            self.now = start;
            let first = self.take_slot(slot);
            if slot < SLOTS { self.fire(first, &mut on_fire) } else { self.cascade(first) }
        }
        self.now = now;
    }

    fn relinked(&self) -> Option<u64> {
        Some(self.relinked)
    }
}

impl ReportsDeadline for Linked64 {
    fn next_deadline(&self) -> Option<u64> {
        self.next_slot().map(|(_, start)| start)
    }
}
