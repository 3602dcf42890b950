//! What is worth a line in a server's log: events of `tracing`, with the feature of that name, and nothing without it. They
//! are for what is rare; what happens to each timer is counted (`gauges`).
#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is said"))]

use std::{fmt, time::Duration};

/// A panic of the user's code was caught.
#[cold]
pub(crate) fn caught_panic(place: &dyn fmt::Debug, message: Option<&str>) {
    #[cfg(feature = "tracing")]
    tracing::error!(?place, message, "a panic was caught");
}

/// The clock of a shard went back by so much.
#[cold]
pub(crate) fn clock_went_back(shard: u32, nanos: u64) {
    #[cfg(feature = "tracing")]
    tracing::warn!(shard, by = ?Duration::from_nanos(nanos), "the clock went back, and is held");
}

/// A watch has found a loop that does not turn.
#[cold]
pub(crate) fn stalled(shard: u32, name: &str, lasted: Duration, is_in_turn: bool) {
    #[cfg(feature = "tracing")]
    tracing::warn!(shard, name, ?lasted, is_in_turn, "a loop does not turn");
}

/// A shard begins.
#[cold]
pub(crate) fn shard_begins(shard: u32, name: &str) {
    #[cfg(feature = "tracing")]
    tracing::debug!(shard, name, "a shard begins");
}

/// A shard ends.
#[cold]
pub(crate) fn shard_ends(shard: u32, name: &str, handed_back: u64) {
    #[cfg(feature = "tracing")]
    tracing::debug!(shard, name, handed_back, "a shard ends");
}
