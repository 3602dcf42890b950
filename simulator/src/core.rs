//! A virtual core: a thread with its own timer and some shards, which does its steps when it is told to.

mod adding;
mod ending;
mod purgatory;
mod turning;

use std::{
    any::Any,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc::Sender},
};

use corewheel::{Config, Counts, PreparedSleep, Shard, ShardRef, local_timer};

use self::purgatory::Delayed;
use crate::{
    asking,
    coverage::{Fault, Operation},
    here::{self, Job, Link, Reply, with},
    ledger::Payload,
    model::nanos,
    plan::{Act, At, How, Id, Moves, Nanos, PLACES, Plan, Script, With},
};

pub(crate) struct Core {
    number: usize,
    /// And which one each is. The first place is the thread's own timer.
    shards: [Option<(usize, Shard<Payload>)>; PLACES],
    delayed: Delayed,
    sleep: Option<PreparedSleep<'static>>,
}

/// The body of a core's thread.
pub(crate) fn live(
    core: usize,
    plan: &Arc<Plan>,
    configs: Vec<(usize, Config)>,
    link: Link,
    refer: &Sender<ShardRef>,
) {
    here::become_core(core, link);
    let mut this = Core {
        number: core,
        shards: [const { None }; PLACES],
        delayed: Delayed::default(),
        sleep: None,
    };
    for (place, (life, config)) in configs.into_iter().enumerate() {
        if place == 0 {
            config.install().expect("a new thread");
        } else {
            this.shards[place] = Some((life, Shard::with_config(config).expect("valid")));
        }
    }
    refer.send(local_timer().shard_ref()).expect("somebody waits");
    while this.is_told(plan) {
        here::with_link(|link| link.replies.send(Reply::Done(here::take())))
            .expect("the conductor waits");
    }
    // The shards end in the order in which their numbers are wanted again.
    this.shards.iter_mut().rev().for_each(|shard| *shard = None);
}

impl Core {
    /// Does what it is told. False if that is to end.
    fn is_told(&mut self, plan: &Plan) -> bool {
        match here::with_link(|link| link.jobs.recv()) {
            Ok(Job::Steps(world, steps)) => {
                here::put(world);
                self.do_steps(plan, steps);
                true
            }
            Ok(Job::Leave(world)) => {
                here::put(world);
                self.guarded(Self::leave);
                here::with_link(|link| link.replies.send(Reply::Done(here::take())))
                    .expect("the conductor waits");
                false
            }
            Ok(Job::GoOn(_)) => unreachable!("a core that has not paused was told to go on"),
            // Something was wrong, and nobody waits any more.
            Err(_) => false,
        }
    }

    fn do_steps(&mut self, plan: &Plan, steps: Range<usize>) {
        self.guarded(|this| {
            this.wake_up();
            for step in steps {
                with(|world| world.step = world.step.max(step));
                this.act(plan.steps[step].act);
                if with(|world| world.wrong.is_some()) {
                    return;
                }
            }
            (0..PLACES).for_each(|place| this.compare(place));
        });
    }

