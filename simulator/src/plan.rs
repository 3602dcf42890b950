//! An episode as data: what is done, by whom, in which order. It is drawn from a seed and refers to timers by number, so that
//! any part of it can be left out and the rest still means the same.

mod draw;

use std::fmt;

pub(crate) use self::draw::draw;

/// Virtual cores of an episode, each an operating system's thread.
pub(crate) const CORES: usize = 4;

/// Shards of a core: the thread's own timer, and others.
pub(crate) const PLACES: usize = 3;

/// An episode.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) setting: Setting,
    pub(crate) steps: Vec<Step>,
    /// Numbers of timers are below this.
    pub(crate) timers: usize,
}

/// What does not change in an episode.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Of each place, in nanoseconds.
    pub(crate) ticks: [u64; PLACES],
    pub(crate) limits: [usize; PLACES],
    /// Timers that memory is reserved for.
    pub(crate) capacity: usize,
    /// What each core's clock shows at first.
    pub(crate) starts: [u64; CORES],
}

/// One core does one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) core: usize,
    pub(crate) act: Act,
}

/// A timer by its number.
pub(crate) type Id = u32;

/// In nanoseconds.
pub(crate) type Nanos = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Add {
        id: Id,
        place: usize,
        way: Way,
        delay: Nanos,
        more: Nanos,
        script: Script,
    },
    AddElsewhere {
        id: Id,
        to: usize,
        at_once: bool,
        delay: Nanos,
        script: Script,
    },
    Cancel {
        id: Id,
        how: How,
    },
    Reset {
        id: Id,
        delay: Nanos,
        by_handle: bool,
    },
    Ask {
        id: Id,
    },
    Share {
        id: Id,
    },
    Turn {
        place: usize,
        budget: Option<usize>,
        give_up: Option<usize>,
    },
    Look {
        place: usize,
        at: At,
    },
    Sleep {
        place: usize,
    },
    Drain {
        place: usize,
    },
    Exchange {
        place: usize,
    },
    Clock {
        of: usize,
        moves: Moves,
    },
    /// Waits for an event on a key, or for its timeout.
    Watch {
        id: Id,
        key: u8,
        delay: Nanos,
        script: Script,
    },
    Event {
        key: u8,
        is_met: bool,
    },
    Force {
        id: Id,
    },
    HandBack {
        key: u8,
    },
    // Faults besides those of clocks and of scripts.
    DropShard {
        place: usize,
    },
    Flood {
        with: With,
        first: Id,
        count: u32,
        to: usize,
        delay: Nanos,
    },
    WakePanics {
        of: usize,
    },
    Exit,
}

/// How a timer is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    /// To an instant; if set, one that has passed.
    At(bool),
    Within,
    Spread,
    Periodic,
    Local,
    Try,
}

/// How a timer is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By its shard, where that is at hand.
    Own,
    Handle,
    Wait,
    Guard,
}

/// What a core asks of a shard of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    NextDeadline,
    TimeUntilNext,
    Counts,
}

/// What happens to a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    On(Nanos),
    /// To where a shard of the core wants to be turned.
    ToNext(usize),
    Back(Nanos),
    Jump(Nanos),
    Years(Nanos),
    /// It misses so many moves.
    Stall(u8),
}

/// What a flood is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    Adds,
    Cancels,
    Resets,
}

/// What a callback does, or the loop that is handed a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Nothing,
    Panic,
    /// When it is dropped.
    DropPanic,
    DropCancel(Id),
    Add(Id, Nanos),
    Cancel(Id),
    CancelSelf,
    Reset(Id, Nanos),
    Turn,
    /// Other cores go on meanwhile.
    Pause,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core {}: {:?}", self.core, self.act)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ticks, limits, starts, .. } = self;
        write!(
            f,
            "by place: ticks of {ticks:?} ns, at most {limits:?} timers; by core: from {starts:?} ns on"
        )
    }
}

impl Plan {
    /// Shards that an episode makes at most: at first, and in place of those that end.
    pub(crate) fn lives(&self) -> usize {
        let made = |act: &Act| match act {
            Act::Exit => PLACES,
            Act::Drain { .. } | Act::DropShard { .. } => 1,
            _ => 0,
        };
        CORES * PLACES + 1 + self.steps.iter().map(|step| made(&step.act)).sum::<usize>()
    }

    pub(crate) fn with_steps(&self, steps: Vec<Step>) -> Self {
        Self { steps, ..self.clone() }
    }
}
