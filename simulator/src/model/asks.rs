//! What is asked of timers, and what must be answered.

use std::sync::Arc;

use corewheel::{AddErrorReason, Cancel, TimerHandle};

use super::{Kind, State, World};
use crate::{
    bug::Bug,
    coverage::{Fault, Operation},
    ledger::Payload,
    plan::{Id, Nanos, Script},
};

/// A cancel that is about to be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<R> {
    /// None if it belongs to one core.
    pub(crate) handle: Option<TimerHandle>,
    pub(crate) answer: R,
    /// By its owner, on whose thread this is.
    pub(crate) own: bool,
}

impl World {
    // ---- adding

    /// A payload for a timer that is about to be added, whose number no timer has.
    pub(crate) fn payload(&mut self, id: Id, life: usize, script: Script) -> Option<Payload> {
        let timer = &mut self.timers[id as usize];
        if timer.state != State::Unborn {
            return None;
        }
        (timer.life, timer.script) = (life, script);
        Some(Arc::clone(&self.ledger).payload(id, life, script == Script::DropPanic))
    }

    /// The owner reads the clock.
    pub(crate) fn read(&mut self, life: usize) -> Nanos {
        let now = self.clock(self.lives[life].core);
        self.lives[life].read(now)
    }

    /// A timer was added by its owner, due between two moments, or refused.
    pub(crate) fn added(&mut self, id: Id, kind: Kind, due: [Nanos; 2], period: Nanos) {
        let timer = &mut self.timers[id as usize];
        (timer.state, timer.kind, timer.period) = (State::Live, kind, period);
        let life = &mut self.lives[timer.life];
        life.added += 1;
        if let Some(turn) = &mut life.turn {
            turn.nested += 1;
            timer.added_in = life.turns;
        }
        self.place(id, due);
    }

    /// A timer that is live stands where its owner puts it.
    pub(super) fn place(&mut self, id: Id, due: [Nanos; 2]) {
        let timer = &mut self.timers[id as usize];
        let life = &mut self.lives[timer.life];
        timer.due = due;
        timer.ticks = due.map(|due| life.tick_of(due).max(life.target));
        timer.moved_in = if life.is_turning() { life.turns } else { 0 };
        life.live.insert((timer.ticks[1], id));
        life.wants(timer.ticks);
    }

    /// A timer that is live leaves its place.
    pub(super) fn displace(&mut self, id: Id) {
        let timer = self.timer(id);
        let (life, place) = (timer.life, (timer.ticks[1], id));
        self.lives[life].live.remove(&place);
    }

    /// A timer with some slack: where its owner may put it.
    pub(crate) fn within(&self, life: usize, due: Nanos, slack: Nanos) -> [Nanos; 2] {
        let life = &self.lives[life];
        let last = due.saturating_add(slack) / life.tick;
        [due, life.start(last.max(life.tick_of(due))).max(due)]
    }

    pub(crate) fn refused(&mut self, id: Id, reason: AddErrorReason, is_expected: bool) {
        let timer = &mut self.timers[id as usize];
        timer.state = State::Refused;
        let life = &mut self.lives[timer.life];
        life.refused += 1;
        let has_ended = life.has_ended;
        self.expect(is_expected, || format!("timer {id} was refused: {reason}"));
        let truth = if has_ended { AddErrorReason::ShutDown } else { AddErrorReason::Full };
        self.expect(reason == truth, || format!("timer {id} was refused: {reason}"));
        if reason == AddErrorReason::Full {
            let core = self.lives[self.timer(id).life].core;
            self.fault(Fault::Full, core);
        }
    }

    /// Whether a timer that another core adds will be refused; `None` if nobody can say.
    pub(crate) fn is_full_elsewhere(&self, life: usize) -> Option<bool> {
        let life = &self.lives[life];
        if life.has_ended {
            return Some(true);
        }
        let arriving = life.added - life.seen.added;
        let full = life.told + arriving >= life.limit as u64;
        (!life.is_turning() || life.limit == usize::MAX).then_some(full)
    }

    /// A timer was added by another core than its owner's.
    pub(crate) fn added_elsewhere(&mut self, id: Id, due: Nanos) {
        let timer = &mut self.timers[id as usize];
        (timer.state, timer.is_guest, timer.unarrived) = (State::Live, true, true);
        let life = &mut self.lives[timer.life];
        life.added += 1;
        life.unarrived += 1;
        self.ask(id, true);
        self.place_elsewhere(id, due);
    }

    fn place_elsewhere(&mut self, id: Id, due: Nanos) {
        let timer = &mut self.timers[id as usize];
        let life = &mut self.lives[timer.life];
        let tick = life.tick_of(due);
        (timer.due, timer.ticks) = ([due; 2], [tick; 2]);
        timer.moved_in = if life.is_turning() { life.turns } else { 0 };
        life.live.insert((tick, id));
        life.wants([tick; 2]);
    }

