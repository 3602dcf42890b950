//! What must be true: every timer's deadline and standing, and what each shard must say. Plain on purpose.
//!
//! The model is told what is about to be asked, foresees the answer, and is shown the one that came. Where the library leaves
//! something open (when a spread timer fires, how far a turn with a budget came), the model has bounds.

mod asks;
mod clocks;
mod compare;
mod life;
mod runs;
mod turns;

use std::{sync::Arc, time::Duration};

use corewheel::{Config, ManualClock, Shard, ShardRef, TimerHandle};

pub(crate) use self::{life::Life, turns::Said};
use crate::{
    bug::Bug,
    coverage::{Coverage, Fault, Operation},
    ledger::{Ledger, Payload},
    plan::{CORES, Id, Nanos, PLACES, Plan, Script, Setting},
};

/// All that is known of an episode. Whichever thread runs has it.
#[derive(Debug)]
pub(crate) struct World {
    setting: Setting,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) timers: Vec<Timer>,
    pub(crate) lives: Vec<Life>,
    pub(crate) cores: Vec<OfCore>,
    /// A shard on its way from one core to another, and which one it is.
    pub(crate) luggage: Option<(usize, Shard<Payload>)>,
    pub(crate) coverage: Coverage,
    /// What was found to be wrong first.
    pub(crate) wrong: Option<String>,
    /// How far the episode has come.
    pub(crate) step: usize,
    /// Shards of the thread that ends next.
    pub(crate) ending: Vec<usize>,
    /// An event that completes those who watch its key is under way.
    pub(crate) is_met: bool,
    pub(crate) bug: Option<Bug>,
}

/// What all know of a core.
#[derive(Debug)]
pub(crate) struct OfCore {
    pub(crate) clock: ManualClock,
    /// Moves of the clock that it will miss.
    pub(crate) stalls: u8,
    pub(crate) lives: [usize; PLACES],
    pub(crate) shard: Option<ShardRef>,
    /// The timer of a thread that has ended.
    pub(crate) gone: Option<ShardRef>,
    pub(crate) farthest: Nanos,
}

/// What is known of a timer.
#[derive(Clone, Debug)]
pub(crate) struct Timer {
    pub(crate) state: State,
    pub(crate) kind: Kind,
    pub(crate) life: usize,
    pub(crate) handle: Option<TimerHandle>,
    /// As it was asked for: between these two.
    due: [Nanos; 2],
    period: Nanos,
    /// The tick at which it fires is between these two.
    ticks: [u64; 2],
    /// The turn of its shard in which it was added, or moved.
    added_in: u64,
    moved_in: u64,
    /// Its owner may have a message about it and not know yet.
    asked: bool,
    /// In which turn of its shard, or after which, it was last asked for.
    asked_in: u64,
    /// Added by another core, and whether it is known to have arrived.
    is_guest: bool,
    unarrived: bool,
    pub(crate) script: Script,
    pub(crate) key: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unborn,
    Refused,
    Live,
    Running,
    /// Running, and it will not run again.
    Stopping,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Once,
    Periodic,
    /// Of a purgatory.
    Delayed,
}

impl Timer {
    const UNBORN: Self = Self {
        state: State::Unborn,
        kind: Kind::Once,
        life: usize::MAX,
        handle: None,
        due: [0; 2],
        period: 0,
        ticks: [0; 2],
        added_in: 0,
        moved_in: 0,
        asked: false,
        asked_in: 0,
        is_guest: false,
        unarrived: false,
        script: Script::Nothing,
        key: 0,
    };
}

impl World {
    pub(crate) fn new(plan: &Plan, bug: Option<Bug>) -> Self {
        let core = |start: Nanos| {
            let clock = ManualClock::new();
            clock.set(Duration::from_nanos(start));
            OfCore {
                clock,
                stalls: 0,
                lives: [usize::MAX; PLACES],
                shard: None,
                gone: None,
                farthest: start,
            }
        };
        Self {
            setting: plan.setting.clone(),
            ledger: Ledger::new(plan.timers, plan.lives()),
            timers: vec![Timer::UNBORN; plan.timers],
            lives: Vec::new(),
            cores: plan.setting.starts.into_iter().map(core).collect(),
            luggage: None,
            coverage: Coverage::default(),
            wrong: None,
            step: 0,
            ending: Vec::new(),
            is_met: false,
            bug,
        }
    }

    /// A shard is about to be made; its number, and how.
    pub(crate) fn new_life(&mut self, core: usize, place: usize) -> (usize, Config) {
        let (number, tick, limit) =
            (self.lives.len(), self.setting.ticks[place], self.setting.limits[place]);
        let clock = &self.cores[core].clock;
        let config = Config::new()
            .tick(Duration::from_nanos(tick))
            .clock(clock)
            .limit(limit)
            .capacity(self.setting.capacity);
        let config = self.ledger.hooks(config, number);
        self.lives.push(Life::new(core, tick, limit, nanos(clock.elapsed())));
        if place > 0 {
            self.cores[core].lives[place] = number;
        }
        (number, config)
    }

    /// What the clock of a core shows.
    pub(crate) fn clock(&self, core: usize) -> Nanos {
        nanos(self.cores[core].clock.elapsed())
    }

    pub(crate) fn timer(&self, id: Id) -> &Timer {
        &self.timers[id as usize]
    }

    /// Whether a timer is one of the thread's own timer, on this core.
    pub(crate) fn is_local(&self, id: Id, core: usize) -> bool {
        self.cores[core].lives[0] == self.timer(id).life
    }

    /// Remembers what is wrong, if it is the first.
    pub(crate) fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    /// An operation on a shard: under all faults that have befallen its core since the last one.
    pub(crate) fn operation(&mut self, operation: Operation, life: usize) {
        let core = self.lives.get(life).map_or(0, |life| life.core);
        self.coverage.operation(operation, core);
    }

    pub(crate) fn fault(&mut self, fault: Fault, core: usize) {
        self.coverage.fault(fault, core);
    }

    /// How far the clocks have come, the farthest of them.
    pub(crate) fn virtual_time(&self) -> Nanos {
        let passed = |core: usize| self.cores[core].farthest - self.setting.starts[core];
        (0..CORES).map(passed).max().unwrap_or(0)
    }
}

/// As clocks count it.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}
