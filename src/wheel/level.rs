//! Converts ticks to levels and slots.
//!
//! A level is a ring of slots. The slots of a level are *numbered* consecutively from the slot of
//! tick 0, and the numbers never wrap. A slot's *position* in the ring is its number modulo the
//! ring's length. A *revolution* is 2^`LEVEL_BITS` consecutive slots of one level. A revolution
//! covers the same ticks as one slot of the level above.
//!
//! A ring has room for the current revolution and at least one following revolution. A level
//! *covers* the ticks of the revolutions in its ring. The *upper levels* are all levels except the
//! first. An upper level covers only the current and the next revolution.

use core::ops::Range;

use crate::limits::{FIRST_LEVEL_EXTRA_BITS, SHARD_WHEEL_LEVEL_BITS, SHARD_WHEEL_LEVELS};

/// Returns, of the ticks from `first_tick` to `last_tick`, the tick that is divisible by the
/// largest power of two.
pub(crate) fn coarsest_tick(first_tick: u64, last_tick: u64) -> u64 {
    debug_assert!(1 <= first_tick && first_tick <= last_tick);
    let highest_differing_bit = ((first_tick - 1) ^ last_tick).ilog2();
    last_tick >> highest_differing_bit << highest_differing_bit
}

/// The [`Geometry`] with this `LEVEL_BITS` and `LEVELS`.
#[derive(Debug)]
pub(crate) struct Levels<const LEVEL_BITS: u32, const LEVELS: usize>;

/// The geometry of a shard's wheel.
pub(crate) type ShardLevels = Levels<SHARD_WHEEL_LEVEL_BITS, SHARD_WHEEL_LEVELS>;

#[allow(clippy::cast_possible_truncation, reason = "a valid geometry has at most 64 levels")]
impl<const LEVEL_BITS: u32, const LEVELS: usize> Geometry for Levels<LEVEL_BITS, LEVELS> {
    const LEVEL_BITS: u32 = LEVEL_BITS;
    const LEVEL_COUNT: u32 = LEVELS as u32;
}

/// Converts ticks to levels and slots.
#[allow(clippy::cast_possible_truncation, reason = "slot indices are below 2^23")]
pub(crate) trait Geometry {
    const LEVEL_BITS: u32;
    const LEVEL_COUNT: u32;
    /// The number of slots of the first level.
    const FIRST_LEVEL_SLOT_COUNT: u32 = 1 << (Self::LEVEL_BITS + FIRST_LEVEL_EXTRA_BITS);
    /// The number of slots of each upper level.
    const SLOTS_PER_UPPER_LEVEL: u32 = 2 << Self::LEVEL_BITS;
    /// Rejects an invalid geometry at compile time.
    const ASSERT_VALID: () = {
        assert!(
            Self::LEVEL_BITS >= 1 && Self::LEVEL_BITS <= 14,
            "a revolution has 2 to 2^14 slots"
        );
        assert!(
            Self::LEVEL_BITS * (Self::LEVEL_COUNT - 1) < 64,
            "a level beyond 64 bits could never be used"
        );
        assert!(
            Self::LEVEL_BITS * Self::LEVEL_COUNT >= 64,
            "the levels must cover every tick: LEVEL_BITS * LEVELS must be at least 64"
        );
    };
    /// The *late* slot, which the module `raw` defines.
    const LATE_SLOT: u32 =
        Self::FIRST_LEVEL_SLOT_COUNT + (Self::LEVEL_COUNT - 1) * Self::SLOTS_PER_UPPER_LEVEL;

    /// Returns the number of the slot of `level` that covers `tick`. Slot numbers never wrap.
    #[inline]
    fn slot_number(level: u32, tick: u64) -> u64 {
        tick >> (Self::LEVEL_BITS * level)
    }

    #[inline]
    fn slot_start(level: u32, number: u64) -> u64 {
        number << (Self::LEVEL_BITS * level)
    }

    #[inline]
    fn position_in_ring(level: u32, number: u64) -> u32 {
        let ring_len =
            if level == 0 { Self::FIRST_LEVEL_SLOT_COUNT } else { Self::SLOTS_PER_UPPER_LEVEL };
        number as u32 & (ring_len - 1)
    }

