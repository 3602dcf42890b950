//! Clocks: how they move, and the faults that befall them.

use std::time::{Duration, Instant};

use corewheel::AddErrorReason;

use super::{Kind, State, World, nanos};
use crate::{
    coverage::{Fault, Operation},
    ledger::Payload,
    plan::{Id, Moves, Nanos, Way},
};

/// How far a clock goes at once to where a shard wants to be turned: else an episode were over soon.
const WAIT_MAX: Nanos = 100 * 86_400 * 1_000_000_000;

impl World {
    /// `wait` is how long a shard wants to wait, where that is asked for.
    pub(crate) fn move_clock(&mut self, core: usize, moves: Moves, wait: Option<Nanos>) {
        let fault = match moves {
            Moves::On(_) | Moves::ToNext(_) => None,
            Moves::Back(_) => Some(Fault::ClockBack),
            Moves::Jump(_) => Some(Fault::ClockJump),
            Moves::Years(_) => Some(Fault::ClockYears),
            Moves::Stall(_) => Some(Fault::ClockStall),
        };
        match fault {
            Some(fault) => self.fault(fault, core),
            None => self.operation(Operation::TimePasses, self.cores[core].lives[0]),
        }
        match moves {
            Moves::Stall(moves) => self.cores[core].stalls = moves,
            Moves::Back(by) => self.set_clock(core, self.clock(core).saturating_sub(by)),
            Moves::On(by) | Moves::Jump(by) | Moves::Years(by) => self.pass(core, by),
            Moves::ToNext(_) => self.pass(core, wait.filter(|&wait| wait <= WAIT_MAX).unwrap_or(0)),
        }
    }

    fn pass(&mut self, core: usize, by: Nanos) {
        let of = &mut self.cores[core];
        if of.stalls > 0 {
            of.stalls -= 1;
            return self.coverage.fault_goes_on(Fault::ClockStall, core);
        }
        self.set_clock(core, self.clock(core).saturating_add(by));
    }

    fn set_clock(&mut self, core: usize, to: Nanos) {
        let of = &mut self.cores[core];
        of.clock.set(Duration::from_nanos(to));
        of.farthest = of.farthest.max(to);
    }

    /// The latest time that a shard knows of.
    pub(crate) fn latest(&self, life: usize) -> Nanos {
        let life = &self.lives[life];
        life.latest.max(self.clock(life.core))
    }

    /// The moment to which a timer is added, where that is given.
    pub(crate) fn moment(&self, id: Id, way: Way, delay: Nanos) -> Nanos {
        let now = self.clock(self.lives[self.timer(id).life].core);
        if way == Way::At(true) { now.saturating_sub(delay) } else { now.saturating_add(delay) }
    }

    pub(crate) fn instant(&self, id: Id, way: Way, delay: Nanos) -> Instant {
        let clock = &self.cores[self.lives[self.timer(id).life].core].clock;
        let origin = clock.now().checked_sub(clock.elapsed()).expect("it showed that");
        origin + Duration::from_nanos(self.moment(id, way, delay))
    }

    /// What a shard's clock shows at an instant.
    pub(crate) fn nanos_at(&self, life: usize, instant: Instant) -> Nanos {
        let clock = &self.cores[self.lives[life].core].clock;
        nanos((instant + clock.elapsed()).saturating_duration_since(clock.now()))
    }

    // ---- odds and ends

    /// A payload that is of no timer.
    pub(crate) fn stray(&mut self, life: usize) -> Payload {
        self.lives[life].refused += 1;
        self.ledger.stray(life)
    }

    pub(crate) fn refused_elsewhere(
        &mut self,
        id: Id,
        reason: AddErrorReason,
        is_full: Option<bool>,
        gone: bool,
    ) {
        let life = self.timer(id).life;
        self.timers[id as usize].state = State::Refused;
        self.lives[life].refused += 1;
        let truth = if gone { AddErrorReason::ShutDown } else { AddErrorReason::Full };
        let is_expected = is_full != Some(false) && reason == truth;
        self.expect(is_expected, || format!("timer {id} was refused from elsewhere: {reason}"));
        if reason == AddErrorReason::Full {
            let life = &mut self.lives[life];
            // What waits may be room.
            if let Some(asleep) = &mut life.asleep {
                asleep.may_wake = true;
            }
            let core = life.core;
            self.fault(Fault::Full, core);
        }
    }

    /// The operations of a purgatory that wait.
    pub(crate) fn delayed(&self, life: usize) -> impl Iterator<Item = Id> {
        let live = self.lives[life].live.iter().map(|&(_, id)| id);
        live.filter(|&id| self.timer(id).kind == Kind::Delayed)
    }
}
