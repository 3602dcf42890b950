//! A virtual core: a thread with its own wheel and some `Shard`s, here called shards of payloads.

mod handles;
mod reusable_timers;

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
use crate::handover::{self, CoreChannels, Job, check, count_operation, with_model};
use crate::ledger::Payload;
use crate::model::{ArmRequest, TurnReport, nanos};
use crate::plan::{
    Act, AddMethod, CancelMethod, ClockMove, Id, Nanos, Plan, SHARDS_PER_CORE, Script, Step,
};

pub(crate) struct Core {
    number: usize,
    /// The shard number of each entry of `shards`.
    shard_numbers: [usize; SHARDS_PER_CORE],
    /// The shards of payloads. Entry 0, the thread's own wheel, is None.
    shards: [Option<Shard<Payload>>; SHARDS_PER_CORE],
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
    channels: CoreChannels,
    shard_sender: &Sender<ShardRef>,
) {
    handover::CORE_CHANNELS.with(|cell| cell.set(channels).expect("a new thread"));
    let mut core = Core {
        number,
        shard_numbers: [0; SHARDS_PER_CORE],
        shards: Default::default(),
        sleep: None,
    };
    for (shard_index, (shard, config)) in configs.into_iter().enumerate() {
        core.shard_numbers[shard_index] = shard;
        if shard_index == 0 {
            config.install().expect("a new thread");
        } else {
            core.shards[shard_index] = Some(Shard::with_config(config).expect("valid"));
        }
    }
    shard_sender.send(local_timer().shard_ref()).expect("the conductor waits");
    let mut has_ended = false;
    while !has_ended && let Some(job) = handover::receive_job() {
        has_ended = matches!(job, Job::EndThread);
        // The library catches planned panics, so a panic that arrives here is a failure.
        let outcome = catch_unwind(AssertUnwindSafe(|| match job {
            Job::Steps(steps) => core.run_steps(plan, steps),
            Job::EndThread => core.record_thread_end(),
            Job::Resume => unreachable!("this core has not paused"),
        }));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            check(false, || format!("a panic: {}", text.unwrap_or_default()));
        }
        handover::hand_back_model(false);
    }
    // Drops the shards in reverse order, so that the shards of this core's next thread get the same
    // numbers.
    core.shards.iter_mut().rev().for_each(|shard| *shard = None);
}

impl Core {
    fn run_steps(&mut self, plan: &Plan, steps: Range<usize>) {
        self.wake_up();
        for number in steps {
            with_model(|model| model.step = number);
            self.do_act(plan.steps[number]);
            if with_model(|model| model.failure.is_some()) {
                return;
            }
        }
        (0..SHARDS_PER_CORE).for_each(|shard_index| self.check_counts(shard_index));
    }

    fn do_act(&mut self, step: Step) {
        let Step { id, shard_index, delay, count, .. } = step;
        match step.act {
            Act::Add(add_method) => self.add(step, add_method),
            Act::AddRemote | Act::AddPeriodicRemote | Act::Run => add_remote(step),
            Act::Cancel(how) => self.cancel(id, how),
            Act::Reset => handles::reset(id, delay, None),
            Act::ShardReset => self.reset(id, delay),
            Act::SetPeriod => self.set_period(id, delay),
            Act::IsPending => handles::is_pending(id),
            Act::Share => handles::share(id),
            Act::CreateReusable
            | Act::Arm(_)
            | Act::CancelReusable
            | Act::ShareReusable
            | Act::DropReusable => {
                self.use_reusable_timer(step);
            }
            Act::Turn => self.turn(shard_index, TurnMethod::Plain, None),
            Act::TurnWithin => self.turn(shard_index, TurnMethod::Within(count), None),
            Act::TurnAt => {
                let add_method = if count == 0 { AddMethod::At } else { AddMethod::AtPast };
                let instant = with_model(|model| {
                    model.instant(self.shard_numbers[shard_index], add_method, delay)
                });
                self.turn(shard_index, TurnMethod::At(instant), None);
            }
            Act::AbandonPass => self.turn(shard_index, TurnMethod::Plain, Some(count)),
            Act::Inspect => self.check_deadline_and_counts(shard_index),
            Act::Sleep => self.fall_asleep(shard_index),
            Act::Drain => self.drain(shard_index),
            Act::DropShard => self.drop_shard(shard_index),
            Act::SwapWithTransit => self.swap_with_transit(shard_index),
            Act::Clock(how) => {
                let wait =
                    if how == ClockMove::ToNext { self.time_until_next(shard_index) } else { None };
                with_model(|model| model.move_clock(step, how, wait));
            }
            Act::Flood(&act) => {
                let name = match act {
                    Act::AddRemote => "flood of adds",
                    Act::Reset => "flood of resets",
                    _ => "flood of cancels",
                };
                with_model(|model| model.coverage.count(name));
                for id in (id..).take(count) {
                    self.do_act(Step { id, act, script: Script::Nothing, ..step });
                }
            }
            Act::WakePanics => with_model(|model| {
                model.ledger.shard(model.cores[step.target_core].own_shard).next_wake_must_panic =
                    true;
            }),
            Act::Exit => unreachable!("the conductor ends a thread"),
        }
    }

