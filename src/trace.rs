//! Events of `tracing` for rare incidents, with the feature of that name. Counters (`gauges`)
//! record what each timer does.
//!
//! A subscriber is user code: it may call back and panic. So nothing is borrowed here (P5), and the
//! caller catches panics (P6).
#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is said"))]

use std::{fmt, time::Duration};

/// Reports a caught panic of user code.
#[cold]
pub(crate) fn caught_panic(place: &dyn fmt::Debug, message: Option<&str>) {
    #[cfg(feature = "tracing")]
    tracing::error!(?place, message, "a panic was caught");
}

/// Reports a loop that does not turn, as a watch found it.
#[cold]
pub(crate) fn stalled(shard: u32, name: &str, lasted: Duration, is_in_turn: bool) {
    #[cfg(feature = "tracing")]
    tracing::warn!(shard, name, ?lasted, is_in_turn, "a loop does not turn");
}
