//! Scheme 1 of Varghese and Lauck, "straightforward": every tick counts every timer down, in the
//! order of memory. Right for a handful of timers, or where the hardware does the counting.

use super::{Scheme, Store};
use crate::timers::Payload;

/// All timers in no order; `due` holds the ticks that remain, 0 for a free node.
#[derive(Debug)]
pub struct Countdown;

impl Scheme for Countdown {
    fn new(_: &mut Store) -> Self {
        Self
    }

    fn start(&mut self, store: &mut Store, index: u32) {
        store.set_due(index, store.due(index) - store.now);
    }

    fn stop(&mut self, store: &mut Store, index: u32) {
        store.release(index);
    }

    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        for index in store.indices() {
            match store.due(index) {
                0 => {}
                1 => expire(store.release(index)),
                remaining => store.set_due(index, remaining - 1),
            }
        }
    }
}
