//! Every constant that bounds something, with its reason.
//!
//! Each has a tiny twin for unit tests and loom models, so that what is rare in production (a second page, a
//! wrapped wheel level, an exhausted generation) is ordinary there.

/// Unit tests, loom models, shuttle's runs and whatever Miri interprets see the tiny twins.
const TINY: bool = cfg!(any(test, miri)) || LOOM || SHUTTLE;
/// As in `sync`.
const LOOM: bool = cfg!(all(loom, feature = "loom"));
const SHUTTLE: bool = cfg!(all(shuttle, feature = "shuttle"));

/// Elements of a page, as a power of two. What 512 timers need is some 40 KiB, which costs about ten microseconds when
/// they are first added; nothing that is there is ever moved.
pub(crate) const PAGE_BITS: u32 = if TINY { 1 } else { 9 };

/// Empty pages that are always kept for the next timers.
pub(crate) const SPARE_PAGES_MIN: u32 = if TINY { 1 } else { 2 };

/// Turns of an interval: an empty page that a whole interval did not need is freed (see `spare`). Under loom, where each turn
/// multiplies the interleavings, one.
pub(crate) const TURNS_PER_INTERVAL: u32 = if LOOM {
    1
} else if TINY {
    4
} else {
    64
};

/// Pages that one search for an empty page looks at.
pub(crate) const PAGES_SEARCHED: usize = if TINY { 2 } else { 32 };

/// Entries from which on a pass fetches ahead. What fewer of them need fits in a second-level cache.
pub(crate) const LOOK_AHEAD_FROM: u32 = if TINY { 4 } else { 8192 };

/// Revolutions that the first level of a wheel has room for, as a power of two. With those of a shard it reaches 129 s ahead: the
/// timeouts of most servers are placed once and never cascade. (Fewer for a small wheel, so that its slots share the cache:
/// no faster, and a loop that sleeps would be woken to cascade.)
pub(crate) const WIDE_BITS: u32 = if TINY { 2 } else { 6 };

/// Slots of ticks to come whose entries are fetched ahead at the same time. Their lists are walked side by side, because a walk
/// along one waits for each entry's line before it knows the next.
pub(crate) const TICKS_AHEAD: usize = if TINY { 2 } else { 16 };

/// Entries that have come to a slot since it was empty, beyond which they count as crowded. The entries of a slot that
/// were moved away without being taken out are re-placed when its tick comes; crowded ones are taken out at once, so that no
/// tick has more than this many to re-place.
pub(crate) const CROWD: u32 = if TINY { 2 } else { 96 };

/// Entries of upper levels that one pass cascades little by little, some 0.2 ms' worth (P7).
pub(crate) const CASCADED_MAX: u32 = if TINY { 6 } else { 8192 };

/// Bits of a revolution of the wheel of a shard: 2 s at a tick of a millisecond.
pub(crate) const SHARD_BITS: u32 = if TINY { 3 } else { 11 };

/// Levels of the wheel of a shard: together they reach every `u64` tick, so no deadline is out of range.
pub(crate) const SHARD_LEVELS: usize = 64_usize.div_ceil(SHARD_BITS as usize);

/// The largest index of a timer, 33 million: some 3 GB of timers on one core. Index 0 means "none" in every link, and the
/// upper bits say what a link is.
pub(crate) const INDEX_MAX: u32 = if TINY { (1 << 6) - 1 } else { (1 << 25) - 1 };

/// The last generation of an entry of `Wheel<T>`: an index that reaches it is retired, never reused.
pub(crate) const KEY_GENERATION_MAX: u32 = if TINY { 16 } else { u32::MAX };

/// The generation bit of timers that were armed by another thread, so that the owner's counter and the adders' never meet.
pub(crate) const REMOTE_GENERATION: u64 = 1 << 55;

/// The last generation that either counter gives: 55 bits, beside the bit above and the 8 bits of the phase. At a hundred million
/// timers a second it lasts 11 years; a shard that has used it up refuses further timers.
pub(crate) const GENERATION_MAX: u64 = REMOTE_GENERATION - 1;

/// The most timers that memory is reserved for in advance.
pub(crate) const RESERVE_MAX: u32 = if TINY { INDEX_MAX } else { 1 << 24 };

/// How often the end of a shard looks for garbage, so that its memory and hooks go at once where no other thread is
/// looking: an epoch is left in at most three steps. Under loom, where each multiplies the interleavings, one.
pub(crate) const FLUSHES: usize = if LOOM { 1 } else { 4 };

