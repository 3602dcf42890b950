//! The replicated log, without records: the length of each partition, and the position of each
//! follower.
//!
//! Any core may read and write the log. All accesses are relaxed: the values are independent. An
//! event of the purgatory follows every change, and synchronizes with the threads that react to it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) type Log = Vec<Partition>;

pub(crate) struct Partition {
    end: AtomicU64,
    /// The position of each follower, which never decreases.
    followers: Vec<AtomicU64>,
}

impl Partition {
    pub(crate) fn new(followers: usize) -> Self {
        let followers = (0..followers).map(|_| AtomicU64::default()).collect();
        Self { end: AtomicU64::default(), followers }
    }

    pub(crate) fn append(&self, bytes: u64) -> u64 {
        self.end.fetch_add(bytes, Relaxed) + bytes
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Relaxed)
    }

    /// Advances a follower. Returns `None` if the follower does not exist.
    pub(crate) fn advance_follower(&self, follower: u32, position: u64) -> Option<()> {
        self.followers.get(follower as usize)?.fetch_max(position, Relaxed);
        Some(())
    }

    pub(crate) fn replicated_end(&self) -> u64 {
        self.followers.iter().map(|position| position.load(Relaxed)).min().unwrap_or(u64::MAX)
    }
}
