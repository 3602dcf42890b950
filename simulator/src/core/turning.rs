//! Turns: of the thread's own timer, and passes of a shard that hands out payloads.

use std::{sync::Arc, time::Instant};

use corewheel::{Shard, local_timer};

use super::Core;
use crate::{
    asking,
    coverage::{Fault, Operation},
    here::with,
    ledger::Payload,
    model::Said,
    plan::{Id, Nanos, Script},
};

impl Core {
    pub(super) fn turn(&mut self, place: usize, budget: Option<usize>, give_up: Option<usize>) {
        let (life, before, wait) =
            (self.life(place), self.counts(place), self.time_until_next(place));
        with(|world| {
            let own = [Operation::Turn, Operation::TurnWithin];
            let shard = [Operation::ShardTurn, Operation::ShardTurnWithin];
            let kinds = if place == 0 { own } else { shard };
            world.operation(kinds[usize::from(budget.is_some())], life);
            world.turn_begins(life, budget, before, wait);
        });
        let mut said = match &mut self.shards[place] {
            None => turn_local(budget),
            Some((_, shard)) => pass(shard, budget, give_up),
        };
        said.time_until_next = self.time_until_next(place);
        let after = self.counts(place);
        with(|world| {
            world.turn_ends(life, budget, said, after);
            if said.given_up {
                let core = world.lives[life].core;
                world.fault(Fault::PassGivenUp, core);
            } else if !said.behind {
                world.expect_rest(life, said.time_until_next);
            }
        });
        self.compare(place);
    }
}

fn turn_local(budget: Option<usize>) -> Said {
    let turn =
        budget.map_or_else(|| local_timer().turn(), |budget| local_timer().turn_within(budget));
    let live = local_timer().len();
    with(|world| {
        world.expect(!turn.nested && turn.live == live, || format!("{turn:?}, but {live} live"))
    });
    let (fired, collected, behind) = (turn.fired, Some(turn.collected), turn.behind);
    Said { fired, collected, behind, time_until_next: None, given_up: false }
}

fn pass(shard: &mut Shard<Payload>, budget: Option<usize>, give_up: Option<usize>) -> Said {
    match budget {
        Some(budget) => shard.turn_within(budget),
        None => shard.turn(),
    }
    let (mut fired, most) = (0, give_up.unwrap_or(usize::MAX));
    let mut given_up = most == 0;
    while !given_up && let Some(expired) = shard.next_expired() {
        fired += 1;
        hand_out(shard, expired.payload, expired.deadline);
        given_up = fired == most;
    }
    Said { fired, collected: None, behind: shard.is_behind(), time_until_next: None, given_up }
}

/// The loop is handed a payload, and does what that says.
fn hand_out(shard: &mut Shard<Payload>, payload: Payload, deadline: Instant) {
    let id = payload.id;
    let (script, ledger) = with(|world| {
        let deadline = world.nanos_at(world.timer(id).life, deadline);
        world.expect_deadline(id, deadline);
        let script = world.fires(id);
        world.handed_out(id);
        (script, Arc::clone(&world.ledger))
    });
    match script {
        Script::Add(new, delay) => add(shard, new, delay, id),
        Script::Cancel(other) | Script::DropCancel(other) => {
            asking::cancel(other, crate::plan::How::Handle)
        }
        Script::CancelSelf => asking::cancel(id, crate::plan::How::Handle),
        Script::Reset(other, delay) => asking::reset(other, delay),
        _ => (),
    }
    let is_kept = with(|world| world.keeps(id));
    if is_kept { std::mem::forget(payload) } else { ledger.drop_quietly(payload) }
}

/// In the middle of a pass, to its shard.
fn add(shard: &mut Shard<Payload>, id: Id, delay: Nanos, parent: Id) {
    let is_full = shard.len();
    let prepared = with(|world| {
        let life = world.timer(parent).life;
        let is_full = is_full >= world.lives[life].limit;
        let payload = world.payload(id, life, Script::Nothing)?;
        world.operation(Operation::ShardAddInPass, life);
        Some((payload, is_full))
    });
    let Some((payload, is_full)) = prepared else { return };
    super::adding::add_payload(shard, payload, crate::plan::Way::Try, [delay, 0], is_full);
}
