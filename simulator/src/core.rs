//! A virtual core: a thread with its own wheel and some `Shard`s, here called shards of payloads.

mod handles;
mod owned;

use std::hint::black_box;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use corewheel::{
    AddError, AddErrorReason, Cancel, Config, Counts, Expiry, PreparedSleep, Shard, ShardRef,
    TimerHandle, When, local_timer,
};

pub(crate) use self::handles::on_payload_drop;
use crate::handover::{self, Job, Link, check, count, with};
use crate::ledger::Payload;
use crate::model::{Arming, TurnReport, nanos};
use crate::plan::{Act, AddMethod, CancelMethod, ClockMove, Id, Nanos, PLACES, Plan, Script, Step};

pub(crate) struct Core {
    number: usize,
    /// The shard number of each place, which is an index into `shards`.
    numbers: [usize; PLACES],
    /// The shards of payloads. Place 0, the thread's own wheel, is None.
    shards: [Option<Shard<Payload>>; PLACES],
    sleep: Option<PreparedSleep<'static>>,
}

#[derive(Clone, Copy)]
enum TurnMethod {
    Plain,
    Within(usize),
    At(Instant),
}

/// Runs the jobs of a core's thread. The first of `configs` is for the thread's own wheel.
pub(crate) fn run_thread(
    number: usize,
    plan: &Plan,
    configs: Vec<(usize, Config)>,
    link: Link,
    refer: &Sender<ShardRef>,
) {
    handover::LINK.with(|place| place.set(link).expect("a new thread"));
    let mut this = Core { number, numbers: [0; PLACES], shards: Default::default(), sleep: None };
    for (place, (shard, config)) in configs.into_iter().enumerate() {
        this.numbers[place] = shard;
        if place == 0 {
            config.install().expect("a new thread");
        } else {
            this.shards[place] = Some(Shard::with_config(config).expect("valid"));
        }
    }
    refer.send(local_timer().shard_ref()).expect("the conductor waits");
    let mut has_left = false;
    while !has_left && let Some(job) = handover::receive() {
        has_left = matches!(job, Job::Leave);
        // The library catches planned panics, so a panic that arrives here is a failure.
        let done = catch_unwind(AssertUnwindSafe(|| match job {
            Job::Steps(steps) => this.do_steps(plan, steps),
            Job::Leave => this.leave(),
            Job::Resume => unreachable!("this core has not paused"),
        }));
        if let Err(panic) = done {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            check(false, || format!("a panic: {}", text.unwrap_or_default()));
        }
        handover::hand_back(false);
    }
    // Dropped in reverse, so that the next shards get the same numbers.
    this.shards.iter_mut().rev().for_each(|shard| *shard = None);
}

impl Core {
    fn do_steps(&mut self, plan: &Plan, steps: Range<usize>) {
        self.wake_up();
        for number in steps {
            with(|model| model.step = number);
            self.act(plan.steps[number]);
            if with(|model| model.failure.is_some()) {
                return;
            }
        }
        (0..PLACES).for_each(|place| self.check_counts(place));
    }

    fn act(&mut self, step: Step) {
        let Step { id, place, delay, count, .. } = step;
        match step.act {
            Act::Add(way) => self.add(step, way),
            Act::AddRemote | Act::AddPeriodicRemote | Act::Run => add_remote(step),
            Act::Cancel(how) => self.cancel(id, how),
            Act::Reset => handles::reset(id, delay, None),
            Act::OwnReset => self.reset(id, delay),
            Act::SetPeriod => self.set_period(id, delay),
            Act::IsPending => handles::is_pending(id),
            Act::Share => handles::share(id),
            Act::Own | Act::Arm(_) | Act::CancelOwned | Act::ShareOwned | Act::DropOwned => {
                self.use_owned(step);
            }
            Act::Turn => self.turn(place, TurnMethod::Plain, None),
            Act::TurnWithin => self.turn(place, TurnMethod::Within(count), None),
            Act::TurnAt => {
                let way = if count == 0 { AddMethod::At } else { AddMethod::AtPast };
                let instant = with(|model| model.instant(self.numbers[place], way, delay));
                self.turn(place, TurnMethod::At(instant), None);
            }
            Act::AbandonPass => self.turn(place, TurnMethod::Plain, Some(count)),
            Act::Inspect => self.inspect(place),
            Act::Sleep => self.fall_asleep(place),
            Act::Drain => self.drain(place),
            Act::DropShard => self.drop_shard(place),
            Act::SwapWithTransit => self.swap_with_transit(place),
            Act::Clock(how) => {
                let wait =
                    if how == ClockMove::ToNext { self.time_until_next(place) } else { None };
                with(|model| model.move_clock(step, how, wait));
            }
            Act::Flood(&act) => {
                let name = match act {
                    Act::AddRemote => "flood of adds",
                    Act::Reset => "flood of resets",
                    _ => "flood of cancels",
                };
                with(|model| model.coverage.count(name));
                for id in (id..).take(count) {
                    self.act(Step { id, act, script: Script::Nothing, ..step });
                }
            }
            Act::WakePanics => with(|model| {
                model.ledger.shard(model.cores[step.to].own).wake_panics = true;
            }),
            Act::Exit => unreachable!("the conductor ends a thread"),
        }
    }

