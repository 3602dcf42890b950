//! Every constant that bounds something, with its reason.
//!
//! Each has a tiny twin for unit tests and loom models, so that what is rare in production (a second page, a
//! wrapped wheel level, an exhausted generation) is ordinary there.

/// Unit tests and loom models see the tiny twins.
const TINY: bool = cfg!(test) || LOOM;
/// As in `sync`.
const LOOM: bool = cfg!(all(loom, feature = "loom"));

/// Elements of a page, as a power of two. What 1 024 timers need is some 90 KiB, which costs tens of microseconds when
/// they are first added; nothing that is there is ever moved.
pub(crate) const PAGE_BITS: u32 = if TINY { 1 } else { 10 };

/// Bits of a slot number in the wheel of a shard. 2^16 slots of a millisecond hold 65 s ahead: the timeouts of most
/// servers are placed once and never cascade.
pub(crate) const SHARD_BITS: u32 = if TINY { 4 } else { 16 };

/// Levels of the wheel of a shard: together they reach every `u64` tick, so no deadline is out of range.
pub(crate) const SHARD_LEVELS: usize = 64_usize.div_ceil(SHARD_BITS as usize);

/// The largest index of a timer, 268 million: some 24 GB of timers on one core. Index 0 means "none" in every link, and the
/// top bit tells a slot from an entry.
pub(crate) const INDEX_MAX: u32 = if TINY { (1 << 6) - 1 } else { (1 << 28) - 1 };

/// The last generation of an entry of `Wheel<T>`: an index that reaches it is retired, never reused.
pub(crate) const KEY_GENERATION_MAX: u32 = if TINY { 3 } else { u32::MAX };

/// The last generation of a shard's timers: 56 bits beside the 8 bits of the phase. At a hundred million timers a
/// second it lasts 22 years; a shard that has used it up refuses further timers.
pub(crate) const GENERATION_MAX: u64 = (1 << 56) - 1;

/// The most timers that memory is reserved for in advance.
pub(crate) const RESERVE_MAX: u32 = if TINY { INDEX_MAX } else { 1 << 24 };

/// Looks for garbage that the end of a shard takes, so that its memory and hooks go at once where no other thread is
/// looking: an epoch is left in at most three steps. Under loom, where each multiplies the interleavings, one.
pub(crate) const FLUSHES: usize = if LOOM { 1 } else { 4 };

/// Shards that can exist at the same time. A number that has been given back is used again.
pub(crate) const SHARDS_MAX: u32 = if LOOM { 4 } else { 1 << 14 };

/// Cancelled timers in the mailbox that wake a sleeping owner, so that their payloads do not wait for its next
/// deadline (P8).
pub(crate) const DEBT_MAX: u32 = if TINY { 2 } else { 1024 };

/// The shortest tick.
pub(crate) const TICK_NANOS_MIN: u64 = 1_000;
