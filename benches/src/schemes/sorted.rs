//! Scheme 5 of Varghese and Lauck: a hashed timing wheel with sorted slots.
//!
//! The deadline modulo the number of slots is the slot; a slot holds the timers of all revolutions, the earliest
//! first.
//!
//! - start: O(n / slots) on average, O(n) at worst: searches the place within the slot, from the rear.
//! - stop: O(1), unlinks.
//! - tick: O(1), compares the head of one slot with the time.
//! - expiry: O(1), takes the head off.
//! - accuracy: exact. Range: any interval.

use super::store::Timers;
use super::{Accuracy, Cost, Growth, Handle, Scheme};

/// A ring of slots, each a list in the order of deadlines.
#[derive(Debug)]
pub struct SortedSlots<const SLOTS: u32 = 512> {
    slots: Timers,
    now: u64,
}

impl<const SLOTS: u32> SortedSlots<SLOTS> {
    #[expect(clippy::cast_possible_truncation, reason = "less than SLOTS")]
    fn slot(due: u64) -> u32 {
        (due % u64::from(SLOTS)) as u32
    }
}

impl<const SLOTS: u32> Scheme for SortedSlots<SLOTS> {
    const NAME: &'static str = "5-sorted-slots";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const COST: Cost = Cost { start: Growth::PerSlot, ..Cost::CONSTANT };

    fn new() -> Self {
        Self { slots: Timers::new(SLOTS), now: 0 }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let due = self.now + interval.max(1);
        let index = self.slots.allocate(due, id);
        self.slots.insert_sorted(Self::slot(due), index);
        Some(self.slots.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        self.slots.stop(handle)
    }

    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.now += 1;
        self.slots.expire_until(Self::slot(self.now), self.now, expire);
    }

    fn len(&self) -> usize {
        self.slots.len()
    }
}