    /// Returns the index of slot `number` of a level.
    #[inline]
    fn slot_index(level: u32, number: u64) -> u32 {
        let first_slot = if level == 0 {
            0
        } else {
            Self::FIRST_LEVEL_SLOT_COUNT + (level - 1) * Self::SLOTS_PER_UPPER_LEVEL
        };
        first_slot + Self::position_in_ring(level, number)
    }

    /// Returns the indices of a level's slots.
    #[inline]
    fn slot_indices_of_level(level: u32) -> Range<u32> {
        Self::slot_index(level, 0)..Self::slot_index(level + 1, 0)
    }

    /// Returns the index of the slot that covers `tick` in the first level.
    #[inline]
    fn first_level_slot_at(tick: u64) -> u32 {
        tick as u32 & (Self::FIRST_LEVEL_SLOT_COUNT - 1)
    }

    /// Returns the last tick that the first level covers when the time is `now`.
    fn last_first_level_tick(now: u64) -> u64 {
        let revolution_start = Self::slot_start(1, Self::slot_number(1, now));
        revolution_start.saturating_add(u64::from(Self::FIRST_LEVEL_SLOT_COUNT) - 1)
    }

    /// Returns true if `level` covers `deadline` when the time is `now`.
    #[inline]
    fn level_covers(level: u32, now: u64, deadline: u64) -> bool {
        debug_assert!(now <= deadline);
        let revolution_number = |tick| Self::slot_number(level, tick) >> Self::LEVEL_BITS;
        if level == 0 {
            deadline <= Self::last_first_level_tick(now)
        } else {
            revolution_number(deadline) - revolution_number(now) <= 1
        }
    }

    /// Returns the lowest level that covers `deadline`. The first level must not cover this
    /// deadline. In the returned level, the deadline's slot is at least two slots after the current
    /// slot. So a new entry never goes to the slot after the current one, which may be cascading.
    #[inline]
    fn upper_level_of(now: u64, deadline: u64) -> u32 {
        let covers = |&level: &u32| Self::level_covers(level, now, deadline);
        (1..Self::LEVEL_COUNT).find(covers).expect("the last level covers all")
    }

    /// Returns the slots of upper levels that start at `tick`.
    #[inline]
    fn upper_slots_starting_at(tick: u64) -> impl Iterator<Item = u32> {
        let highest_level = tick.trailing_zeros().min(63) / Self::LEVEL_BITS;
        (1..=highest_level)
            .map(move |level| Self::slot_index(level, Self::slot_number(level, tick)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TinyLevels = Levels<2, 32>;

    #[test]
    fn upper_level_of_returns_the_lowest_level_that_covers() {
        let ticks = if cfg!(miri) { 20 } else { 300 };
        for now in 0..ticks {
            for deadline in (now..now + ticks)
                .filter(|&deadline| deadline > TinyLevels::last_first_level_tick(now))
            {
                let level = TinyLevels::upper_level_of(now, deadline);
                let slots_ahead =
                    TinyLevels::slot_number(level, deadline) - TinyLevels::slot_number(level, now);
                assert!(
                    slots_ahead < TinyLevels::SLOTS_PER_UPPER_LEVEL.into(),
                    "two slot numbers share a position"
                );
                assert!(slots_ahead > 1, "the current or the next slot");
                assert!(
                    !TinyLevels::level_covers(level - 1, now, deadline),
                    "a lower level covers"
                );
            }
        }
        assert_eq!(Levels::<11, 6>::upper_level_of(0, u64::MAX), 5);
        assert_eq!(Levels::<3, 22>::upper_level_of(0, u64::MAX), 20);
    }

    #[test]
    fn upper_slots_starting_at_agrees_with_slot_start() {
        for tick in 1..1000 {
            let starting_slots = (1..32)
                .map(|level| (level, TinyLevels::slot_number(level, tick)))
                .filter(|&(level, number)| TinyLevels::slot_start(level, number) == tick)
                .map(|(level, number)| TinyLevels::slot_index(level, number));
            assert!(TinyLevels::upper_slots_starting_at(tick).eq(starting_slots));
        }
        assert_eq!(TinyLevels::upper_slots_starting_at(0).count(), 31);
        assert_eq!(Levels::<11, 6>::upper_slots_starting_at(0).count(), 5);
    }
}