    // ---- queries

    fn counts(&self, shard_index: usize) -> Counts {
        self.shards[shard_index].as_ref().map_or_else(|| local_timer().counts(), Shard::counts)
    }

    fn length(&self, shard_index: usize) -> usize {
        self.shards[shard_index].as_ref().map_or_else(|| local_timer().len(), Shard::len)
    }

    /// Returns the time until a shard's next turn. The call also publishes the shard's counts,
    /// which the model records.
    fn time_until_next(&self, shard_index: usize) -> Option<Nanos> {
        let shard = self.shards[shard_index].as_ref();
        let wait = shard.map_or_else(|| local_timer().time_until_next(), Shard::time_until_next);
        self.record_published(shard_index);
        wait.map(nanos)
    }

    fn record_published(&self, shard_index: usize) {
        let (shard, live) = (self.shard_numbers[shard_index], self.counts(shard_index).live);
        with_model(|model| model.shards[shard].published_len = live);
    }

    fn check_counts(&self, shard_index: usize) {
        let (shard, length) = (self.shard_numbers[shard_index], self.length(shard_index));
        let (counts, wait) = (self.counts(shard_index), self.time_until_next(shard_index));
        check(length as u64 == counts.live, || format!("{length} live, and {counts:?}"));
        with_model(|model| model.check_counts(shard, counts, wait));
    }

    fn check_deadline_and_counts(&self, shard_index: usize) {
        let number = self.shard_numbers[shard_index];
        let shard = self.shards[shard_index].as_ref();
        let next = shard.map_or_else(|| local_timer().next_deadline(), Shard::next_deadline);
        let wait = self.time_until_next(shard_index);
        count_operation("next_deadline, time_until_next, counts");
        with_model(|model| model.check_next_deadline(number, next, wait));
        self.check_counts(shard_index);
    }

    /// Announces a sleep. The thread's own wheel stays asleep until the core's next steps.
    fn fall_asleep(&mut self, shard_index: usize) {
        let number = self.shard_numbers[shard_index];
        count_operation("prepare_sleep");
        if let Some(shard) = &self.shards[shard_index] {
            let timeout = shard.prepare_sleep().timeout().map(nanos);
            self.record_published(shard_index);
            return with_model(|model| model.check_sleep(number, timeout, true));
        }
        self.wake_up();
        let sleep = local_timer().prepare_sleep();
        self.record_published(shard_index);
        with_model(|model| model.record_sleep(number, sleep.timeout().map(nanos)));
        self.sleep = Some(sleep);
    }

    fn wake_up(&mut self) {
        if self.sleep.take().is_some() {
            let queued = local_timer().counts().queued;
            with_model(|model| model.check_wake_ups(model.own_shard(), queued));
        }
    }

    // ---- timers

    /// Adds a timer, with `try_add` if the shard is full or may be.
    fn add(&mut self, step: Step, add_method: AddMethod) {
        let Step { id, shard_index, delay, window, script, .. } = step;
        let (shard, length) = (self.shard_numbers[shard_index], self.length(shard_index));
        let operations = match add_method {
            AddMethod::Plain => ["add", "Shard::add, try_add"],
            AddMethod::At | AddMethod::AtPast => ["add, an instant", "Shard::add, an instant"],
            AddMethod::Slack => ["add, slack", "Shard::add, slack"],
            AddMethod::Spread => ["add, spread", "Shard::add, spread"],
            AddMethod::Periodic => ["add_periodic", "Shard::add_periodic"],
            AddMethod::Local => ["add_local", "Shard::add, try_add"],
            AddMethod::Try => ["try_add", "Shard::add, try_add"],
        };
        let operation = operations[usize::from(shard_index > 0)];
        let added = with_model(|model| model.begin_add(id, shard, script, length, operation));
        let Some((payload, is_full)) = added else { return };
        let add_method = if is_full == Some(false) { add_method } else { AddMethod::Try };
        add(self.shards[shard_index].as_mut(), payload, add_method, [delay, window], is_full);
        self.check_counts(shard_index);
    }

