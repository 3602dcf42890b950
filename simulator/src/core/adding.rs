//! How timers are added.

use std::{sync::Arc, time::Duration};

use corewheel::{AddError, Shard, TimerHandle, local_timer};

use super::Core;
use crate::{
    asking,
    coverage::Operation,
    here::{self, with},
    ledger::Payload,
    model::{Kind, World},
    plan::{Id, Nanos, Script, Way},
};

impl Core {
    /// Adds a timer as it is told to; to a full shard, by the one way that has an error for that.
    pub(super) fn add(
        &mut self,
        id: Id,
        place: usize,
        way: Way,
        [delay, more]: [Nanos; 2],
        script: Script,
    ) {
        let (life, length) = (self.life(place), self.length(place));
        let added = with(|world| {
            let is_full = length >= world.lives[life].limit;
            let way = if is_full { Way::Try } else { way };
            let payload = world.payload(id, life, script)?;
            world.operation(operation(place, way), life);
            Some((payload, way, is_full))
        });
        let Some((payload, way, is_full)) = added else { return };
        match &mut self.shards[place] {
            None => add_callback(payload, way, [delay, more], is_full),
            Some((_, shard)) => add_payload(shard, payload, way, [delay, more], is_full),
        }
        self.compare(place);
    }
}

fn operation(place: usize, way: Way) -> Operation {
    match (place, way) {
        (0, Way::Plain) => Operation::Add,
        (0, Way::At(_)) => Operation::AddAt,
        (0, Way::Within) => Operation::AddWithin,
        (0, Way::Spread) => Operation::AddSpread,
        (0, Way::Periodic) => Operation::AddPeriodic,
        (0, Way::Local) => Operation::AddLocal,
        (0, Way::Try) => Operation::TryAdd,
        (_, Way::Within) => Operation::ShardAddWithin,
        (_, Way::Spread) => Operation::ShardAddSpread,
        (_, Way::At(_)) => Operation::ShardAddAt,
        _ => Operation::ShardAdd,
    }
}

/// To the thread's own timer.
fn add_callback(payload: Payload, way: Way, [delay, more]: [Nanos; 2], is_full: bool) {
    let (id, timer) = (payload.id, local_timer());
    let (after, extra) = (Duration::from_nanos(delay), Duration::from_nanos(more));
    let instant = with(|world| world.instant(id, way, delay));
    let handle = match way {
        Way::Plain => timer.add(after, move || asking::once(&payload)),
        Way::At(_) => timer.add_at(instant, move || asking::once(&payload)),
        Way::Within => timer.add_within(after, extra, move || asking::once(&payload)),
        Way::Spread => timer.add_spread(after, extra, move || asking::once(&payload)),
        Way::Periodic => timer.add_periodic(after, move || periodic(&payload)),
        Way::Local => {
            here::keep_local(id, timer.add_local(after, move || asking::once(&payload)));
            return with(|world| world.comes(id, None, way, [delay, more]));
        }
        // One that is too large to be stored in place.
        Way::Try => {
            let large = [payload.id; 16];
            match timer.try_add(after, move || {
                debug_assert_eq!(large[0], large[15]);
                asking::once(&payload);
            }) {
                Ok(handle) => handle,
                Err(error) => return asking::refuse(id, error, is_full),
            }
        }
    };
    with(|world| {
        world.expect(!is_full, || format!("timer {id} was let into a full shard"));
        world.comes(id, Some(handle), way, [delay, more]);
    });
}

/// A run of a periodic callback.
fn periodic(payload: &Payload) {
    asking::run(payload.id);
    with(|world| world.run_is_over(payload.id));
    asking::panic_if_told(payload.id);
}

