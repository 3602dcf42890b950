//! Scheme 6 of Varghese and Lauck: a hashed timing wheel with unsorted slots. Each timer counts the
//! revolutions that it has to sit out. A tick visits every timer of one slot: the cost of scheme 1
//! divided by the number of slots.

use super::{Scheme, Timers, store::slot};

/// A ring of slots; `due` holds how many more times a timer is passed over.
#[derive(Debug)]
pub struct RoundsWheel<const SLOTS: u32 = 512>;

impl<const SLOTS: u32> Scheme for RoundsWheel<SLOTS> {
    const NAME: &'static str = "6-rounds-wheel";

    fn new(timers: &mut Timers) -> Self {
        timers.add_lists(SLOTS);
        Self
    }

    fn start(&mut self, timers: &mut Timers, index: u32) {
        let due = timers.due(index);
        timers.set_due(index, (due - timers.now - 1) / u64::from(SLOTS));
        timers.push_back(slot(due, SLOTS), index);
    }

    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64)) {
        timers.count_rounds(slot(timers.now, SLOTS), expire);
    }
}