    /// Returns the index of a timer's shard, if this core has the shard and it is a shard of
    /// payloads.
    fn shard_index_of(&self, id: Id) -> Option<usize> {
        let number = with_model(|model| Some(model.timers.get(id as usize)?.shard))?;
        (1..SHARDS_PER_CORE).find(|&shard_index| self.shard_numbers[shard_index] == number)
    }

    fn cancel(&mut self, id: Id, how: CancelMethod) {
        let shard_index = self.shard_index_of(id).filter(|_| how == CancelMethod::Shard);
        // A flood may name timers that the episode does not have.
        let handle = with_model(|model| model.timers.get(id as usize)?.handle);
        let Some((shard_index, handle)) = shard_index.zip(handle) else {
            return handles::cancel(id, how);
        };
        let Some(shard) = &mut self.shards[shard_index] else { return };
        let expected = with_model(|model| {
            model.count_call(id, true, ["Shard::cancel"; 2]);
            model.record_cancel(id, true)
        });
        let payload = shard.cancel(handle);
        let cancelled_id = payload.as_ref().map(|payload| payload.id);
        drop_only_counting(payload);
        let is_as_expected = cancelled_id == (expected == Cancel::Cancelled).then_some(id);
        check(is_as_expected, || format!("cancel of timer {id} by its shard, not {expected:?}"));
        self.check_counts(shard_index);
    }

    fn reset(&mut self, id: Id, delay: Nanos) {
        let shard_index = self
            .shard_index_of(id)
            .filter(|_| with_model(|model| model.timer(id).handle.is_some()));
        let shard = shard_index.and_then(|shard_index| self.shards[shard_index].as_mut());
        handles::reset(id, delay, shard);
        if let Some(shard_index) = shard_index {
            self.check_counts(shard_index);
        }
    }

    fn set_period(&mut self, id: Id, period: Nanos) {
        let shard_index = self.shard_index_of(id);
        let called = with_model(|model| {
            let timer = model.timers.get(id as usize)?;
            let (shard, handle) = (timer.shard, timer.handle?);
            let operation = match shard_index {
                Some(_) => "Shard::set_period",
                None if shard == model.own_shard() => "set_period",
                None => return None,
            };
            model.coverage.count(operation);
            Some((handle, model.record_set_period(id, period)))
        });
        let Some((handle, expected)) = called else { return };
        let period = Duration::from_nanos(period);
        let answer = match shard_index.and_then(|shard_index| self.shards[shard_index].as_mut()) {
            Some(shard) => shard.set_period(handle, period),
            None => local_timer().set_period(handle, period),
        };
        check(answer == expected, || format!("set_period of timer {id}: {answer}"));
    }

    fn use_reusable_timer(&self, Step { act, id, delay, window, count, script, .. }: Step) {
        match act {
            Act::CreateReusable => reusable_timers::create(id),
            Act::Arm(add_method) => reusable_timers::with_reusable_timer(id, |timer, timer_id| {
                reusable_timers::arm(
                    timer,
                    timer_id,
                    ArmRequest { id, script, add_method, delays: [delay, window] },
                );
                if count == 0 {
                    reusable_timers::share(timer, timer_id);
                }
            }),
            Act::CancelReusable => {
                reusable_timers::with_reusable_timer(id, reusable_timers::cancel);
            }
            Act::ShareReusable => reusable_timers::with_reusable_timer(id, reusable_timers::share),
            _ => reusable_timers::drop_reusable_timer(id),
        }
        self.check_counts(0);
    }

    // ---- turns

    fn turn(&mut self, shard_index: usize, method: TurnMethod, abandon_after: Option<usize>) {
        let (number, before) = (self.shard_numbers[shard_index], self.counts(shard_index));
        let wait = self.time_until_next(shard_index);
        let (operations, budget, instant) = match method {
            TurnMethod::Plain => (["turn", "Shard::turn"], None, None),
            TurnMethod::Within(entries_max) => {
                (["turn_within", "Shard::turn_within"], Some(entries_max), None)
            }
            TurnMethod::At(instant) => (["turn_at", "Shard::turn_at"], None, Some(instant)),
        };
        count_operation(operations[usize::from(shard_index > 0)]);
        with_model(|model| model.record_turn_begin(number, budget, instant, before, wait));
        let mut report = match &mut self.shards[shard_index] {
            None => turn_local(method),
            Some(shard) => run_pass(shard, shard_index == 1, method, abandon_after),
        };
        report.wait = self.time_until_next(shard_index);
        let after = self.counts(shard_index);
        with_model(|model| {
            model.record_turn_end(number, budget, report, after);
            if report.abandoned_pass {
                model.coverage.count("pass given up");
            } else if !report.behind {
                model.check_no_needless_turn(number, report.wait);
            }
        });
        self.check_counts(shard_index);
    }

