//! Scheme 7 of Varghese and Lauck: hierarchical timing wheels.
//!
//! A slot of one level is as wide as the whole level below, like the hands of a clock. A timer starts in the lowest
//! level that reaches its deadline. When time enters a slot of a higher level, the timers of that slot move down
//! (they cascade), until they lie in a slot one tick wide.
//!
//! - start: O(levels), finds the level; with slots a power of two it is a matter of shifts.
//! - stop: O(1), unlinks.
//! - tick: O(1) on average, looks into one slot, and cascades one when a level has gone round. A timer moves at most
//!   once per level, but all timers of a slot move in the same tick: the tick that cascades a high level is a long
//!   one.
//! - expiry: O(1), all that is in the lowest slot is due.
//! - accuracy: exact. Range: slots to the power of levels, here 64^6 (2 years of milliseconds); longer is refused.

use super::store::Timers;
use super::{Accuracy, Cost, Handle, Scheme};

/// `LEVELS` rings of 2^`BITS` slots.
#[derive(Debug)]
pub struct Hierarchy<const BITS: u32 = 6, const LEVELS: u32 = 6> {
    slots: Timers,
    now: u64,
}

impl<const BITS: u32, const LEVELS: u32> Hierarchy<BITS, LEVELS> {
    /// The slot of a level in which a moment lies.
    #[expect(clippy::cast_possible_truncation, reason = "the number of slots is small")]
    fn slot(level: u32, moment: u64) -> u32 {
        let within = (moment >> (level * BITS)) & ((1 << BITS) - 1);
        (level << BITS) + within as u32
    }

    /// Links a timer into the lowest level that reaches its deadline.
    ///
    /// Of the level that it needs, a timer is between one and all slots away. All is right too: the slot of this
    /// moment was emptied when time entered it.
    fn place(&mut self, index: u32) {
        let due = self.slots.due(index);
        let distance = due - self.now;
        let level = distance.checked_ilog2().map_or(0, |bit| bit / BITS);
        self.slots.push_back(Self::slot(level, due), index);
    }

    /// Moves the timers of the slot that time has entered down, each to the level that its distance needs now.
    fn cascade(&mut self, level: u32) {
        let slot = Self::slot(level, self.now);
        while let Some(index) = self.slots.first(slot) {
            self.slots.unlink(index);
            self.place(index);
        }
    }
}

impl<const BITS: u32, const LEVELS: u32> Scheme for Hierarchy<BITS, LEVELS> {
    const NAME: &'static str = "7-hierarchy";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const RANGE: u64 = (1 << (BITS * LEVELS)) - 1;
    const COST: Cost = Cost::CONSTANT;

    fn new() -> Self {
        Self { slots: Timers::new(LEVELS << BITS), now: 0 }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let index = self.slots.allocate(self.now + interval.max(1), id);
        self.place(index);
        Some(self.slots.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        self.slots.stop(handle)
    }

    /// Time enters a slot of a level when all bits below that level are zero.
    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.now += 1;
        let entered = (self.now.trailing_zeros() / BITS).min(LEVELS - 1);
        for level in (1..=entered).rev() {
            self.cascade(level);
        }
        self.slots.expire_all(Self::slot(0, self.now), expire);
    }

    fn len(&self) -> usize {
        self.slots.len()
    }
}
