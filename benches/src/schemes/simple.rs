//! Scheme 4 of Varghese and Lauck: a simple timing wheel, one slot for every tick of the longest
//! interval. The price is memory: here 65,536 slots, for 65 s of milliseconds. A longer interval is
//! refused.

use super::{Scheme, Timers, store::slot};

/// A ring of slots; the timers of a slot are all due in the same tick.
#[derive(Debug)]
pub struct SimpleWheel<const SLOTS: u32 = 65_536>;

impl<const SLOTS: u32> Scheme for SimpleWheel<SLOTS> {
    const NAME: &'static str = "4-simple-wheel";
    const RANGE: u64 = SLOTS as u64;

    fn new(timers: &mut Timers) -> Self {
        timers.add_lists(SLOTS);
        Self
    }

    /// The slot of a full revolution from now was emptied in this tick.
    fn start(&mut self, timers: &mut Timers, index: u32) {
        timers.push_back(slot(timers.due(index), SLOTS), index);
    }

    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64)) {
        timers.expire_all(slot(timers.now, SLOTS), expire);
    }
}
