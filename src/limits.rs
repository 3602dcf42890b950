//! Sizes, limits and times, with their reasons.
//!
//! Most have a smaller value for tests and loom models, so that a case that is rare in production
//! (a second page, a wrapped wheel level, an exhausted generation) is ordinary there.

/// Unit tests, loom models and Miri use the smaller values.
const TINY: bool = cfg!(any(test, miri)) || LOOM;
/// Repeats the condition in `util::sync`.
const LOOM: bool = cfg!(all(loom, feature = "models"));

/// Entries of a page, as a power of two. 4,096 entries take at least 128 KiB, so that most
/// allocators get each page from the operating system, and return a freed page at once.
pub(crate) const PAGE_BITS: u32 = if TINY { 1 } else { 12 };

/// Empty pages that are kept for reuse. A batch of at most 8,192 timers, added and cancelled in
/// every round, allocates nothing (P4).
pub(crate) const SPARE_PAGES_MAX: u32 = if TINY { 1 } else { 2 };

/// Never-used places of a page are added to its free list in batches of this size. The memory of
/// the other places stays untouched.
pub(crate) const UNUSED_BATCH: usize = if TINY { 1 } else { 64 };

/// The interval, in turns, after which a purgatory frees the memory of a table that has no entries,
/// unless the table needed this memory during the interval.
pub(crate) const TRIM_INTERVAL_TURNS: u32 = if LOOM {
    1
} else if TINY {
    4
} else {
    64
};

/// A pass prefetches only in a wheel with at least this many entries. A smaller wheel fits in a
/// second-level cache.
pub(crate) const PREFETCH_FROM: u32 = if TINY { 4 } else { 8192 };

/// Revolutions that the first level of a wheel can hold, as a power of two. At a tick of a
/// millisecond, this level of a shard reaches 129 s ahead, so that the timeouts of most servers are
/// linked once and never cascade.
pub(crate) const NEAR_REVOLUTION_BITS: u32 = if TINY { 2 } else { 6 };

/// Slots whose entries are prefetched at the same time. Their lists are walked side by side,
/// because a walk along one list waits for each entry's cache line.
pub(crate) const PREFETCHED_TICKS: usize = if TINY { 2 } else { 16 };

/// Maximum number of deferred resets in a slot of the first level. The slot's tick relinks the
/// entries that were reset to a later deadline, so this bound limits the work of a tick (P7). A
/// further reset relinks its entry at once.
pub(crate) const DEFERRED_MAX: u32 = if TINY { 2 } else { 96 };

/// Maximum number of entries that one pass may cascade before their slot starts (P7).
pub(crate) const CASCADED_MAX: u32 = if TINY { 6 } else { 8192 };

/// Slots in a revolution of a shard's wheel, as a power of two: 2 s at a tick of a millisecond.
pub(crate) const SHARD_BITS: u32 = if TINY { 3 } else { 11 };

/// Levels of a shard's wheel. Together they reach every `u64` tick, so no deadline is out of range.
pub(crate) const SHARD_LEVELS: usize = 64_usize.div_ceil(SHARD_BITS as usize);

/// The largest index of a timer. 33 million timers on one core take about 3 GB. In every link,
/// index 0 means "none", and the bits above the index are free for flags and counts.
pub(crate) const INDEX_MAX: u32 = if TINY { (1 << 6) - 1 } else { (1 << 25) - 1 };

/// The last generation of an entry of `Wheel<T>`. An index that reaches it is retired and never
/// reused.
pub(crate) const KEY_GENERATION_MAX: u32 = if TINY { 16 } else { u32::MAX };

/// The generation bit of timers that another thread armed. It keeps their generations apart from
/// the owner's.
pub(crate) const REMOTE_GENERATION: u64 = 1 << 54;

/// The last generation of the owner's timers: 54 bits. Remote timers have as many generations, with
/// [`REMOTE_GENERATION`] set. The other 9 bits of the state word are for the phase and flags. At a
/// hundred million timers a second the generations last 5 years. A shard without a generation left
/// refuses further timers.
pub(crate) const GENERATION_MAX: u64 = REMOTE_GENERATION - 1;

/// The largest number of timers for which memory is reserved in advance.
pub(crate) const RESERVE_MAX: u32 = if TINY { INDEX_MAX } else { 1 << 24 };

/// Number of epoch flushes at the end of a shard or before a long sleep. Three suffice for an epoch
/// to end if no thread is pinned. So memory and hooks are freed at once, unless another thread
/// reads them. Under loom, where each step multiplies the interleavings, one.
pub(crate) const EPOCH_FLUSHES: usize = if LOOM { 1 } else { 4 };

/// Maximum number of retired pages that one step of a turn frees. The limit keeps turns short (P7).
pub(crate) const PAGES_FREED_MAX: usize = 4;