    // ---- queries

    fn counts(&self, place: usize) -> Counts {
        self.shards[place].as_ref().map_or_else(|| local_timer().counts(), Shard::counts)
    }

    fn length(&self, place: usize) -> usize {
        self.shards[place].as_ref().map_or_else(|| local_timer().len(), Shard::len)
    }

    /// Returns the time until a shard's next turn. The query publishes the shard's counts.
    fn time_until_next(&self, place: usize) -> Option<Nanos> {
        let shard = self.shards[place].as_ref();
        let wait = shard.map_or_else(|| local_timer().time_until_next(), Shard::time_until_next);
        self.record_published(place);
        wait.map(nanos)
    }

    fn record_published(&self, place: usize) {
        let (shard, live) = (self.numbers[place], self.counts(place).live);
        with(|model| model.shards[shard].published = live);
    }

    fn check_counts(&self, place: usize) {
        let (shard, length) = (self.numbers[place], self.length(place));
        let (counts, wait) = (self.counts(place), self.time_until_next(place));
        check(length as u64 == counts.live, || format!("{length} live, and {counts:?}"));
        with(|model| model.check_counts(shard, counts, wait));
    }

    fn inspect(&self, place: usize) {
        let number = self.numbers[place];
        let shard = self.shards[place].as_ref();
        let next = shard.map_or_else(|| local_timer().next_deadline(), Shard::next_deadline);
        let wait = self.time_until_next(place);
        count("next_deadline, time_until_next, counts");
        with(|model| model.check_next_deadline(number, next, wait));
        self.check_counts(place);
    }

    /// Announces a sleep. The thread's own wheel stays asleep until the core's next steps.
    fn fall_asleep(&mut self, place: usize) {
        let number = self.numbers[place];
        count("prepare_sleep");
        if let Some(shard) = &self.shards[place] {
            let timeout = shard.prepare_sleep().timeout().map(nanos);
            self.record_published(place);
            return with(|model| model.check_sleep(number, timeout, true));
        }
        self.wake_up();
        let sleep = local_timer().prepare_sleep();
        self.record_published(place);
        with(|model| model.record_sleep(number, sleep.timeout().map(nanos)));
        self.sleep = Some(sleep);
    }

    fn wake_up(&mut self) {
        if self.sleep.take().is_some() {
            let queued = local_timer().counts().queued;
            with(|model| model.check_wake_ups(model.own_shard(), queued));
        }
    }

    // ---- timers

    /// Adds a timer, with `try_add` if the shard is full or may be.
    fn add(&mut self, step: Step, way: AddMethod) {
        let Step { id, place, delay, window, script, .. } = step;
        let (shard, length) = (self.numbers[place], self.length(place));
        let operations = match way {
            AddMethod::Plain => ["add", "Shard::add, try_add"],
            AddMethod::At | AddMethod::AtPast => ["add, an instant", "Shard::add, an instant"],
            AddMethod::Slack => ["add, slack", "Shard::add, slack"],
            AddMethod::Spread => ["add, spread", "Shard::add, spread"],
            AddMethod::Periodic => ["add_periodic", "Shard::add_periodic"],
            AddMethod::Local => ["add_local", "Shard::add, try_add"],
            AddMethod::Try => ["try_add", "Shard::add, try_add"],
        };
        let operation = operations[usize::from(place > 0)];
        let added = with(|model| model.begin_add(id, shard, script, length, operation));
        let Some((payload, is_full)) = added else { return };
        let way = if is_full == Some(false) { way } else { AddMethod::Try };
        add(self.shards[place].as_mut(), payload, way, [delay, window], is_full);
        self.check_counts(place);
    }

