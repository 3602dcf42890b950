//! Checks the turns, counts, sleeps and clock of a shard.

use std::time::{Duration, Instant};

use corewheel::Counts;

use super::{AnnouncedSleep, Model, Reading, TurnModel};
use crate::plan::{ClockMove, Id, Nanos, READING_WIDTH_MAX, Step};

/// Maximum number of messages that a turn consumes. This number of queued messages of one priority
/// also wakes a sleeping owner.
pub(super) const MESSAGES_MAX: u64 = 1_024;
/// Maximum number of remote adds and resets that a turn reverses into FIFO order.
const REVERSED_MAX: u64 = 4_096;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnReport {
    pub(crate) fired: usize,
    /// The number of collected timers; None for a `Shard`, which does not report it.
    pub(crate) collected: Option<usize>,
    /// The number of relinked timers; None for a `Shard`, which does not report it.
    pub(crate) relinked: Option<u64>,
    pub(crate) behind: bool,
    pub(crate) wait: Option<Nanos>,
    /// True if the loop stopped asking for expired timers before the end of the pass.
    pub(crate) abandoned_pass: bool,
}

/// The default of `Config::drop_cancelled_within`.
const DROP_CANCELLED_WITHIN: Nanos = 100_000_000;

impl Model {
    /// Records that the owner reads the clock. Returns the bounds, never below those of earlier
    /// readings.
    pub(crate) fn read_clock(&mut self, shard: usize) -> Reading {
        let now = self.reading(self.shards[shard].core);
        let shard = &mut self.shards[shard];
        shard.regressions += u64::from(now.max < shard.latest_reading.min);
        shard.latest_reading = shard.latest_reading.max(now);
        shard.latest_reading
    }

    /// Records the instant that the owner passes to `turn_at`. Returns the bounds, never below
    /// those of earlier readings.
    fn record_loop_reading(&mut self, shard: usize, instant: Instant) -> Reading {
        let now = Reading::exact(self.nanos_at(shard, instant));
        let shard = &mut self.shards[shard];
        shard.latest_reading = shard.latest_reading.max(now);
        shard.latest_reading
    }

    /// Returns the clock's time, or the lower bound of the owner's latest reading if that is later.
    pub(crate) fn latest_time(&self, shard: usize) -> Nanos {
        let shard = &self.shards[shard];
        shard.latest_reading.min.max(self.clock(shard.core))
    }

    /// Returns the reading that a request from another core uses. The lower bound is the lowest
    /// that the owner could read now.
    pub(crate) fn remote_reading(&self, shard: usize) -> Reading {
        let max = self.latest_time(shard);
        let width = if self.setting.is_inexact { READING_WIDTH_MAX } else { 0 };
        Reading { min: max.saturating_sub(width), max }
    }

    /// Returns the time until the clock shows `nanos`, or zero if the shard's latest reading has
    /// reached that time.
    fn time_until(&self, shard: usize, nanos: Nanos) -> Nanos {
        let shard = &self.shards[shard];
        if nanos > shard.latest_reading.min {
            nanos.saturating_sub(self.clock(shard.core))
        } else {
            0
        }
    }

    /// Moves a clock. `wait` is the time until the next turn of a shard of the core.
    pub(crate) fn move_clock(&mut self, step: Step, how: ClockMove, wait: Option<Nanos>) {
        /// The longest wait that a clock skips, so that the clock does not reach its maximum.
        const SKIPPED_WAIT_MAX: Nanos = 100 * 86_400 * 1_000_000_000;
        if how == ClockMove::Blur && !self.setting.is_inexact {
            return;
        }
        let (core, delay) = (step.target_core, step.delay);
        self.coverage.count(match how {
            ClockMove::Forward | ClockMove::Far | ClockMove::ToNext => "time passes",
            ClockMove::Back => "clock back",
            ClockMove::Jump => "clock jumps",
            ClockMove::Years => "clock jumps years",
            ClockMove::Stall => "clock stalls",
            ClockMove::Blur => "clock blurred",
        });
        let now = self.clock(core);
        let core_model = &mut self.cores[core];
        let new_time = match how {
            ClockMove::Stall => {
                core_model.moves_to_ignore = step.count;
                return;
            }
            ClockMove::Blur => {
                core_model.blur = [step.delay, step.window];
                let [before, after] = core_model.blur.map(Duration::from_nanos);
                core_model.clock.blur(before, after);
                return;
            }
            ClockMove::Back => now.saturating_sub(delay),
            _ if core_model.moves_to_ignore > 0 => {
                core_model.moves_to_ignore -= 1;
                return;
            }
            ClockMove::ToNext => now
                .saturating_add(wait.filter(|&wait| wait <= SKIPPED_WAIT_MAX).unwrap_or_default()),
            _ => now.saturating_add(delay),
        };
        core_model.clock.set(Duration::from_nanos(new_time));
    }

