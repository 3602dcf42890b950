//! Sizes, limits and times, with their reasons.
//!
//! Many values are smaller in tests and models, to reach cases that are rare in production. `P1` to
//! `P12` are the promises in `ARCHITECTURE.md`.

use core::time::Duration;

/// True if the smaller values apply: in unit tests, in loom models and under Miri.
const USES_SMALL_LIMITS: bool = cfg!(any(test, miri)) || IS_LOOM;
/// True in a loom model, where `util::sync` uses loom and time does not advance.
pub(crate) const IS_LOOM: bool = cfg!(all(loom, feature = "models"));

/// A page has 2^`PAGE_BITS` entries. A page of 4,096 entries usually takes at least 128 KiB. Many
/// allocators map blocks of at least 128 KiB directly from the operating system, and unmap a freed
/// block.
pub(crate) const PAGE_BITS: u32 = if USES_SMALL_LIMITS { 1 } else { 12 };

/// The number of empty pages to keep, so that repeated batches of up to 8,192 timers reuse the same
/// pages (P4). `Shard::reserve` and similar calls raise this number.
pub(crate) const SPARE_PAGES: u32 = if USES_SMALL_LIMITS { 1 } else { 2 };

/// When a page's free list is empty, up to this many never-used places of the page are added to the
/// list. The other never-used places stay untouched, so they usually occupy no physical memory.
pub(crate) const FREE_LIST_REFILL_MAX: usize = if USES_SMALL_LIMITS { 1 } else { 64 };

/// The length of a purgatory's *trim interval*, in turns. At the end of each interval, the
/// purgatory frees a part of the memory that it did not need during the interval.
pub(crate) const PURGATORY_TRIM_INTERVAL_TURNS: u32 = if IS_LOOM {
    1
} else if USES_SMALL_LIMITS {
    4
} else {
    64
};

/// Only wheels with at least this many entries prefetch. The entries of a smaller wheel are usually
/// in a cache that is fast enough.
pub(crate) const PREFETCH_MIN_WHEEL_ENTRIES: u32 = if USES_SMALL_LIMITS { 4 } else { 65_536 };

/// The first level of a wheel has 2^(`LEVEL_BITS` + `FIRST_LEVEL_EXTRA_BITS`) slots. With a tick of
/// a millisecond, a shard's first level covers at least the next 129 s. So most timers of a server
/// go to the first level, and never *cascade* to a lower level.
pub(crate) const FIRST_LEVEL_EXTRA_BITS: u32 = if USES_SMALL_LIMITS { 2 } else { 6 };

/// While a wheel advances, it prefetches the entries of the next ticks, up to this many ticks
/// ahead.
pub(crate) const PREFETCHED_TICKS: usize = if USES_SMALL_LIMITS { 2 } else { 16 };

/// Maximum number of *postponable* entries of a slot of the first level (see `wheel::raw`). A pass
/// relinks postponed entries when their slot expires, so the limit bounds the cost of a tick (P7).
pub(crate) const POSTPONABLE_PER_SLOT_MAX: u32 = if USES_SMALL_LIMITS { 2 } else { 96 };

/// Maximum number of entries that one turn moves to lower levels in advance, before the first tick
/// of their slot (P7). A turn that begins late may move more entries.
pub(crate) const CASCADED_AHEAD_PER_TURN_MAX: u32 = if USES_SMALL_LIMITS { 6 } else { 8192 };

/// The `LEVEL_BITS` of a shard's wheel.
pub(crate) const SHARD_WHEEL_LEVEL_BITS: u32 = if USES_SMALL_LIMITS { 3 } else { 11 };

/// The number of levels of a shard's wheel, which together cover every `u64` tick.
pub(crate) const SHARD_WHEEL_LEVELS: usize = 64_usize.div_ceil(SHARD_WHEEL_LEVEL_BITS as usize);

/// The largest index of a node or wheel entry. In every link, index 0 means "none", and the bits
/// above the index are free for flags and counts.
pub(crate) const INDEX_MAX: u32 = if USES_SMALL_LIMITS { (1 << 6) - 1 } else { (1 << 25) - 1 };

/// A `Wheel<T>` retires an index whose generation reaches this value.
pub(crate) const WHEEL_KEY_GENERATION_MAX: u32 = if USES_SMALL_LIMITS { 16 } else { u32::MAX };

/// This bit of a generation marks a remotely added timer.
pub(crate) const REMOTE_GENERATION_BIT: u64 = 1 << 54;

/// The last generation of the owner's timers, after which the shard refuses the owner's adds. With
/// the bit [`REMOTE_GENERATION_BIT`], a generation takes 55 bits of a timer's state word. The
/// timer's phase and flags take the other 9 bits.
pub(crate) const OWNER_GENERATION_MAX: u64 = REMOTE_GENERATION_BIT - 1;

