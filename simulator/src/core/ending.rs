//! Shards that end, and shards that go to another core.

use std::sync::Arc;

use corewheel::{AddErrorReason, Shard};

use super::Core;
use crate::{
    coverage::{Fault, Operation},
    here::with,
    ledger::Payload,
    plan::PLACES,
};

impl Core {
    /// Ends a shard, whose timers come back; there is a new one in its place.
    pub(super) fn drain(&mut self, place: usize) {
        let Some((life, mut shard)) = self.shards[place].take() else { return };
        with(|world| world.operation(Operation::Drain, life));
        finish(&mut shard, life);
        drop(shard);
        with(|world| world.expect_nothing_left(life));
        self.make(place);
    }

    pub(super) fn make(&mut self, place: usize) {
        let (life, config) = with(|world| world.new_life(self.number, place));
        self.shards[place] = Some((life, Shard::with_config(config).expect("valid")));
    }

    /// Drops a shard with all that it has.
    pub(super) fn drop_shard(&mut self, place: usize) {
        let Some((life, shard)) = self.shards[place].take() else { return };
        with(|world| {
            let core = world.lives[life].core;
            world.fault(Fault::ShardDropped, core);
            world.ends(life);
        });
        drop(shard);
        with(|world| world.expect_nothing_left(life));
        self.make(place);
    }

    /// The thread ends next, and all shards with it.
    pub(super) fn leave(&mut self) {
        self.wake_up();
        self.leave_purgatory();
        for place in 0..PLACES {
            self.compare(place);
            let life = self.life(place);
            with(|world| {
                world.ends(life);
                world.ending.push(life);
            });
        }
    }

    /// Gives a shard away, and takes the one that another core gave.
    pub(super) fn exchange(&mut self, place: usize) {
        let Some((life, shard)) = self.shards[place].take() else { return };
        let taken = with(|world| {
            world.operation(Operation::Exchange, life);
            world.luggage.replace((life, shard))
        });
        match taken {
            Some(taken) => self.shards[place] = Some(taken),
            None => self.make(place),
        }
    }
}

fn finish(shard: &mut Shard<Payload>, life: usize) {
    // What is dropped meanwhile, because it was cancelled from elsewhere, finds it ended.
    let live = with(|world| world.ends(life));
    let handed_back = shard.drain();
    let ledger = with(|world| {
        let found = |(at, payload): &(_, Payload)| (world.nanos_at(life, *at), payload.id);
        let found: Vec<_> = handed_back.iter().map(found).collect();
        world.drained(live, &found);
        Arc::clone(&world.ledger)
    });
    let (counts, back) = (shard.counts(), handed_back.len() as u64);
    ledger.drop_quietly(handed_back);
    let payload = with(|world| {
        let sums = counts.added == counts.fired + counts.cancelled + counts.handed_back;
        world.expect(sums && counts.live == 0 && counts.handed_back == back, || {
            format!("{counts:?} at the end")
        });
        world.stray(life)
    });
    let refused = shard.try_add(std::time::Duration::ZERO, payload);
    let is_right = refused.as_ref().is_err_and(|error| error.reason() == AddErrorReason::ShutDown);
    ledger.drop_quietly(refused);
    let is_empty = shard.is_empty() && shard.drain().is_empty();
    with(|world| {
        world.expect(is_right && is_empty, || "a shard that has ended took a timer".to_owned())
    });
}