    // ---- turns

    /// Records a turn before its call. `wait` is the time until the next turn, as the shard
    /// reported it.
    pub(crate) fn record_turn_begin(
        &mut self,
        number: usize,
        budget: Option<usize>,
        loop_reading: Option<Instant>,
        before: Counts,
        wait: Option<Nanos>,
    ) {
        let Reading { min: now, .. } = match loop_reading {
            None => self.read_clock(number),
            Some(loop_reading) => self.record_loop_reading(number, loop_reading),
        };
        let is_clock_current = now == self.latest_time(number);
        let shard = &mut self.shards[number];
        // At the clock's maximum no deadline is later, so the shard may want turns that fire
        // nothing.
        let is_idle = before.queued == 0 && !shard.behind && now < Nanos::MAX;
        let is_requested = wait == Some(0) && is_idle && is_clock_current;
        let messages_max = budget.map_or(MESSAGES_MAX, |budget| MESSAGES_MAX.min(budget as u64));
        let in_order_after = (before.queued <= messages_max).then_some(shard.turn_tick);
        shard.turn_reading = now;
        shard.turn_tick = shard.turn_tick.max(now / shard.tick);
        shard.turns += 1;
        if let Some(announced_sleep) = &mut shard.announced_sleep {
            // The turn may consume messages that wake the owner, so `check_wake_ups` may not see
            // them.
            announced_sleep.may_wake = true;
        }
        shard.turn =
            Some(TurnModel { before, is_requested, in_order_after, ..TurnModel::default() });
    }

    pub(crate) fn record_turn_end(
        &mut self,
        number: usize,
        budget: Option<usize>,
        report: TurnReport,
        after: Counts,
    ) {
        let Some(turn) = self.shards[number].turn.take() else { return };
        let collected = after.cancelled - turn.before.cancelled - turn.cancelled;
        let relinked = after.relinked - turn.before.relinked;
        let is_as_expected = report.fired == turn.fired
            && report.collected.is_none_or(|reported| {
                let reported = reported as u64;
                reported <= collected && collected <= reported + turn.collected_for_room
            })
            && report.relinked.is_none_or(|reported| reported == relinked);
        let describe =
            || format!("{report:?}, {relinked} relinked, {collected} collected: {turn:?}");
        self.check(is_as_expected, describe);
        if let Some(budget) = budget {
            let (most, fired) = (budget as u64, turn.fired as u64);
            let is_within_budget = fired <= 2 * most
                && collected <= most + turn.collected_for_room
                && relinked <= most;
            // Without messages, periodic timers or remote resets, the budget covers all fires of
            // a pass.
            let is_pass = report.relinked.is_none();
            let moved = after.remote_resets - turn.before.remote_resets;
            let other_fires_max = turn.before.queued
                + turn.arrived_max
                + turn.callback_operations
                + turn.lending_expiries
                + moved;
            let fires_only_from_wheel = is_pass && other_fires_max == 0;
            self.check(
                is_within_budget && (fired + relinked <= most || !fires_only_from_wheel),
                describe,
            );
        }
        let shard = &mut self.shards[number];
        (shard.published_len, shard.behind) = (after.live, report.behind || report.abandoned_pass);
        shard.is_queue_uncertain |= !shard.queued.is_empty();
        shard.callbacks_made_requests = turn.callback_operations > 0;
        if after.queued == 0 && !shard.behind {
            self.record_empty_mailbox(number);
        }
        if turn.is_requested && turn.fired == 0 && budget.is_none() && !report.abandoned_pass {
            let turns_still_allowed = self.shards[number].needless_turns_allowed.checked_sub(1);
            self.check(turns_still_allowed.is_some(), || {
                format!("shard {number} wanted a turn for nothing")
            });
            self.shards[number].needless_turns_allowed = turns_still_allowed.unwrap_or(0);
        }
        self.check_messages_consumed(budget, report, &turn, &after);
        self.check_timers_left(number, report, turn.latest_fired_tick);
    }

    /// Records that the mailbox is empty. Checks that the payloads of ended timers are dropped.
    fn record_empty_mailbox(&mut self, number: usize) {
        let shard = &mut self.shards[number];
        (
            shard.may_have_urgent_message,
            shard.is_queue_uncertain,
            shard.unadmitted,
            shard.uncollected,
        ) = (false, false, 0, 0);
        for id in shard.queued.drain(..) {
            let timer = &mut self.timers[id as usize];
            (timer.queued, timer.unadmitted) = (false, false);
        }
        let expected = shard.payloads - shard.live.len() as u64 - shard.idle_reusable_timers;
        let dropped = self.ledger.shard(number).dropped;
        self.check(dropped == expected, || {
            format!("of {expected} payloads of timers that ended {dropped} were dropped")
        });
    }

