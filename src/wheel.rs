//! Which entries are due: the hierarchical timing wheel of one core, in ticks.
//!
//! Scheme 7 of Varghese and Lauck ("Hashed and Hierarchical Timing Wheels", SOSP 1987), single-threaded, without
//! atomics, callbacks or a clock. A slot of the first level is one tick wide, a slot of every further level as wide as 2^`BITS`
//! slots of the level below. The first level is wide itself, because most timers of a server are under a minute; the levels
//! together reach every `u64` tick, so no deadline is out of range and there is no list of far timers to forget. With
//! the default geometry and ticks of a millisecond:
//!
//! | level | slots | a slot covers | the level reaches, at least |
//! |---|---|---|---|
//! | 0 | 131 072 | 1 ms | 2 minutes |
//! | 1 | 4 096 | 2 s | 70 minutes |
//! | 2 | 4 096 | 70 minutes | 99 days |
//! | 3 | 4 096 | 99 days | 557 years |
//! | 4 | 4 096 | 557 years | a million years |
//! | 5 | 4 096 | a million years | the end of `u64` |
//!
//! An entry goes to the lowest level that reaches its deadline. Before time comes to the start of a slot above the first
//! level, its entries are handed down, some per tick (a cascade that nobody notices); in the first level a slot holds one
//! tick's entries, so entries fire at exactly their tick at any distance. Slots without entries are skipped by a bitmap per level,
//! so an empty tick, or an empty year, costs some nanoseconds.
//!
//! Reading order: `level` (arithmetic), `storage` (the fields of an entry), `slot` (lists of entries),
//! `raw` (the wheel over indices), `advance` and `ahead` (how time moves), `entries` (the storage of a
//! `Wheel`), this file (the wheel over values), `check` (the invariants).

mod advance;
mod ahead;
#[cfg(any(test, debug_assertions))]
mod check;
mod entries;
mod level;
mod raw;
mod slot;
mod storage;

use core::{fmt, iter::FusedIterator};

use self::entries::Entries;
pub(crate) use self::raw::RawWheel;
#[cfg(feature = "std")]
pub(crate) use self::{
    raw::shard_levels,
    storage::{Links, Location, Placement, Storage},
};

/// A hierarchical timing wheel that holds values until their tick comes.
///
/// Time is a tick number, a plain `u64`; what a tick means is the caller's business. The wheel never fires anything by
/// itself: [`advance`](Self::advance) moves its time and hands out what has become due.
///
/// `BITS` is the number of bits of a slot number within a revolution (1 to 14) and `LEVELS` the number of levels; together
/// they must reach 64 bits, which is checked when the wheel is compiled. Memory: 24 bytes and an `Option` of the value per
/// entry, in pages that go back when they are empty; 4 bytes and a bit per slot, 0.8 MB with the default geometry, of which
/// the operating system provides what has been touched.
///
/// # Examples
///
/// ```
/// use corewheel::Wheel;
///
/// let mut wheel: Wheel<&str> = Wheel::new();
/// let lease = wheel.insert(30_000, "lease");
/// let retry = wheel.insert(250, "retry");
/// assert_eq!(wheel.next_deadline(), Some(250));
///
/// assert!(wheel.reset(retry, 400));
/// assert_eq!(wheel.remove(lease), Some("lease"));
/// assert_eq!(wheel.remove(lease), None);
///
/// assert_eq!(wheel.advance(399).next(), None);
/// assert_eq!(wheel.advance(1_000).next(), Some((400, "retry")));
/// assert!(wheel.is_empty());
/// ```
pub struct Wheel<T, const BITS: u32 = 11, const LEVELS: usize = 6> {
    raw: RawWheel<BITS, LEVELS>,
    entries: Entries<T>,
}

/// Names one entry of a [`Wheel`]. A key outlives its entry: a stale one finds nothing, never another entry.
///
/// A key is meant for the wheel that gave it; another wheel may find one of its own entries with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl<T> Wheel<T> {
    /// An empty wheel of the default geometry at tick 0. For another geometry use [`starting_at`](Self::starting_at).
    pub fn new() -> Self {
        Self::starting_at(0)
    }
}

impl<T, const BITS: u32, const LEVELS: usize> Wheel<T, BITS, LEVELS> {
    /// An empty wheel whose time is `now`.
    pub fn starting_at(now: u64) -> Self {
        Self { raw: RawWheel::starting_at(now), entries: Entries::new() }
    }

    /// Adds an entry that is due at tick `deadline`; a deadline that is not in the future counts as
    /// [`now`](Self::now). It is handed out by the first later [`advance`](Self::advance) that reaches its deadline,
    /// never by one that is still being iterated.
    ///
    /// Cost: constant; it allocates when it needs another page, of 512 entries.
    ///
    /// # Panics
    ///
    /// If all 2^25 - 1 indices are in use: live, or retired after 2^32 entries each.
    #[inline]
    pub fn insert(&mut self, deadline: u64, value: T) -> Key {
        let key = self.store(value);
        self.raw.link(&self.entries, key.index, deadline);
        key
    }

    /// As [`insert`](Self::insert), for an entry that may fire at any tick from `deadline` to `slack` ticks later. It
    /// fires at the one of them that is a multiple of the largest power of two: most entries with some slack meet there,
    /// so that one wake-up serves many, and an entry that is far away need not cascade on its way.
    ///
    /// Cost: as [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_within(&mut self, deadline: u64, slack: u64, value: T) -> Key {
        let key = self.store(value);
        self.raw.link_within(&self.entries, key.index, deadline, slack);
        key
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // A key is two numbers, which a function would return in memory.
    fn store(&mut self, value: T) -> Key {
        let Some((index, generation)) = self.entries.try_insert(value) else {
            panic!("a wheel was asked for more entries than it can hold")
        };
        Key { index, generation }
    }

