//! What a shard counts.

/// What the owner counts itself.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) added: u64,
    pub(super) fired: u64,
    pub(super) cancelled: u64,
    pub(super) handed_back: u64,
    /// Of another width than the others: otherwise two of them are counted by one wide instruction, which waits for the narrow one
    /// before.
    pub(super) live: u32,
    pub(super) runs: u64,
    pub(super) clock_regressions: u64,
}

/// What has become of a shard's timers since it was made.
///
/// At every moment its owner can observe, `added == live + fired + cancelled + handed_back`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Timers added.
    pub added: u64,
    /// Timers that fired and so ended.
    pub fired: u64,
    /// Timers that were cancelled, on this core or (once the owner has seen it) from elsewhere. A periodic timer
    /// ends only so, or with its shard.
    pub cancelled: u64,
    /// Timers handed back when the shard was drained.
    pub handed_back: u64,
    /// Timers that have not ended; a periodic one is live through its runs.
    pub live: u64,
    /// Of the live ones, those that another core has cancelled and the owner has not seen yet.
    pub held: u64,
    /// Messages from other cores that the owner has not dealt with: timers cancelled, moved, and added.
    pub queued: u64,
    /// Callbacks run and payloads handed out: one for each timer that fired, and each run of a periodic one.
    pub runs: u64,
    /// Panics caught in callbacks, destructors and the wake hook.
    pub panicked: u64,
    /// Readings of the clock that were earlier than one before.
    pub clock_regressions: u64,
    /// Entries of the wheel placed, moved, taken out or fired: the wheel's work.
    pub touched: u64,
}