    // ---- shards end and move

    fn make_shard(&mut self, shard_index: usize) {
        let (number, config) = with_model(|model| model.new_shard(self.number, shard_index));
        self.shard_numbers[shard_index] = number;
        self.shards[shard_index] = Some(Shard::with_config(config).expect("valid"));
    }

    fn drain(&mut self, shard_index: usize) {
        let Some(mut shard) = self.shards[shard_index].take() else { return };
        let number = self.shard_numbers[shard_index];
        // During the drain, destructors of cancelled timers find the shard ended.
        count_operation("Shard::drain");
        let live = with_model(|model| model.record_end(number));
        let handed_back = shard.drain();
        let payload = with_model(|model| {
            model.record_drain(number, &live, &handed_back, shard.counts());
            model.payload(Id::MAX, number, false)
        });
        drop_only_counting(handed_back);
        let refusal = shard.try_add(Duration::ZERO, payload).map_err(reason_of_refusal);
        let is_refused = refusal == Err(AddErrorReason::ShutDown);
        let is_empty = shard.is_empty() && shard.drain().is_empty();
        drop(shard);
        check(is_refused && is_empty, || format!("ended shard {number} accepted or kept a timer"));
        with_model(|model| model.check_end(number));
        self.make_shard(shard_index);
    }

    fn drop_shard(&mut self, shard_index: usize) {
        let Some(shard) = self.shards[shard_index].take() else { return };
        let number = self.shard_numbers[shard_index];
        count_operation("shard dropped");
        with_model(|model| model.record_end(number));
        drop(shard);
        with_model(|model| model.check_end(number));
        self.make_shard(shard_index);
    }

    fn swap_with_transit(&mut self, shard_index: usize) {
        let Some(shard) = self.shards[shard_index].take() else { return };
        let number = self.shard_numbers[shard_index];
        count_operation("a shard moves");
        let arriving_shard = with_model(|model| model.in_transit.replace((number, shard)));
        match arriving_shard {
            Some((number, shard)) => {
                self.shard_numbers[shard_index] = number;
                self.shards[shard_index] = Some(shard);
            }
            None => self.make_shard(shard_index),
        }
    }

