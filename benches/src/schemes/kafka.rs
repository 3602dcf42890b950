//! Kafka's timer (`SystemTimer`, `TimingWheel`, `TimerTaskList` of
//! org.apache.kafka.server.util.timer): scheme 7 of Varghese and Lauck with 20 slots a level. A
//! level ("overflow wheel") is created when an interval first needs it. A queue holds the occupied
//! slots in the order of their starts, so time jumps from slot to slot, and an empty tick costs
//! nothing.
//!
//! With a tick of 1 ms the levels reach 20 ms, 400 ms, 8 s, 160 s and so on. The wheel's own clock
//! is the start of the slot that was most recently taken from the queue. The due timers of that
//! slot expire; the others are inserted again, into a lower level. A stop unlinks a timer; an empty
//! slot stays in the queue until its start. The first timer of a slot costs O(log slots in use)
//! more, because the slot enters the queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::store::slot_of;
use super::{Scheme, Store};
use crate::timers::Payload;

/// Levels of `SLOTS` slots each. The `deadline_or_rounds` of a slot's sentinel is the slot's start
/// when it was last enqueued. A slot whose start has changed must be enqueued again.
pub struct Kafka<const SLOTS: u32 = 20> {
    /// The first slot of each level.
    levels: Vec<u32>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    clock: u64,
}

impl<const SLOTS: u32> Scheme for Kafka<SLOTS> {
    const TICKS_AT_ONCE: bool = true;

    fn new(_: &mut Store) -> Self {
        Self { levels: Vec::new(), queue: BinaryHeap::new(), clock: 0 }
    }

    /// Links a timer into the lowest level that reaches its deadline.
    fn start(&mut self, store: &mut Store, index: u32) {
        let deadline = store[index].deadline_or_rounds;
        let (mut width, mut level) = (1, 0);
        while deadline >= self.clock - self.clock % width + width * u64::from(SLOTS) {
            width *= u64::from(SLOTS);
            level += 1;
        }
        while self.levels.len() <= level {
            self.levels.push(store.add_lists(SLOTS));
        }
        let slot_of = self.levels[level] + slot_of(deadline / width, SLOTS);
        store.push_back(slot_of, index);
        let slot_start = deadline / width * width;
        if store[slot_of].deadline_or_rounds != slot_start {
            store[slot_of].deadline_or_rounds = slot_start;
            self.queue.push(Reverse((slot_start, slot_of)));
        }
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        while let Some(&Reverse((slot_start, slot_of))) =
            self.queue.peek().filter(|head| head.0.0 <= store.now)
        {
            self.queue.pop();
            self.clock = slot_start;
            while let Some(index) = store.first_in_list(slot_of) {
                store.unlink(index);
                if store[index].deadline_or_rounds <= self.clock {
                    expire(store.end_and_free(index));
                } else {
                    self.start(store, index);
                }
            }
        }
    }
}
