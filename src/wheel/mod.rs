//! A hierarchical timing wheel of entries with deadlines.
//!
//! The wheel implements scheme 7 of Varghese and Lauck ("Hashed and Hierarchical Timing Wheels",
//! SOSP 1987). The wheel is single-threaded, without atomics, callbacks or a clock. A slot of the
//! first level is one tick wide. A slot of any other level is as wide as 2^`LEVEL_BITS` slots of
//! the level below. Together the levels cover every `u64` tick. With the default geometry and a
//! tick of a millisecond, the levels are:
//!
//! | level | slots | a slot covers | the level covers, at least |
//! |---|---|---|---|
//! | 0 | 131,072 | 1 ms | 2 minutes |
//! | 1 | 4,096 | 2 s | 70 minutes |
//! | 2 | 4,096 | 70 minutes | 99 days |
//! | 3 | 4,096 | 99 days | 557 years |
//! | 4 | 4,096 | 557 years | a million years |
//! | 5 | 4,096 | a million years | the end of `u64` |
//!
//! A new entry goes to the lowest level that covers its deadline, or to a separate list if the
//! entry is already due. When a slot above the first level starts, or earlier, its entries
//! *cascade*: they move to lower levels, in portions, so that each `advance` stays short. Each
//! entry expires from the first level, so deadlines are exact to the tick. A bitmap marks the
//! occupied slots.

#[cfg(any(test, debug_assertions))]
mod check;
mod entries;
mod level;
mod prefetcher;
mod raw;
mod slot;
mod storage;

use alloc::vec::Vec;
use core::{fmt, iter::FusedIterator};

use self::{
    entries::Entries,
    level::{Geometry, Levels},
};
pub(crate) use self::{
    level::{ShardLevels, coarsest_tick},
    raw::{RawWheel, shard_level_geometry},
    storage::{Entry, Links, Location, Storage},
};

/// A hierarchical timing wheel that holds values until their deadlines.
///
/// Time is a tick number, a `u64`; the caller decides how long a tick is. The wheel has no clock
/// and no thread: only [`advance`](Self::advance) moves the wheel's time, and returns the due
/// entries.
///
/// A wheel is deterministic: with one version of corewheel, the same calls return the same keys,
/// and the same entries in the same order.
///
/// A slot of each level above the first covers as many ticks as 2^`LEVEL_BITS` slots of the level
/// below. `LEVEL_BITS` is 1 to 14. `LEVELS` must be the smallest number for which
/// `LEVEL_BITS * LEVELS` is at least 64; other geometries do not compile.
///
/// Memory: an entry takes 24 bytes plus the value, rounded up to a multiple of 8 bytes or of the
/// value's alignment. A page has 4,096 entries. The wheel keeps the first page and at most two
/// other empty pages, or more after [`reserve`](Self::reserve). The slots of the default geometry
/// take 1.2 MB of address space, but most operating systems provide memory only for the parts in
/// use. Without virtual memory, use a narrower geometry: the slots of `Wheel<T, 6, 11>` take 39 kB.
/// The first page takes at least 98 kB in any geometry, and 131 kB if a value takes 1 to 8 bytes.
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
///
/// This loop of a device reads a millisecond counter that wraps at 2^32, and blinks a light every
/// 100 ms:
///
/// ```
/// use corewheel::Wheel;
///
/// # let mut counter = 0_u32;
/// # let mut read_counter = || { counter = counter.wrapping_add(40); counter };
/// let mut wheel: Wheel<&str, 6, 11> = Wheel::starting_at(0);
/// wheel.insert(100, "blink");
/// let (mut now, mut blinks) = (0_u64, 0);
/// for _turn in 0..25 {
///     now += u64::from(read_counter().wrapping_sub(now as u32));
///     while let Some((_, "blink")) = wheel.advance(now).next() {
///         blinks += 1;
///         wheel.insert((now / 100 + 1) * 100, "blink"); // keeps its phase after a stall
///     }
/// }
/// assert_eq!(blinks, 10);
/// ```
pub struct Wheel<T, const LEVEL_BITS: u32 = 11, const LEVELS: usize = 6> {
    raw_wheel: RawWheel<Levels<LEVEL_BITS, LEVELS>>,
    entries: Entries<T>,
}

