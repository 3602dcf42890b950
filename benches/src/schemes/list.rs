//! Scheme 2 of Varghese and Lauck: one list in the order of the deadlines (VMS and early UNIX).
//! Starting searches the place from the rear: cheap for an interval longer than most, and O(1) when
//! all intervals are equal.

use super::{Scheme, Timers};

/// All timers in one list, the earliest deadline first.
#[derive(Debug)]
pub struct OrderedList {
    list: u32,
}

impl Scheme for OrderedList {
    const NAME: &'static str = "2-list";
    const LINEAR_START: bool = true;
    const JUMPS: bool = true;

    fn new(timers: &mut Timers) -> Self {
        Self { list: timers.add_lists(1) }
    }

    fn start(&mut self, timers: &mut Timers, index: u32) {
        timers.insert_sorted(self.list, index);
    }

    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64)) {
        timers.expire_due(self.list, expire);
    }
}
