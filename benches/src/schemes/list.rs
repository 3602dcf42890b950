//! Scheme 2 of Varghese and Lauck: one list in the order of the deadlines (VMS and early UNIX).
//! Starting searches the place from the rear: cheap for an interval longer than most, and O(1) when
//! all intervals are equal.

use super::{Scheme, Store};
use crate::timers::Payload;

/// All timers in one list, the earliest deadline first.
#[derive(Debug)]
pub struct OrderedList {
    list: u32,
}

impl Scheme for OrderedList {
    const JUMPS: bool = true;

    fn new(store: &mut Store) -> Self {
        Self { list: store.add_lists(1) }
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        store.insert_sorted(self.list, index);
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        store.expire_due(self.list, expire);
    }
}
