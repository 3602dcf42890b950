//! Netty's `HashedWheelTimer` (io.netty.util, 4.x): scheme 6 with one level of 512 slots, and a
//! worker. The worker has another tick, 100 ms by default, which is here `TICK` ticks of the clock.
//!
//! Callers do not touch the wheel: a new timeout goes to a queue, a cancelled one to another. When
//! the worker wakes, it unlinks the cancelled timeouts, links at most 100,000 new ones into their
//! slots, and walks the slot of its tick. Here one thread plays both parts, so the queues need no
//! atomics. As in Netty, a cancelled timeout stays in its slot until the worker wakes; what start
//! and stop leave to the worker is paid in the tick.
//!
//! The worker serves a tick when it has ended, so a timeout fires between 1 and `TICK` ticks after
//! its deadline. It fires later if one tick has more than 100,000 new ones.

use super::store::slot;
use super::{Scheme, Store};
use crate::timers::Payload;

const SLOTS: u32 = 512;
/// The list behind the slots: new timeouts that the worker has not seen.
const NEW: u32 = SLOTS;
/// How many of them the worker links into the wheel in one of its ticks.
const LINKED_PER_TICK: usize = 100_000;

/// One ring of slots; `due` holds a deadline in the queue and the rounds that remain in a slot.
pub struct Netty<const TICK: u64 = 100> {
    /// Nodes whose timeout is cancelled, still linked.
    cancelled: Vec<u32>,
}

impl<const TICK: u64> Scheme for Netty<TICK> {
    fn new(store: &mut Store) -> Self {
        store.add_lists(SLOTS + 1);
        Self { cancelled: Vec::new() }
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        store.push_back(NEW, index);
    }

    fn stop(&mut self, store: &mut Store, index: u32) {
        store.end(index);
        self.cancelled.push(index);
    }

    /// The worker's tick t begins at t * `TICK` and is served when it has ended. An overdue new
    /// timeout goes into the slot that is walked next.
    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        if !store.now.is_multiple_of(TICK) {
            return;
        }
        let tick = store.now / TICK - 1;
        for index in self.cancelled.drain(..) {
            store.unlink(index);
            store.free(index);
        }
        for _ in 0..LINKED_PER_TICK {
            let Some(index) = store.first(NEW) else { break };
            store.unlink(index);
            let served = (store[index].due / TICK).max(tick);
            store[index].due = (served - tick) / u64::from(SLOTS);
            store.push_back(slot(served, SLOTS), index);
        }
        store.count_rounds(slot(tick, SLOTS), expire);
    }
}