    /// Takes an entry out and gives its value back; `None` if it has been handed out or removed before.
    ///
    /// Cost: constant.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        if !self.entries.contains(key.index, key.generation) {
            return None;
        }
        self.raw.unlink(&self.entries, key.index);
        self.entries.remove(key.index)
    }

    /// Moves an entry to another deadline, earlier or later; the key stays valid. False if the entry has been handed
    /// out or removed before.
    ///
    /// Cost: constant. To a later deadline it is one store: the entry waits where it is and is moved when its old tick
    /// comes, for which [`next_deadline`](Self::next_deadline) wakes a sleeper once.
    #[inline]
    pub fn reset(&mut self, key: Key, deadline: u64) -> bool {
        let placement = self.entries.placement(key.index, key.generation);
        let Some((own_deadline, location)) = placement else { return false };
        if self.raw.can_defer(own_deadline.get(), location, deadline) {
            own_deadline.set(deadline);
        } else {
            self.raw.relink_at_once(&self.entries, key.index, deadline);
        }
        true
    }

    /// Moves time to `now` and hands out what is due, in the order of the deadlines; the order within a tick is
    /// unspecified. An earlier `now` than the wheel's is held at the wheel's.
    ///
    /// An iterator dropped before its end loses nothing: the rest comes first in the next call.
    ///
    /// Cost: constant per entry handed out; a share of the entries that are handed down from upper levels (each at most
    /// `LEVELS` - 1 times over its life), at most 8,192 in a call that comes no later than [`next_deadline`](Self::next_deadline)
    /// asks for; at most 96 entries that were reset away from each tick that passes; a few nanoseconds for any stretch of time
    /// in which nothing is due.
    #[inline]
    pub fn advance(&mut self, now: u64) -> Due<'_, T, BITS, LEVELS> {
        self.advance_within(now, usize::MAX)
    }

    /// As [`advance`](Self::advance), but touches at most `budget` entries: handed out, or moved. What is left comes first in
    /// the next call, in order; [`is_behind`](Self::is_behind) tells whether anything is.
    #[inline]
    pub fn advance_within(&mut self, now: u64, budget: usize) -> Due<'_, T, BITS, LEVELS> {
        self.entries.turn();
        self.raw.begin(&self.entries, now, budget);
        Due { wheel: self }
    }

    /// Whether the last [`advance`](Self::advance) has left something that was due: its budget was used up, or its iterator
    /// dropped before its end.
    pub fn is_behind(&self) -> bool {
        self.raw.is_behind()
    }

    /// The tick until which there is nothing to do; `None` if the wheel is empty.
    ///
    /// It is never later than the earliest deadline. It is that deadline if its entry is in the first level; otherwise
    /// it may be the start of the slot that the entry is in, at which the wheel wants to be advanced once in order to
    /// look closer: at most once per level on the way to a deadline, once per tick that entries were reset away from (once
    /// per entry, if it shared that tick with more than 96), and not at all for entries that have left. If more than 8,192
    /// entries share a slot of an upper level, it is also earlier by a tick for each 8,192 of them, so that no call moves more.
    pub fn next_deadline(&self) -> Option<u64> {
        self.raw.next_deadline()
    }

    /// The wheel's time: the latest tick it was advanced to.
    pub fn now(&self) -> u64 {
        self.raw.now()
    }

    /// How many entries are live.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether no entry is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries have been placed, moved, handed out or removed since the wheel was made: its work, counted.
    pub fn touched(&self) -> u64 {
        self.raw.touched()
    }

    /// Verifies the whole structure. For tests: its cost grows with the geometry and the entries.
    ///
    /// # Panics
    ///
    /// If an invariant is broken.
    #[cfg(any(test, debug_assertions))]
    #[doc(hidden)]
    pub fn check(&self) {
        self.entries.check();
        self.raw.check(&self.entries, self.entries.indices());
    }
}

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const BITS: u32, const LEVELS: usize> fmt::Debug for Wheel<T, BITS, LEVELS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("now", &self.now())
            .field("len", &self.len())
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}

/// What [`Wheel::advance`] hands out: deadline and value of each due entry.
#[must_use = "lazy: what is not taken comes first in the next call"]
pub struct Due<'wheel, T, const BITS: u32, const LEVELS: usize> {
    wheel: &'wheel mut Wheel<T, BITS, LEVELS>,
}

impl<T, const BITS: u32, const LEVELS: usize> Iterator for Due<'_, T, BITS, LEVELS> {
    type Item = (u64, T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let wheel = &mut *self.wheel;
        let (index, deadline) = wheel.raw.pop_due(&wheel.entries)?;
        wheel.entries.remove(index).map(|value| (deadline, value))
    }
}

impl<T, const BITS: u32, const LEVELS: usize> FusedIterator for Due<'_, T, BITS, LEVELS> {}

impl<T, const BITS: u32, const LEVELS: usize> fmt::Debug for Due<'_, T, BITS, LEVELS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due").field("wheel", &self.wheel).finish()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
#[path = "../tests/model/mod.rs"]
mod model;

#[cfg(test)]
mod tests;