/// The largest number of timers for which memory is reserved in advance.
pub(crate) const RESERVED_TIMERS_MAX: u32 = if USES_SMALL_LIMITS { INDEX_MAX } else { 1 << 24 };

/// When a shard ends, and before a long sleep, a thread tries this many times to advance the epoch
/// (see `reclaim`). Three advances suffice to free all retired memory that no pinned thread may
/// read, so one try may fail. Loom models try once, to limit the interleavings.
pub(crate) const EPOCH_ADVANCE_TRIES: usize = if IS_LOOM { 1 } else { 4 };

/// Maximum number of retired pages that `OwnerSlab::trim_pages` frees before it retires pages, and
/// again afterwards. The limit keeps turns short (P7).
pub(crate) const PAGES_FREED_PER_CALL_MAX: usize = 4;

/// Maximum number of emptied pages for which one pass calls `OwnerSlab::trim_pages` (P7). Later
/// turns free the other emptied pages.
pub(crate) const SLAB_TRIMS_PER_PASS_MAX: u32 = 2;

/// Maximum number of calls of `OwnerSlab::trim_pages` before a long sleep (P7). Each call retires
/// at most `RETIRED_PAGES_MAX` pages.
pub(crate) const SLAB_TRIMS_PER_SLEEP_MAX: usize = 4;

/// Maximum number of retired pages of a shard (P8). A *retired* page is freed once no thread can
/// read it. A shard that already has this many retired pages keeps further empty pages in its page
/// table for reuse.
pub(crate) const RETIRED_PAGES_MAX: usize = if USES_SMALL_LIMITS { 4 } else { 8 };

/// Maximum number of shards that can exist in a process at the same time.
pub(crate) const SHARDS_MAX: u32 = if IS_LOOM { 4 } else { 1 << 14 };

/// A sleeping owner is woken when this many cancels, or this many adds and resets, are queued. The
/// wake-up bounds the number of cancelled timers whose payloads wait for the owner (P8).
pub(crate) const WAKE_AT_QUEUED_MESSAGES: u32 = if USES_SMALL_LIMITS { 2 } else { 1024 };

/// When a mailbox's message count reaches this value, the count is lowered by
/// `WAKE_AT_QUEUED_MESSAGES`. So a message count is exact only below `MESSAGE_COUNT_OVERFLOW` minus
/// `WAKE_AT_QUEUED_MESSAGES`.
pub(crate) const MESSAGE_COUNT_OVERFLOW: u32 = 1 << 12;

/// Maximum number of messages in a batch that a purgatory sends to another core. A turn consumes a
/// whole batch, even beyond its budget.
pub(crate) const PURGATORY_BATCH_MESSAGES_MAX: usize = if USES_SMALL_LIMITS { 2 } else { 64 };

/// Maximum depth of nested wake hooks: a hook may send a request that calls another shard's hook.
/// Hooks nested deeper are not called.
pub(crate) const NESTED_WAKE_HOOKS_MAX: usize = 32;

/// Maximum depth of nested `on_complete` calls: a call may complete another operation. To bound the
/// stack, deeper calls wait until the outermost call returns.
pub(crate) const NESTED_COMPLETIONS_MAX: usize = if USES_SMALL_LIMITS { 2 } else { 16 };

/// A page of a purgatory has 2^`PURGATORY_PAGE_BITS` records.
pub(crate) const PURGATORY_PAGE_BITS: u32 = if USES_SMALL_LIMITS { 1 } else { 10 };

/// A purgatory keeps at most this many empty pages of each kind of record for reuse.
pub(crate) const PURGATORY_SPARE_PAGES_MAX: usize = if USES_SMALL_LIMITS { 2 } else { 8 };

/// Adding one key creates at most this many chains in a purgatory's hash table.
pub(crate) const PURGATORY_CHAINS_CREATED_PER_ADD_MAX: usize = 8;

/// When a purgatory's hash table shrinks, a turn removes at most this many chains (P7).
pub(crate) const PURGATORY_CHAINS_REMOVED_PER_TURN_MAX: usize =
    if USES_SMALL_LIMITS { 16 } else { 512 };

/// Before a long sleep, a purgatory removes at most this many chains of its hash table (P7).
pub(crate) const PURGATORY_CHAINS_REMOVED_PER_SLEEP_MAX: usize =
    if USES_SMALL_LIMITS { 1 << 12 } else { 1 << 18 };

/// Maximum number of bytes by which a purgatory shrinks the array of chains of its hash table
/// before a long sleep (P7).
pub(crate) const PURGATORY_CHAIN_BYTES_FREED_PER_SLEEP_MAX: usize =
    32 * PURGATORY_CHAINS_REMOVED_PER_SLEEP_MAX;

/// Maximum number of bytes by which a turn shrinks the array of chains of a purgatory's hash table
/// (P7).
pub(crate) const PURGATORY_CHAIN_BYTES_FREED_PER_TURN_MAX: usize =
    if USES_SMALL_LIMITS { 256 } else { 1 << 18 };

