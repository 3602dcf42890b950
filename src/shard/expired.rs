//! What a loop gets when a timer is due.

use std::time::{Duration, Instant};

/// A timer whose deadline has come; from [`Shard::next_expired`](crate::Shard::next_expired).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Expired<T> {
    /// What was added.
    pub payload: T,
    /// When it was due: its deadline, rounded up to a tick. If that was not after the turn before when the timer was added or moved,
    /// this is the time of that turn. (What another thread asks for counts from when its owner meets that.)
    pub deadline: Instant,
    /// How long after that the turn began.
    pub lateness: Duration,
}