/// Retired pages that are freed in one step: more than are retired in one, so that they get fewer.
pub(crate) const FREED_MAX: usize = 4;

/// Retired pages that may wait for other threads to look away, 2.5 MiB: a few steps' worth if nobody stalls. If
/// somebody does, pages stay in use meanwhile, so a shard never needs more memory than its timers did at once, and this
/// (P8).
pub(crate) const RETIRED_MAX: usize = if TINY { 4 } else { 64 };

/// Shards that can exist at the same time. A number that has been given back is used again.
pub(crate) const SHARDS_MAX: u32 = if LOOM { 4 } else { 1 << 14 };

/// Cancelled timers in the mailbox that wake a sleeping owner, so that their payloads do not wait for its next
/// deadline (P8).
pub(crate) const DEBT_MAX: u32 = if TINY { 2 } else { 1024 };

/// Where the count of messages of a kind that wait goes round, over its last `DEBT_MAX`; below those it is exact.
pub(crate) const MESSAGES_COUNTED: u32 = 1 << 12;

/// Messages of a purgatory to one other core that go together at most.
pub(crate) const MESSAGES_TOGETHER: usize = if TINY { 2 } else { 64 };

/// Wake hooks that may be called inside one another, as each asks something of the next shard; beyond that none is.
pub(crate) const HOOKS_NESTED_MAX: usize = 32;

/// So many operations of a purgatory may end inside one another, as their code completes the next; those deeper inside end when the
/// outermost one has. Each takes some hundred bytes of the stack, and what the user's code takes.
pub(crate) const ENDS_NESTED_MAX: usize = if TINY { 2 } else { 16 };

/// Room for the watchers of one event that a purgatory keeps for the next.
pub(crate) const WATCHERS_KEPT: usize = 1024;

/// A purgatory's arena with more slots than this, and its table of keys, give their memory back when nothing is in them.
pub(crate) const SLOTS_KEPT: usize = if TINY { 2 } else { 1024 };

/// Read letters that a purgatory keeps to write in: as many as come in a turn when there is much to say, with 1.5 KiB each
/// where keys are small.
pub(crate) const LETTERS_KEPT: usize = if TINY { 1 } else { 16 };

/// An async sleep that is longer than this, in nanoseconds, adds its timer without another look at the clock, which
/// would be a quarter of what a timeout costs that is added and cancelled. If it is over already, which is unlikely, the next
/// turn says so.
pub(crate) const SLEEP_UNSEEN: u64 = 1_000_000_000;

/// A sleep of so many nanoseconds is long: before it all memory goes that is not needed. In the shorter sleeps between equal batches of
/// timers it stays.
pub(crate) const LONG_SLEEP: u64 = 1_000_000_000;

/// Messages of other cores that one turn takes in at most, some 50 us' worth: a flood of them is no pause (P7).
pub(crate) const MESSAGES_MAX: usize = if TINY { 1 << 20 } else { 1024 };

/// How often the owner links a timer that other threads keep resetting to elapsed deadlines, before it leaves it to the next turn.
pub(crate) const SETTLES_MAX: usize = if TINY { 2 } else { 8 };

/// Of the urgent messages that wait, so many are put into the order in which they came, in a pass: each costs about a miss of the cache.
pub(crate) const REVERSED_MAX: usize = if TINY { 64 } else { 4096 };

/// Turns after which the owner of a shard tells what it has counted, also if its loop never asks how long it may sleep.
/// Telling costs as much as a timer or two.
pub(crate) const TURNS_UNTOLD: u64 = if TINY { 2 } else { 64 };

/// Counters that the owner of a shard publishes together. Under loom, where each adds interleavings, two.
pub(crate) const COUNTED: usize = if LOOM { 2 } else { usize::MAX };

/// Durations below two to this power, in nanoseconds, are all one to a histogram.
pub(crate) const HISTOGRAM_FINEST: u32 = 10;

/// Ranges of durations that are told apart: four for each doubling from a microsecond to more than an hour, what is below, and what
/// is above.
pub(crate) const HISTOGRAM_CELLS: usize = if LOOM { 2 } else { 1 + 4 * 32 + 1 };

/// The shortest tick.
pub(crate) const TICK_NANOS_MIN: u64 = 1_000;
