//! Netty's `HashedWheelTimer` (io.netty.util, 4.x): scheme 6 of Varghese and Lauck with one level
//! of 512 slots, and a worker. The worker's tick, 100 ms by default, is `TICK` ticks of the clock.
//!
//! Callers enqueue new and cancelled timeouts, and do not touch the wheel. When the worker wakes,
//! it unlinks the cancelled timeouts, links at most 100,000 new ones, and walks the slot of its
//! tick. Here the caller is also the worker, so the queues need no atomics, and a tick pays for the
//! deferred work.
//!
//! The worker serves a tick after its end, so a timeout fires between 1 and `TICK` ticks after its
//! deadline. A timeout may fire later if a tick has more than 100,000 new timeouts.

use super::store::slot_of;
use super::{Scheme, Store};
use crate::timers::Payload;

const SLOTS: u32 = 512;
/// The list after the slots: timeouts that the worker has not linked yet.
const NEW_TIMEOUTS: u32 = SLOTS;
const LINKED_PER_TICK: usize = 100_000;

/// A node's `deadline_or_rounds` is the deadline of a new timeout, or the remaining rounds of a
/// linked one.
pub struct Netty<const TICK: u64 = 100> {
    /// Linked nodes whose timeout is cancelled.
    cancelled_nodes: Vec<u32>,
}

impl<const TICK: u64> Scheme for Netty<TICK> {
    fn new(store: &mut Store) -> Self {
        store.add_lists(SLOTS + 1);
        Self { cancelled_nodes: Vec::new() }
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        store.push_back(NEW_TIMEOUTS, index);
    }

    fn stop(&mut self, store: &mut Store, index: u32) {
        store.end(index);
        self.cancelled_nodes.push(index);
    }

    /// Processes the worker's tick that has just ended. An overdue new timeout goes into this
    /// tick's slot.
    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        if !store.now.is_multiple_of(TICK) {
            return;
        }
        let tick = store.now / TICK - 1;
        for index in self.cancelled_nodes.drain(..) {
            store.remove(index);
        }
        for _ in 0..LINKED_PER_TICK {
            let Some(index) = store.first_in_list(NEW_TIMEOUTS) else { break };
            store.unlink(index);
            let firing_tick = (store[index].deadline_or_rounds / TICK).max(tick);
            store[index].deadline_or_rounds = (firing_tick - tick) / u64::from(SLOTS);
            store.push_back(slot_of(firing_tick, SLOTS), index);
        }
        store.expire_or_count_down(slot_of(tick, SLOTS), expire);
    }
}
