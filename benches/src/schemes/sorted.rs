//! Scheme 5 of Varghese and Lauck: a hashed timing wheel with sorted slots. The deadline modulo the
//! number of slots is the slot, which holds the timers of all revolutions, the earliest first. A
//! start is O(n) at worst.

use super::{Scheme, Store, store::slot};
use crate::timers::Payload;

/// A ring of slots, each a list in the order of deadlines.
#[derive(Debug)]
pub struct SortedSlots<const SLOTS: u32 = 512>;

impl<const SLOTS: u32> Scheme for SortedSlots<SLOTS> {
    fn new(store: &mut Store) -> Self {
        store.add_lists(SLOTS);
        Self
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        store.insert_sorted(slot(store.due(index), SLOTS), index);
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        store.expire_due(slot(store.now, SLOTS), expire);
    }
}