    /// Returns the place of a timer's shard; `None` unless it is a shard of payloads of this core.
    fn place_of(&self, id: Id) -> Option<usize> {
        let number = with(|model| Some(model.timers.get(id as usize)?.shard))?;
        (1..PLACES).find(|&place| self.numbers[place] == number)
    }

    fn cancel(&mut self, id: Id, how: CancelMethod) {
        let place = self.place_of(id).filter(|_| how == CancelMethod::Shard);
        // A flood may name timers that the episode does not have.
        let handle = with(|model| model.timers.get(id as usize)?.handle);
        let Some((place, handle)) = place.zip(handle) else { return handles::cancel(id, how) };
        let Some(shard) = &mut self.shards[place] else { return };
        let expected = with(|model| {
            model.count_call(id, true, ["Shard::cancel"; 2]);
            model.record_cancel(id, true)
        });
        let payload = shard.cancel(handle);
        let found = payload.as_ref().map(|payload| payload.id);
        drop_quietly(payload);
        let is_right = found == (expected == Cancel::Cancelled).then_some(id);
        check(is_right, || format!("cancel of timer {id} by its shard, not {expected:?}"));
        self.check_counts(place);
    }

    fn reset(&mut self, id: Id, delay: Nanos) {
        let place = self.place_of(id).filter(|_| with(|model| model.timer(id).handle.is_some()));
        let shard = place.and_then(|place| self.shards[place].as_mut());
        handles::reset(id, delay, shard);
        if let Some(place) = place {
            self.check_counts(place);
        }
    }

    fn set_period(&mut self, id: Id, period: Nanos) {
        let place = self.place_of(id);
        let called = with(|model| {
            let timer = model.timers.get(id as usize)?;
            let (shard, handle) = (timer.shard, timer.handle?);
            let operation = match place {
                Some(_) => "Shard::set_period",
                None if shard == model.own_shard() => "set_period",
                None => return None,
            };
            model.coverage.count(operation);
            Some((handle, model.record_set_period(id, period)))
        });
        let Some((handle, expected)) = called else { return };
        let period = Duration::from_nanos(period);
        let answer = match place.and_then(|place| self.shards[place].as_mut()) {
            Some(shard) => shard.set_period(handle, period),
            None => local_timer().set_period(handle, period),
        };
        check(answer == expected, || format!("set_period of timer {id}: {answer}"));
    }

    fn use_owned(&self, Step { act, id, delay, window, count, script, .. }: Step) {
        match act {
            Act::Own => owned::create(id),
            Act::Arm(way) => owned::with_owned(id, |timer, owned| {
                owned::arm(timer, owned, Arming { id, script, way, delays: [delay, window] });
                if count == 0 {
                    owned::share(timer, owned);
                }
            }),
            Act::CancelOwned => owned::with_owned(id, owned::cancel),
            Act::ShareOwned => owned::with_owned(id, owned::share),
            _ => owned::drop_owned(id),
        }
        self.check_counts(0);
    }

    // ---- turns

    fn turn(&mut self, place: usize, method: TurnMethod, give_up: Option<usize>) {
        let (number, before) = (self.numbers[place], self.counts(place));
        let wait = self.time_until_next(place);
        let (operations, budget, instant) = match method {
            TurnMethod::Plain => (["turn", "Shard::turn"], None, None),
            TurnMethod::Within(most) => (["turn_within", "Shard::turn_within"], Some(most), None),
            TurnMethod::At(instant) => (["turn_at", "Shard::turn_at"], None, Some(instant)),
        };
        count(operations[usize::from(place > 0)]);
        with(|model| model.record_turn_begin(number, budget, instant, before, wait));
        let mut report = match &mut self.shards[place] {
            None => turn_local(method),
            Some(shard) => pass(shard, place == 1, method, give_up),
        };
        report.wait = self.time_until_next(place);
        let after = self.counts(place);
        with(|model| {
            model.record_turn_end(number, budget, report, after);
            if report.abandoned {
                model.coverage.count("pass given up");
            } else if !report.behind {
                model.check_no_needless_turn(number, report.wait);
            }
        });
        self.check_counts(place);
    }