    /// What another core takes for the time of a shard.
    pub(crate) fn read_elsewhere(&self, life: usize) -> Nanos {
        let life = &self.lives[life];
        life.read_elsewhere(self.clock(life.core))
    }

    /// The owner of a timer gets a message.
    fn ask(&mut self, id: Id, urgent: bool) {
        let timer = &mut self.timers[id as usize];
        let life = &mut self.lives[timer.life];
        life.urgent |= urgent;
        timer.asked_in = life.turns;
        if !timer.asked {
            timer.asked = true;
            life.asked.push(id);
        }
        if let Some(turn) = &mut life.turn {
            turn.came += 1;
        }
    }

    // ---- ending

    /// What a cancel will be told, and that it has been. `own`: by its owner.
    pub(crate) fn foresee_cancel(&mut self, id: Id, own: bool) -> Asked<Cancel> {
        let timer = &mut self.timers[id as usize];
        let handle = timer.handle;
        let answer = match timer.state {
            State::Live => Cancel::Cancelled,
            State::Running | State::Stopping => {
                if timer.kind == Kind::Periodic {
                    timer.state = State::Stopping;
                }
                Cancel::Running
            }
            _ => Cancel::Ended,
        };
        if answer == Cancel::Cancelled {
            self.cancelled(id, own);
        }
        Asked { handle, answer, own }
    }

    fn cancelled(&mut self, id: Id, own: bool) {
        self.displace(id);
        let timer = &mut self.timers[id as usize];
        timer.state = State::Ended;
        let life = &mut self.lives[timer.life];
        life.cancelled += 1;
        let was_unarrived = timer.unarrived;
        match (own, was_unarrived) {
            // It is counted now.
            (true, true) => {
                timer.unarrived = false;
                life.unarrived = life.unarrived.saturating_sub(1);
            }
            (true, false) => (),
            (false, _) => {
                life.needless += 1;
                life.held += u64::from(!was_unarrived);
                self.ask(id, false);
            }
        }
        let life = &mut self.lives[self.timers[id as usize].life];
        if let Some(turn) = life.turn.as_mut().filter(|_| own) {
            turn.cancelled += 1;
            turn.nested += 1;
        }
    }

    pub(crate) fn answered(&mut self, id: Id, asked: Asked<Cancel>, answer: Cancel) {
        self.expect(answer == asked.answer, || {
            format!("cancel of timer {id}: {answer:?}, not {:?}", asked.answer)
        });
        let is_dropped = self.ledger.drops(id as usize) == 1;
        let must_be = asked.own && asked.answer == Cancel::Cancelled;
        self.expect(is_dropped || !must_be, || {
            format!("the payload of timer {id}, cancelled by its owner, is kept")
        });
    }

    // ---- moving

    /// What a reset will be told, and that it has been.
    pub(crate) fn foresee_reset(&mut self, id: Id, delay: Nanos, own: bool) -> Asked<bool> {
        let &super::Timer { state, life, handle, .. } = self.timer(id);
        let answer = state == State::Live;
        // It may want a turn where the timer was.
        self.lives[life].needless += u64::from(answer);
        if answer && own {
            let due = self.read(life).saturating_add(delay);
            self.displace(id);
            self.place(id, [due; 2]);
            if let Some(turn) = &mut self.lives[life].turn {
                turn.nested += 1;
            }
        } else if answer {
            let due = self.read_elsewhere(life).saturating_add(delay);
            self.displace(id);
            self.ask(id, true);
            self.place_elsewhere(id, due);
        }
        Asked { handle, answer, own }
    }

    /// Whether it is not known what this core does for a reset: of a timer that came from elsewhere and has ended, it may or may
    /// not read its clock, also if another shard that had its number is meant. It makes no difference if it has done so before.
    pub(crate) fn is_open(&self, id: Id, core: usize) -> bool {
        let timer = self.timer(id);
        let latest = self.lives[self.cores[core].lives[0]].latest;
        timer.is_guest && timer.state == State::Ended && self.clock(core) != latest
    }

    // ---- coverage

    /// Which operation it is that asks something of a timer.
    pub(crate) fn asks(&mut self, id: Id, own: bool, operations: [Operation; 2]) {
        let &super::Timer { state, life, .. } = self.timer(id);
        let [by_owner, elsewhere] = operations;
        let fresh = if own { by_owner } else { elsewhere };
        let is_stale = matches!(state, State::Ended | State::Refused);
        self.operation(if is_stale { Operation::StaleHandle } else { fresh }, life);
    }

    /// Whether this cancel is to be lost: a bug on purpose.
    pub(crate) fn loses(&self, id: Id) -> bool {
        self.bug == Some(Bug::LosesCancels) && id.is_multiple_of(7)
    }
}
