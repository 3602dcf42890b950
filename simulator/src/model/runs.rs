//! Timers that run, and timers that end with their shard.

use corewheel::{Cancel, TimerHandle};

use super::{Kind, State, World};
use crate::{
    bug::Bug,
    plan::{Id, Nanos, Script},
};

impl World {
    /// A timer runs, or is handed out: what it does. Never early, in order, once, and not after its end.
    pub(crate) fn fires(&mut self, id: Id) -> Script {
        let comes_in_order = self.comes_in_order(id);
        self.expect_due(id, comes_in_order);
        let was_live = self.timer(id).state == State::Live;
        if was_live {
            self.displace(id);
        }
        let timer = &mut self.timers[id as usize];
        timer.state = State::Running;
        let life = &mut self.lives[timer.life];
        life.runs += 1;
        life.fired += u64::from(timer.kind != Kind::Periodic);
        if let Some(turn) = &mut life.turn {
            turn.fired += 1;
            if comes_in_order {
                turn.order = turn.order.max(timer.ticks[0]);
            }
        }
        self.coverage.fired += 1;
        self.timer(id).script
    }

    /// Whether the shard knew of it when its turn began, and had not come to its tick before.
    fn comes_in_order(&self, id: Id) -> bool {
        let timer = self.timer(id);
        let life = &self.lives[timer.life];
        let Some(turn) = &life.turn else { return false };
        let after = turn.in_order_after.filter(|_| timer.asked_in < life.turns);
        timer.moved_in != life.turns
            && (!timer.asked || after.is_some_and(|after| timer.ticks[0] > after))
    }

    fn expect_due(&mut self, id: Id, comes_in_order: bool) {
        let timer = self.timer(id).clone();
        self.expect(timer.state == State::Live, || {
            format!("timer {id} fired, and was {:?}", timer.state)
        });
        let life = &self.lives[timer.life];
        let (now, number) = (life.turn_now, life.turns);
        let order = life.turn.as_ref().map(|turn| turn.order);
        let [due, _] = timer.due;
        self.expect(order.is_some(), || format!("timer {id} fired outside of a turn"));
        self.expect(due <= now, || format!("timer {id} fired {} ns early", due - now));
        // Unless another core has moved it meanwhile.
        self.expect(timer.added_in != number || timer.asked, || {
            format!("timer {id} fired in the turn that added it")
        });
        let in_order = !comes_in_order || order.is_none_or(|order| timer.ticks[1] >= order);
        self.expect(in_order, || {
            format!("timer {id}, due at tick {:?}, fired after tick {order:?}", timer.ticks)
        });
    }

    /// A payload that fired was handed out: its timer has ended.
    pub(crate) fn handed_out(&mut self, id: Id) {
        self.timers[id as usize].state = State::Ended;
    }

    /// The deadline that comes with a payload.
    pub(crate) fn expect_deadline(&mut self, id: Id, deadline: Nanos) {
        let timer = self.timer(id);
        let life = &self.lives[timer.life];
        let [first, last] = timer.ticks.map(|tick| life.start(tick));
        let is_right = first <= deadline && (deadline <= last || timer.asked);
        self.expect(is_right, || {
            format!("timer {id} says it was due at {deadline}, not at {first} to {last}")
        });
    }

    /// A run of a periodic timer is over.
    pub(crate) fn run_is_over(&mut self, id: Id) {
        let timer = &mut self.timers[id as usize];
        let life = &mut self.lives[timer.life];
        if timer.state == State::Stopping {
            life.cancelled += 1;
            if let Some(turn) = &mut life.turn {
                turn.cancelled += 1;
            }
            return;
        }
        let (now, period) = (life.turn_now, timer.period);
        let next = |due: Nanos| {
            let missed = now.saturating_sub(due) / period;
            due.saturating_add(period.saturating_mul(missed.saturating_add(1)))
        };
        timer.state = State::Live;
        let due = timer.due.map(next);
        self.place(id, due);
        // It is not this turn that moved it: it is due later.
        self.timers[id as usize].moved_in = 0;
    }

    /// A payload is being dropped: whom it cancels.
    pub(crate) fn drops(&self, id: Id) -> Option<Id> {
        match self.timer(id).script {
            Script::DropCancel(other) => Some(other),
            _ => None,
        }
    }

    /// A payload has been dropped: the last that is heard of its timer.
    pub(crate) fn has_dropped(&mut self, id: Id) {
        let timer = &mut self.timers[id as usize];
        if matches!(timer.state, State::Running | State::Stopping) {
            timer.state = State::Ended;
        }
    }

    /// Whether this payload is to be kept for ever: a bug on purpose.
    pub(crate) fn keeps(&self, id: Id) -> bool {
        self.bug == Some(Bug::KeepsPayloads) && id.is_multiple_of(5)
    }

    // ---- the end

    /// A shard ends, and its timers with it: which ones those are.
    pub(crate) fn ends(&mut self, number: usize) -> Vec<Id> {
        let life = &mut self.lives[number];
        life.has_ended = true;
        let live: Vec<_> = std::mem::take(&mut life.live).into_iter().map(|(_, id)| id).collect();
        for &id in &live {
            self.timers[id as usize].state = State::Ended;
        }
        live
    }

    /// A shard was drained: each of its timers came back, with its deadline.
    pub(crate) fn drained(&mut self, mut live: Vec<Id>, handed_back: &[(Nanos, Id)]) {
        let mut ids: Vec<_> = handed_back.iter().map(|&(_, id)| id).collect();
        ids.sort_unstable();
        live.sort_unstable();
        self.expect(ids == live, || format!("{ids:?} came back of {live:?}"));
        for &(deadline, id) in handed_back {
            self.expect_deadline(id, deadline);
        }
    }

    /// Nothing of a shard that has ended is left: all its payloads are dropped, and what panicked was reported.
    pub(crate) fn expect_nothing_left(&mut self, number: usize) {
        let life = &self.lives[number];
        let (expected, dropped) = (life.added + life.refused, self.ledger.dropped(number));
        self.expect(dropped == expected, || {
            format!("of {expected} payloads of shard {number} {dropped} were dropped")
        });
        let (planned, reported) = (self.ledger.planned(number), self.ledger.reported(number));
        self.expect(planned == reported, || {
            format!("{reported} of {planned} panics were reported")
        });
    }

    /// The end of all: each payload was dropped once, and no handle reaches anything.
    pub(crate) fn expect_the_end(&mut self) {
        for id in 0..self.timers.len() {
            let (state, drops) = (self.timers[id].state, self.ledger.drops(id));
            let expected = u8::from(state != State::Unborn);
            self.expect(drops == expected, || {
                format!("the payload of timer {id} was dropped {drops} times")
            });
            let is_over = matches!(state, State::Unborn | State::Refused | State::Ended);
            self.expect(is_over, || format!("timer {id} is {state:?} after the end"));
            let answer = self.timers[id].handle.map_or(Cancel::Ended, TimerHandle::cancel);
            self.expect(answer == Cancel::Ended, || {
                format!("cancel of timer {id} after the end: {answer:?}")
            });
        }
    }
}
