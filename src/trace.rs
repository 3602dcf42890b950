//! What is worth a line in a server's log: events of `tracing`, with the feature of that name, and nothing without it. They
//! are for what is rare; what happens to each timer is counted (`gauges`).
//!
//! Who is told is the user's code: it may call back in and panic, so nothing of ours is borrowed here (P5), and the caller keeps
//! panics in (P6).
#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is said"))]

use std::{fmt, time::Duration};

/// A panic of the user's code was caught.
#[cold]
pub(crate) fn caught_panic(place: &dyn fmt::Debug, message: Option<&str>) {
    #[cfg(feature = "tracing")]
    tracing::error!(?place, message, "a panic was caught");
}

/// A watch has found a loop that does not turn.
#[cold]
pub(crate) fn stalled(shard: u32, name: &str, lasted: Duration, is_in_turn: bool) {
    #[cfg(feature = "tracing")]
    tracing::warn!(shard, name, ?lasted, is_in_turn, "a loop does not turn");
}
