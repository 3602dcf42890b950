//! The model of an episode predicts the answer of each call. Where the library may choose, for
//! example the tick of a spread timer, the model has bounds. This file models timers,
//! `model/reusable_timers.rs` models `ReusableTimer`s and their armings, and `model/shards.rs`
//! models shards.
//!
//! The *owner* of a shard is its thread. Other threads send it messages through its mailbox. When
//! the owner consumes a message, it *admits* an added timer, or *collects* a cancelled one.

mod reusable_timers;
mod shards;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewheel::{
    AddErrorReason, Cancel, Config, Counts, Expired, ManualClock, Shard, ShardRef, TimerHandle,
};

pub(crate) use self::reusable_timers::{ArmEffect, ArmRequest};
pub(crate) use self::shards::TurnReport;
use crate::coverage::Coverage;
use crate::ledger::{Ledger, Payload};
use crate::plan::{AddMethod, Id, Nanos, Plan, Script, Setting};

/// The state of an episode, owned by the one thread that runs.
#[derive(Debug)]
pub(crate) struct Model {
    setting: Setting,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) timers: Vec<Timer>,
    pub(crate) shards: Vec<ShardModel>,
    pub(crate) cores: Vec<CoreModel>,
    pub(crate) core: usize,
    /// A shard on its way from one core to another, and its number.
    pub(crate) in_transit: Option<(usize, Shard<Payload>)>,
    pub(crate) coverage: Coverage,
    pub(crate) failure: Option<String>,
    pub(crate) step: usize,
    /// The numbers of the shards of a thread that is about to end.
    pub(crate) ending_shards: Vec<usize>,
    /// True if the planted bug is active: some remote cancels never reach the library.
    pub(crate) plants_lost_cancels: bool,
}

#[derive(Debug)]
pub(crate) struct CoreModel {
    pub(crate) clock: ManualClock,
    /// Number of next forward moves that this core's clock ignores, as if it stalled.
    moves_to_ignore: usize,
    /// The distances from the true time to the lower and the upper bound of an owner's reading.
    blur: [Nanos; 2],
    /// The shard number of the thread's own wheel.
    pub(crate) own_shard: usize,
    pub(crate) shard: Option<ShardRef>,
    /// The wheel of this core's most recently ended thread.
    pub(crate) ended_wheel: Option<ShardRef>,
}

