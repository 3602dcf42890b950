//! What the requests ask about: how long each partition is, how much of it each follower has, and which generation each
//! member of a group has joined. The records themselves are left out; a log is as good as its length here.
//!
//! Any core may look, so all of it is atomic. It is also all relaxed: a value stands for itself, and whoever changes one
//! tells of it through the purgatory, whose events carry what was written before them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct PartitionId(pub(crate) u32);

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct GroupId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Log {
    partitions: Vec<Partition>,
    groups: Vec<Group>,
}

#[derive(Debug)]
pub(crate) struct Partition {
    /// In bytes.
    end: AtomicU64,
    /// How far each follower has it: from where it fetches.
    followed: Marks,
}

#[derive(Debug)]
pub(crate) struct Group {
    /// The last generation that each member has joined.
    joined: Marks,
}

impl Log {
    pub(crate) fn new(partitions: u32, followers: usize, groups: u32, members: usize) -> Self {
        let partition = |_| Partition { end: AtomicU64::new(0), followed: Marks::new(followers) };
        let group = |_| Group { joined: Marks::new(members) };
        Self {
            partitions: (0..partitions).map(partition).collect(),
            groups: (0..groups).map(group).collect(),
        }
    }

    pub(crate) fn partition(&self, PartitionId(id): PartitionId) -> Option<&Partition> {
        self.partitions.get(id as usize)
    }

    pub(crate) fn group(&self, GroupId(id): GroupId) -> Option<&Group> {
        self.groups.get(id as usize)
    }
}

impl Partition {
    /// Appends so many bytes, and gives the new end.
    pub(crate) fn append(&self, bytes: u32) -> u64 {
        self.end.fetch_add(bytes.into(), Relaxed) + u64::from(bytes)
    }

    /// The follower fetches from here: it has what comes before. False if there is no such follower.
    #[must_use]
    pub(crate) fn follow(&self, follower: u32, from: u64) -> bool {
        self.followed.raise(follower, from)
    }

    /// What followers may read.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Relaxed)
    }

    /// What all followers have, and consumers may read.
    pub(crate) fn replicated(&self) -> u64 {
        self.followed.lowest()
    }
}

impl Group {
    /// False if there is no such member.
    #[must_use]
    pub(crate) fn join(&self, member: u32, generation: u64) -> bool {
        self.joined.raise(member, generation)
    }

    /// Whether all members are in.
    pub(crate) fn is_complete(&self, generation: u64) -> bool {
        self.joined.lowest() >= generation
    }
}

/// How far each of several has come; it never goes back.
#[derive(Debug)]
struct Marks(Vec<AtomicU64>);

impl Marks {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    fn raise(&self, who: u32, mark: u64) -> bool {
        let found = self.0.get(who as usize);
        found.inspect(|its| _ = its.fetch_max(mark, Relaxed)).is_some()
    }

    fn lowest(&self) -> u64 {
        self.0.iter().map(|mark| mark.load(Relaxed)).min().unwrap_or(u64::MAX)
    }
}