/// Retired pages that may wait for readers, 2.5 MiB. Without a stalled reader, only a few wait.
/// While a reader stalls, further empty pages stay in the table. So a shard never uses more memory
/// than its peak of live timers needed, plus these pages (P8).
pub(crate) const RETIRED_PAGES_MAX: usize = if TINY { 4 } else { 8 };

/// Shards that can exist at the same time. The number of an ended shard is reused.
pub(crate) const SHARDS_MAX: u32 = if LOOM { 4 } else { 1 << 14 };

/// The number of queued messages of one kind at which a sleeping owner is woken, so that payloads
/// of cancelled timers do not wait for the owner's next deadline (P8).
pub(crate) const WAKE_BACKLOG: u32 = if TINY { 2 } else { 1024 };

/// At this value, the count of queued messages of one kind goes back by `WAKE_BACKLOG`. So a count
/// below `MESSAGE_COUNT_WRAP - WAKE_BACKLOG` is exact.
pub(crate) const MESSAGE_COUNT_WRAP: u32 = 1 << 12;

/// The maximum number of messages that a purgatory sends to another core in one batch.
pub(crate) const BATCH_MESSAGES_MAX: usize = if TINY { 2 } else { 64 };

/// The maximum nesting of wake hooks, each of which sends a request to the next shard. Deeper hooks
/// are not called.
pub(crate) const HOOKS_NESTED_MAX: usize = 32;

/// The maximum nesting of `on_complete` calls, each of which completes the next operation. To bound
/// the stack, deeper calls run after the outermost call.
pub(crate) const NESTED_COMPLETIONS_MAX: usize = if TINY { 2 } else { 16 };

/// A purgatory frees a table without entries only if it has room for more entries than this.
pub(crate) const SPARE_RECORDS_MAX: usize = if TINY { 2 } else { 1024 };

/// Consumed batches that a purgatory keeps for reuse. They suffice for a busy turn, and take 1.5
/// KiB each if keys are small.
pub(crate) const SPARE_BATCHES_MAX: usize = if TINY { 1 } else { 16 };

/// The first poll of an async sleep of more than this many nanoseconds adds the timer without
/// reading the clock again. If the deadline has passed by then, the next turn fires the timer.
pub(crate) const UNCHECKED_SLEEP_NANOS: u64 = 1_000_000_000;

/// A sleep of at least this many nanoseconds is long. Before a long sleep, the owner frees all
/// surplus memory, because no turn frees it during the sleep.
pub(crate) const LONG_SLEEP_NANOS: u64 = 1_000_000_000;

/// The maximum number of remote messages that one turn consumes, so that a flood causes no pause
/// (P7).
pub(crate) const MESSAGES_MAX: usize = if TINY { 1 << 20 } else { 1024 };

/// If no loop drives a wheel, the next add or remote request reports a timer that is overdue by
/// this many nanoseconds. The delay leaves a thread time for its set-up. The second value is for a
/// thread with a registered driver, a `Shard`, and a wheel of `Timers::per_worker`.
pub(crate) const UNDRIVEN_GRACE: [u64; 2] = [100_000_000, 1_000_000_000];

/// The number of attempts to claim a wheel of `Timers::per_worker` before a thread sends a message
/// instead. A claim lasts a few hundred instructions.
pub(crate) const CLAIM_TRIES: u32 = if TINY { 1 } else { 16 };

/// How long the watcher of `Timers::per_worker` sleeps at most if another thread has claimed a
/// wheel, in nanoseconds.
pub(crate) const CLAIM_RETRY_NANOS: u64 = 100_000;

/// The budget, in wheel entries, of a turn of `future::drive`. When it is used up, other tasks run.
pub(crate) const DRIVE_BUDGET: usize = 1_024;

/// The maximum number of moves that one turn applies to a timer, if other threads keep resetting it
/// to elapsed deadlines. The next turn continues.
pub(crate) const MOVES_APPLIED_MAX: usize = if TINY { 2 } else { 8 };

/// The maximum number of urgent messages that one pass puts into FIFO order. Each costs about a
/// cache miss.
pub(crate) const REVERSED_MAX: usize = if TINY { 64 } else { 4096 };

/// Turns after which the owner of a shard publishes its counts, even if its loop never prepares to
/// sleep. Publishing costs about the same as one or two timers.
pub(crate) const PUBLISH_EVERY_TURNS: u64 = if TINY { 2 } else { 64 };

/// The maximum number of counters that the owner of a shard publishes. Under loom, where each
/// counter adds interleavings, it is two.
pub(crate) const PUBLISHED_COUNTERS: usize = if LOOM { 2 } else { usize::MAX };

/// A histogram does not distinguish durations below two to this power, in nanoseconds.
pub(crate) const HISTOGRAM_FINEST: u32 = 10;

/// The ranges of a histogram: four per factor of two from a microsecond to more than an hour, one
/// below, and one above.
pub(crate) const HISTOGRAM_CELLS: usize = if LOOM { 2 } else { 1 + 4 * 32 + 1 };

/// The shortest tick.
pub(crate) const TICK_NANOS_MIN: u64 = 1_000;
