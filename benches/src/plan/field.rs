//! Which peers can be compared in which passes at all. Who is of another kind is not even mentioned there.

use super::{Pass, Peer};

impl Peer {
    /// Whether the pass is about what it is.
    pub fn is_for(self, pass: Pass) -> bool {
        match pass {
            Pass::Mailbox => self.is_mailbox(),
            Pass::Asked => self.is_asked_from_elsewhere(),
            _ if pass.is_about_futures() => self.has_futures(),
            _ if pass.crosses_cores() => self.is_cancelled_from_elsewhere(),
            _ => !self.is_mailbox() && !self.is_for_two_cores() && !self.has_nothing_else(),
        }
    }

    fn is_mailbox(self) -> bool {
        let through_nodes =
            matches!(self, Self::Stack | Self::StackChain | Self::StackSingle | Self::SwapQueue);
        through_nodes
            || matches!(self, Self::SegQueue | Self::ArrayQueue | Self::StdMpsc | Self::Ring)
    }

    /// Sleeps of a task that somebody else's turns end.
    fn has_futures(self) -> bool {
        let tokio = matches!(self, Self::TokioSleep | Self::TokioThreads | Self::TokioAlt);
        let local = matches!(self, Self::CorewheelLocal | Self::CorewheelLocalFast);
        tokio || local || self.has_nothing_else()
    }

    fn has_nothing_else(self) -> bool {
        matches!(self, Self::CorewheelTimers | Self::PingoraTimeout)
    }

    /// One core's timers, made into something for two.
    fn is_for_two_cores(self) -> bool {
        matches!(self, Self::MutexStd | Self::MutexParkingLot | Self::MutexLinked64 | Self::Channel)
    }

    fn is_asked_from_elsewhere(self) -> bool {
        let has_an_owner =
            matches!(self, Self::CorewheelLocal | Self::CorewheelLocalFast | Self::TokioSleep);
        has_an_owner || self.is_for_two_cores()
    }

    fn is_cancelled_from_elsewhere(self) -> bool {
        let corewheel =
            matches!(self, Self::CorewheelShard | Self::CorewheelLocal | Self::CorewheelLocalFast);
        corewheel
            || self.is_for_two_cores()
            || matches!(self, Self::Floor | Self::TokioThreads | Self::TokioAlt)
    }
}

impl Pass {
    /// Whether one core cancels another core's timers in it.
    pub fn crosses_cores(self) -> bool {
        matches!(self, Self::Xcancel | Self::XcancelBoth | Self::Flood)
    }

    /// Whether its timers are those of tasks.
    pub(super) fn is_about_futures(self) -> bool {
        matches!(self, Self::Async | Self::AsyncReady | Self::AsyncLate)
    }

    pub(super) fn needs_two_cores(self) -> bool {
        self.crosses_cores() || matches!(self, Self::Asked | Self::Mailbox | Self::Scaling)
    }

    /// What a reader of its figures must know.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Self::Xcancel | Self::XcancelBoth => Some(
                "The call of channel is a request, without an answer. The local ones of corewheel and those of tokio \
                 read the machine's clock when they add; the others run in virtual time. Medians of the stretches in \
                 which no thread lost its core; where these are 0 %, of all, and the figure means little. Line: a cache \
                 line to the other core and back, before and after; what was measured when that took longer is not to be \
                 held against what was measured when it did not.",
            ),
            Self::Asked => Some(
                "The number is that of the requests that one core makes before the other takes them in, in one turn, \
                 which is a part of the figure; with one request most of it is the way of the lines. 10 000 timers are \
                 live. Neither waits for the other: what locks cost where they do, xcancel and flood show. channel \
                 gives no answer. corewheel and tokio go by the machine's clock, the others in virtual time. A sleep of \
                 tokio's is registered with the owner's runtime by who enters it, and what is run is spawned there.",
            ),
            Self::Async => Some(
                "Timeout: the next column less the one after, stretch by stretch. Left: 50 ms after as many were dropped; \
                 entries of pingora-timeout, each for all that end within 10 ms, stay until then and are not counted. \
                 Tasks of tokio-sleep and the local ones of corewheel stay on two runtimes of one thread each, the \
                 others move between two workers.",
            ),
            Self::AsyncLate => Some(
                "On the runtimes of one thread a task turns corewheel's timer once a millisecond; the threads of \
                 corewheel-timers sleep until something is due, 10 ms at most.",
            ),
            Self::Flood => Some(
                "Bounded: a turn takes in at most 256. As fast as it can: tokio's task yields after 64.",
            ),
            Self::Mailbox => Some("The number is that of the nodes that may be under way."),
            Self::Scaling => Some(
                "Empty: the floor of churn, in turns with the peer. Share: the peer's scaling by that. By the time \
                 that the threads ran.",
            ),
            _ => None,
        }
    }
}
