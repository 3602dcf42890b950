//! Turns: what must have happened in one.

use corewheel::Counts;

use super::{World, life::Turn};
use crate::{bug::Bug, plan::Id};

/// A turn meets so many at most.
const MESSAGES: u64 = 1024;

/// What a turn says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) fired: usize,
    pub(crate) collected: Option<usize>,
    pub(crate) behind: bool,
    /// Zero: at once.
    pub(crate) time_until_next: Option<u64>,
    /// It was given up before its end.
    pub(crate) given_up: bool,
}

impl World {
    /// `wait` is what the shard says of when it wants to be turned.
    pub(crate) fn turn_begins(
        &mut self,
        number: usize,
        budget: Option<usize>,
        before: Counts,
        wait: Option<u64>,
    ) {
        let mut now = self.read(number);
        // At the end of time there is no later.
        let is_early = before.queued == 0 && !self.lives[number].behind && now < u64::MAX;
        let is_wanted = wait == Some(0) && is_early;
        let life = &mut self.lives[number];
        if self.bug == Some(Bug::LateTurns) {
            now = now.saturating_add(3 * life.tick);
        }
        life.turn_now = now;
        let meets_all =
            before.queued <= budget.map_or(MESSAGES, |budget| MESSAGES.min(budget as u64));
        let in_order_after = meets_all.then_some(life.target);
        life.target = life.target.max(now / life.tick);
        life.turns += 1;
        if let Some(asleep) = &mut life.asleep {
            // It may be woken for a debt that the turn takes in.
            asleep.may_wake = true;
        }
        life.turn = Some(Turn { before, is_wanted, in_order_after, ..Turn::default() });
    }

    /// Other threads hear how many timers there are.
    pub(crate) fn tells(&mut self, number: usize, live: u64) {
        self.lives[number].told = live;
    }

    pub(crate) fn turn_ends(
        &mut self,
        number: usize,
        budget: Option<usize>,
        said: Said,
        after: Counts,
    ) {
        let Some(turn) = self.lives[number].turn.take() else { return };
        self.expect(said.fired == turn.fired, || format!("{said:?}, but {} ran", turn.fired));
        let collected = after.cancelled - turn.before.cancelled - turn.cancelled;
        let says_so = said.collected.is_none_or(|said| said as u64 == collected);
        self.expect(says_so, || format!("{said:?}, but {collected} were collected"));
        if let Some(budget) = budget {
            self.expect_within(budget, &turn, collected, &after);
        }
        let life = &mut self.lives[number];
        (life.told, life.behind) = (after.live, said.behind || said.given_up);
        life.partly |= !life.asked.is_empty();
        life.was_nested = turn.nested > 0;
        let is_over = !said.behind && !said.given_up;
        if after.queued == 0 && is_over {
            self.settled(number);
        }
        if turn.is_wanted && turn.fired == 0 && budget.is_none() && !said.given_up {
            self.was_needless(number);
        }
        self.expect_messages_taken(budget, said, &turn, &after);
        self.expect_nothing_late(number, is_over, said, turn.order);
    }

    /// The shard wanted this turn, in which nothing fired.
    fn was_needless(&mut self, number: usize) {
        let left = self.lives[number].needless.checked_sub(1);
        self.expect(left.is_some(), || format!("shard {number} wanted a turn for nothing"));
        self.lives[number].needless = left.unwrap_or(0);
        self.coverage.needless += 1;
    }

    /// A budget bounds all that is touched.
    fn expect_within(&mut self, budget: usize, turn: &Turn, collected: u64, after: &Counts) {
        let touched = after.touched - turn.before.touched;
        let (most, nested) = (budget as u64, turn.nested);
        let fits =
            turn.fired <= 2 * budget && collected <= most && touched <= 6 * most + 4 * nested;
        self.expect(fits, || {
            format!("a budget of {budget}: {turn:?}, {touched} touched, {collected} collected")
        });
    }

    /// A turn takes in so many messages, and all of them if there are no more.
    fn expect_messages_taken(
        &mut self,
        budget: Option<usize>,
        said: Said,
        turn: &Turn,
        after: &Counts,
    ) {
        let most = budget.map_or(MESSAGES, |budget| MESSAGES.min(budget as u64));
        let (before, came) = (turn.before.queued, turn.came);
        let (taken, left) = (before.saturating_sub(after.queued), after.queued);
        let what =
            || format!("{before} messages, {came} came, {left} left of at most {most}: {said:?}");
        self.expect(taken <= most, what);
        // Those that came meanwhile may be there as well, or may be the same.
        let least = if said.given_up { 0 } else { before.min(most) };
        self.expect(taken + came >= least, what);
        let takes_all = budget.is_none() && before + came <= MESSAGES && !said.given_up;
        self.expect(!takes_all || !said.behind, what);
    }

    /// The mailbox is empty, and all that was in it has been dealt with.
    fn settled(&mut self, number: usize) {
        let life = &mut self.lives[number];
        (life.urgent, life.partly, life.unarrived, life.held) = (false, false, 0, 0);
        for id in life.asked.drain(..) {
            let timer = &mut self.timers[id as usize];
            (timer.asked, timer.unarrived) = (false, false);
        }
        let life = &self.lives[number];
        let expected = life.added + life.refused - life.live.len() as u64;
        let dropped = self.ledger.dropped(number);
        self.expect(dropped == expected, || {
            format!("of {expected} payloads of timers that ended {dropped} were dropped")
        });
    }

    /// Whatever was due has run; what a budget has left comes after what ran, and the shard says so.
    fn expect_nothing_late(&mut self, number: usize, is_over: bool, said: Said, order: u64) {
        let Some((tick, id)) = self.earliest_known(number) else { return };
        let is_due = tick <= self.lives[number].target;
        self.expect(tick >= order, || {
            format!("timer {id}, due at tick {tick}, was left, and tick {order} ran")
        });
        self.expect(!is_due || !is_over, || {
            format!("timer {id}, due at tick {tick}, did not fire")
        });
        let says_so = said.given_up || said.behind && said.time_until_next == Some(0);
        self.expect(!is_due || says_so, || format!("timer {id} was left at tick {tick}: {said:?}"));
    }

    /// The first of those that no message is about, and that were not moved in this turn.
    fn earliest_known(&self, number: usize) -> Option<(u64, Id)> {
        let life = &self.lives[number];
        let is_known = |id: Id| {
            let timer = self.timer(id);
            !timer.asked && timer.moved_in != life.turns
        };
        life.live.iter().copied().find(|&(_, id)| is_known(id))
    }
}
