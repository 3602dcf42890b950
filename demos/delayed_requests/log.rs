//! The replicated log: the length of each partition, and how much of it each follower has. There are
//! no records, because a length is enough here.
//!
//! Any core may read and write it. All accesses are relaxed: each value stands for itself, and
//! every change is followed by an event of the purgatory, which synchronizes with the threads that
//! react to it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) struct Log(Vec<Partition>);

pub(crate) struct Partition {
    /// Its length in bytes.
    end: AtomicU64,
    /// How much of it each follower has.
    pub(crate) followers: Positions,
}

impl Log {
    pub(crate) fn new(partitions: u32, followers: usize) -> Self {
        let partition =
            |_| Partition { end: AtomicU64::new(0), followers: Positions::new(followers) };
        Self((0..partitions).map(partition).collect())
    }

    pub(crate) fn partition(&self, id: u32) -> Option<&Partition> {
        self.0.get(id as usize)
    }
}

impl Partition {
    /// Appends this many bytes. Returns the new end.
    pub(crate) fn append(&self, bytes: u64) -> u64 {
        self.end.fetch_add(bytes, Relaxed) + bytes
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Relaxed)
    }
}

/// The positions of the followers of a partition. None moves back.
pub(crate) struct Positions(Vec<AtomicU64>);

impl Positions {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// Moves one of them ahead. `None` if it does not exist.
    pub(crate) fn raise(&self, index: u32, position: u64) -> Option<()> {
        self.0.get(index as usize)?.fetch_max(position, Relaxed);
        Some(())
    }

    /// The position that all have reached.
    pub(crate) fn lowest(&self) -> u64 {
        self.0.iter().map(|position| position.load(Relaxed)).min().unwrap_or(u64::MAX)
    }
}
