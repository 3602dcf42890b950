//! One level of 65 536 slots of one tick each: the simplest wheel, for delays below 65 536 ticks only. Each slot is a
//! doubly linked list through records of 16 bytes; the payloads are kept apart, so only firing touches them.

use super::handle::Handle;
use crate::timers::{Payload, Timers};

const SLOTS: u64 = 65_536;
const NIL: u32 = u32::MAX;
/// Marks a `previous` that is the number of the slot whose first record this is.
const SLOT: u32 = 1 << 31;

/// `single65536`.
#[derive(Debug)]
pub struct Single65536 {
    records: Vec<Record>,
    payloads: Vec<Payload>,
    free: u32,
    /// The first record of each slot.
    heads: Box<[u32]>,
    live: usize,
    now: u64,
    touched: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    previous: u32,
    /// The next record of the slot, or of the free list.
    next: u32,
    /// Odd while the timer is live.
    generation: u32,
    /// The deadline's low bits: debug builds compare them.
    deadline: u32,
}

const _: () = assert!(size_of::<Record>() == 16);

impl Single65536 {
    fn take_record(&mut self, payload: Payload) -> u32 {
        if self.free != NIL {
            let index = self.free;
            self.free = self.records[index as usize].next;
            self.payloads[index as usize] = payload;
            return index;
        }
        self.records.push(Record { previous: NIL, next: NIL, generation: 0, deadline: 0 });
        self.payloads.push(payload);
        self.records.len() as u32 - 1
    }

    fn free_record(&mut self, index: u32) {
        let record = &mut self.records[index as usize];
        record.generation = record.generation.wrapping_add(1);
        record.next = self.free;
        self.free = index;
        self.live -= 1;
    }

    fn is_live(&self, handle: Handle) -> bool {
        self.records[handle.index as usize].generation == handle.generation
    }

    fn link(&mut self, index: u32, deadline: u64) {
        assert!(deadline - self.now < SLOTS, "single65536 has no place for so long a delay");
        self.touched += 1;
        let slot = (deadline % SLOTS) as u32;
        let head = std::mem::replace(&mut self.heads[slot as usize], index);
        let record = &mut self.records[index as usize];
        (record.previous, record.next, record.deadline) = (SLOT | slot, head, deadline as u32);
        if head != NIL {
            self.records[head as usize].previous = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        self.touched += 1;
        let Record { previous, next, .. } = self.records[index as usize];
        if next != NIL {
            self.records[next as usize].previous = previous;
        }
        if previous & SLOT == 0 {
            self.records[previous as usize].next = next;
        } else {
            self.heads[(previous ^ SLOT) as usize] = next;
        }
    }

    fn fire_slot(&mut self, tick: u64, on_fire: &mut impl FnMut(Payload)) {
        let mut index = std::mem::replace(&mut self.heads[(tick % SLOTS) as usize], NIL);
        while index != NIL {
            self.touched += 1;
            let Record { next, deadline, .. } = self.records[index as usize];
            debug_assert_eq!(deadline, tick as u32);
            self.free_record(index);
            on_fire(self.payloads[index as usize]);
            index = next;
        }
    }
}

impl Timers for Single65536 {
    type Handle = Handle;

    fn new() -> Self {
        let heads = vec![NIL; SLOTS as usize].into_boxed_slice();
        Self {
            records: Vec::new(),
            payloads: Vec::new(),
            free: NIL,
            heads,
            live: 0,
            now: 0,
            touched: 0,
        }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let index = self.take_record(payload);
        self.live += 1;
        let record = &mut self.records[index as usize];
        record.generation = record.generation.wrapping_add(1);
        let generation = record.generation;
        self.link(index, deadline);
        Handle { index, generation }
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let live = self.is_live(*handle);
        if live {
            self.unlink(handle.index);
            self.free_record(handle.index);
        }
        live
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let live = self.is_live(*handle);
        if live {
            self.unlink(handle.index);
            self.link(handle.index, deadline);
        }
        live
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        while self.now < now && self.live > 0 {
            self.now += 1;
            self.fire_slot(self.now, &mut on_fire);
        }
        self.now = now;
    }

    fn touched(&self) -> Option<u64> {
        Some(self.touched)
    }
}
