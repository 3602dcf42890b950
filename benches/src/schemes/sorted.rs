//! Scheme 5 of Varghese and Lauck: a hashed timing wheel with sorted slots. The deadline modulo the
//! number of slots is the slot, which holds the timers of all revolutions, the earliest first. A
//! start is O(n) at worst.

use super::{Scheme, Timers, store::slot};

/// A ring of slots, each a list in the order of deadlines.
#[derive(Debug)]
pub struct SortedSlots<const SLOTS: u32 = 512>;

impl<const SLOTS: u32> Scheme for SortedSlots<SLOTS> {
    const NAME: &'static str = "5-sorted-slots";

    fn new(timers: &mut Timers) -> Self {
        timers.add_lists(SLOTS);
        Self
    }

    fn start(&mut self, timers: &mut Timers, index: u32) {
        timers.insert_sorted(slot(timers.due(index), SLOTS), index);
    }

    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64)) {
        timers.expire_due(slot(timers.now, SLOTS), expire);
    }
}
