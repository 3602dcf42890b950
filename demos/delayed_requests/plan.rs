//! How many clients there are, and when they do what. Times count from the start of the run.

use std::ops::Range;
use std::time::Duration;

/// The clients of a partition.
pub(crate) const FOLLOWERS: Range<usize> = 0..2;
pub(crate) const PRODUCERS: Range<usize> = 2..6;
pub(crate) const CONSUMERS: Range<usize> = 6..10;
/// The number of clients of a group.
pub(crate) const MEMBERS: usize = 5;

/// How many requests a producer can send within one timeout.
const PRODUCES_PER_TIMEOUT: u32 = 5;
/// The largest distance between a contested condition and the timeout, and the number of steps from one side to the
/// other.
const CONTEST: Duration = Duration::from_millis(2);
const CONTEST_STEPS: u32 = 8;
/// How long the load waits after the planned end for answers.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) partitions: u32,
    pub(crate) groups: u32,
    /// The timeout of all requests except those of followers.
    pub(crate) timeout: Duration,
    pub(crate) run: Duration,
}

impl Plan {
    pub(crate) fn connections(&self) -> usize {
        self.partitions as usize * CONSUMERS.end + self.groups as usize * MEMBERS
    }

    /// No round begins after this. One that has just begun takes a timeout, and then the followers wait in vain.
    pub(crate) fn last_call(&self) -> Duration {
        self.run.saturating_sub(self.timeout + self.follower_timeout() + self.timeout / 2)
    }

    /// The load gives up at this time.
    pub(crate) fn give_up(&self) -> Duration {
        self.run + PATIENCE
    }

    /// A follower's request must outlast a stall of the other follower, during which nothing is appended.
    pub(crate) fn follower_timeout(&self) -> Duration {
        self.timeout * 2
    }

    /// How long a producer waits before its next request, and a group before its next round.
    pub(crate) fn pause(&self) -> Duration {
        self.timeout / PRODUCES_PER_TIMEOUT
    }

    /// How long after a request its contested condition comes true, in the stall of this number.
    pub(crate) fn contested(&self, stall: u32) -> Duration {
        // 7 and 9 have no common divisor, so every step occurs.
        self.timeout.saturating_sub(CONTEST)
            + CONTEST * 2 * (stall * 7 % (CONTEST_STEPS + 1)) / CONTEST_STEPS
    }

    /// When the first round of a partition or group ends. They should not all stall at once.
    pub(crate) fn first_round(&self, index: u32, of: u32) -> Duration {
        self.timeout + self.timeout * 2 * index / of
    }
}
