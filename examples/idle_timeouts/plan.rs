//! What every connection of the load will do, and when. All moments are counted from the start of the run.
//!
//! ```text
//! 0         connected                                                   quiet  end
//! |--connect--|------------------- leave --------------------------------|------|
//!             |------------------- fall silent -----------| idle + slack |
//!             |-- timer cancelled --|    silent for more than idle       |
//! ```
//!
//! Everything is spread evenly over its stretch: a burst of a thousand packets would measure the burst, not the timers.

use std::ops::Range;
use std::time::Duration;

/// How many packets a talking connection sends within one timeout. One would be lost in a pause of the machine; more
/// would only be more load.
const PACKETS_PER_IDLE: u32 = 3;
/// The last stretch, in which nothing is sent any more and the last echoes come back, and how much of a timeout it may
/// take at most: a talking connection must not be found silent in it.
const QUIET: Duration = Duration::from_millis(200);
const QUIET_PER_IDLE: u32 = 6;
/// How long the plan leaves the server for being late, before the run ends.
const SLACK: Duration = Duration::from_millis(300);

/// Ten kinds of numbers: one of ten connections falls silent, one leaves, one is released, seven talk.
const KINDS: u32 = 10;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Sends its packets to the end.
    Talks,
    /// Sends its last packet at this moment; the server must close it.
    FallsSilent(Duration),
    /// Is closed by the client at this moment.
    Leaves(Duration),
    /// Its idle timer is cancelled by the admin from this moment on. Once that is confirmed it falls silent, and must
    /// stay open.
    Released(Duration),
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) connections: u32,
    pub(crate) idle: Duration,
    /// How long a talking connection waits from packet to packet.
    pub(crate) pause: Duration,
    /// From here on nobody sends.
    pub(crate) quiet: Duration,
    pub(crate) end: Duration,
    connect: Duration,
}

impl Plan {
    pub(crate) fn new(connections: u32, idle: Duration, run: Duration) -> Self {
        Self {
            connections,
            idle,
            pause: idle / PACKETS_PER_IDLE,
            quiet: run.saturating_sub(QUIET.min(idle / QUIET_PER_IDLE)),
            end: run,
            connect: run / 6,
        }
    }

    /// When this connection is opened.
    pub(crate) fn connects_at(&self, id: u32) -> Duration {
        self.connect * id / self.connections
    }

    pub(crate) fn role(&self, id: u32) -> Role {
        // Connecting may take a little longer than planned, and a connection should have talked before it acts.
        let begin = self.connect + self.pause;
        let until = |end| self.moment(id, begin..end);
        match id % KINDS {
            0 => Role::FallsSilent(until(self.before_quiet(self.idle + SLACK))),
            1 => Role::Leaves(until(self.quiet)),
            2 => Role::Released(until(self.before_quiet(self.idle + self.pause + SLACK))),
            _ => Role::Talks,
        }
    }

    /// When a released connection, silent for long, sends one more packet, to show that it is still served.
    pub(crate) fn farewell(&self, id: u32) -> Duration {
        self.moment(id, self.before_quiet(SLACK / 2)..self.quiet)
    }

    /// So long before nobody sends any more. A run is long enough for whatever is asked here (see `args`).
    fn before_quiet(&self, time: Duration) -> Duration {
        self.quiet.saturating_sub(time)
    }

    /// The moment of this connection among those of its kind, spread evenly over the stretch.
    fn moment(&self, id: u32, stretch: Range<Duration>) -> Duration {
        let of_its_kind = self.connections.div_ceil(KINDS);
        let length = stretch.end.saturating_sub(stretch.start);
        stretch.start + length * (id / KINDS) / of_its_kind
    }
}
