//! Scheme 7 of Varghese and Lauck: hierarchical timing wheels.
//!
//! A slot of one level is as wide as the whole level below, like the hands of a clock. A timer
//! starts in the lowest level that reaches its deadline. When time enters a slot of a higher level,
//! the timers of that slot move down (they cascade), until they lie in a slot one tick wide. A
//! timer moves at most once per level, but all timers of a slot move in the same tick: the tick
//! that cascades a high level is a long one. The range is slots to the power of levels, here 64^6
//! (2 years of milliseconds).

use super::{Scheme, Timers, store::slot};

/// `LEVELS` rings of 2^`BITS` slots.
#[derive(Debug)]
pub struct Hierarchy<const BITS: u32 = 6, const LEVELS: u32 = 6>;

impl<const BITS: u32, const LEVELS: u32> Hierarchy<BITS, LEVELS> {
    /// Returns the slot of a level in which a tick lies.
    fn slot(level: u32, tick: u64) -> u32 {
        (level << BITS) + slot(tick >> (level * BITS), 1 << BITS)
    }
}

impl<const BITS: u32, const LEVELS: u32> Scheme for Hierarchy<BITS, LEVELS> {
    const NAME: &'static str = "7-hierarchy";
    const RANGE: u64 = (1 << (BITS * LEVELS)) - 1;

    fn new(timers: &mut Timers) -> Self {
        timers.add_lists(LEVELS << BITS);
        Self
    }

    /// Links a timer into the lowest level that reaches its deadline, between one and all slots
    /// away. All is right too: the current slot was emptied when time entered it.
    fn start(&mut self, timers: &mut Timers, index: u32) {
        let due = timers.due(index);
        let level = (due - timers.now).checked_ilog2().map_or(0, |bit| bit / BITS);
        timers.push_back(Self::slot(level, due), index);
    }

    /// Time enters a slot of a level when all bits below that level are zero. The timers of that
    /// slot move down, each to the level that its distance needs now.
    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64)) {
        let entered = (timers.now.trailing_zeros() / BITS).min(LEVELS - 1);
        for level in (1..=entered).rev() {
            let slot = Self::slot(level, timers.now);
            while let Some(index) = timers.first(slot) {
                timers.unlink(index);
                self.start(timers, index);
            }
        }
        timers.expire_all(Self::slot(0, timers.now), expire);
    }
}
