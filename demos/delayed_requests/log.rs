//! The replicated log: the length of each partition, how much of it each follower has, and the
//! generation that each member of a group has joined. There are no records, because a length is
//! enough here.
//!
//! Any core may read and write it. All accesses are relaxed: each value stands for itself, and
//! every change is followed by an event of the purgatory, which synchronizes with the threads that
//! react to it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct Log {
    partitions: Vec<Partition>,
    /// The last generation that each member of each group has joined.
    groups: Vec<Positions>,
}

#[derive(Debug)]
pub(crate) struct Partition {
    /// Its length in bytes.
    end: AtomicU64,
    /// How much of it each follower has.
    pub(crate) followers: Positions,
}

impl Log {
    pub(crate) fn new(partitions: u32, followers: usize, groups: u32, members: usize) -> Self {
        let partition =
            |_| Partition { end: AtomicU64::new(0), followers: Positions::new(followers) };
        Self {
            partitions: (0..partitions).map(partition).collect(),
            groups: (0..groups).map(|_| Positions::new(members)).collect(),
        }
    }

    pub(crate) fn partition(&self, id: u32) -> Option<&Partition> {
        self.partitions.get(id as usize)
    }

    pub(crate) fn group(&self, id: u32) -> Option<&Positions> {
        self.groups.get(id as usize)
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

/// The positions of the followers of a partition, or of the members of a group. None moves back.
#[derive(Debug)]
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