    /// Records the end of this thread's shards, because the thread ends next.
    fn record_thread_end(&mut self) {
        self.wake_up();
        for shard_index in 0..SHARDS_PER_CORE {
            self.check_counts(shard_index);
            let number = self.shard_numbers[shard_index];
            let live = with_model(|model| {
                model.ending_shards.push(number);
                model.record_end(number)
            });
            // If the number is even, drains the thread's own wheel; otherwise it ends with the
            // thread.
            if shard_index == 0 && number.is_multiple_of(2) {
                count_operation("drain");
                let handed_back = local_timer().drain();
                check(handed_back.len() == live.len(), || {
                    format!("{} of {live:?} came back", handed_back.len())
                });
                drop_only_counting(handed_back);
                reusable_timers::check_arming_fails();
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
    let (collected, relinked) = (Some(turn.collected), Some(turn.relinked));
    let (fired, behind) = (turn.fired, turn.behind);
    TurnReport { fired, collected, relinked, behind, ..TurnReport::default() }
}

/// Makes a pass. If `borrows`, the loop borrows the payloads of periodic timers; otherwise it takes
/// them.
fn run_pass(
    shard: &mut Shard<Payload>,
    borrows: bool,
    method: TurnMethod,
    abandon_after: Option<usize>,
) -> TurnReport {
    match method {
        TurnMethod::Plain => shard.turn(),
        TurnMethod::Within(budget) => shard.turn_within(budget),
        TurnMethod::At(instant) => shard.turn_at(instant),
    }
    let mut fired = 0;
    let mut abandoned_pass = abandon_after == Some(0);
    while !abandoned_pass {
        let expiry =
            if borrows { shard.next_expiry() } else { shard.next_expired().map(Expiry::Ended) };
        let Some(mut expiry) = expiry else { break };
        fired += 1;
        let is_lent = matches!(expiry, Expiry::Periodic(_));
        let id = expiry.as_mut().payload.id;
        let script = with_model(|model| model.record_expiry(&expiry.as_mut(), is_lent));
        if script == Script::Pause {
            // Lets other cores cancel the timer while this loop borrows its payload.
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
        drop_only_counting(ended);
        abandoned_pass = abandon_after == Some(fired);
    }
    TurnReport { fired, behind: shard.is_behind(), abandoned_pass, ..TurnReport::default() }
}

fn pause_in_pass() {
    // Other cores may add to this thread's wheel, so the model needs the published length.
    let (counts, wait) = (local_timer().counts(), local_timer().time_until_next());
    with_model(|model| {
        let own_shard = model.own_shard();
        model.shards[own_shard].published_len = counts.live;
        model.check_counts(own_shard, counts, wait.map(nanos));
    });
    pause();
}

fn pause() {
    count_operation("callback stalls");
    handover::pause();
}

/// Runs the script of a timer, in a callback or in a pass of `shard`.
fn run_script(id: Id, script: Script, shard: Option<&mut Shard<Payload>>) {
    let is_callback = shard.is_none();
    match script {
        Script::Panic if is_callback => count_operation("callback panics"),
        Script::DropPanic if is_callback => count_operation("destructor panics"),
        Script::Add(new, delay) => {
            let length = shard.as_ref().map_or_else(|| local_timer().len(), |shard| shard.len());
            let operation =
                if is_callback { "try_add, in a callback" } else { "Shard::try_add, in a pass" };
            let added = with_model(|model| {
                let number = model.timer(id).shard;
                model.begin_add(new, number, Script::Nothing, length, operation)
            });
            if let Some((payload, is_full)) = added {
                add(shard, payload, AddMethod::Try, [delay, 0], is_full);
            }
        }
        Script::Arm(new, delay) => reusable_timers::with_reusable_timer(new, |timer, id| {
            reusable_timers::arm(timer, id, ArmRequest::plain(new, delay));
        }),
        Script::DropReusable(other, _) => reusable_timers::drop_reusable_timer(other),
        Script::Cancel(other) if is_callback => handles::cancel(other, CancelMethod::Wait),
        Script::DropCancel(_) if is_callback => (),
        // `DropCancel`: in a pass, payloads' destructors do not cancel (see `drop_only_counting`),
        // so this code cancels.
        Script::Cancel(other) | Script::DropCancel(other) => {
            handles::cancel(other, CancelMethod::Handle);
        }
        Script::CancelSelf => handles::cancel(id, CancelMethod::Handle),
        Script::Reset(other, delay) => handles::reset(other, delay, None),
        Script::Turn if is_callback => {
            let (turn, live) = (local_timer().turn(), local_timer().len());
            let turn_counts = (turn.fired, turn.collected, turn.relinked, turn.live);
            let is_idle = turn.nested && turn_counts == (0, 0, 0, live);
            count_operation("turn in a callback");
            with_model(|model| _ = model.read_clock(model.own_shard()));
            check(is_idle, || format!("{turn:?} in a callback"));
        }
        Script::Pause => pause(),
        Script::Nothing | Script::Panic | Script::DropPanic | Script::Turn => (),
    }
}

fn run_callback(payload: &Payload) {
    let id = payload.id;
    run_script(id, with_model(|model| model.record_fire(id)), None);
    let planned_panic = with_model(|model| {
        if model.timer(id).period > 0 {
            model.record_run_end(id);
        }
        let timer = model.timer(id);
        (timer.script == Script::Panic).then(|| (model.ledger.clone(), timer.shard))
    });
    if let Some((ledger, shard)) = planned_panic {
        ledger.panic_as_planned(shard);
    }
}

fn add(
    shard: Option<&mut Shard<Payload>>,
    payload: Payload,
    add_method: AddMethod,
    delays: [Nanos; 2],
    is_full: Option<bool>,
) {
    let (id, timer) = (payload.id, local_timer());
    let delay = Duration::from_nanos(delays[0]);
    // Shards have no `add_local`.
    let add_method =
        if shard.is_some() && add_method == AddMethod::Local { AddMethod::Try } else { add_method };
    let when = when(with_model(|model| model.timer(id).shard), add_method, delays);
    let added = match shard {
        Some(shard) => match add_method {
            AddMethod::Periodic => Ok(Some(shard.add_periodic(delay, payload))),
            AddMethod::Try => shard.try_add(delay, payload).map(Some).map_err(|error| {
                // Unlike the thread's own wheel, a shard reads its clock even for a refused add.
                with_model(|model| model.read_clock(model.timer(id).shard));
                reason_of_refusal(error)
            }),
            _ => Ok(Some(shard.add(when, payload))),
        },
        None => match add_method {
            AddMethod::Periodic => {
                Ok(Some(timer.add_periodic(delay, move || run_callback(&payload))))
            }
            AddMethod::Local => {
                handles::keep_local(id, timer.add_local(delay, move || run_callback(&payload)));
                Ok(None)
            }
            AddMethod::Try => {
                // The closure is too large for inline storage, so that boxed callbacks are
                // simulated too.
                let large = ([id; 16], payload);
                let added = timer.try_add(delay, move || run_callback(&black_box(&large).1));
                added.map(Some).map_err(reason_of_refusal)
            }
            _ => Ok(Some(timer.add(when, move || run_callback(&payload)))),
        },
    };
    with_model(|model| model.end_add(id, add_method, delays, is_full, added));
}

fn when(shard: usize, add_method: AddMethod, delays: [Nanos; 2]) -> When {
    let [delay, window] = delays.map(Duration::from_nanos);
    match add_method {
        AddMethod::At | AddMethod::AtPast => {
            with_model(|model| model.instant(shard, add_method, delays[0])).into()
        }
        AddMethod::Slack => When::after(delay).slack(window),
        AddMethod::Spread => When::after(delay).spread(window),
        AddMethod::Plain | AddMethod::Periodic | AddMethod::Local | AddMethod::Try => delay.into(),
    }
}

fn reason_of_refusal<F>(error: AddError<F>) -> AddErrorReason {
    let reason = error.reason();
    drop_only_counting(error.into_inner());
    reason
}

fn drop_only_counting<T>(value: T) {
    let ledger = with_model(|model| model.ledger.clone());
    ledger.drop_only_counting(value);
}

/// Adds through a `ShardRef`, to another core's wheel or to this one's.
fn add_remote(step: Step) {
    let Step { id, act, target_core, delay, script, .. } = step;
    let operation = match act {
        Act::Run => "ShardRef::try_run",
        Act::AddPeriodicRemote => "ShardRef::try_add_periodic",
        _ => "ShardRef::try_add",
    };
    let prepared_add = with_model(|model| {
        let (is_owner, core) = (model.core == target_core, &model.cores[target_core]);
        // A few adds go to the wheel of an ended thread.
        let ended_wheel = core.ended_wheel.clone().filter(|_| id.is_multiple_of(16));
        let (has_ended, number) = (ended_wheel.is_some(), core.own_shard);
        let shard = ended_wheel.or_else(|| core.shard.clone())?;
        let is_full = if has_ended { Some(true) } else { model.is_full_remote(number) };
        if is_owner && local_timer().len() >= model.shards[number].limit {
            return None;
        }
        let (payload, _) = model.begin_add(id, number, script, 0, operation)?;
        Some((shard, payload, is_full, has_ended, is_owner))
    });
    let Some((shard, payload, is_full, has_ended, is_owner)) = prepared_add else { return };
    let time = Duration::from_nanos(delay);
    let callback = move || run_callback(&payload);
    let added = match act {
        Act::Run => shard.try_run(callback),
        Act::AddPeriodicRemote => shard.try_add_periodic(time, callback),
        _ => shard.try_add(time, callback),
    };
    let added = added.map_err(reason_of_refusal);
    let is_pending = added.is_ok_and(TimerHandle::is_pending);
    with_model(|model| match added {
        Err(reason) => model.record_refused_remote(id, reason, is_full, has_ended),
        Ok(handle) => {
            let number = model.timer(id).shard;
            model.timers[id as usize].handle = Some(handle);
            let is_periodic = act == Act::AddPeriodicRemote;
            let delay = if is_periodic { model.make_periodic(id, delay) } else { delay };
            let mut due = 0;
            if act != Act::Run {
                let now =
                    if is_owner { model.read_clock(number) } else { model.remote_reading(number) };
                due = model.shards[number].due_time_after(now, delay);
            }
            if is_owner {
                model.record_added(id, [due; 2]);
            } else {
                model.check(is_full != Some(true), || format!("a full shard accepted timer {id}"));
                model.record_added_remote(id, due);
            }
            model.check(is_pending, || format!("timer {id} is not pending after its add"));
        }
    });
}
