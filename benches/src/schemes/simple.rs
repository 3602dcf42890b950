//! Scheme 4 of Varghese and Lauck: a simple timing wheel, one slot for every tick of the longest interval.
//!
//! - start: O(1), the deadline modulo the number of slots is the slot.
//! - stop: O(1), unlinks.
//! - tick: O(1), looks into one slot.
//! - expiry: O(1), all that is in the slot is due.
//! - accuracy: exact. Range: as many ticks as there are slots; a longer interval is refused.
//!
//! The price is memory: here 65 536 slots, for 65 s of milliseconds.

use super::store::Timers;
use super::{Accuracy, Cost, Handle, Scheme};

/// A ring of slots; the timers of a slot are all due in the same tick.
#[derive(Debug)]
pub struct SimpleWheel<const SLOTS: u32 = 65_536> {
    slots: Timers,
    now: u64,
}

impl<const SLOTS: u32> SimpleWheel<SLOTS> {
    #[expect(clippy::cast_possible_truncation, reason = "less than SLOTS")]
    fn slot(due: u64) -> u32 {
        (due % u64::from(SLOTS)) as u32
    }
}

impl<const SLOTS: u32> Scheme for SimpleWheel<SLOTS> {
    const NAME: &'static str = "4-simple-wheel";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const RANGE: u64 = SLOTS as u64;
    const COST: Cost = Cost::CONSTANT;

    fn new() -> Self {
        Self { slots: Timers::new(SLOTS), now: 0 }
    }

    /// The slot of a full revolution from now is the one that was emptied in this tick: it is free.
    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let due = self.now + interval.max(1);
        let index = self.slots.allocate(due, id);
        self.slots.push_back(Self::slot(due), index);
        Some(self.slots.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        self.slots.stop(handle)
    }

    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.now += 1;
        self.slots.expire_all(Self::slot(self.now), expire);
    }

    fn len(&self) -> usize {
        self.slots.len()
    }
}
