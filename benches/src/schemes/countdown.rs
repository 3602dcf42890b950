//! Scheme 1 of Varghese and Lauck, "straightforward": every tick counts every timer down.
//!
//! - start: O(1), writes the interval into a free node.
//! - stop: O(1), frees the node.
//! - tick: O(n), subtracts one from every interval; it walks all nodes, in the order of memory.
//! - expiry: O(1), for a node that has come down to nothing.
//! - accuracy: exact. Range: any interval.
//!
//! Right for a handful of timers, or where the hardware does the counting.

use super::store::Timers;
use super::{Accuracy, Cost, Growth, Handle, Scheme};

/// All timers in no order; `due` holds the ticks that remain, 0 for a free node.
#[derive(Debug)]
pub struct Countdown {
    timers: Timers,
}

impl Scheme for Countdown {
    const NAME: &'static str = "1-countdown";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const COST: Cost = Cost { tick: Growth::Linear, ..Cost::CONSTANT };

    fn new() -> Self {
        Self { timers: Timers::new(0) }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let index = self.timers.allocate(interval.max(1), id);
        Some(self.timers.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        self.timers.find(handle).map(|index| self.timers.release(index)).is_some()
    }

    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        for index in self.timers.indices() {
            match self.timers.due(index) {
                0 => {}
                1 => expire(self.timers.release(index)),
                remaining => self.timers.set_due(index, remaining - 1),
            }
        }
    }

    fn len(&self) -> usize {
        self.timers.len()
    }
}
