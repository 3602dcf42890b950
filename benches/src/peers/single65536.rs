//! The simplest wheel: 65,536 slots of one tick, for delays below 65,536 ticks. Each slot is a
//! doubly linked list of 16-byte records. Payloads are stored separately.

use super::table::{Handle, Linked, NIL, Node, Table, write_payload};
use crate::timers::{Payload, TimerSet};

const SLOTS: u64 = 65_536;

pub struct Single65536 {
    /// Each value is the low 32 bits of the deadline, which debug builds check at the expiry.
    timers: Table<Linked<u32>>,
    payloads: Vec<Payload>,
    heads: Box<[u32]>,
    live: usize,
    now: u64,
}

const _: () = assert!(size_of::<Node<Linked<u32>, u32>>() == 16);

impl Single65536 {
    fn end(&mut self, index: u32) {
        self.timers.end(index);
        self.live -= 1;
    }

    fn link(&mut self, index: u32, deadline: u64) {
        assert!(deadline - self.now < SLOTS, "single65536 takes only delays below 65,536 ticks");
        self.timers.link(&mut self.heads, (deadline % SLOTS) as u32, index);
        self.timers[index].value.timer = deadline as u32;
    }

    fn unlink(&mut self, index: u32) {
        self.timers.unlink(&mut self.heads, index);
    }

    fn fire_slot(&mut self, tick: u64, on_fire: &mut impl FnMut(Payload)) {
        let mut index = std::mem::replace(&mut self.heads[(tick % SLOTS) as usize], NIL);
        while index != NIL {
            let node = &self.timers[index];
            debug_assert_eq!(node.value.timer, tick as u32);
            let next = node.next;
            self.end(index);
            on_fire(self.payloads[index as usize]);
            index = next;
        }
    }
}

impl TimerSet for Single65536 {
    type Handle = Handle;

    fn new() -> Self {
        let heads = vec![NIL; SLOTS as usize].into_boxed_slice();
        let (timers, payloads) = (Table::new(), Vec::new());
        Self { timers, payloads, heads, live: 0, now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let handle = self.timers.allocate();
        write_payload(&mut self.payloads, handle.index, payload);
        self.live += 1;
        self.link(handle.index, deadline);
        handle
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let live = self.timers.is_live(*handle);
        if live {
            self.unlink(handle.index);
            self.end(handle.index);
        }
        live
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let live = self.timers.is_live(*handle);
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

    fn relinked(&self) -> Option<u64> {
        Some(0)
    }
}