/// Identifies one entry of a [`Wheel`]. The key of an entry that is no longer in the wheel finds
/// nothing. In another wheel, a key may find an unrelated entry.
///
/// # Examples
///
/// ```
/// use corewheel::Wheel;
///
/// let mut wheel = Wheel::new();
/// let [first, second] = [30_000, 60_000].map(|deadline| wheel.insert(deadline, "lease"));
/// assert_ne!(first, second);
/// assert_eq!(wheel.remove(first), Some("lease"));
/// assert!(wheel.contains(second) && !wheel.contains(first));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Returns the key as a number, for the `user_data` of `io_uring` or epoll.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Key, Wheel};
    ///
    /// let mut wheel = Wheel::new();
    /// let user_data: u64 = wheel.insert(30_000, "idle").to_bits();
    ///
    /// // The completion arrives:
    /// assert_eq!(wheel.remove(Key::from_bits(user_data)), Some("idle"));
    /// ```
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Returns the key that [`to_bits`](Self::to_bits) encoded.
    ///
    /// An arbitrary number gives a key that finds no entry, or an unrelated one.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Key, Wheel};
    ///
    /// let mut wheel = Wheel::new();
    /// let user_data: u64 = wheel.insert(30_000, "connection 17").to_bits();
    /// // Later, in a completion:
    /// assert_eq!(wheel.get(Key::from_bits(user_data)), Some(&"connection 17"));
    /// ```
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is the index")]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl<T> Wheel<T> {
    /// Creates an empty wheel of the default geometry at tick 0. For another geometry, call
    /// [`starting_at(0)`](Self::starting_at).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(30_000, "lease");
    /// assert_eq!((wheel.now(), wheel.len()), (0, 1));
    /// ```
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// Creates an empty wheel of the default geometry at tick 0, with memory for `capacity`
    /// entries. See [`reserve`](Self::reserve).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::with_capacity(10_000);
    /// wheel.insert(30_000, "idle"); // allocates nothing
    /// ```
    pub fn with_capacity(capacity: usize) -> Self {
        let mut wheel = Self::new();
        wheel.reserve(capacity);
        wheel
    }
}

impl<T, const LEVEL_BITS: u32, const LEVELS: usize> Wheel<T, LEVEL_BITS, LEVELS> {
    /// Creates an empty wheel of any geometry, at the time `now`.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// // Eleven levels; a slot is as wide as 2^6 slots of the level below.
    /// let mut wheel: Wheel<&str, 6, 11> = Wheel::starting_at(1_000);
    /// wheel.insert(1_005, "lease");
    /// assert_eq!(wheel.now(), 1_000);
    /// ```
    pub fn starting_at(now: u64) -> Self {
        Self { raw_wheel: RawWheel::starting_at(now), entries: Entries::new() }
    }

    /// Adds an entry that is due at tick `deadline`, or at [`now`](Self::now) if `deadline` is
    /// earlier. The next [`advance`](Self::advance) that reaches the entry's deadline returns the
    /// entry.
    ///
    /// Cost: constant. May allocate a page for 4,096 entries.
    ///
    /// # Panics
    ///
    /// Panics if the wheel is full. The wheel has 2^25 - 1 indices, and uses each index at most
    /// 2^32 - 1 times.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(20, "second");
    /// wheel.insert(10, "first");
    /// assert_eq!(wheel.advance(20).collect::<Vec<_>>(), [(10, "first"), (20, "second")]);
    /// ```
    #[inline]
    pub fn insert(&mut self, deadline: u64, value: T) -> Key {
        self.try_insert(deadline, value).unwrap_or_else(|_| panic_wheel_full())
    }

    /// Adds an entry as [`insert`](Self::insert) does, or returns the value if the wheel is full.
    ///
    /// # Errors
    ///
    /// Returns the value if the wheel is full; see [`insert`](Self::insert).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let lease = wheel.try_insert(30_000, "lease")?;
    /// assert!(wheel.contains(lease));
    /// # Ok::<(), &str>(())
    /// ```
    #[inline]
    pub fn try_insert(&mut self, deadline: u64, value: T) -> Result<Key, T> {
        self.entries.insert(&mut self.raw_wheel, deadline, value)
    }

