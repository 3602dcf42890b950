//! Scheme 6 of Varghese and Lauck: a hashed timing wheel with unsorted slots. Each timer counts the
//! revolutions that it has to sit out. A tick visits every timer of one slot: the cost of scheme 1
//! divided by the number of slots.

use super::{Scheme, Store, store::slot};
use crate::timers::Payload;

/// A ring of slots; `due` holds how many more times a timer is passed over.
#[derive(Debug)]
pub struct RoundsWheel<const SLOTS: u32 = 512>;

impl<const SLOTS: u32> Scheme for RoundsWheel<SLOTS> {
    fn new(store: &mut Store) -> Self {
        store.add_lists(SLOTS);
        Self
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        let due = store.due(index);
        store.set_due(index, (due - store.now - 1) / u64::from(SLOTS));
        store.push_back(slot(due, SLOTS), index);
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        store.count_rounds(slot(store.now, SLOTS), expire);
    }
}