/// A purgatory's hash table keeps up to this many chains even if the table has no keys. The table's
/// list of removed keys, whose destructors have not yet run, also keeps memory for up to this many
/// keys.
pub(crate) const PURGATORY_SPARE_CHAINS_MAX: usize = if USES_SMALL_LIMITS { 16 } else { 1024 };

/// A purgatory's hash table adds chains if there are at most this many chains per key. With few
/// keys per chain, the processor usually predicts the branches of a search correctly.
pub(crate) const GROW_BELOW_CHAINS_PER_KEY: usize = 4;

/// A purgatory's hash table removes chains after a trim interval in which it always had more than
/// this many chains per key.
pub(crate) const SHRINK_ABOVE_CHAINS_PER_KEY: usize = 16;

/// A purgatory keeps memory for up to this many deferred calls of `on_complete`.
pub(crate) const DEFERRED_COMPLETIONS_CAPACITY_MAX: usize = 1024;

/// Maximum number of consumed batches that a purgatory keeps for reuse.
pub(crate) const PURGATORY_SPARE_BATCHES_MAX: usize = if USES_SMALL_LIMITS { 1 } else { 16 };

/// The first poll of an async sleep longer than this many nanoseconds adds a timer without checking
/// whether the deadline has elapsed. If the sleep's deadline has elapsed, the next turn fires the
/// timer.
pub(crate) const ELAPSED_CHECK_MAX_SLEEP_NANOS: u64 = 1_000_000_000;

/// Before a sleep of at least this many nanoseconds, the owner frees surplus memory, because no
/// turn frees it during the sleep.
pub(crate) const LONG_SLEEP_NANOS: u64 = 1_000_000_000;

/// Maximum number of remote messages that one turn consumes, so that a flood causes no pause (P7).
pub(crate) const MESSAGES_PER_TURN_MAX: usize = if USES_SMALL_LIMITS { 1 << 20 } else { 1024 };

/// If no loop drives a wheel, a timer overdue by this many nanoseconds causes a report (see
/// `metrics`).
pub(crate) const SHORT_OVERDUE_GRACE_NANOS: u64 = 100_000_000;

/// This longer grace period replaces `SHORT_OVERDUE_GRACE_NANOS` for a `Shard`, a wheel of
/// `Timers::per_worker`, and a thread that has registered a driver, installed a configuration or
/// returned from `run_until`.
pub(crate) const LONG_OVERDUE_GRACE_NANOS: u64 = 1_000_000_000;

/// The number of times that a thread tries to claim a wheel of `Timers::per_worker`. If all
/// attempts fail, the thread sends its request as a message.
pub(crate) const WHEEL_CLAIM_TRIES: u32 = if USES_SMALL_LIMITS { 1 } else { 16 };

/// Maximum sleep of a `TimersDriver` if it could not announce the sleep on a claimed wheel.
pub(crate) const UNANNOUNCED_SLEEP_MAX: Duration = Duration::from_micros(100);

/// Maximum park of `run_until_empty` if other threads have added timers. A cancel of such a timer
/// may leave the wheel without live timers, but does not wake the owner.
pub(crate) const RUN_UNTIL_EMPTY_PARK_MAX: Duration = Duration::from_secs(1);

/// Maximum number of wheel entries, and of messages, that a turn of `future::drive` processes, so
/// that other tasks run soon.
pub(crate) const DRIVE_TURN_BUDGET: usize = 1_024;

/// Maximum number of adds and resets that one turn reverses into FIFO order, because the mailbox
/// yields the newest first. The reversal costs about one cache miss for each message.
pub(crate) const REVERSED_MESSAGES_PER_TURN_MAX: usize = if USES_SMALL_LIMITS { 64 } else { 4096 };

/// The owner of a shard publishes its counts after this many turns, even if its loop never calls
/// `prepare_sleep`.
pub(crate) const COUNTS_PUBLISH_INTERVAL_TURNS: u64 = if USES_SMALL_LIMITS { 2 } else { 64 };

/// A histogram does not distinguish durations below 2^`HISTOGRAM_MIN_NANOS_LOG2` nanoseconds.
pub(crate) const HISTOGRAM_MIN_NANOS_LOG2: u32 = 10;

/// The number of cells of a histogram of durations. Each doubling of the duration, from a
/// microsecond to more than an hour, takes four cells. The first cell counts shorter durations, and
/// the last cell counts longer durations.
pub(crate) const HISTOGRAM_CELLS: usize = if IS_LOOM { 2 } else { 1 + 4 * 32 + 1 };

/// The shortest tick, in nanoseconds.
pub(crate) const TICK_NANOS_MIN: u64 = 1_000;

/// The longest tick. A configuration with a longer tick is probably a mistake.
pub(crate) const TICK_DURATION_MAX: Duration = Duration::from_secs(3_600);