    /// Adds an entry that is due at a tick from `deadline` to `deadline + slack`. Of the future
    /// ticks within the slack, the wheel chooses the one divisible by the largest power of two. So
    /// entries with slack often share a tick.
    ///
    /// Cost: constant. May allocate a page for 4,096 entries.
    ///
    /// # Panics
    ///
    /// Panics if the wheel is full; see [`insert`](Self::insert).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert_with_slack(1_001, 100, "refresh"); // at tick 1,001 to 1,101
    /// assert_eq!(wheel.advance(1_000).count(), 0);
    /// assert_eq!(wheel.advance(1_101).count(), 1);
    /// ```
    pub fn insert_with_slack(&mut self, deadline: u64, slack: u64, value: T) -> Key {
        let (first_tick, last_tick) =
            (deadline.max(self.now().saturating_add(1)), deadline.saturating_add(slack));
        self.insert(
            if first_tick <= last_tick { coarsest_tick(first_tick, last_tick) } else { last_tick },
            value,
        )
    }

    /// Removes an entry and returns its value; `None` if the entry is no longer in the wheel.
    ///
    /// Cost: constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let lease = wheel.insert(30_000, "lease");
    /// assert_eq!((wheel.remove(lease), wheel.remove(lease)), (Some("lease"), None));
    /// ```
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.entries.remove(&mut self.raw_wheel, key)
    }

    /// Changes the deadline of an entry to an earlier or later tick; the key stays valid. Returns
    /// false if the entry is no longer in the wheel.
    ///
    /// Cost: constant. After a reset to a later deadline, [`next_deadline`](Self::next_deadline)
    /// may still return the old deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let lease = wheel.insert(30_000, "lease");
    /// assert!(wheel.reset(lease, 60_000));
    /// assert_eq!(wheel.deadline(lease), Some(60_000));
    /// ```
    #[inline]
    pub fn reset(&mut self, key: Key, deadline: u64) -> bool {
        let Some(entry) = self.entries.find_entry(key) else { return false };
        self.raw_wheel.reset(&self.entries, entry, deadline);
        true
    }

    /// Moves time to `now` and returns the due entries in the order of their deadlines. The order
    /// within a tick is unspecified. A `now` before the wheel's time does not move time back.
    ///
    /// If the iterator is dropped early, the next call of `advance` returns the remaining entries.
    /// So a loop that inserts entries can call `advance(now).next()` for each due entry. An entry
    /// that the loop inserts with a deadline up to `now` gets the deadline `now`, so the same loop
    /// gets the entry too. A simulation must process each event exactly at its deadline. So a
    /// simulation advances from one deadline to the next, as in the second example.
    ///
    /// Cost: constant per returned entry, plus at most a scan of a bitmap. A call also moves
    /// entries between slots: an entry moves at most `LEVELS` times per insertion or reset. If
    /// `now` is not after [`next_deadline`](Self::next_deadline), a call usually moves at most
    /// 8,192 entries, and 96 reset entries per elapsed tick.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(10, "lease");
    /// assert_eq!(wheel.advance(9).next(), None);
    /// for (deadline, value) in wheel.advance(10) {
    ///     assert_eq!((deadline, value), (10, "lease"));
    /// }
    /// assert_eq!(wheel.now(), 10);
    /// ```
    ///
    /// This simulation runs until the tick `end`, and its events insert other events:
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let (end, mut log) = (10, Vec::new());
    /// let mut wheel = Wheel::new();
    /// wheel.insert(1, "ping");
    /// wheel.insert(6, "sample");
    /// while let Some(tick) = wheel.next_deadline().filter(|&tick| tick <= end) {
    ///     while let Some((now, event)) = wheel.advance(tick).next() {
    ///         log.push((now, event));
    ///         if event == "ping" {
    ///             wheel.insert(now + 4, "ping");
    ///         }
    ///     }
    /// }
    /// assert_eq!(log, [(1, "ping"), (5, "ping"), (6, "sample"), (9, "ping")]);
    /// ```
    #[inline]
    pub fn advance(&mut self, now: u64) -> DueEntries<'_, T, LEVEL_BITS, LEVELS> {
        self.advance_within(now, usize::MAX)
    }

    /// Moves time to `now` and returns due entries as [`advance`](Self::advance) does, but returns
    /// or moves at most `budget` entries. If the budget does not suffice,
    /// [`is_behind`](Self::is_behind) returns true, and the next call continues in order. A budget
    /// of zero makes no progress.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// (0..100).for_each(|number| _ = wheel.insert(10, number));
    /// assert!(wheel.advance_within(10, 25).count() <= 25);
    /// assert!(wheel.is_behind());
    /// ```
    #[inline]
    pub fn advance_within(
        &mut self,
        now: u64,
        budget: usize,
    ) -> DueEntries<'_, T, LEVEL_BITS, LEVELS> {
        let now = now.max(self.raw_wheel.pass_end);
        if !self.raw_wheel.try_complete_idle_pass(now) {
            self.raw_wheel.begin_pass(&self.entries, now, budget);
        }
        DueEntries { wheel: self }
    }

    /// Returns true if the latest [`advance`](Self::advance) or
    /// [`advance_within`](Self::advance_within) has left entries to return or move, because its
    /// budget was used up or its iterator was dropped early.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// (0..100).for_each(|number| _ = wheel.insert(10, number));
    /// assert!(wheel.advance_within(10, 25).count() <= 25 && wheel.is_behind());
    /// wheel.advance(10).for_each(drop);
    /// assert!(!wheel.is_behind());
    /// ```
    pub fn is_behind(&self) -> bool {
        self.raw_wheel.is_behind()
    }

    /// Returns the next tick to which the wheel must be advanced; `None` if the wheel is empty.
    ///
    /// The returned tick is never after the earliest deadline, but may be before it, because some
    /// advances only move entries between slots:
    ///
    /// - at the start of a slot above the first level,
    /// - at the last ticks before such a start, if slots above the first level have more than 8,192
    ///   entries,
    /// - at the old deadline of entries that were reset to a later deadline: usually one advance
    ///   for up to 96 entries, and at most one for each further entry.
    ///
    /// Usually the returned tick is after [`now`](Self::now). The returned tick is at or before
    /// `now` if [`is_behind`](Self::is_behind) returns true, or if an entry was inserted or reset
    /// with a deadline up to `now`.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// assert_eq!(wheel.next_deadline(), None);
    /// wheel.insert(10, "lease");
    /// assert_eq!(wheel.next_deadline(), Some(10));
    /// ```
    pub fn next_deadline(&self) -> Option<u64> {
        self.raw_wheel.next_pass_tick()
    }

    /// Returns the wheel's time, a tick number.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::<&str>::new();
    /// wheel.advance(10).for_each(drop);
    /// assert_eq!(wheel.now(), 10);
    /// ```
    pub fn now(&self) -> u64 {
        self.raw_wheel.pass_end
    }

    /// Returns the number of entries in the wheel.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(10, "lease");
    /// assert_eq!(wheel.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.raw_wheel.len()
    }

    /// Returns true if the wheel has no entries.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// assert!(wheel.is_empty());
    /// wheel.insert(10, "lease");
    /// assert!(!wheel.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how often a pass has moved an entry to another slot since the wheel's creation. A
    /// pass moves the entries of the upper levels, and entries that were reset to later deadlines.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(200_000, "lease");
    /// for now in 1..200_000 {
    ///     assert_eq!(wheel.advance(now).count(), 0);
    /// }
    /// assert_eq!(wheel.relinked(), 1);
    /// ```
    pub fn relinked(&self) -> u64 {
        self.raw_wheel.relinked
    }

    /// Checks the invariants, for tests. Cost: visits every slot and every entry.
    ///
    /// # Panics
    ///
    /// Panics if an invariant is broken.
    #[cfg(any(test, debug_assertions))]
    #[doc(hidden)]
    pub fn check(&self) {
        self.entries.check();
        self.raw_wheel.check(&self.entries, self.entries.possibly_used_indices());
    }

    /// Allocates memory for `additional` more entries, up to 16 million in all. The wheel keeps
    /// this memory until [`shrink_to_fit`](Self::shrink_to_fit).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel: Wheel<&str> = Wheel::starting_at(1_000);
    /// wheel.reserve(10_000);
    /// wheel.insert(30_000, "idle"); // allocates nothing
    /// ```
    pub fn reserve(&mut self, additional: usize) {
        self.entries.reserve(self.len().saturating_add(additional));
    }

    /// Returns the number of entries for which the wheel has memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let wheel: Wheel<&str> = Wheel::with_capacity(10_000);
    /// assert!(wheel.capacity() >= 10_000);
    /// ```
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Frees all pages without entries, even reserved ones, but not the first page. Keys stay
    /// valid, and no entry moves.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel: Wheel<&str> = Wheel::with_capacity(100_000);
    /// wheel.shrink_to_fit();
    /// assert!(wheel.capacity() < 100_000);
    /// ```
    pub fn shrink_to_fit(&mut self) {
        self.entries.free_empty_pages();
    }

    /// Returns an entry with the earliest deadline: its key, its deadline and its value.
    ///
    /// Cost: the same as [`iter`](Self::iter). To learn when to advance the wheel, call
    /// [`next_deadline`](Self::next_deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(30_000, "lease");
    /// let retry = wheel.insert(250, "retry");
    /// assert_eq!(wheel.peek(), Some((retry, 250, &"retry")));
    /// ```
    pub fn peek(&self) -> Option<(Key, u64, &T)> {
        self.iter().min_by_key(|(_, deadline, _)| *deadline)
    }

    /// Returns the value of an entry; `None` if the entry is no longer in the wheel. Cost:
    /// constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(30_000, "lease");
    /// assert_eq!(wheel.get(key), Some(&"lease"));
    /// wheel.remove(key);
    /// assert_eq!(wheel.get(key), None);
    /// ```
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.entries.value(key)
    }

    /// Returns a mutable reference to the value of an entry; `None` if the entry is no longer in
    /// the wheel. Cost: constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let retry = wheel.insert(250, 1);
    /// *wheel.get_mut(retry).expect("it is pending") += 1;
    /// assert_eq!(wheel.remove(retry), Some(2));
    /// ```
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.value_mut(key)
    }

    /// Returns the deadline of an entry, in ticks; `None` if the entry is no longer in the wheel.
    /// Cost: constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let lease = wheel.insert(30_000, "lease");
    /// assert!(wheel.reset(lease, 60_000));
    /// assert_eq!(wheel.deadline(lease), Some(60_000));
    /// ```
    #[inline]
    pub fn deadline(&self, key: Key) -> Option<u64> {
        self.entries.find_entry(key).map(|entry| entry.deadline().get())
    }

    /// Returns true if the entry of `key` is in the wheel. Cost: constant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(5, "due");
    /// assert!(wheel.contains(key));
    /// assert_eq!(wheel.advance(5).count(), 1);
    /// assert!(!wheel.contains(key));
    /// ```
    #[inline]
    pub fn contains(&self, key: Key) -> bool {
        self.entries.find_entry(key).is_some()
    }

    /// Iterates over the key, the deadline and the value of each entry, in no particular order.
    ///
    /// Cost: visits up to [`capacity`](Self::capacity) entries, used or free.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(30_000, "lease");
    /// assert_eq!(wheel.iter().collect::<Vec<_>>(), [(key, 30_000, &"lease")]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (Key, u64, &T)> {
        self.entries.possibly_used_indices().filter_map(|index| {
            let entry = self.entries.entry(index);
            Some((entry.key(), entry.deadline().get(), self.get(entry.key())?))
        })
    }

    /// Removes and drops every entry for which `keep` returns false. `keep` gets the key, the
    /// deadline and the value of each entry, in no particular order.
    ///
    /// Cost: the same as [`iter`](Self::iter), plus a [`remove`](Self::remove) for each removed
    /// entry. If `keep` or a destructor panics, all entries not yet visited remain.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// wheel.insert(10_000, "connection 1");
    /// wheel.insert(20_000, "connection 2");
    /// wheel.retain(|_key, deadline, _value| deadline > 15_000);
    /// assert_eq!(wheel.len(), 1);
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(Key, u64, &mut T) -> bool) {
        let mut next_index = 0;
        while let Some(index) = self.entries.next_live_index(next_index) {
            let entry = self.entries.entry(index);
            let (key, deadline) = (entry.key(), entry.deadline().get());
            if self.get_mut(key).is_some_and(|value| !keep(key, deadline, value)) {
                self.remove(key);
            }
            next_index = index + 1;
        }
    }

    /// Removes every entry, and returns the key, the deadline and the value of each, in no
    /// particular order. The wheel's time does not change.
    ///
    /// Cost: the same as [`retain`](Self::retain), plus one allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let lease = wheel.insert(30_000, "lease");
    /// assert_eq!(wheel.drain(), [(lease, 30_000, "lease")]);
    /// assert!(wheel.is_empty());
    /// ```
    #[must_use = "the removed entries"]
    pub fn drain(&mut self) -> Vec<(Key, u64, T)> {
        let mut drained = Vec::with_capacity(self.len());
        let mut next_index = 0;
        while let Some(index) = self.entries.next_live_index(next_index) {
            let entry = self.entries.entry(index);
            let (key, deadline) = (entry.key(), entry.deadline().get());
            drained.extend(self.remove(key).map(|value| (key, deadline, value)));
            next_index = index + 1;
        }
        drained
    }

    /// Removes and drops every entry. The wheel's time does not change. Cost: the same as
    /// [`retain`](Self::retain).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Wheel;
    ///
    /// let mut wheel = Wheel::new();
    /// let key = wheel.insert(30_000, "lease");
    /// wheel.clear();
    /// wheel.insert(60_000, "another");
    /// assert_eq!(wheel.get(key), None);
    /// ```
    pub fn clear(&mut self) {
        self.retain(|_, _, _| false);
    }
}

