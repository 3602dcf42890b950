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

use crate::limits::FIRST_LEVEL_EXTRA_BITS;

/// Returns, of the ticks from `first_tick` to `last_tick`, the tick that is divisible by the
/// largest power of two.
pub(crate) fn coarsest_tick(first_tick: u64, last_tick: u64) -> u64 {
    debug_assert!(1 <= first_tick && first_tick <= last_tick);
    let highest_differing_bit = ((first_tick - 1) ^ last_tick).ilog2();
    last_tick >> highest_differing_bit << highest_differing_bit
}

/// Converts ticks to levels and slots, for wheels with this `LEVEL_BITS` and `LEVELS`.
#[derive(Debug)]
pub(super) struct Geometry<const LEVEL_BITS: u32, const LEVELS: usize>;

impl<const LEVEL_BITS: u32, const LEVELS: usize> Geometry<LEVEL_BITS, LEVELS> {
    /// The number of slots of the first level.
    pub(super) const FIRST_LEVEL_SLOT_COUNT: usize = 1 << (LEVEL_BITS + FIRST_LEVEL_EXTRA_BITS);
    /// The number of slots of each upper level.
    pub(super) const SLOTS_PER_UPPER_LEVEL: usize = 2 << LEVEL_BITS;
    /// Rejects an invalid geometry at compile time.
    pub(super) const ASSERT_VALID: () = {
        assert!(LEVEL_BITS >= 1 && LEVEL_BITS <= 14, "a revolution has 2 to 2^14 slots");
        assert!(
            Self::slot_width_log2(LEVELS - 1) < 64,
            "a level beyond 64 bits could never be used"
        );
        assert!(
            Self::slot_width_log2(LEVELS) >= 64,
            "the levels must cover every tick: LEVEL_BITS * LEVELS must be at least 64"
        );
    };

    const fn slot_width_log2(level: usize) -> u32 {
        // There are at most 64 levels, so the cast is exact.
        #[allow(clippy::cast_possible_truncation)]
        let level = level as u32;
        LEVEL_BITS * level
    }

    /// Returns the number of the slot of `level` that covers `tick`. Slot numbers never wrap.
    #[inline]
    pub(super) fn slot_number(level: usize, tick: u64) -> u64 {
        tick >> Self::slot_width_log2(level)
    }

    #[inline]
    pub(super) fn slot_start(level: usize, number: u64) -> u64 {
        number << Self::slot_width_log2(level)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // A position has at most 20 bits.
    pub(super) const fn position_in_ring(level: usize, number: u64) -> u32 {
        let ring_len =
            if level == 0 { Self::FIRST_LEVEL_SLOT_COUNT } else { Self::SLOTS_PER_UPPER_LEVEL };
        (number & (ring_len as u64 - 1)) as u32
    }

    /// Returns the indices of a level's slots.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Slot indices are below 2^23.
    pub(super) fn slot_indices_of_level(level: usize) -> Range<u32> {
        if level == 0 {
            0..Self::FIRST_LEVEL_SLOT_COUNT as u32
        } else {
            Self::upper_slot(level, 0)..Self::upper_slot(level + 1, 0)
        }
    }

    /// Returns the index of the slot that covers `tick` in the first level.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // A first-level slot index has at most 20 bits.
    pub(super) fn first_level_slot_at(tick: u64) -> u32 {
        tick as u32 & (Self::FIRST_LEVEL_SLOT_COUNT as u32 - 1)
    }

    /// Returns the index of slot `number` of an upper level.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Slot indices are below 2^23.
    pub(super) const fn upper_slot(level: usize, number: u64) -> u32 {
        let first_slot = Self::FIRST_LEVEL_SLOT_COUNT + (level - 1) * Self::SLOTS_PER_UPPER_LEVEL;
        first_slot as u32 + Self::position_in_ring(level, number)
    }

    /// The index of the *late* slot, which the module `raw` defines.
    pub(super) const LATE_SLOT: u32 = Self::upper_slot(LEVELS, 0);

    /// Returns the last tick that the first level covers when the time is `now`.
    pub(super) fn last_first_level_tick(now: u64) -> u64 {
        let revolution_start = Self::slot_start(1, Self::slot_number(1, now));
        revolution_start.saturating_add(Self::FIRST_LEVEL_SLOT_COUNT as u64 - 1)
    }

    /// Returns true if `level` covers `deadline` when the time is `now`.
    #[inline]
    pub(super) fn level_covers(level: usize, now: u64, deadline: u64) -> bool {
        debug_assert!(now <= deadline);
        let revolution_number = |tick| Self::slot_number(level, tick) >> LEVEL_BITS;
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
    pub(super) fn upper_level_of(now: u64, deadline: u64) -> usize {
        if Self::level_covers(1, now, deadline) {
            1
        } else {
            Self::upper_level_of_slow(now, deadline)
        }
    }

    #[cold]
    fn upper_level_of_slow(now: u64, deadline: u64) -> usize {
        let covers = |&level: &usize| Self::level_covers(level, now, deadline);
        (2..LEVELS).find(covers).expect("the last level covers all")
    }

    /// Returns the highest level that has a slot starting at `tick`.
    pub(super) fn highest_level_starting_at(tick: u64) -> usize {
        let trailing_zeros = tick.trailing_zeros().min(63);
        (trailing_zeros / LEVEL_BITS) as usize
    }

    /// Returns the slots of upper levels that start at `tick`.
    #[inline]
    pub(super) fn upper_slots_starting_at(tick: u64) -> impl Iterator<Item = u32> {
        (1..=Self::highest_level_starting_at(tick))
            .map(move |level| Self::upper_slot(level, Self::slot_number(level, tick)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TinyGeometry = Geometry<2, 32>;

    #[test]
    fn upper_level_of_returns_the_lowest_level_that_covers() {
        let ticks = if cfg!(miri) { 20 } else { 300 };
        for now in 0..ticks {
            for deadline in (now..now + ticks)
                .filter(|&deadline| deadline > TinyGeometry::last_first_level_tick(now))
            {
                let level = TinyGeometry::upper_level_of(now, deadline);
                let slots_ahead = TinyGeometry::slot_number(level, deadline)
                    - TinyGeometry::slot_number(level, now);
                assert!(
                    slots_ahead < TinyGeometry::SLOTS_PER_UPPER_LEVEL as u64,
                    "two slot numbers share a position"
                );
                assert!(slots_ahead > 1, "the current or the next slot");
                assert!(
                    !TinyGeometry::level_covers(level - 1, now, deadline),
                    "a lower level covers"
                );
            }
        }
        assert_eq!(Geometry::<11, 6>::upper_level_of(0, u64::MAX), 5);
        assert_eq!(Geometry::<3, 22>::upper_level_of(0, u64::MAX), 20);
    }

    #[test]
    fn highest_level_starting_at_agrees_with_slot_start() {
        for tick in 0..1000 {
            let highest_level = TinyGeometry::highest_level_starting_at(tick);
            for level in 0..8 {
                let starts_at_tick =
                    TinyGeometry::slot_start(level, TinyGeometry::slot_number(level, tick)) == tick;
                assert_eq!(starts_at_tick, level <= highest_level || tick == 0);
            }
        }
        assert!(TinyGeometry::highest_level_starting_at(0) < 32);
        assert!(Geometry::<11, 6>::highest_level_starting_at(0) < 6);
    }
}