    /// Checks that a turn consumes as many messages as its limits allow, or all if there are fewer.
    fn check_messages_consumed(
        &mut self,
        budget: Option<usize>,
        report: TurnReport,
        turn: &TurnModel,
        after: &Counts,
    ) {
        let messages_max = budget.map_or(MESSAGES_MAX, |budget| MESSAGES_MAX.min(budget as u64));
        let (queued_before, arrived_max, queued_after) =
            (turn.before.queued, turn.arrived_max, after.queued);
        let consumed = queued_before.saturating_sub(queued_after);
        // A message that arrives during this turn may remain in `queued_after`, or take the place
        // of an earlier message. If more than `REVERSED_MAX` adds and resets are queued, the turn
        // may only reverse them into FIFO order, and consume none.
        let is_flooded = queued_before + arrived_max > REVERSED_MAX;
        let consumed_min =
            if report.abandoned_pass || is_flooded { 0 } else { queued_before.min(messages_max) };
        let takes_all = budget.is_none()
            && queued_before + arrived_max <= MESSAGES_MAX
            && !report.abandoned_pass;
        let is_as_expected = consumed <= messages_max + turn.collected_for_room
            && consumed + arrived_max >= consumed_min
            && (!takes_all || !report.behind);
        self.check(is_as_expected, || {
            format!("{queued_before} messages, {arrived_max} more, {queued_after} left, at most {messages_max}: {report:?}")
        });
    }

    /// Checks that a turn reports whether due timers remain, and that no remaining timer was due
    /// before a timer that fired.
    fn check_timers_left(&mut self, number: usize, report: TurnReport, latest_fired_tick: u64) {
        let shard = &self.shards[number];
        // A queued message, or a move during the turn, makes it uncertain whether the turn saw the
        // deadline.
        let is_certain = |&&(_, id): &&(u64, Id)| {
            let timer = self.timer(id);
            !timer.queued && timer.moved_in_turn != shard.turns
        };
        let Some(&(tick, id)) = shard.live.iter().find(is_certain) else { return };
        let (is_due, is_behind) = (tick <= shard.turn_tick, shard.behind);
        self.check(tick >= latest_fired_tick, || {
            format!("timer {id}, due at tick {tick}, was left, and tick {latest_fired_tick} fired")
        });
        self.check(!is_due || is_behind, || format!("timer {id} of tick {tick} did not fire"));
        let is_reported = report.abandoned_pass || report.behind && report.wait == Some(0);
        self.check(!is_due || is_reported, || format!("timer {id} of {tick} was left: {report:?}"));
    }

    /// Checks that a shard does not request another turn right after a complete one.
    pub(crate) fn check_no_needless_turn(&mut self, number: usize, wait: Option<Nanos>) {
        let shard = &self.shards[number];
        let has_no_due_timer = shard.live.first().is_none_or(|&(tick, _)| tick > shard.turn_tick);
        let is_clock_current =
            self.latest_time(number) <= shard.turn_reading && shard.turn_reading < Nanos::MAX;
        // A callback may have requested the next turn by adding a timer that another callback then
        // moved.
        let is_predictable =
            shard.queued.is_empty() && !shard.behind && !shard.callbacks_made_requests;
        let is_needless = wait == Some(0) && has_no_due_timer && is_clock_current && is_predictable;
        self.check(!is_needless, || format!("shard {number} wants another turn, for nothing"));
    }

    // ---- counts and sleeps

    /// Compares the counts and the wait of a shard with the model.
    pub(crate) fn check_counts(&mut self, number: usize, counts: Counts, wait: Option<Nanos>) {
        let Counts {
            added, fired, cancelled, handed_back, live, runs, uncollected, queued, ..
        } = counts;
        let totals = *self.ledger.shard(number);
        let shard = &self.shards[number];
        let actual_counts = [fired, runs, handed_back, counts.clock_regressions, counts.panicked];
        let expected_counts =
            [shard.fired, shard.runs, 0, shard.regressions, totals.planned_panics];
        let counts_add_up = added == live + fired + cancelled + handed_back;
        let is_as_expected = counts_add_up
            && actual_counts == expected_counts
            && totals.reported_panics == totals.planned_panics;
        // The shard's counts may lag behind the model, because the owner has not consumed all
        // messages.
        let (model_live, messages_max) = (shard.live.len() as u64, shard.queued.len() as u64);
        let (arriving_adds, unseen_cancels) =
            (shard.added.wrapping_sub(added), shard.cancelled.wrapping_sub(cancelled));
        let is_possible = arriving_adds <= queued
            && queued <= messages_max
            && uncollected <= unseen_cancels.min(live).min(queued)
            && unseen_cancels <= uncollected + arriving_adds
            && live + arriving_adds == model_live + unseen_cancels;
        let expected_queued = [messages_max, shard.unadmitted, shard.uncollected];
        let is_exact =
            shard.is_queue_uncertain || [queued, arriving_adds, uncollected] == expected_queued;
        self.check(is_as_expected && is_possible && is_exact, || {
            format!(
                "shard {number}: {counts:?}, {totals:?}, {arriving_adds} arriving, {unseen_cancels} unseen; \
                 fired, runs, handed back, regressions, panics: {expected_counts:?}; live {model_live}; \
                 queued, arriving, uncollected: {expected_queued:?}"
            )
        });
        self.shards[number].last_counts = counts;
        self.check_sleep(number, wait, false);
    }

