//! Kafka's timer (`SystemTimer`, `TimingWheel`, `TimerTaskList` of
//! org.apache.kafka.server.util.timer). It is scheme 7 with 20 slots a level. A level ("overflow
//! wheel") is created when an interval first needs it. A queue holds the occupied slots, ordered by
//! the time at which they start. So time jumps from slot to slot, and an empty tick costs nothing.
//!
//! With a tick of 1 ms the levels reach 20 ms, 400 ms, 8 s, 160 s and so on. The wheel's own clock
//! stands at the last slot that was taken from the queue. A timer that is due by that clock is
//! expired; other timers of the slot are inserted again, which puts them into a lower level. A stop
//! unlinks; a slot left empty stays in the queue until its time. The first timer of a slot costs
//! O(log slots in use) more, because the slot enters the queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::store::slot;
use super::{Scheme, Store};
use crate::timers::Payload;

/// Levels of `SLOTS` slots each. The `due` of a slot itself says when time enters it, or last did:
/// the next time is another, so that tells whether the slot is in the queue.
pub struct Kafka<const SLOTS: u32 = 20> {
    /// The first slot of each level.
    levels: Vec<u32>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// When time entered the last slot that was taken from the queue.
    clock: u64,
}

impl<const SLOTS: u32> Scheme for Kafka<SLOTS> {
    const JUMPS: bool = true;

    fn new(_: &mut Store) -> Self {
        Self { levels: Vec::new(), queue: BinaryHeap::new(), clock: 0 }
    }

    /// Links a timer into the lowest level that reaches its deadline, and enqueues a new slot.
    fn start(&mut self, store: &mut Store, index: u32) {
        let due = store[index].due;
        let (mut width, mut level) = (1, 0);
        while due >= self.clock - self.clock % width + width * u64::from(SLOTS) {
            width *= u64::from(SLOTS);
            level += 1;
        }
        while self.levels.len() <= level {
            self.levels.push(store.add_lists(SLOTS));
        }
        let slot = self.levels[level] + slot(due / width, SLOTS);
        store.push_back(slot, index);
        let entered = due / width * width;
        if store[slot].due != entered {
            store[slot].due = entered;
            self.queue.push(Reverse((entered, slot)));
        }
    }

    /// Jumps from slot to slot. The timers of each slot expire or move down.
    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        while let Some(&Reverse((entered, slot))) =
            self.queue.peek().filter(|head| head.0.0 <= store.now)
        {
            self.queue.pop();
            self.clock = entered;
            while let Some(index) = store.first(slot) {
                store.unlink(index);
                if store[index].due <= self.clock {
                    expire(store.release(index));
                } else {
                    self.start(store, index);
                }
            }
        }
    }
}
