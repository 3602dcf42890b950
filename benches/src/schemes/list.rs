//! Scheme 2 of Varghese and Lauck: one list in the order of the deadlines (VMS and early UNIX).
//!
//! - start: O(n), searches the place, from the rear: cheap for an interval longer than most, and O(1) when all
//!   intervals are equal.
//! - stop: O(1), the list is doubly linked.
//! - tick: O(1), compares the head of the list with the time.
//! - expiry: O(1), takes the head off.
//! - accuracy: exact. Range: any interval.

use super::store::Timers;
use super::{Accuracy, Cost, Growth, Handle, Scheme};

/// The only list.
const LIST: u32 = 0;

/// All timers in one list, the earliest deadline first.
#[derive(Debug)]
pub struct OrderedList {
    timers: Timers,
    now: u64,
}

impl Scheme for OrderedList {
    const NAME: &'static str = "2-list";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const COST: Cost = Cost { start: Growth::Linear, ..Cost::CONSTANT };

    fn new() -> Self {
        Self { timers: Timers::new(1), now: 0 }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let index = self.timers.allocate(self.now + interval.max(1), id);
        self.timers.insert_sorted(LIST, index);
        Some(self.timers.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        self.timers.stop(handle)
    }

    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.advance(1, expire);
    }

    /// The head says when something is due: the ticks before need no visit.
    fn advance(&mut self, ticks: u64, expire: &mut impl FnMut(u64)) {
        self.now += ticks;
        self.timers.expire_until(LIST, self.now, expire);
    }

    fn len(&self) -> usize {
        self.timers.len()
    }
}
