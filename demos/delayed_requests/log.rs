//! The replicated log: the length of each partition, and how much of it each follower has. There
//! are no records, because a length is enough here.
//!
//! Any core may read and write it. All accesses are relaxed: each value stands for itself, and
//! every change is followed by an event of the purgatory, which synchronizes with the threads that
//! react to it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) type Log = Vec<Partition>;

pub(crate) struct Partition {
    /// Its length in bytes.
    end: AtomicU64,
    /// How much of it each follower has. None moves back.
    followers: Vec<AtomicU64>,
}

impl Partition {
    pub(crate) fn new(followers: usize) -> Self {
        let followers = (0..followers).map(|_| AtomicU64::default()).collect();
        Self { end: AtomicU64::default(), followers }
    }

    /// Appends this many bytes. Returns the new end.
    pub(crate) fn append(&self, bytes: u64) -> u64 {
        self.end.fetch_add(bytes, Relaxed) + bytes
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Relaxed)
    }

    /// Moves a follower ahead. `None` if it does not exist.
    pub(crate) fn follow(&self, follower: u32, position: u64) -> Option<()> {
        self.followers.get(follower as usize)?.fetch_max(position, Relaxed);
        Some(())
    }

    /// Returns the position that all followers have reached.
    pub(crate) fn replicated(&self) -> u64 {
        self.followers.iter().map(|position| position.load(Relaxed)).min().unwrap_or(u64::MAX)
    }
}
