//! The timer wheel of Linux since 4.8 (`kernel/time/timer.c`): scheme 7 of Varghese and Lauck
//! without cascades.
//!
//! The wheel has 9 levels of 64 slots (for HZ > 100). A slot of one level is 8 times as wide as a
//! slot of the level below, so the levels overlap. A timer goes to a level when 63 slots of the
//! level below do not suffice. A timer stays in its slot, which starts after the deadline. So a
//! timer never fires early, and the longer its interval, the later it may fire.
//!
//! A timer of level 0 is one tick late, because the kernel cannot know how much of the current tick
//! is left. A timer of a higher level is late by at most the width of a slot, which is at most 8/63
//! of the interval: the "12.5 %" of the kernel's comments. The range is 63 * 8^8 ticks, 12 days of
//! milliseconds. The kernel fires a longer interval at the end of its range, which is early; this
//! version panics. The kernel also has a bitmap of used slots, which tells how long to sleep; this
//! version has none.

use super::store;
use super::{Scheme, Store};
use crate::timers::Payload;

const LEVELS: u32 = 9;
const SLOTS: u32 = 64;
const SHIFT: u32 = 3;

pub struct Linux;

/// Returns the shortest distance in ticks that a level does not reach.
const fn level_limit(level: u32) -> u64 {
    (SLOTS as u64 - 1) << (level * SHIFT)
}

fn slot_of(level: u32, tick: u64) -> u32 {
    level * SLOTS + store::slot_of(tick >> (level * SHIFT), SLOTS)
}

impl Scheme for Linux {
    fn new(store: &mut Store) -> Self {
        store.add_lists(LEVELS * SLOTS);
        Self
    }

    /// Links a timer into the slot that follows its deadline's slot.
    fn start(&mut self, store: &mut Store, index: u32) {
        let deadline = store[index].deadline_or_rounds;
        let distance = deadline - store.now - 1;
        let level =
            (0..LEVELS).find(|&level| distance < level_limit(level)).expect("within the range");
        store.push_back(slot_of(level, deadline + (1 << (level * SHIFT))), index);
    }

    /// Serves the slots that begin now: of level 0, and of each higher level if all lower bits of
    /// the tick are zero.
    fn tick(&mut self, store: &mut Store, expire: &mut impl FnMut(Payload)) {
        let entered = (store.now.trailing_zeros() / SHIFT).min(LEVELS - 1);
        for level in 0..=entered {
            store.expire_due(slot_of(level, store.now), expire);
        }
    }
}
