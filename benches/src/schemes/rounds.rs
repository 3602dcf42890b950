//! Scheme 6 of Varghese and Lauck: a hashed timing wheel with unsorted slots and a rounds counter.
//!
//! The deadline modulo the number of slots is the slot; each timer counts the revolutions that it has to sit out.
//!
//! - start: O(1), appends to the slot.
//! - stop: O(1), unlinks.
//! - tick: O(n / slots) on average, O(n) at worst: visits every timer of one slot. Over a revolution each timer is
//!   visited once, so it is the cost of scheme 1 divided by the number of slots.
//! - expiry: O(1), for a timer that has no round left.
//! - accuracy: exact. Range: any interval.

use super::store::Timers;
use super::{Accuracy, Cost, Growth, Handle, Scheme};

/// A ring of slots; `due` holds how many more times a timer is passed over.
#[derive(Debug)]
pub struct RoundsWheel<const SLOTS: u32 = 512> {
    slots: Timers,
    now: u64,
}

impl<const SLOTS: u32> RoundsWheel<SLOTS> {
    #[expect(clippy::cast_possible_truncation, reason = "less than SLOTS")]
    fn slot(due: u64) -> u32 {
        (due % u64::from(SLOTS)) as u32
    }
}

impl<const SLOTS: u32> Scheme for RoundsWheel<SLOTS> {
    const NAME: &'static str = "6-rounds-wheel";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const COST: Cost = Cost { tick: Growth::PerSlot, ..Cost::CONSTANT };

    fn new() -> Self {
        Self { slots: Timers::new(SLOTS), now: 0 }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let interval = interval.max(1);
        let index = self.slots.allocate((interval - 1) / u64::from(SLOTS), id);
        self.slots.push_back(Self::slot(self.now + interval), index);
        Some(self.slots.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        self.slots.stop(handle)
    }

    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.now += 1;
        let slot = Self::slot(self.now);
        let mut next = self.slots.first(slot);
        while let Some(index) = next {
            next = self.slots.after(slot, index);
            match self.slots.due(index) {
                0 => expire(self.slots.remove(index)),
                rounds => self.slots.set_due(index, rounds - 1),
            }
        }
    }

    fn len(&self) -> usize {
        self.slots.len()
    }
}