pub(super) fn add_payload(
    shard: &mut Shard<Payload>,
    payload: Payload,
    way: Way,
    [delay, more]: [Nanos; 2],
    is_full: bool,
) {
    let id = payload.id;
    let (after, extra) = (Duration::from_nanos(delay), Duration::from_nanos(more));
    let instant = with(|world| world.instant(id, way, delay));
    let added = match way {
        Way::At(_) => Ok(shard.add_at(instant, payload)),
        Way::Within => Ok(shard.add_within(after, extra, payload)),
        Way::Spread => Ok(shard.add_spread(after, extra, payload)),
        Way::Plain => Ok(shard.add(after, payload)),
        Way::Periodic | Way::Local | Way::Try => shard.try_add(after, payload),
    };
    match added {
        Ok(handle) => with(|world| {
            world.expect(!is_full, || format!("timer {id} was let into a full shard"));
            let way = if matches!(way, Way::Periodic | Way::Local) { Way::Try } else { way };
            world.comes(id, Some(handle), way, [delay, more]);
        }),
        Err(error) => {
            with(|world| world.read(world.timer(id).life));
            asking::refuse(id, error, is_full);
        }
    }
}

/// To another core's timer, or by a reference to this one's.
pub(super) fn elsewhere(id: Id, to: usize, at_once: bool, delay: Nanos, script: Script) {
    let core = here::core();
    if to == core
        && local_timer().len() >= with(|world| world.lives[world.cores[to].lives[0]].limit)
    {
        return;
    }
    let prepared = with(|world| {
        // One that has ended, at times.
        let gone = world.cores[to].gone.clone().filter(|_| id.is_multiple_of(16));
        let ended = gone.is_some();
        let shard = gone.or_else(|| world.cores[to].shard.clone())?;
        let life = world.cores[to].lives[0];
        let payload = world.payload(id, life, script)?;
        world.operation(if at_once { Operation::Run } else { Operation::AddElsewhere }, life);
        let is_full = if ended { Some(true) } else { world.is_full_elsewhere(life) };
        Some((shard, payload, is_full, ended))
    });
    let Some((shard, payload, is_full, ended)) = prepared else { return };
    let callback = move || asking::once(&payload);
    let added = if at_once {
        shard.try_run(callback)
    } else {
        shard.try_add(Duration::from_nanos(delay), callback)
    };
    match added {
        Ok(handle) => came(id, handle, core == to, at_once, delay, is_full),
        Err(error) => refused(id, error, is_full, ended),
    }
}

fn came(
    id: Id,
    handle: TimerHandle,
    own: bool,
    at_once: bool,
    delay: Nanos,
    is_full: Option<bool>,
) {
    with(|world| {
        let life = world.timer(id).life;
        world.timers[id as usize].handle = Some(handle);
        if own {
            let due = if at_once { 0 } else { world.read(life).saturating_add(delay) };
            return world.added(id, Kind::Once, [due; 2], 0);
        }
        world.expect(is_full != Some(true), || format!("timer {id} was let in where it is full"));
        let due = if at_once { 0 } else { world.read_elsewhere(life).saturating_add(delay) };
        world.added_elsewhere(id, due);
    });
    let is_pending = handle.is_pending();
    with(|world| world.expect(is_pending, || format!("timer {id} does not wait at once")));
}

fn refused<F>(id: Id, error: AddError<F>, is_full: Option<bool>, ended: bool) {
    let ledger = with(|world| {
        world.refused_elsewhere(id, error.reason(), is_full, ended);
        Arc::clone(&world.ledger)
    });
    ledger.drop_quietly(error.into_inner());
}

impl World {
    /// A timer was added by its owner.
    fn comes(&mut self, id: Id, handle: Option<TimerHandle>, way: Way, [delay, more]: [Nanos; 2]) {
        let life = self.timer(id).life;
        let (kind, period) =
            if way == Way::Periodic { (Kind::Periodic, delay) } else { (Kind::Once, 0) };
        let due = match way {
            Way::At(_) => [self.moment(id, way, delay); 2],
            Way::Periodic => [self.read(life).saturating_add(delay.max(self.lives[life].tick)); 2],
            Way::Within => {
                let due = self.read(life).saturating_add(delay);
                self.within(life, due, more)
            }
            Way::Spread => {
                let due = self.read(life).saturating_add(delay);
                [due, due.saturating_add(more)]
            }
            Way::Plain | Way::Local | Way::Try => [self.read(life).saturating_add(delay); 2],
        };
        self.timers[id as usize].handle = handle;
        let period = if kind == Kind::Periodic { period.max(self.lives[life].tick) } else { 0 };
        self.added(id, kind, due, period);
    }
}