    /// Checks the length of a sleep. An announced sleep may be shorter, so that the owner drops the
    /// payloads of cancelled timers.
    pub(crate) fn check_sleep(&mut self, number: usize, wait: Option<Nanos>, is_announced: bool) {
        let shard = &self.shards[number];
        let start = shard.live.first().map(|&(tick, _)| shard.tick_start(tick));
        // A timer whose tick begins at the clock's maximum or later never fires.
        let first_firing_time = start.filter(|&start| start < Nanos::MAX);
        let time_until_earliest = first_firing_time.map(|start| self.time_until(number, start));
        let drop_cancelled_within =
            self.time_until(number, self.latest_time(number).saturating_add(DROP_CANCELLED_WITHIN));
        let is_short_enough =
            time_until_earliest.is_none_or(|earliest| wait.is_some_and(|wait| wait <= earliest));
        let is_urgent = shard.may_have_urgent_message && !shard.is_queue_uncertain;
        let is_idle = shard.live.is_empty() && shard.queued.is_empty() && !shard.behind;
        let may_be_short = is_announced && shard.may_hold_payloads;
        let is_as_expected = is_short_enough
            && (!is_urgent || wait == Some(0))
            && (!is_idle || wait.is_none() || may_be_short && wait <= Some(drop_cancelled_within));
        self.check(is_as_expected, || {
            format!(
                "shard {number} sleeps {wait:?}; the next deadline is in {time_until_earliest:?}, \
                 urgent messages: {is_urgent}, idle: {is_idle}"
            )
        });
    }

    pub(crate) fn record_sleep(&mut self, number: usize, timeout: Option<Nanos>) {
        self.check_sleep(number, timeout, true);
        let (totals, now) = (*self.ledger.shard(number), self.latest_time(number));
        let until = timeout.map_or(Nanos::MAX, |timeout| {
            self.clock(self.shards[number].core).saturating_add(timeout)
        });
        let needless_wakes = totals.wakes - self.shards[number].wakes;
        self.check(needless_wakes == 0, || {
            format!("shard {number} was woken {needless_wakes} times, awake")
        });
        let announced_sleep = AnnouncedSleep {
            until,
            wakes: totals.wakes,
            planned_panics: totals.planned_panics,
            may_wake: false,
            must_wake: false,
            is_long: until > now.saturating_add(DROP_CANCELLED_WITHIN),
        };
        self.shards[number].announced_sleep = (timeout != Some(0)).then_some(announced_sleep);
    }

    /// Checks that a sleeping core was woken at most once, never without a reason, and always if
    /// necessary.
    pub(crate) fn check_wake_ups(&mut self, number: usize, queued: u64) {
        let totals = *self.ledger.shard(number);
        self.shards[number].wakes = totals.wakes;
        let Some(announced_sleep) = self.shards[number].announced_sleep.take() else { return };
        let (wakes, has_panicked) = (
            totals.wakes - announced_sleep.wakes,
            totals.planned_panics > announced_sleep.planned_panics,
        );
        if has_panicked {
            self.coverage.count("wake hook panics");
        }
        // `MESSAGES_MAX` messages of one priority wake the owner, and there are two priorities.
        let must_wake = announced_sleep.must_wake || queued >= 2 * MESSAGES_MAX;
        let may_wake = announced_sleep.may_wake || queued >= MESSAGES_MAX;
        let is_as_expected =
            wakes <= 1 && (wakes > 0 || has_panicked || !must_wake) && (wakes == 0 || may_wake);
        self.check(is_as_expected, || {
            format!(
                "shard {number} was woken {wakes} times with {queued} messages: {announced_sleep:?}"
            )
        });
    }

    /// Checks that `next_deadline` and `time_until_next` agree.
    pub(crate) fn check_next_deadline(
        &mut self,
        shard: usize,
        next: Option<Instant>,
        wait: Option<Nanos>,
    ) {
        let until = next.map(|next| self.time_until(shard, self.nanos_at(shard, next)));
        self.check(until == wait, || format!("{next:?} is in {until:?}, not in {wait:?}"));
    }
}