#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(crate) struct Timer {
    pub(crate) state: State,
    pub(crate) shard: usize,
    /// None if the timer has no handle that other cores can use.
    pub(crate) handle: Option<TimerHandle>,
    /// The earliest and the latest deadline that the latest add or reset allows.
    due: [Nanos; 2],
    due_ticks: [u64; 2],
    /// The time from which a periodic timer counts its period.
    period_start: Nanos,
    /// 0 for a one-shot timer.
    pub(crate) period: Nanos,
    /// The number of the turn in which the owner added the timer; 0 if outside of a turn.
    added_in_turn: u64,
    /// The number of the turn in which the timer was last added or reset; 0 if outside of a turn.
    moved_in_turn: u64,
    /// True if a message about this timer may be in the mailbox.
    queued: bool,
    /// The shard's turn count when a message about this timer was last sent.
    queued_at_turn: u64,
    /// True if the latest reset was remote, so that a remote reset to a later deadline may send no
    /// message.
    may_be_postponable: bool,
    is_remote: bool,
    /// True if the owner may not have admitted the timer yet.
    unadmitted: bool,
    has_run: bool,
    /// If this is the arming of a `ReusableTimer`: the id of that `ReusableTimer`.
    reusable_timer_id: Option<Id>,
    /// If this is a `ReusableTimer`: the id of its latest arming.
    pub(crate) arming: Option<Id>,
    pub(crate) script: Script,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    NotAdded,
    Refused,
    Live,
    Running,
    /// A cancelled periodic timer, during its last run.
    Stopping,
    Ended,
}

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(crate) struct ShardModel {
    /// The core whose clock the shard reads.
    pub(crate) core: usize,
    tick: Nanos,
    /// True if the owner may still have to drop the payload of a remotely cancelled timer.
    may_hold_payloads: bool,
    pub(crate) limit: usize,
    /// The latest bounds on the time that the owner has read or passed to `turn_at`.
    latest_reading: Reading,
    /// How often the owner read a time earlier than `latest_reading`.
    regressions: u64,
    /// The tick that the turns have reached.
    turn_tick: u64,
    /// The clock reading of the latest turn.
    turn_reading: Nanos,
    pub(crate) turn: Option<TurnModel>,
    turns: u64,
    /// Live timers, by the latest tick at which they may fire.
    live: BTreeSet<(u64, Id)>,
    added: u64,
    /// The number of payloads made for the shard.
    payloads: u64,
    /// The number of `ReusableTimer`s that are not pending, each with its payload.
    idle_reusable_timers: u64,
    /// The expected `Counts::fired`: fired one-shot timers, and periodic timers that the loop took
    /// by value.
    fired: u64,
    runs: u64,
    cancelled: u64,
    /// Timers about which a message may be in the mailbox.
    queued: Vec<Id>,
    /// True if the mailbox may contain the message of an add or a reset.
    may_have_urgent_message: bool,
    /// True if it is unknown which of the `queued` messages were consumed.
    is_queue_uncertain: bool,
    unadmitted: u64,
    uncollected: u64,
    /// The counts at the owner's latest query.
    last_counts: Counts,
    /// The number of live timers that other threads see.
    pub(crate) published_len: u64,
    /// The number of calls of the wake hook up to the end of the latest sleep.
    wakes: u64,
    announced_sleep: Option<AnnouncedSleep>,
    behind: bool,
    /// True if callbacks of the latest turn added, reset or cancelled timers.
    callbacks_made_requests: bool,
    /// The number of needless turns that the shard is still allowed to request.
    needless_turns_allowed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct TurnModel {
    /// The latest tick of the fired timers whose order is certain.
    latest_fired_tick: u64,
    fired: usize,
    /// The number of timers that callbacks cancelled.
    cancelled: u64,
    /// The number of all adds, cancels and resets by callbacks.
    callback_operations: u64,
    /// Upper bound of the cancelled timers that adds in callbacks have collected to make room.
    collected_for_room: u64,
    /// Upper bound of the messages that arrived during the turn.
    arrived_max: u64,
    /// The number of expiries of periodic timers whose payload the loop borrowed in this turn.
    lending_expiries: u64,
    before: Counts,
    is_requested: bool,
    /// Queued timers that are due after this tick fire in order in this turn. None if messages from
    /// before the turn may stay queued.
    in_order_after: Option<u64>,
}

#[derive(Debug)]
struct AnnouncedSleep {
    until: Nanos,
    wakes: u64,
    planned_panics: u64,
    may_wake: bool,
    must_wake: bool,
    /// True if the sleep is longer than `shards::DROP_CANCELLED_WITHIN`.
    is_long: bool,
}

impl Model {
    pub(crate) fn new(plan: &Plan, plants_lost_cancels: bool) -> Self {
        let core = |start: Nanos| {
            let is_inexact = plan.setting.is_inexact;
            let clock = if is_inexact { ManualClock::inexact() } else { ManualClock::new() };
            clock.set(Duration::from_nanos(start));
            CoreModel {
                clock,
                moves_to_ignore: 0,
                blur: [0; 2],
                own_shard: 0,
                shard: None,
                ended_wheel: None,
            }
        };
        Self {
            setting: plan.setting.clone(),
            ledger: Ledger::new(plan.timers, plan.shards()),
            timers: vec![Timer::default(); plan.timers],
            shards: Vec::new(),
            cores: plan.setting.first_readings.into_iter().map(core).collect(),
            core: 0,
            in_transit: None,
            coverage: Coverage::default(),
            failure: None,
            step: 0,
            ending_shards: Vec::new(),
            plants_lost_cancels,
        }
    }

    pub(crate) fn new_shard(&mut self, core: usize, shard_index: usize) -> (usize, Config) {
        let (number, now) = (self.shards.len(), self.clock(core));
        let Setting { ticks, limits, capacity, .. } = self.setting;
        let (tick, limit) = (ticks[shard_index], limits[shard_index]);
        let config = Config::new()
            .tick(Duration::from_nanos(tick))
            .clock(&self.cores[core].clock)
            .limit(limit)
            .capacity(capacity);
        self.shards.push(ShardModel {
            core,
            tick,
            limit,
            latest_reading: Reading::exact(now),
            turn_tick: now / tick,
            turn_reading: now,
            ..ShardModel::default()
        });
        (number, self.ledger.add_hooks(config, number))
    }

    pub(crate) fn clock(&self, core: usize) -> Nanos {
        nanos(self.cores[core].clock.elapsed())
    }

    /// Returns the bounds that an owner reads from this core's clock.
    fn reading(&self, core: usize) -> Reading {
        let (now, [before, after]) = (self.clock(core), self.cores[core].blur);
        Reading { min: now.saturating_sub(before), max: now.saturating_add(after) }
    }

    pub(crate) fn timer(&self, id: Id) -> &Timer {
        &self.timers[id as usize]
    }

    fn timer_and_shard(&mut self, id: Id) -> (&mut Timer, &mut ShardModel) {
        let timer = &mut self.timers[id as usize];
        let shard = &mut self.shards[timer.shard];
        (timer, shard)
    }

    /// Returns the shard number of the running core's own wheel.
    pub(crate) fn own_shard(&self) -> usize {
        self.cores[self.core].own_shard
    }

    /// Records a failure unless `holds` is true. Only the first failure is kept.
    pub(crate) fn check(&mut self, holds: bool, describe: impl FnOnce() -> String) {
        if !holds && self.failure.is_none() {
            self.failure = Some(describe());
        }
    }

    // ---- adding

    /// Returns the payload of a new timer, and whether the shard is full (`None` if unknown).
    /// Returns `None` if a timer with this id exists already.
    pub(crate) fn begin_add(
        &mut self,
        id: Id,
        shard: usize,
        script: Script,
        length: usize,
        operation: &'static str,
    ) -> Option<(Payload, Option<bool>)> {
        let timer = &mut self.timers[id as usize];
        if timer.state != State::NotAdded {
            return None;
        }
        (timer.shard, timer.script) = (shard, script);
        self.coverage.count(operation);
        let payload = self.payload(id, shard, script == Script::DropPanic);
        Some((payload, self.is_full(shard, length)))
    }

    pub(crate) fn payload(&mut self, id: Id, shard: usize, must_panic: bool) -> Payload {
        self.shards[shard].payloads += 1;
        self.ledger.payload(id, shard, must_panic)
    }

    /// Returns whether a shard of `length` timers refuses its owner's adds; `None` if unknown.
    fn is_full(&self, shard: usize, length: usize) -> Option<bool> {
        let shard = &self.shards[shard];
        // Timers that other threads have cancelled make room.
        let length_min =
            length.saturating_sub(usize::try_from(shard.uncollected).unwrap_or(usize::MAX));
        let is_full = length_min >= shard.limit;
        // During a turn, cancelled timers that the turn admits also make room; the model cannot
        // count them.
        let is_collected_known =
            !shard.is_queue_uncertain && (shard.turn.is_none() || shard.unadmitted == 0);
        let is_known = if is_full {
            is_collected_known && !self.collecting_may_cancel(shard)
        } else {
            length < shard.limit
        };
        is_known.then_some(is_full)
    }

    /// Returns whether a destructor may cancel another timer when the owner makes room.
    fn collecting_may_cancel(&self, shard: &ShardModel) -> bool {
        let cancels_in_drop = |&id: &Id| matches!(self.timer(id).script, Script::DropCancel(_));
        shard.queued.iter().any(cancels_in_drop)
    }

    /// Records that an add to a full shard may have consumed messages about cancelled timers.
    fn record_search_for_room(&mut self, shard: usize) {
        let shard = &mut self.shards[shard];
        shard.is_queue_uncertain |= !shard.queued.is_empty();
        if let Some(turn) = &mut shard.turn {
            // Counts unadmitted timers too, because the turn may have admitted and collected them.
            turn.collected_for_room = shard.uncollected + shard.unadmitted;
        }
    }

    pub(crate) fn end_add(
        &mut self,
        id: Id,
        add_method: AddMethod,
        [delay, window]: [Nanos; 2],
        is_full: Option<bool>,
        answer: Result<Option<TimerHandle>, AddErrorReason>,
    ) {
        let shard = self.timer(id).shard;
        if is_full.is_none() || answer.is_err() {
            self.record_search_for_room(shard);
        }
        let handle = match answer {
            Ok(handle) => handle,
            Err(reason) => return self.record_refused(id, reason, is_full, AddErrorReason::Full),
        };
        self.check(is_full != Some(true), || format!("a full shard took timer {id}"));
        let delay =
            if add_method == AddMethod::Periodic { self.make_periodic(id, delay) } else { delay };
        let now = self.read_clock(shard);
        let due = self.due(shard, now, add_method, [delay, window]);
        self.timers[id as usize].handle = handle;
        self.record_added(id, due);
    }

    /// Returns the earliest and the latest deadline that a request allows.
    fn due(
        &self,
        shard: usize,
        now: Reading,
        add_method: AddMethod,
        [delay, window]: [Nanos; 2],
    ) -> [Nanos; 2] {
        let instant = self.requested_nanos(shard, add_method, delay);
        let exact = self.clock(self.shards[shard].core);
        let shard = &self.shards[shard];
        let due = match add_method {
            // If the instant is between the bounds of the reading, the library reads the exact
            // time.
            AddMethod::At | AddMethod::AtPast if instant <= now.min.max(now.max.min(exact)) => {
                shard.due_time_of_elapsed_deadline(instant.min(now.min))
            }
            AddMethod::At | AddMethod::AtPast => instant,
            _ => shard.due_time_after(now, delay),
        };
        let last = match add_method {
            AddMethod::Slack => {
                let last = now.max.saturating_add(delay).saturating_add(window) / shard.tick;
                shard.tick_start(last.max(shard.tick_of(due))).max(due)
            }
            AddMethod::Spread => now.max.saturating_add(delay).saturating_add(window),
            _ => due,
        };
        [due, last]
    }

    /// Makes a timer periodic. Returns the period, which is at least a tick.
    pub(crate) fn make_periodic(&mut self, id: Id, period: Nanos) -> Nanos {
        let (timer, shard) = self.timer_and_shard(id);
        timer.period = period.max(shard.tick);
        timer.period
    }

    pub(crate) fn record_added(&mut self, id: Id, due: [Nanos; 2]) {
        let (timer, shard) = self.timer_and_shard(id);
        timer.state = State::Live;
        shard.added += 1;
        if let Some(turn) = &mut shard.turn {
            turn.callback_operations += 1;
            timer.added_in_turn = shard.turns;
        }
        self.link(id, due, true);
        self.timers[id as usize].period_start = due[0];
    }

    pub(crate) fn record_added_remote(&mut self, id: Id, due: Nanos) {
        let (timer, shard) = self.timer_and_shard(id);
        (timer.state, timer.is_remote, timer.unadmitted) = (State::Live, true, true);
        shard.added += 1;
        shard.unadmitted += 1;
        self.enqueue(id, true);
        self.link(id, [due; 2], false);
        self.timers[id as usize].period_start = due;
    }

    fn link(&mut self, id: Id, due: [Nanos; 2], is_owner: bool) {
        let (timer, shard) = self.timer_and_shard(id);
        timer.due = due;
        let [first, last] = due.map(|due| shard.tick_of(due));
        // The library may raise an elapsed deadline to the tick of the latest turn.
        timer.due_ticks = [first, if is_owner { last.max(shard.turn_tick) } else { last }];
        timer.moved_in_turn = if shard.turn.is_some() { shard.turns } else { 0 };
        shard.live.insert((timer.due_ticks[1], id));
        shard.idle_reusable_timers -= u64::from(timer.reusable_timer_id.is_some());
        shard.record_due(timer.due_ticks);
    }

    fn unlink(&mut self, id: Id) {
        let (timer, shard) = self.timer_and_shard(id);
        shard.live.remove(&(timer.due_ticks[1], id));
        shard.idle_reusable_timers += u64::from(timer.reusable_timer_id.is_some());
    }

    fn enqueue(&mut self, id: Id, is_urgent: bool) {
        let (timer, shard) = self.timer_and_shard(id);
        shard.may_have_urgent_message |= is_urgent;
        timer.queued_at_turn = shard.turns;
        if !timer.queued {
            timer.queued = true;
            shard.queued.push(id);
        }
        if let Some(turn) = &mut shard.turn {
            turn.arrived_max += 1;
        }
    }

    fn record_refused(
        &mut self,
        id: Id,
        reason: AddErrorReason,
        is_full: Option<bool>,
        expected_reason: AddErrorReason,
    ) {
        self.timers[id as usize].state = State::Refused;
        let is_as_expected = is_full != Some(false) && reason == expected_reason;
        self.check(is_as_expected, || format!("timer {id} was refused: {reason}"));
        if reason == AddErrorReason::Full {
            self.coverage.count("shard full");
        }
    }

    pub(crate) fn record_refused_remote(
        &mut self,
        id: Id,
        reason: AddErrorReason,
        is_full: Option<bool>,
        has_ended: bool,
    ) {
        // A refused add may wake the owner, so that it makes room by collecting cancelled timers.
        let (_, shard) = self.timer_and_shard(id);
        if let (AddErrorReason::Full, Some(announced_sleep)) = (reason, &mut shard.announced_sleep)
        {
            announced_sleep.may_wake = true;
        }
        let expected_reason =
            if has_ended { AddErrorReason::ShutDown } else { AddErrorReason::Full };
        self.record_refused(id, reason, is_full, expected_reason);
    }

    /// Returns whether a shard refuses a remote add; `None` if unknown.
    pub(crate) fn is_full_remote(&self, shard: usize) -> Option<bool> {
        let shard = &self.shards[shard];
        let arriving = shard.added - shard.last_counts.added;
        let (limit, live_at_most) = (shard.limit as u64, shard.published_len + arriving);
        let is_full =
            live_at_most.saturating_sub(shard.uncollected.min(shards::MESSAGES_MAX)) >= limit;
        // After a partial turn, the model does not know how many cancelled timers make room.
        let is_known = is_full && !shard.is_queue_uncertain || live_at_most < limit;
        (is_known && shard.turn.is_none() || shard.limit == usize::MAX).then_some(is_full)
    }

    /// Returns the clock reading that an add at an instant requests.
    fn requested_nanos(&self, shard: usize, add_method: AddMethod, delay: Nanos) -> Nanos {
        let now = self.clock(self.shards[shard].core);
        if add_method == AddMethod::AtPast {
            now.saturating_sub(delay)
        } else {
            now.saturating_add(delay)
        }
    }

    pub(crate) fn instant(&self, shard: usize, add_method: AddMethod, delay: Nanos) -> Instant {
        let clock = &self.cores[self.shards[shard].core].clock;
        let origin = clock.now().checked_sub(clock.elapsed()).expect("the clock showed it");
        origin + Duration::from_nanos(self.requested_nanos(shard, add_method, delay))
    }

    /// Converts an instant to the reading of a shard's clock.
    fn nanos_at(&self, shard: usize, instant: Instant) -> Nanos {
        let clock = &self.cores[self.shards[shard].core].clock;
        nanos((instant + clock.elapsed()).saturating_duration_since(clock.now()))
    }

    // ---- cancelling and moving

    /// Returns whether the running core owns a timer; `None` if the core has no usable handle of
    /// it.
    pub(crate) fn owns(&self, id: Id, has_local: bool) -> Option<bool> {
        let timer = self.timers.get(id as usize)?;
        let is_owner = timer.shard == self.own_shard();
        let is_known = timer.handle.is_some() || is_owner && has_local;
        (is_known && timer.state != State::NotAdded).then_some(is_owner)
    }

    /// Counts a call of a handle as a call by the owner, a remote call, or a call of a stale
    /// handle.
    pub(crate) fn count_call(
        &mut self,
        id: Id,
        is_owner: bool,
        [by_owner, remote]: [&'static str; 2],
    ) {
        let &Timer { state, reusable_timer_id, .. } = self.timer(id);
        let name_if_live = if is_owner { by_owner } else { remote };
        let is_stale = matches!(state, State::Ended | State::Refused);
        self.coverage.count(if is_stale { "any, by a stale handle" } else { name_if_live });
        if reusable_timer_id.is_some() && !is_owner && !is_stale {
            self.coverage.count("ReusableTimer, by its handle, remote");
        }
    }

    /// Records a cancel before its call. Returns the expected answer.
    pub(crate) fn record_cancel(&mut self, id: Id, is_owner: bool) -> Cancel {
        let timer = &mut self.timers[id as usize];
        match timer.state {
            State::Live => {
                self.record_cancelled(id, is_owner);
                Cancel::Cancelled
            }
            State::Running | State::Stopping => {
                if timer.period > 0 {
                    timer.state = State::Stopping;
                }
                Cancel::Running
            }
            _ => Cancel::Ended,
        }
    }

    fn record_cancelled(&mut self, id: Id, is_owner: bool) {
        self.unlink(id);
        let (timer, shard) = self.timer_and_shard(id);
        timer.state = State::Ended;
        shard.cancelled += 1;
        if is_owner {
            if let Some(turn) = &mut shard.turn {
                turn.cancelled += 1;
                turn.callback_operations += 1;
            }
            self.record_counted_as_added(id);
        } else {
            shard.needless_turns_allowed += 1;
            shard.uncollected += u64::from(!timer.unadmitted);
            if !timer.is_remote {
                shard.may_hold_payloads = true;
                // The cancel must end a long sleep, so that the owner drops the payload soon.
                if let Some(announced_sleep) = &mut shard.announced_sleep {
                    announced_sleep.may_wake = true;
                    announced_sleep.must_wake |= announced_sleep.is_long;
                }
            }
            self.enqueue(id, false);
        }
    }

    /// Records that the owner's cancel or reset has counted an unadmitted timer as added.
    fn record_counted_as_added(&mut self, id: Id) {
        let (timer, shard) = self.timer_and_shard(id);
        if std::mem::take(&mut timer.unadmitted) {
            shard.unadmitted = shard.unadmitted.saturating_sub(1);
        }
    }

    pub(crate) fn check_cancelled(
        &mut self,
        id: Id,
        is_owner: bool,
        expected: Cancel,
        answer: Cancel,
    ) {
        self.check(answer == expected, || format!("cancel of {id}: {answer:?}, not {expected:?}"));
        let is_dropped = self.ledger.drops(id as usize) == 1;
        let is_dropped_at_once = is_owner || self.timer(id).is_remote;
        let has_payload = self.timer(id).reusable_timer_id.is_none();
        let must_be_dropped = has_payload && is_dropped_at_once && expected == Cancel::Cancelled;
        self.check(is_dropped || !must_be_dropped, || {
            format!("the cancel of {id} dropped no payload")
        });
    }

    /// Records a reset before its call. Returns the expected answer.
    pub(crate) fn record_reset(
        &mut self,
        id: Id,
        add_method: AddMethod,
        delays: [Nanos; 2],
        is_owner: bool,
    ) -> bool {
        let &Timer { state, shard, .. } = self.timer(id);
        let answer = state == State::Live;
        // The reset timer may stay linked at its old deadline, and cause a needless turn there.
        self.shards[shard].needless_turns_allowed += u64::from(answer);
        // The owner reads the clock before it knows whether the timer can be moved.
        let now = if is_owner { self.read_clock(shard) } else { self.remote_reading(shard) };
        if answer {
            self.unlink(id);
            let may_be_postponable =
                std::mem::replace(&mut self.timers[id as usize].may_be_postponable, !is_owner);
            if is_owner {
                self.record_counted_as_added(id);
                if let Some(turn) = &mut self.shards[shard].turn {
                    turn.callback_operations += 1;
                }
            } else {
                self.shards[shard].is_queue_uncertain |= may_be_postponable;
                self.enqueue(id, true);
            }
            let due = self.due(shard, now, add_method, delays);
            self.link(id, due, is_owner);
            self.timers[id as usize].period_start = now.max.saturating_add(delays[0]);
        }
        answer
    }

    /// Records a call of `set_period` before it is made. Returns the expected answer.
    pub(crate) fn record_set_period(&mut self, id: Id, period: Nanos) -> bool {
        let &Timer { state, period: old_period, .. } = self.timer(id);
        let answer = old_period > 0 && matches!(state, State::Live | State::Running);
        if answer {
            self.make_periodic(id, period);
        }
        answer
    }

    /// Returns whether the model must skip a reset. If this core's wheel has reused the number of
    /// the timer's ended shard, the reset reads this core's clock, which the model does not expect.
    pub(crate) fn must_skip_reset(&self, id: Id) -> bool {
        let (timer, own_shard) = (self.timer(id), self.own_shard());
        let latest = self.shards[own_shard].latest_reading;
        timer.shard != own_shard && timer.state == State::Ended && self.reading(self.core) != latest
    }

    // ---- firing

    /// Checks that a timer fires in order, once, not early and not after its end.
    pub(crate) fn record_fire(&mut self, id: Id) -> Script {
        let timer = self.timer(id).clone();
        let shard = &self.shards[timer.shard];
        let (now, turns) = (shard.turn_reading, shard.turns);
        let latest_fired_tick = shard.turn.as_ref().map(|turn| turn.latest_fired_tick);
        // The order is certain if, before the turn, the shard knew the timer's tick and had not
        // reached this tick.
        let is_ordered = shard.turn.as_ref().is_some_and(|turn| {
            let after = turn.in_order_after.filter(|_| timer.queued_at_turn < turns);
            timer.moved_in_turn != turns
                && (!timer.queued || after.is_some_and(|after| timer.due_ticks[0] > after))
        });
        let state = timer.state;
        self.check(state == State::Live, || format!("timer {id} fired, and was {state:?}"));
        self.check(latest_fired_tick.is_some(), || format!("timer {id} fired outside of a turn"));
        let early_nanos = timer.due[0].saturating_sub(now);
        self.check(early_nanos == 0, || format!("timer {id} fired {early_nanos} ns early"));
        // A timer fires in the turn that added it only if another core has moved the timer.
        let is_known = timer.added_in_turn != turns || timer.queued;
        self.check(is_known, || format!("timer {id} fired in the turn that added it"));
        let ticks = timer.due_ticks;
        let is_in_order = !is_ordered || latest_fired_tick.is_none_or(|latest| ticks[1] >= latest);
        self.check(is_in_order, || {
            format!("timer {id} of ticks {ticks:?} fired after {latest_fired_tick:?}")
        });
        if state == State::Live {
            self.unlink(id);
        }
        let (timer, shard) = self.timer_and_shard(id);
        (timer.state, timer.has_run) = (State::Running, true);
        shard.runs += 1;
        shard.fired += u64::from(timer.period == 0);
        if let Some(turn) = &mut shard.turn {
            turn.fired += 1;
            if is_ordered {
                turn.latest_fired_tick = turn.latest_fired_tick.max(timer.due_ticks[0]);
            }
        }
        let script = timer.script;
        self.coverage.fired += 1;
        script
    }

    /// Checks an expired payload. The loop borrows the payload if `is_lent`, and otherwise takes
    /// it.
    pub(crate) fn record_expiry(
        &mut self,
        expired: &Expired<&mut Payload>,
        is_lent: bool,
    ) -> Script {
        let id = expired.payload.id;
        let number = self.timer(id).shard;
        let deadline = self.nanos_at(number, expired.deadline());
        self.check_deadline(id, deadline);
        let ShardModel { tick, turn_reading, .. } = self.shards[number];
        let lateness = turn_reading.saturating_sub(deadline);
        let is_as_expected = nanos(expired.lateness()) == lateness && deadline.is_multiple_of(tick);
        self.check(is_as_expected, || {
            let reported = expired.lateness();
            format!("timer {id}, due at {deadline}, is late by {lateness} ns, not by {reported:?}")
        });
        let script = self.record_fire(id);
        let (timer, shard) = self.timer_and_shard(id);
        let is_periodic = timer.period > 0;
        if !is_lent {
            timer.state = State::Ended;
            shard.fired += u64::from(is_periodic);
            return script;
        }
        if let Some(turn) = &mut shard.turn {
            turn.lending_expiries += 1;
        }
        self.check(is_periodic, || format!("the payload of timer {id} is lent"));
        self.record_run_end(id);
        script
    }

    /// Checks a deadline that the owner has read.
    pub(crate) fn check_reported_deadline(&mut self, id: Id, deadline: Option<Instant>) {
        let &Timer { state, shard, .. } = self.timer(id);
        self.check(deadline.is_some() == (state == State::Live), || {
            format!("timer {id} is due at {deadline:?}, and {state:?}")
        });
        if let Some(deadline) = deadline {
            self.check_deadline(id, self.nanos_at(shard, deadline));
        }
    }

    fn check_deadline(&mut self, id: Id, deadline: Nanos) {
        let timer = self.timer(id);
        let [first, last] = timer.due_ticks.map(|tick| self.shards[timer.shard].tick_start(tick));
        let is_as_expected = first <= deadline && (deadline <= last || timer.queued);
        self.check(is_as_expected, || {
            format!("timer {id}: due at {deadline}, not {first} to {last}")
        });
    }

    pub(crate) fn record_run_end(&mut self, id: Id) {
        let (timer, shard) = self.timer_and_shard(id);
        if timer.state == State::Stopping {
            shard.cancelled += 1;
            if let Some(turn) = &mut shard.turn {
                turn.cancelled += 1;
            }
            return;
        }
        let (now, period) = (shard.turn_reading, timer.period);
        let elapsed_periods = now.saturating_sub(timer.period_start) / period;
        let elapsed = period.saturating_mul(elapsed_periods.saturating_add(1));
        let due = timer.period_start.saturating_add(elapsed);
        timer.state = State::Live;
        timer.period_start = due;
        self.link(id, [due; 2], true);
        // The relinked timer does not count as moved in this turn, because its next deadline is
        // after the turn.
        self.timers[id as usize].moved_in_turn = 0;
    }

    // ---- the end

    /// Records the end of a shard. Returns the timers that are live at the end.
    pub(crate) fn record_end(&mut self, number: usize) -> Vec<Id> {
        let live = std::mem::take(&mut self.shards[number].live);
        let mut live: Vec<_> = live.into_iter().map(|(_, id)| id).collect();
        live.sort_unstable();
        for &id in &live {
            self.timers[id as usize].state = State::Ended;
        }
        live
    }

    /// Checks that a drain handed back exactly the live timers, and counted them.
    pub(crate) fn record_drain(
        &mut self,
        number: usize,
        live: &[Id],
        handed_back_timers: &[(Instant, Payload)],
        counts: Counts,
    ) {
        let mut ids: Vec<_> = handed_back_timers.iter().map(|(_, payload)| payload.id).collect();
        ids.sort_unstable();
        self.check(ids == live, || format!("{ids:?} came back of {live:?}"));
        for (deadline, payload) in handed_back_timers {
            let deadline = self.nanos_at(number, *deadline);
            self.check_deadline(payload.id, deadline);
        }
        let Counts { added, fired, cancelled, handed_back, live, uncollected, queued, .. } = counts;
        let counts_add_up = added == fired + cancelled + handed_back
            && handed_back == handed_back_timers.len() as u64;
        self.check(counts_add_up && (live, uncollected, queued) == (0, 0, 0), || {
            format!("{counts:?} at the end")
        });
    }

    /// Checks that an ended shard has dropped all payloads and reported all panics.
    pub(crate) fn check_end(&mut self, number: usize) {
        let (shard, totals) = (&self.shards[number], *self.ledger.shard(number));
        let expected = shard.payloads;
        self.check(
            totals.dropped == expected && totals.planned_panics == totals.reported_panics,
            || format!("not all of {expected} payloads of shard {number} were dropped: {totals:?}"),
        );
    }

    /// Checks that each payload was dropped once, and that all handles are stale.
    pub(crate) fn check_timers_ended(&mut self) {
        for id in 0..self.timers.len() {
            let Timer { state, handle, reusable_timer_id, .. } = self.timers[id];
            let has_payload = state != State::NotAdded && reusable_timer_id.is_none();
            let (drops, expected) = (self.ledger.drops(id), u8::from(has_payload));
            self.check(drops == expected, || format!("payload {id} was dropped {drops} times"));
            let has_ended = matches!(state, State::NotAdded | State::Refused | State::Ended);
            let answer = handle.map_or(Cancel::Ended, TimerHandle::cancel);
            self.check(has_ended && answer == Cancel::Ended, || {
                format!("timer {id} is {state:?} after the end, and its cancel says {answer:?}")
            });
        }
    }
}

impl ShardModel {
    fn tick_of(&self, due: Nanos) -> u64 {
        due.div_ceil(self.tick)
    }

    /// Returns the due time after a delay. If the delay is zero, the due time is in a tick that has
    /// begun.
    pub(crate) fn due_time_after(&self, now: Reading, delay: Nanos) -> Nanos {
        if delay == 0 {
            self.due_time_of_elapsed_deadline(now.min)
        } else {
            now.max.saturating_add(delay)
        }
    }

    /// Returns the earliest due time for a deadline that has elapsed, whose tick the library rounds
    /// down.
    fn due_time_of_elapsed_deadline(&self, deadline: Nanos) -> Nanos {
        deadline.saturating_sub(self.tick - 1)
    }

    fn tick_start(&self, tick: u64) -> Nanos {
        tick.saturating_mul(self.tick)
    }

    /// Records the first and the last tick at which a timer may be due. The owner's sleep may end
    /// early if it lasts beyond the first tick, and must end early if it lasts beyond the last.
    fn record_due(&mut self, ticks: [u64; 2]) {
        /// The first level has 2^17 slots, of which up to 2^11 are behind the current tick. A timer
        /// that is further away may need a turn for each level.
        const BEYOND_FIRST_LEVEL_TICKS: u64 = (1 << 17) - (1 << 11);
        const NEEDLESS_PER_FAR_TIMER: u64 = 5;
        let [first, last] = ticks.map(|tick| self.tick_start(tick));
        // During an unfinished turn the wheel is behind `turn_tick`, so any timer may be beyond the
        // first level.
        if ticks[1].saturating_sub(self.turn_tick) >= BEYOND_FIRST_LEVEL_TICKS
            || self.turn.is_some()
            || self.behind
        {
            self.needless_turns_allowed += NEEDLESS_PER_FAR_TIMER;
        }
        if let Some(announced_sleep) = &mut self.announced_sleep {
            announced_sleep.may_wake |= first < announced_sleep.until;
            announced_sleep.must_wake |= last < announced_sleep.until;
        }
    }
}

/// A clock reading: bounds on the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    min: Nanos,
    max: Nanos,
}

impl Reading {
    fn exact(nanos: Nanos) -> Self {
        Self { min: nanos, max: nanos }
    }

    fn max(self, other: Self) -> Self {
        Self { min: self.min.max(other.min), max: self.max.max(other.max) }
    }
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}