    /// A panic that comes here is the library's, or ours: that is wrong.
    fn guarded(&mut self, run: impl FnOnce(&mut Self)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(self))) {
            with(|world| world.expect(false, || format!("a panic: {}", message(&*panic))));
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Add { id, place, way, delay, more, script } => {
                self.add(id, place, way, [delay, more], script)
            }
            Act::AddElsewhere { id, to, at_once, delay, script } => {
                adding::elsewhere(id, to, at_once, delay, script)
            }
            Act::Cancel { id, how } => self.cancel(id, how),
            Act::Reset { id, delay, by_handle } => self.reset(id, delay, by_handle),
            Act::Ask { id } => asking::ask(id),
            Act::Share { id } => self.share(id),
            Act::Turn { place, budget, give_up } => self.turn(place, budget, give_up),
            Act::Look { place, at } => self.look(place, at),
            Act::Sleep { place } => self.fall_asleep(place),
            Act::Drain { place } => self.drain(place),
            Act::DropShard { place } => self.drop_shard(place),
            Act::Exchange { place } => self.exchange(place),
            Act::Clock { of, moves } => self.move_clock(of, moves),
            Act::Watch { id, key, delay, script } => self.watch(id, key, delay, script),
            Act::Event { key, is_met } => self.event(key, is_met),
            Act::Force { id } => self.force(id),
            Act::HandBack { key } => self.hand_back(key),
            Act::Flood { with, first, count, to, delay } => {
                flood(with, first..first + count, to, delay)
            }
            Act::WakePanics { of } => wake_panics(of),
            Act::Exit => unreachable!("the conductor ends a thread"),
        }
    }

    /// Which shard is in this place.
    fn life(&self, place: usize) -> usize {
        match &self.shards[place] {
            Some((life, _)) => *life,
            None => with(|world| world.cores[self.number].lives[0]),
        }
    }

    /// The place of a timer's shard, if that is one of this core's that hold payloads.
    fn place_of(&self, id: Id) -> Option<usize> {
        let life = with(|world| world.timers.get(id as usize).map(|timer| timer.life))?;
        self.shards
            .iter()
            .position(|shard| shard.as_ref().is_some_and(|(number, _)| *number == life))
    }

    fn counts(&self, place: usize) -> Counts {
        self.shards[place]
            .as_ref()
            .map_or_else(|| local_timer().counts(), |(_, shard)| shard.counts())
    }

    fn length(&self, place: usize) -> usize {
        self.shards[place].as_ref().map_or_else(|| local_timer().len(), |(_, shard)| shard.len())
    }

    fn time_until_next(&self, place: usize) -> Option<Nanos> {
        let shard = self.shards[place].as_ref();
        let until = shard
            .map_or_else(|| local_timer().time_until_next(), |(_, shard)| shard.time_until_next());
        self.has_asked(place);
        until.map(nanos)
    }

    /// A loop that asks how long it may sleep tells other threads how many timers there are.
    fn has_asked(&self, place: usize) {
        let (life, live) = (self.life(place), self.counts(place).live);
        with(|world| world.tells(life, live));
    }

    fn compare(&self, place: usize) {
        let (life, counts, until) =
            (self.life(place), self.counts(place), self.time_until_next(place));
        let length = self.length(place) as u64;
        with(|world| {
            world.expect(length == counts.live, || format!("{length} live, and {counts:?}"));
            world.compare_counts(life, counts);
            world.compare_sleep(life, until);
        });
    }

    // ---- timers

    fn cancel(&mut self, id: Id, how: How) {
        let place = self.place_of(id).filter(|_| how == How::Own);
        let Some((place, handle)) = place.zip(with(|world| world.timer(id).handle)) else {
            return asking::cancel(id, how);
        };
        let Some((_, shard)) = &mut self.shards[place] else { return };
        let (foreseen, ledger) = with(|world| {
            world.asks(id, true, [Operation::ShardCancel; 2]);
            (world.foresee_cancel(id, true), Arc::clone(&world.ledger))
        });
        let payload = shard.cancel(handle);
        let is_right = payload.as_ref().map(|payload| payload.id)
            == (foreseen.answer == corewheel::Cancel::Cancelled).then_some(id);
        ledger.drop_quietly(payload);
        with(|world| {
            world.expect(is_right, || {
                format!("cancel of timer {id} by its shard, not {:?}", foreseen.answer)
            });
        });
        self.compare(place);
    }

    fn reset(&mut self, id: Id, delay: Nanos, by_handle: bool) {
        let place = self.place_of(id).filter(|_| !by_handle);
        let Some((place, handle)) = place.zip(with(|world| world.timer(id).handle)) else {
            return asking::reset(id, delay);
        };
        let Some((_, shard)) = &mut self.shards[place] else { return };
        let foreseen = with(|world| {
            world.asks(id, true, [Operation::ShardReset; 2]);
            world.foresee_reset(id, delay, true)
        });
        let answer = shard.reset(handle, std::time::Duration::from_nanos(delay));
        with(|world| {
            world.expect(answer == foreseen.answer, || {
                format!("reset of timer {id} by its shard: {answer}")
            });
        });
        self.compare(place);
    }

    fn share(&self, id: Id) {
        if let Some(handle) =
            here::local(id).filter(|_| with(|world| world.is_local(id, self.number)))
        {
            let shared = handle.share();
            with(|world| {
                world.timers[id as usize].handle = Some(shared);
                world.operation(Operation::Share, world.timer(id).life);
            });
        }
    }

    // ---- questions

    fn look(&self, place: usize, at: At) {
        let life = self.life(place);
        match at {
            At::NextDeadline => {
                let shard = self.shards[place].as_ref();
                let next = shard.map_or_else(
                    || local_timer().next_deadline(),
                    |(_, shard)| shard.next_deadline(),
                );
                let until = self.time_until_next(place);
                with(|world| {
                    world.operation(Operation::NextDeadline, life);
                    let core = world.lives[life].core;
                    let (clock, now) = (&world.cores[core].clock, world.latest(life));
                    let ahead = next.map(|next| {
                        (next + clock.elapsed()).saturating_duration_since(clock.now())
                    });
                    let waits = ahead.map(|ahead| nanos(ahead).saturating_sub(now));
                    world.expect(waits == until, || {
                        format!("{next:?} is in {waits:?}, not in {until:?}")
                    });
                });
            }
            At::TimeUntilNext => with(|world| world.operation(Operation::TimeUntilNext, life)),
            At::Counts => with(|world| world.operation(Operation::Counts, life)),
        }
        self.compare(place);
    }

    /// Announces a sleep. The thread's own timer stays asleep until the core is told to go on.
    fn fall_asleep(&mut self, place: usize) {
        let life = self.life(place);
        with(|world| world.operation(Operation::PrepareSleep, life));
        if let Some((_, shard)) = &self.shards[place] {
            let timeout = shard.prepare_sleep().timeout().map(nanos);
            self.has_asked(place);
            with(|world| world.compare_sleep(life, timeout));
            return;
        }
        self.wake_up();
        let sleep = local_timer().prepare_sleep();
        self.has_asked(place);
        with(|world| world.falls_asleep(life, sleep.timeout().map(nanos)));
        self.sleep = Some(sleep);
    }

    fn wake_up(&mut self) {
        if self.sleep.take().is_some() {
            let (life, queued) = (self.life(0), local_timer().counts().queued);
            with(|world| world.wakes_up(life, queued));
        }
    }

    // ---- faults

    fn move_clock(&self, of: usize, moves: Moves) {
        let wait = match moves {
            Moves::ToNext(place) => self.time_until_next(place),
            _ => None,
        };
        with(|world| world.move_clock(of, moves, wait));
    }
}

/// What other cores do, very often.
fn flood(what: With, ids: Range<Id>, to: usize, delay: Nanos) {
    let fault = match what {
        With::Adds => Fault::AddFlood,
        With::Cancels => Fault::CancelFlood,
        With::Resets => Fault::ResetFlood,
    };
    for id in ids {
        match what {
            With::Adds => adding::elsewhere(id, to, false, delay, Script::Nothing),
            With::Cancels => asking::cancel(id, How::Handle),
            With::Resets => asking::reset(id, delay),
        }
    }
    with(|world| world.fault(fault, to));
}

fn wake_panics(of: usize) {
    with(|world| {
        let life = world.cores[of].lives[0];
        world.ledger.let_wake_panic(life);
    });
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
