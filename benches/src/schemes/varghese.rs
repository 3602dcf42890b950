//! Schemes 1, 2, 5 and 6 of Varghese and Lauck.

use super::store::slot_of;
use super::{Scheme, Store};
use crate::timers::Payload;

/// Scheme 1, "straightforward": every tick decrements every timer. A node's `deadline_or_rounds` is
/// the number of ticks that remain, 0 in a free node.
pub struct Countdown;

impl Scheme for Countdown {
    fn new(_: &mut Store) -> Self {
        Self
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        store[index].deadline_or_rounds -= store.now;
    }

    fn stop(&mut self, store: &mut Store, index: u32) {
        store.end_and_free(index);
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        for index in store.indices() {
            match store[index].deadline_or_rounds {
                0 => {}
                1 => expire(store.end_and_free(index)),
                remaining => store[index].deadline_or_rounds = remaining - 1,
            }
        }
    }
}

/// Scheme 2: one list sorted by deadline, as in VMS and early UNIX. A start searches from the rear,
/// which is O(1) if all intervals are equal.
pub struct OrderedList {
    list: u32,
}

impl Scheme for OrderedList {
    const TICKS_AT_ONCE: bool = true;

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

/// Scheme 5: a hashed timing wheel with sorted slots. The deadline modulo the number of slots is
/// the slot, which holds the timers of all revolutions. A start is O(n) at worst.
pub struct SortedSlots<const SLOTS: u32 = 512>;

impl<const SLOTS: u32> Scheme for SortedSlots<SLOTS> {
    fn new(store: &mut Store) -> Self {
        store.add_lists(SLOTS);
        Self
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        store.insert_sorted(slot_of(store[index].deadline_or_rounds, SLOTS), index);
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        store.expire_due(slot_of(store.now, SLOTS), expire);
    }
}

/// Scheme 6: a hashed timing wheel with unsorted slots. A node's `deadline_or_rounds` is the number
/// of revolutions before its timer expires. A tick visits every timer of one slot.
pub struct RoundsWheel<const SLOTS: u32 = 512>;

impl<const SLOTS: u32> Scheme for RoundsWheel<SLOTS> {
    fn new(store: &mut Store) -> Self {
        store.add_lists(SLOTS);
        Self
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        let deadline = store[index].deadline_or_rounds;
        store[index].deadline_or_rounds = (deadline - store.now - 1) / u64::from(SLOTS);
        store.push_back(slot_of(deadline, SLOTS), index);
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        store.expire_or_count_down(slot_of(store.now, SLOTS), expire);
    }
}
