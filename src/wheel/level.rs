//! The arithmetic of levels, and which of a level's slots are occupied.
//!
//! A slot's *number* counts slots of its level since tick 0 and never wraps; its *position* in the level is the number
//! modulo 2^`BITS`.

/// The arithmetic of one geometry.
#[derive(Debug)]
pub(super) struct Geometry<const BITS: u32, const LEVELS: usize>;

impl<const BITS: u32, const LEVELS: usize> Geometry<BITS, LEVELS> {
    /// Slots of a level.
    pub(super) const SLOTS: u64 = 1 << BITS;
    const MASK: u64 = Self::SLOTS - 1;

    /// Evaluated where a wheel is made: a geometry that does not fit does not compile.
    pub(super) const VALID: () = {
        assert!(BITS >= 1 && BITS <= 18, "a level has 2 to 2^18 slots");
        assert!(Self::shift(LEVELS - 1) < 64, "a level beyond 64 bits could never be used");
        assert!(Self::shift(LEVELS) >= 64, "the levels must reach every tick: BITS * LEVELS must be at least 64");
    };

    const fn shift(level: usize) -> u32 {
        // Levels are at most 64, so the cast is exact.
        #[allow(clippy::cast_possible_truncation)]
        let level = level as u32;
        BITS * level
    }

    /// The number of the slot of `level` that covers `tick`.
    pub(super) fn number(level: usize, tick: u64) -> u64 {
        tick >> Self::shift(level)
    }

    /// The first tick of slot `number` of `level`.
    pub(super) fn start(level: usize, number: u64) -> u64 {
        number << Self::shift(level)
    }

    /// The position of slot `number` in its level.
    #[allow(clippy::cast_possible_truncation)] // A position has at most 18 bits.
    pub(super) fn position(number: u64) -> u32 {
        (number & Self::MASK) as u32
    }

    /// The lowest level that reaches `deadline` from `now`: there, fewer than 2^`BITS` slots lie between them, so no two
    /// revolutions ever share a slot. From the second level on the slot is not the current one.
    pub(super) fn level_of(now: u64, deadline: u64) -> usize {
        debug_assert!(now <= deadline);
        let reaches = |level: usize| Self::number(level, deadline) - Self::number(level, now) < Self::SLOTS;
        (0..LEVELS).find(|&level| reaches(level)).unwrap_or_else(|| unreachable!("the last level reaches all"))
    }

    /// The highest level of which a slot starts at `tick`.
    pub(super) fn highest_starting_at(tick: u64) -> usize {
        let zeros = tick.trailing_zeros().min(63);
        (zeros / BITS) as usize
    }

    /// The number of the first occupied slot of `level` after the one that covers `now`.
    pub(super) fn next_occupied(occupied: &Occupancy, level: usize, now: u64) -> Option<u64> {
        let current = Self::number(level, now);
        let from = Self::position(current.wrapping_add(1));
        let found = occupied.at_or_after(from).or_else(|| occupied.at_or_after(0))?;
        let distance = u64::from(found.wrapping_sub(from)) & Self::MASK;
        Some(current + 1 + distance)
    }
}

/// One bit per slot of a level, and one per 64 of those, and so on: the next occupied slot is found in at most six looks.
#[derive(Debug)]
pub(super) struct Occupancy {
    tiers: [Box<[u64]>; 3],
}

impl Occupancy {
    pub(super) fn new(slots: usize) -> Self {
        let words = |bits: usize| vec![0; bits.div_ceil(64)].into_boxed_slice();
        Self { tiers: [words(slots), words(slots.div_ceil(64)), words(slots.div_ceil(64 * 64))] }
    }

    pub(super) fn set(&mut self, position: u32) {
        let mut at = position;
        for tier in &mut self.tiers {
            tier[word_of(at)] |= bit_of(at);
            at /= 64;
        }
    }

    pub(super) fn clear(&mut self, position: u32) {
        let mut at = position;
        for tier in &mut self.tiers {
            let word = &mut tier[word_of(at)];
            *word &= !bit_of(at);
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn contains(&self, position: u32) -> bool {
        self.tiers[0][word_of(position)] & bit_of(position) != 0
    }

    /// The first occupied position from `position` on. Looks up through the tiers until one has a bit further on, then
    /// down again to the first bit under it.
    pub(super) fn at_or_after(&self, position: u32) -> Option<u32> {
        let mut at = position;
        for (height, tier) in self.tiers.iter().enumerate() {
            let word = tier.get(word_of(at)).map_or(0, |word| word >> (at % 64));
            if word != 0 {
                return Some(self.first_under(height, at + word.trailing_zeros()));
            }
            at = at / 64 + 1;
        }
        None
    }

    fn first_under(&self, height: usize, at: u32) -> u32 {
        self.tiers[..height].iter().rev().fold(at, |at, tier| at * 64 + tier[at as usize].trailing_zeros())
    }
}

fn word_of(position: u32) -> usize {
    position as usize / 64
}

fn bit_of(position: u32) -> u64 {
    1 << (position % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    type Tiny = Geometry<2, 32>;

    #[test]
    fn every_deadline_has_a_level_and_a_free_slot() {
        let ticks = if cfg!(miri) { 20 } else { 300 };
        for now in 0..ticks {
            for deadline in now..now + ticks {
                let level = Tiny::level_of(now, deadline);
                let ahead = Tiny::number(level, deadline) - Tiny::number(level, now);
                assert!(ahead < Tiny::SLOTS, "two revolutions would share a slot");
                assert!(level == 0 || ahead > 0, "a slot that has begun is never used above the first level");
                assert!(
                    level == 0 || Tiny::number(level - 1, deadline) - Tiny::number(level - 1, now) >= Tiny::SLOTS
                );
            }
        }
        assert_eq!(Geometry::<16, 4>::level_of(0, u64::MAX), 3);
        assert_eq!(Geometry::<3, 22>::level_of(0, u64::MAX), 21);
        assert_eq!(Geometry::<1, 64>::level_of(u64::MAX - 1, u64::MAX), 0);
    }

    #[test]
    fn slots_start_where_their_numbers_say() {
        for tick in 0..1000 {
            let highest = Tiny::highest_starting_at(tick);
            for level in 0..8 {
                let starts = Tiny::start(level, Tiny::number(level, tick)) == tick;
                assert_eq!(starts, level <= highest || tick == 0);
            }
        }
        assert!(Tiny::highest_starting_at(0) < 32);
        assert!(Geometry::<16, 4>::highest_starting_at(0) < 4);
    }

    #[test]
    fn occupancy_agrees_with_a_set() {
        // Miri takes a thousand times as long.
        let (largest, rounds) = if cfg!(miri) { (12, 50) } else { (18, 3000) };
        for bits in [1, 5, 6, 7, 12, 13, 18].into_iter().filter(|&bits| bits <= largest) {
            let slots = 1_u64 << bits;
            let mut occupancy = Occupancy::new(1 << bits);
            let mut set = BTreeSet::new();
            let mut random = 1_u64;
            for _ in 0..rounds {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let position = u32::try_from((random >> 33) % slots).expect("small");
                if set.insert(position) {
                    occupancy.set(position);
                } else {
                    set.remove(&position);
                    occupancy.clear(position);
                }
                let from = u32::try_from((random >> 13) % slots).expect("small");
                assert_eq!(occupancy.at_or_after(from), set.range(from..).next().copied());
            }
        }
    }
}
