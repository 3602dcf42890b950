//! The timer wheel of Linux since 4.8 (`kernel/time/timer.c`): levels as in scheme 7, but nothing ever cascades.
//!
//! 9 levels of 64 slots (for HZ > 100); a slot of one level is 8 times as wide as one of the level below, so that
//! the levels overlap and a level is entered when 63 slots of the one below do not suffice. A timer stays in its slot
//! and fires when time has passed the slot's end: never early, and the later the farther away it was. That suits
//! timeouts, which are mostly cancelled and need no exactness.
//!
//! - start: O(levels), finds the level by comparisons.
//! - stop: O(1), unlinks.
//! - tick: O(1), looks into a slot of level 0, every 8th tick into one of level 1, every 64th of level 2, ...
//! - expiry: O(1), all that is in the slot fires.
//! - accuracy: one tick late in level 0 (the kernel cannot know how much of the current tick is left); above, late by
//!   at most the width of a slot, which is at most 8/63 of the interval: the "12.5 %" of the kernel's comments.
//! - range: 63 * 8^8 ticks, 12 days of milliseconds. The kernel fires a longer interval at the end of its range,
//!   which is early; here it is refused.
//!
//! Left out: the bitmap of slots in use, from which an idle kernel learns how long it may sleep.

use super::store::Timers;
use super::{Accuracy, Cost, Handle, Scheme};

const LEVELS: u32 = 9;
const SLOTS: u32 = 64;
/// A slot is 2^3 times as wide as one of the level below.
const SHIFT: u32 = 3;

/// `LEVELS` rings of `SLOTS` slots.
#[derive(Debug)]
pub struct Linux {
    slots: Timers,
    /// The first tick that has not been served.
    next: u64,
}

/// A deadline that is so far away is beyond a level.
const fn reach(level: u32) -> u64 {
    (SLOTS as u64 - 1) << (level * SHIFT)
}

/// The slot of a level in which a moment lies.
#[expect(clippy::cast_possible_truncation, reason = "less than SLOTS")]
fn slot(level: u32, moment: u64) -> u32 {
    level * SLOTS + ((moment >> (level * SHIFT)) % u64::from(SLOTS)) as u32
}

impl Scheme for Linux {
    const NAME: &'static str = "linux";
    const ACCURACY: Accuracy = Accuracy::Fraction { numerator: 8, denominator: 63 };
    const RANGE: u64 = reach(LEVELS - 1);
    const COST: Cost = Cost::CONSTANT;

    fn new() -> Self {
        Self { slots: Timers::new(LEVELS * SLOTS), next: 1 }
    }

    /// The slot is the one behind the deadline's own, which begins when the deadline has passed for certain.
    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let distance = interval.max(1) - 1;
        let due = self.next + distance;
        let level = (0..LEVELS).find(|&level| distance < reach(level))?;
        let index = self.slots.allocate(due, id);
        self.slots.push_back(slot(level, due + (1 << (level * SHIFT))), index);
        Some(self.slots.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        self.slots.stop(handle)
    }

    /// Time enters a slot of a level when all bits below that level are zero.
    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        let entered = (self.next.trailing_zeros() / SHIFT).min(LEVELS - 1);
        for level in 0..=entered {
            self.slots.expire_all(slot(level, self.next), expire);
        }
        self.next += 1;
    }

    fn len(&self) -> usize {
        self.slots.len()
    }
}