    // ---- shards end and move

    fn make_shard(&mut self, place: usize) {
        let (number, config) = with(|model| model.new_shard(self.number, place));
        self.numbers[place] = number;
        self.shards[place] = Some(Shard::with_config(config).expect("valid"));
    }

    fn drain(&mut self, place: usize) {
        let Some(mut shard) = self.shards[place].take() else { return };
        let number = self.numbers[place];
        // During the drain, destructors of cancelled timers find the shard ended.
        count("Shard::drain");
        let live = with(|model| model.record_end(number));
        let back = shard.drain();
        let payload = with(|model| {
            model.record_drain(number, &live, &back, shard.counts());
            model.payload(Id::MAX, number, false)
        });
        drop_quietly(back);
        let refusal = shard.try_add(Duration::ZERO, payload).map_err(refused);
        let is_refused = refusal == Err(AddErrorReason::ShutDown);
        let is_empty = shard.is_empty() && shard.drain().is_empty();
        drop(shard);
        check(is_refused && is_empty, || format!("ended shard {number} accepted or kept a timer"));
        with(|model| model.check_end(number));
        self.make_shard(place);
    }

    fn drop_shard(&mut self, place: usize) {
        let Some(shard) = self.shards[place].take() else { return };
        let number = self.numbers[place];
        count("shard dropped");
        with(|model| model.record_end(number));
        drop(shard);
        with(|model| model.check_end(number));
        self.make_shard(place);
    }

    fn swap_with_transit(&mut self, place: usize) {
        let Some(shard) = self.shards[place].take() else { return };
        let number = self.numbers[place];
        count("a shard moves");
        let taken = with(|model| model.in_transit.replace((number, shard)));
        match taken {
            Some((number, shard)) => {
                self.numbers[place] = number;
                self.shards[place] = Some(shard);
            }
            None => self.make_shard(place),
        }
    }

    /// Records the end of this thread's shards, because the thread ends next.
    fn leave(&mut self) {
        self.wake_up();
        for place in 0..PLACES {
            self.check_counts(place);
            let number = self.numbers[place];
            let live = with(|model| {
                model.ending.push(number);
                model.record_end(number)
            });
            // Drains some wheels; the others end with their threads.
            if place == 0 && number.is_multiple_of(2) {
                count("drain");
                let back = local_timer().drain();
                check(back.len() == live.len(), || format!("{} of {live:?} came back", back.len()));
                drop_quietly(back);
                owned::check_ended();
            }
        }
    }
}

fn turn_local(method: TurnMethod) -> TurnReport {
    let timer = local_timer();
    let turn = match method {
        TurnMethod::Plain => timer.turn(),
        TurnMethod::Within(budget) => timer.turn_within(budget),
        TurnMethod::At(instant) => timer.turn_at(instant),
    };
    let live = timer.len();
    check(!turn.nested && turn.live == live, || format!("{turn:?}, but {live} live"));
    let (collected, touched) = (Some(turn.collected), Some(turn.touched));
    let (fired, behind) = (turn.fired, turn.behind);
    TurnReport { fired, collected, touched, behind, ..TurnReport::default() }
}

/// Makes a pass. If `borrows`, the loop borrows the payloads of periodic timers; otherwise it takes
/// them.
fn pass(
    shard: &mut Shard<Payload>,
    borrows: bool,
    method: TurnMethod,
    give_up: Option<usize>,
) -> TurnReport {
    match method {
        TurnMethod::Plain => shard.turn(),
        TurnMethod::Within(budget) => shard.turn_within(budget),
        TurnMethod::At(instant) => shard.turn_at(instant),
    }
    let mut fired = 0;
    let mut abandoned = give_up == Some(0);
    while !abandoned {
        let expiry =
            if borrows { shard.next_expiry() } else { shard.next_expired().map(Expiry::Ended) };
        let Some(mut expiry) = expiry else { break };
        fired += 1;
        let is_lent = matches!(expiry, Expiry::Periodic(_));
        let id = expiry.as_mut().payload.id;
        let script = with(|model| model.record_expiry(&expiry.as_mut(), is_lent));
        if script == Script::Pause {
            // Other cores may cancel the timer while its payload is lent.
            pause_in_pass();
            check(expiry.as_mut().payload.id == id, || "a lent payload changed".into());
        }
        let ended = match expiry {
            Expiry::Ended(expired) => Some(expired),
            Expiry::Periodic(_) => None,
        };
        if script != Script::Pause {
            run_script(id, script, Some(shard));
        }
        drop_quietly(ended);
        abandoned = give_up == Some(fired);
    }
    TurnReport { fired, behind: shard.is_behind(), abandoned, ..TurnReport::default() }
}

