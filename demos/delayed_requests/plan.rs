//! What is where, how long everything takes, and when the run draws to its end. All moments are counted from its start.

use std::time::Duration;

pub(crate) const FOLLOWERS: usize = 2;
pub(crate) const PRODUCERS: usize = 4;
pub(crate) const CONSUMERS: usize = 4;
/// The connections of a partition, in this order: followers, producers, consumers.
pub(crate) const OF_A_PARTITION: usize = FOLLOWERS + PRODUCERS + CONSUMERS;
/// The connections of a group.
pub(crate) const MEMBERS: usize = 5;

/// What a producer appends at once.
pub(crate) const RECORD: u32 = 100;
/// How many records a consumer waits for, while there are producers.
pub(crate) const RECORDS_WANTED: u32 = 3;

/// How many requests a producer has time for within one timeout.
const PRODUCES_PER_TIMEOUT: u32 = 5;
/// How far from the timeout the contested conditions come about, at most.
const CONTEST: Duration = Duration::from_millis(2);
/// In how many steps they go from the one end to the other.
const CONTEST_STEPS: u32 = 8;
/// How long the load waits for what has not been answered when the run should have ended.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) partitions: u32,
    pub(crate) groups: u32,
    /// Of all requests but those of followers.
    pub(crate) timeout: Duration,
    /// From here on, whoever has come to the end of a round ends.
    pub(crate) last_call: Duration,
    /// About when everybody has ended.
    pub(crate) end: Duration,
}

impl Plan {
    pub(crate) fn new(partitions: u32, groups: u32, timeout: Duration, duration: Duration) -> Self {
        // One may have just begun to stall; then the followers wait in vain.
        let last_call = duration.saturating_sub(timeout + timeout * 2 + timeout / 2);
        Self { partitions, groups, timeout, last_call, end: duration }
    }

    pub(crate) fn connections(&self) -> usize {
        self.partitions as usize * OF_A_PARTITION + self.groups as usize * MEMBERS
    }

    /// A follower's requests must outlast a stall of the other follower, in which nothing is appended.
    pub(crate) fn follower_timeout(&self) -> Duration {
        self.timeout * 2
    }

    /// How long a producer waits before it produces again, and a group before its next round.
    pub(crate) fn pause(&self) -> Duration {
        self.timeout / PRODUCES_PER_TIMEOUT
    }

    /// How long after a request its contested condition comes about, in the stall of this number.
    pub(crate) fn contested(&self, stall: u32) -> Duration {
        // Seven and eight have no common divisor: every step has its turn.
        self.timeout.saturating_sub(CONTEST)
            + CONTEST * 2 * (stall * 7 % (CONTEST_STEPS + 1)) / CONTEST_STEPS
    }

    /// When a partition or group, one of so many, begins to differ from the others: they should not all stall at once.
    pub(crate) fn first_round(&self, index: u32, of: u32) -> Duration {
        self.timeout + self.timeout * 2 * index / of
    }

    /// When the load gives up.
    pub(crate) fn patience(&self) -> Duration {
        self.end + PATIENCE
    }
}