#[cold]
fn panic_wheel_full() -> ! {
    panic!("the wheel is full: each of its 2^25 - 1 indices is in use or retired")
}

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const LEVEL_BITS: u32, const LEVELS: usize> fmt::Debug for Wheel<T, LEVEL_BITS, LEVELS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("now", &self.now())
            .field("len", &self.len())
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}

/// Iterates over the deadlines and values of due entries; see [`Wheel::advance`].
///
/// # Examples
///
/// ```
/// use corewheel::Wheel;
///
/// let mut wheel = Wheel::new();
/// wheel.insert(10, "lease");
/// let mut due = wheel.advance(10);
/// assert_eq!(due.next(), Some((10, "lease")));
/// assert_eq!(due.next(), None);
/// ```
#[must_use = "lazy: entries not taken from this iterator wait for the next `advance`"]
pub struct DueEntries<'wheel, T, const LEVEL_BITS: u32, const LEVELS: usize> {
    wheel: &'wheel mut Wheel<T, LEVEL_BITS, LEVELS>,
}

impl<T, const LEVEL_BITS: u32, const LEVELS: usize> Iterator
    for DueEntries<'_, T, LEVEL_BITS, LEVELS>
{
    type Item = (u64, T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Wheel { raw_wheel, entries } = &mut *self.wheel;
        if raw_wheel.is_pass_done() { None } else { entries.pop_due_entry(raw_wheel) }
    }
}

impl<T, const LEVEL_BITS: u32, const LEVELS: usize> FusedIterator
    for DueEntries<'_, T, LEVEL_BITS, LEVELS>
{
}

impl<T, const LEVEL_BITS: u32, const LEVELS: usize> fmt::Debug
    for DueEntries<'_, T, LEVEL_BITS, LEVELS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueEntries").field("wheel", &self.wheel).finish()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
#[path = "../../tests/model/mod.rs"]
mod model;

#[cfg(test)]
mod tests;