fn pause_in_pass() {
    // Other cores may add to this thread's wheel, so the model needs the published length.
    let (counts, wait) = (local_timer().counts(), local_timer().time_until_next());
    with(|model| {
        let own = model.own_shard();
        model.shards[own].published = counts.live;
        model.check_counts(own, counts, wait.map(nanos));
    });
    pause();
}

fn pause() {
    count("callback stalls");
    handover::pause();
}

/// Runs the script of a timer, in a callback or in a pass of `shard`.
fn run_script(id: Id, script: Script, shard: Option<&mut Shard<Payload>>) {
    let is_callback = shard.is_none();
    match script {
        Script::Panic if is_callback => count("callback panics"),
        Script::DropPanic if is_callback => count("destructor panics"),
        Script::Add(new, delay) => {
            let length = shard.as_ref().map_or_else(|| local_timer().len(), |shard| shard.len());
            let operation =
                if is_callback { "try_add, in a callback" } else { "Shard::try_add, in a pass" };
            let added = with(|model| {
                let number = model.timer(id).shard;
                model.begin_add(new, number, Script::Nothing, length, operation)
            });
            if let Some((payload, is_full)) = added {
                add(shard, payload, AddMethod::Try, [delay, 0], is_full);
            }
        }
        Script::Arm(new, delay) => owned::with_owned(new, |timer, id| {
            owned::arm(timer, id, Arming::plain(new, delay));
        }),
        Script::DropOwned(other, _) => owned::drop_owned(other),
        Script::Cancel(other) if is_callback => handles::cancel(other, CancelMethod::Wait),
        Script::DropCancel(_) if is_callback => (),
        // A pass drops payloads quietly, so their destructors would cancel nothing.
        Script::Cancel(other) | Script::DropCancel(other) => {
            handles::cancel(other, CancelMethod::Handle);
        }
        Script::CancelSelf => handles::cancel(id, CancelMethod::Handle),
        Script::Reset(other, delay) => handles::reset(other, delay, None),
        Script::Turn if is_callback => {
            let (turn, live) = (local_timer().turn(), local_timer().len());
            let did = (turn.fired, turn.collected, turn.touched, turn.live);
            let is_idle = turn.nested && did == (0, 0, 0, live);
            count("turn in a callback");
            with(|model| _ = model.read_clock(model.own_shard()));
            check(is_idle, || format!("{turn:?} in a callback"));
        }
        Script::Pause => pause(),
        Script::Nothing | Script::Panic | Script::DropPanic | Script::Turn => (),
    }
}

fn run(payload: &Payload) {
    let id = payload.id;
    run_script(id, with(|model| model.record_fire(id)), None);
    let thrown = with(|model| {
        if model.timer(id).period > 0 {
            model.record_run_end(id);
        }
        let timer = model.timer(id);
        (timer.script == Script::Panic).then(|| (model.ledger.clone(), timer.shard))
    });
    if let Some((ledger, shard)) = thrown {
        ledger.panic_as_planned(shard);
    }
}

