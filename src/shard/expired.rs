//! An expired timer, as a loop receives it.

use std::time::{Duration, Instant};

use crate::cross_core::handle::TimerHandle;

/// A timer whose deadline has elapsed; from [`Shard::next_expired`](crate::Shard::next_expired).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Expired<T> {
    /// The handle that the add returned. It is stale now.
    pub handle: TimerHandle,
    /// The payload passed to the add.
    pub payload: T,
    /// The deadline of the timer, rounded up to a tick. If it had elapsed when the timer was added
    /// or moved, this may be later, at most the time of the last turn. A remote request counts from
    /// when the owner consumes it.
    pub deadline: Instant,
    /// How long after that the turn began.
    pub lateness: Duration,
}