fn add(
    shard: Option<&mut Shard<Payload>>,
    payload: Payload,
    way: AddMethod,
    delays: [Nanos; 2],
    is_full: Option<bool>,
) {
    let (id, timer) = (payload.id, local_timer());
    let delay = Duration::from_nanos(delays[0]);
    // Shards have no `add_local`.
    let way = if shard.is_some() && way == AddMethod::Local { AddMethod::Try } else { way };
    let when = when(with(|model| model.timer(id).shard), way, delays);
    let added = match shard {
        Some(shard) => match way {
            AddMethod::Periodic => Ok(Some(shard.add_periodic(delay, payload))),
            AddMethod::Try => shard.try_add(delay, payload).map(Some).map_err(|error| {
                // Unlike the thread's own wheel, a shard reads its clock even for a refused add.
                with(|model| model.read_clock(model.timer(id).shard));
                refused(error)
            }),
            _ => Ok(Some(shard.add(when, payload))),
        },
        None => match way {
            AddMethod::Periodic => Ok(Some(timer.add_periodic(delay, move || run(&payload)))),
            AddMethod::Local => {
                handles::keep_local(id, timer.add_local(delay, move || run(&payload)));
                Ok(None)
            }
            AddMethod::Try => {
                // The closure is too large to be stored inline.
                let large = ([id; 16], payload);
                let added = timer.try_add(delay, move || run(&black_box(&large).1));
                added.map(Some).map_err(refused)
            }
            _ => Ok(Some(timer.add(when, move || run(&payload)))),
        },
    };
    with(|model| model.end_add(id, way, delays, is_full, added));
}

fn when(shard: usize, way: AddMethod, delays: [Nanos; 2]) -> When {
    let [delay, window] = delays.map(Duration::from_nanos);
    match way {
        AddMethod::At | AddMethod::AtPast => {
            with(|model| model.instant(shard, way, delays[0])).into()
        }
        AddMethod::Slack => When::after(delay).slack(window),
        AddMethod::Spread => When::after(delay).spread(window),
        AddMethod::Plain | AddMethod::Periodic | AddMethod::Local | AddMethod::Try => delay.into(),
    }
}

fn refused<F>(error: AddError<F>) -> AddErrorReason {
    let reason = error.reason();
    drop_quietly(error.into_inner());
    reason
}

fn drop_quietly<T>(value: T) {
    let ledger = with(|model| model.ledger.clone());
    ledger.drop_quietly(value);
}

/// Adds through a `ShardRef`, to another core's wheel or to this one's.
fn add_remote(step: Step) {
    let Step { id, act, to, delay, script, .. } = step;
    let operation = match act {
        Act::Run => "ShardRef::try_run",
        Act::AddPeriodicRemote => "ShardRef::try_add_periodic",
        _ => "ShardRef::try_add",
    };
    let prepared = with(|model| {
        let (own, core) = (model.core == to, &model.cores[to]);
        // A few adds go to the wheel of an ended thread.
        let ended_wheel = core.ended_wheel.clone().filter(|_| id.is_multiple_of(16));
        let (is_gone, number) = (ended_wheel.is_some(), core.own);
        let shard = ended_wheel.or_else(|| core.shard.clone())?;
        let is_full = if is_gone { Some(true) } else { model.is_full_remote(number) };
        if own && local_timer().len() >= model.shards[number].limit {
            return None;
        }
        let (payload, _) = model.begin_add(id, number, script, 0, operation)?;
        Some((shard, payload, is_full, is_gone, own))
    });
    let Some((shard, payload, is_full, is_gone, own)) = prepared else { return };
    let time = Duration::from_nanos(delay);
    let callback = move || run(&payload);
    let added = match act {
        Act::Run => shard.try_run(callback),
        Act::AddPeriodicRemote => shard.try_add_periodic(time, callback),
        _ => shard.try_add(time, callback),
    };
    let added = added.map_err(refused);
    let is_pending = added.is_ok_and(TimerHandle::is_pending);
    with(|model| match added {
        Err(reason) => model.record_refused_remote(id, reason, is_full, is_gone),
        Ok(handle) => {
            let number = model.timer(id).shard;
            model.timers[id as usize].handle = Some(handle);
            let is_periodic = act == Act::AddPeriodicRemote;
            let delay = if is_periodic { model.make_periodic(id, delay) } else { delay };
            let mut due = 0;
            if act != Act::Run {
                let now = if own { model.read_clock(number) } else { model.remote_reading(number) };
                due = model.shards[number].due_after(now, delay);
            }
            if own {
                model.record_added(id, [due; 2]);
            } else {
                model.check(is_full != Some(true), || format!("a full shard accepted timer {id}"));
                model.record_added_remote(id, due);
            }
            model.check(is_pending, || format!("timer {id} is not pending after its add"));
        }
    });
}
