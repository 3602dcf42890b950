//! The engine of a shard: combines wheel, nodes, mailbox and clock. All methods of [`Engine`] run
//! on the owner's thread. [`Shared`] has the methods that other threads call.
//!
//! A *pass* is the part of a turn that consumes messages and fires timers. A thread's wheel runs
//! user code only between the steps of a pass, while nothing borrows the engine (promise P5 in
//! `ARCHITECTURE.md`).

use std::{
    cell::Cell,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    clock::{
        Reading, ShardClock,
        tick::{TimerSchedule, saturating_nanos},
    },
    config::Config,
    cross_core::{
        call_site::{CallSite, TimerOrigin},
        callback::{BuildInPlace, Callback},
        handle::TimerHandle,
        hooks::Hooks,
        mailbox::{Backlog, MessagePhase},
        reclaim::{self, pin},
        registry,
        shared::Shared,
        slab::{self, ClaimedTimer, NodeView, OwnerNodeRef, OwnerSlab, Slab},
        state::{Cancel, ClaimOutcome, CloseOutcome, ConsumedMessage, FreeWhen, TimerKind},
    },
    error::{AddErrorReason, ConfigError},
    gauges::{Counts, LateCause},
    limits::{
        COUNTS_PUBLISH_INTERVAL_TURNS, INDEX_MAX, LONG_SLEEP_NANOS, MESSAGES_PER_TURN_MAX,
        OWNER_GENERATION_MAX, REMOTE_GENERATION_BIT, SHORT_OVERDUE_GRACE_NANOS,
        SLAB_TRIMS_PER_PASS_MAX, SLAB_TRIMS_PER_SLEEP_MAX, WAKE_AT_QUEUED_MESSAGES,
    },
    metrics::ShardMetrics,
    trace::UndrivenReason,
    util::{pages::as_u32, panics::catch_panic_silently, prefetch::prefetch},
    wheel::{Entry, RawWheel, ShardLevels, Storage},
    when::{RequestedTime, When},
};

/// The timers of one core, for a [`Shard`](crate::Shard) or a thread's wheel.
pub(crate) struct Engine<T> {
    pub(crate) shared: Arc<Shared>,
    /// A handle with this shard's number and index 0, from which each timer's handle is made.
    pub(super) handle_template: TimerHandle,
    next_generation: u64,
    /// When `stats.counts.added` has reached this value, an add must first call
    /// [`grant_add_allowance`](Self::grant_add_allowance).
    add_allowance_end: u64,
    /// The owner's view of the nodes in `shared`.
    pub(super) nodes: OwnerSlab<T>,
    pub(crate) wheel: RawWheel<ShardLevels>,
    pub(super) clock: ShardClock,
    /// [`Config::drop_cancelled_within`] in nanoseconds.
    drop_cancelled_within_nanos: u64,
    /// Before this time, each sleep of the owner lasts at most `drop_cancelled_within_nanos`, so
    /// that the owner drops remotely cancelled payloads in time without a wake-up. `u64::MAX` if
    /// the owner has dropped a remotely cancelled payload since the latest call of
    /// [`sleep_end`](Self::sleep_end).
    short_sleeps_until: Cell<u64>,
    live_limit: u32,
    pub(crate) backlog: Backlog,
    pub(super) stats: Stats,
    pub(super) is_closed: bool,
    /// Called with each payload that [`close`](Self::close) hands back. Runs no user code.
    on_handed_back: fn(&mut T),
}

/// The counts of a shard's owner, and the turns at which the owner must publish them.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// The counts, except `live`, `uncollected`, `queued`, `panicked`, `relinked` and
    /// `clock_regressions`, which stay zero here.
    pub(super) counts: Counts,
    /// The number of live timers, in 32 bits, so that the compiler cannot load it together with a
    /// 64-bit counter. A joint load would stall after a recent store to only one of the two.
    pub(super) live_count: u32,
    /// The live count last published to `AdmissionLimit`, plus the number of remote timers admitted
    /// since. Has no meaning in a shard without a limit.
    published_live_count: Cell<u64>,
    pub(super) is_in_pass: bool,
    /// True if the previous pass left entries or messages unprocessed, or was abandoned. Also true
    /// after an add to a full shard has consumed messages, because other messages may remain.
    last_pass_left_work: bool,
    /// Turns up to this number may skip the pass. A turn with a higher number must begin a pass,
    /// which publishes the counts. Zero if the next turn must begin a pass, because work may remain
    /// or a pass was requested.
    skip_passes_until_turn: Cell<u64>,
    /// True from the beginning of a pass until the length of its turn is measured.
    turn_length_is_unmeasured: Cell<bool>,
    /// A sum of counters, and the number of messages in the backlog, at the latest publication.
    /// `Engine::publish_counts` publishes the counts again only if either has changed.
    last_published_digest: Cell<(u64, u32)>,
    /// From the turn of this number on, the end of a pass publishes the counts. Zero before a loop
    /// begins to drive the shard, and after a thread's wheel has lost its last driver.
    next_publish_turn: Cell<u64>,
}

/// A step of a pass in which the caller runs user code. During this step, a thread's wheel must not
/// borrow its engine.
#[must_use]
pub(crate) enum UserCodeStep<T> {
    /// The payload of a timer that another thread has cancelled. The caller drops the payload.
    Cancelled(T),
    /// A claimed due timer, which the caller runs.
    Due(ClaimedTimer<T>),
}

/// The payloads that [`Engine::close`] takes out of a shard.
#[must_use]
pub(crate) struct TimersAtClose<T> {
    pending_timers: Vec<TimerAtClose<T>>,
    /// The payloads of remotely cancelled timers.
    cancelled_payloads: Vec<T>,
}

/// A timer that was pending when its shard was closed.
pub(crate) struct TimerAtClose<T> {
    pub(crate) handle: TimerHandle,
    /// The deadline, in nanoseconds of the clock.
    pub(crate) due: u64,
    pub(crate) payload: T,
}

impl Stats {
    #[inline]
    fn count_cancelled(&mut self) {
        self.counts.cancelled += 1;
        self.live_count -= 1;
    }

    /// Counts the admission of a remotely added timer. The timer keeps the room that its adder has
    /// reserved.
    #[inline]
    fn count_admitted(&mut self) {
        self.counts.added += 1;
        self.live_count += 1;
        *self.published_live_count.get_mut() += 1;
    }
}

impl<T> TimersAtClose<T> {
    /// Drops the payloads of cancelled timers, and frees memory of ended shards, both of which may
    /// run user code. Returns the pending timers.
    pub(crate) fn drop_cancelled_payloads(self, shared: &Shared) -> Vec<TimerAtClose<T>> {
        for payload in self.cancelled_payloads {
            shared.hooks.drop_catching_panic(payload);
        }
        reclaim::free_garbage();
        slab::free_orphaned_pages();
        self.pending_timers
    }
}

impl<T> Engine<T> {
    pub(crate) fn new(
        config: Config,
        (slab, nodes): (Arc<Slab>, OwnerSlab<T>),
        on_handed_back: fn(&mut T),
    ) -> Result<Self, ConfigError> {
        let (tick_length, clock) = (config.tick_length()?, config.clock);
        let live_limit = as_u32(config.live_limit.min(INDEX_MAX as usize));
        let shared = Shared::new(
            clock.clone(),
            tick_length,
            Hooks::new(config.wake_hook, config.panic_hook),
            live_limit,
            config.name,
            slab,
        );
        let (shared, next_generation) = registry::register(shared)?;
        let shard_clock = ShardClock::new(clock, tick_length);
        let mut engine = Self {
            handle_template: TimerHandle::new(shared.number, 0, 0),
            shared,
            next_generation,
            add_allowance_end: 0,
            nodes,
            wheel: RawWheel::starting_at(tick_length.tick_at(shard_clock.turn_start)),
            clock: shard_clock,
            drop_cancelled_within_nanos: saturating_nanos(config.drop_cancelled_within),
            short_sleeps_until: Cell::new(0),
            live_limit,
            backlog: Backlog::default(),
            stats: Stats::default(),
            is_closed: false,
            on_handed_back,
        };
        engine.publish_clock();
        let _ = engine.grant_add_allowance(u64::MAX);
        engine.nodes.reserve(config.capacity);
        Ok(engine)
    }

    pub(crate) fn len(&self) -> usize {
        self.stats.live_count as usize
    }

    /// Returns true if the owner has pages for timers that other threads have added.
    pub(crate) fn has_remote_pages(&self) -> bool {
        self.nodes.has_remote_pages()
    }

    /// Returns true if messages or due entries remain unprocessed from the latest pass, which may
    /// be in progress.
    pub(crate) fn is_behind(&self) -> bool {
        self.has_untaken_messages() || self.has_pending_work()
    }

    fn has_pending_work(&self) -> bool {
        !self.backlog.is_empty() || self.wheel.is_behind()
    }

    /// Returns true if a pass is in progress and must still take messages out of the mailbox.
    fn has_untaken_messages(&self) -> bool {
        self.stats.is_in_pass && self.backlog.must_take_from_mailbox(&self.shared.mailbox)
    }

    #[inline(always)]
    pub(crate) fn read_clock(&mut self) -> Reading {
        if !self.try_read_clock() {
            self.read_clock_slow();
        }
        self.clock.latest_reading
    }

    #[inline(never)]
    fn read_clock_slow(&mut self) {
        self.clock.read_slow();
        self.publish_clock();
    }

    /// Publishes the latest reading of a virtual clock. Other threads use this reading as a lower
    /// bound on the time, because a virtual clock may go backwards.
    #[inline]
    pub(super) fn publish_clock(&self) {
        if self.clock.source_clock.is_virtual() {
            self.shared.publish_clock_nanos(self.clock.latest_reading.min);
        }
    }

    pub(crate) fn now_nanos(&self) -> u64 {
        self.clock.now()
    }

    /// Returns the time `delay_nanos` from now, in nanoseconds of the clock. Counts from the upper
    /// bound of a clock reading, so the result is never too early. For a zero delay, returns the
    /// lower bound, because a turn fires timers only up to the lower bound of its reading.
    #[inline(always)]
    pub(crate) fn nanos_after(&mut self, delay_nanos: u64) -> u64 {
        let now = self.read_clock();
        if delay_nanos == 0 { now.min } else { now.max.saturating_add(delay_nanos) }
    }

    /// Returns the deadline, not yet rounded up to a tick, and the period of a timer that is added
    /// now. For a periodic timer, `when` is the period: a delay without slack or spread.
    #[inline(always)]
    pub(crate) fn schedule_for(&mut self, when: When, kind: TimerKind) -> TimerSchedule {
        if let TimerKind::Periodic = kind
            && let Some(period) = when.as_delay()
        {
            let period = self.clock.tick_length.clamp_period_nanos(period);
            return TimerSchedule { due: self.nanos_after(period), period };
        }
        TimerSchedule { due: self.deadline_nanos(when), period: 0 }
    }

    /// Returns the deadline that `when` requests, not yet rounded up to a tick.
    #[inline(always)]
    pub(crate) fn deadline_nanos(&mut self, when: When) -> u64 {
        match (when.deadline, when.as_delay()) {
            (_, Some(delay)) => {
                let delay = saturating_nanos(delay);
                let due = self.nanos_after(delay);
                // Rounding up to a tick would delay a timer with a zero delay. So the deadline of a
                // zero delay is lowered by almost a tick, and the next turn fires the timer.
                self.clock.tick_length.backdate_if_elapsed(due, delay == 0)
            }
            (RequestedTime::AtNanos(nanos), _) => nanos,
            _ => self.deadline_nanos_slow(when),
        }
    }

    #[inline(never)]
    fn deadline_nanos_slow(&mut self, when: When) -> u64 {
        let now = self.read_clock();
        self.shared.deadline_nanos_from_reading(when, now)
    }

    #[inline]
    pub(crate) fn has_elapsed(&mut self, nanos: u64) -> bool {
        if self.clock.latest_reading.min >= nanos {
            return true;
        }
        let now = self.read_clock();
        // If `nanos` is between the bounds of `now`, reads the clock exactly.
        now.min >= nanos || now.max >= nanos && self.clock.source_clock.nanos() >= nanos
    }

    /// Returns true if [`grant_add_allowance`](Self::grant_add_allowance) has allowed another add.
    /// If this returns false, the caller must call `grant_add_allowance` before the add.
    #[inline]
    pub(crate) fn has_add_allowance(&self) -> bool {
        self.stats.counts.added < self.add_allowance_end
    }

    /// Allows up to `max_adds` further adds, bounded by the limit of live timers and the unused
    /// generation numbers. Returns an error if no add is allowed.
    pub(crate) fn grant_add_allowance(&mut self, max_adds: u64) -> Result<(), AddErrorReason> {
        if self.is_closed {
            return Err(AddErrorReason::ShutDown);
        }
        let free_room = u64::from(self.live_limit.saturating_sub(self.stats.live_count));
        let generations_left = (OWNER_GENERATION_MAX + 1).saturating_sub(self.next_generation);
        let allowed_adds = free_room.min(generations_left).min(max_adds);
        self.add_allowance_end = self.stats.counts.added + allowed_adds;
        if allowed_adds > 0 { Ok(()) } else { Err(AddErrorReason::Full) }
    }

    /// Adds a timer; [`has_add_allowance`](Self::has_add_allowance) must be true. If no node is
    /// free, returns an error and leaves `payload` in place.
    #[inline(always)]
    pub(crate) fn insert<B: BuildInPlace<T>>(
        &mut self,
        schedule: TimerSchedule,
        kind: TimerKind,
        call_site: CallSite,
        payload: &mut Option<B>,
    ) -> Result<TimerHandle, AddErrorReason> {
        debug_assert!(self.has_add_allowance());
        // The function of a `Clock::from_fn` may panic, so the add reads the clock before it
        // changes the engine.
        let timer_origin = TimerOrigin::new(call_site, || self.clock.now());
        let index = self.nodes.take_node().ok_or(AddErrorReason::Full)?;
        let generation = self.next_generation;
        self.next_generation += 1;
        self.stats.counts.added += 1;
        self.stats.live_count += 1;
        let node = self.nodes.entry(index);
        let payload = payload.take().expect("a payload is added once");
        node.arm(generation, kind, payload, timer_origin);
        self.wheel.link(&self.nodes, node, self.clock.tick_length.deadline_tick(schedule.due));
        if let TimerKind::Periodic = kind {
            *self.nodes.schedule_mut(index) = schedule;
        }
        Ok(self.handle_template.with_index_and_generation(index, generation))
    }

    /// Cancels a timer of this shard, and returns the result of `take_payload`. A cancel during a
    /// run of a periodic timer prevents later runs. This call does not drop the payload, so
    /// `take_payload` must move out a payload that has a destructor. Returns an error if the timer
    /// is running or has ended.
    #[inline(always)]
    pub(crate) fn cancel<R>(
        &mut self,
        handle: TimerHandle,
        take_payload: impl FnOnce(OwnerNodeRef<'_, T>) -> R,
    ) -> Result<R, Cancel> {
        let (index, generation) = (handle.index(), handle.generation);
        if !self.nodes.try_adopt_page_of(index, generation) {
            return Err(Cancel::Ended);
        }
        let node = self.nodes.entry(index);
        let free_when = node.state().cancel_by_owner(generation)?;
        if free_when == FreeWhen::OnMessage {
            self.count_and_unlink_cancelled(index);
            return Ok(take_payload(self.nodes.entry(index)));
        }
        self.wheel.unlink(&self.nodes, node);
        self.stats.count_cancelled();
        let result = take_payload(node);
        self.free_node(index, generation);
        Ok(result)
    }

    /// Cancels a [`Private`](TimerKind::Private) timer of this shard, and returns the result of
    /// `take_payload`. This call does not drop the payload, so `take_payload` must move out a
    /// payload that has a destructor. Returns `None` if the timer is running or has ended.
    #[inline(always)]
    pub(crate) fn cancel_private<R>(
        &mut self,
        handle: TimerHandle,
        take_payload: impl FnOnce(OwnerNodeRef<'_, T>) -> R,
    ) -> Option<R> {
        let node = self.nodes.entry(handle.index());
        if !node.state().cancel_private(handle.generation) {
            return None;
        }
        self.wheel.unlink(&self.nodes, node);
        self.stats.count_cancelled();
        let result = take_payload(node);
        self.free_node(handle.index(), handle.generation);
        Some(result)
    }

    /// Frees the node of an ended timer. The caller must already have counted the timer's end in
    /// `stats`.
    #[inline]
    fn free_node(&mut self, index: u32, generation: u64) {
        self.nodes.free_node(index, generation);
        if self.stats.live_count == 0 {
            self.nodes.put_last_freed_in_free_list();
        }
    }

    /// Counts and unlinks a cancelled timer. The owner frees the node when it consumes the message
    /// about the timer.
    #[cold]
    fn count_and_unlink_cancelled(&mut self, index: u32) {
        let node = self.nodes.entry(index);
        if node.is_not_admitted() {
            self.stats.count_admitted();
        }
        self.wheel.unlink_if_linked(&self.nodes, node);
        self.stats.count_cancelled();
    }

    /// Resets a timer of this shard to the deadline that `compute_due` returns, in nanoseconds of
    /// the clock. Returns this deadline, or `None` if the timer has ended or is running.
    #[inline(always)]
    #[must_use = "a timer that was not reset has ended or is running"]
    pub(crate) fn reset(
        &mut self,
        handle: TimerHandle,
        compute_due: impl FnOnce(&mut Self) -> u64,
    ) -> Option<u64> {
        // Prefetches the node, so that its cache miss overlaps a reading of the clock.
        if self.wheel.should_prefetch() {
            prefetch(self.nodes.entry(handle.index()).state());
        }
        let due = compute_due(self);
        let node = self.nodes.entry(handle.index());
        if handle.generation & REMOTE_GENERATION_BIT != 0
            || !node.state().is_linked_one_shot(handle.generation)
        {
            return self.reset_slow(handle, due).then_some(due);
        }
        // A concurrent remote cancel takes effect after this reset.
        self.stats.counts.resets += 1;
        self.wheel.reset(&self.nodes, node, self.clock.tick_length.deadline_tick(due));
        Some(due)
    }

    /// Resets a timer that [`reset`](Self::reset) cannot reset on its fast path,
    /// such as a periodic, remotely added or remotely reset timer.
    #[inline(never)]
    fn reset_slow(&mut self, handle: TimerHandle, due: u64) -> bool {
        let (index, generation) = (handle.index(), handle.generation);
        if !self.nodes.try_adopt_page_of(index, generation) {
            return false;
        }
        let mut node = self.nodes.entry(index);
        let Some(is_periodic) = node.state().prepare_owner_reset(generation) else { return false };
        if node.is_not_admitted() {
            self.admit_before_reset(index, is_periodic);
            node = self.nodes.entry(index);
        }
        self.stats.counts.resets += 1;
        self.wheel.reset_or_link(&self.nodes, node, self.clock.tick_length.deadline_tick(due));
        if is_periodic {
            let Reading { min, max } = self.clock.latest_reading;
            let period_start = self.clock.tick_length.period_start_after_reset(due, min, max);
            self.nodes.schedule_mut(index).due = period_start;
        }
        true
    }

    /// Admits a remotely added timer (see the module `slab`) that the owner resets before it has
    /// consumed the message about the add.
    #[cold]
    #[inline(never)]
    fn admit_before_reset(&mut self, index: u32, is_periodic: bool) {
        if is_periodic {
            // Before a periodic timer's admission, its node's `deadline` holds the period.
            self.nodes.schedule_mut(index).period = self.nodes.entry(index).deadline().get();
        }
        self.nodes.entry(index).admit(self.clock.latest_reading.min);
        self.stats.count_admitted();
    }

    /// Lets other threads cancel and reset a private timer from now on, if it is pending.
    pub(crate) fn share(&self, handle: TimerHandle) {
        self.nodes.entry(handle.index()).state().share(handle.generation);
    }

    pub(crate) fn is_pending(&mut self, handle: TimerHandle) -> bool {
        self.nodes.try_adopt_page_of(handle.index(), handle.generation)
            && self.node_is_pending(handle)
    }

    /// Returns true if a timer is pending. If the timer was remotely added, the owner must have
    /// *adopted* its page (see the module `slab`).
    #[inline]
    pub(crate) fn node_is_pending(&self, handle: TimerHandle) -> bool {
        self.nodes.entry(handle.index()).state().is_pending(handle.generation)
    }

    pub(crate) fn deadline(&self, handle: TimerHandle) -> Option<Instant> {
        self.pending_deadline_nanos(handle).map(|nanos| self.clock.source_clock.instant_at(nanos))
    }

    pub(crate) fn time_left(&self, handle: TimerHandle) -> Option<Duration> {
        let nanos = self.pending_deadline_nanos(handle)?;
        Some(self.clock.time_until(nanos, self.clock.source_clock.nanos()))
    }

    fn pending_deadline_nanos(&self, handle: TimerHandle) -> Option<u64> {
        let index = handle.index();
        if handle.shard() != self.handle_template.shard() || !self.nodes.has_page_of(index) {
            return None;
        }
        let node = self.nodes.entry(index);
        if node.state().has_new_deadline_if_pending(handle.generation)? {
            Some(self.clock.tick_length.round_up(node.requested_deadline().load_nanos()))
        } else {
            Some(self.applied_deadline_nanos(index))
        }
    }

    /// Returns the deadline that the owner last set for a live timer, in nanoseconds of the clock.
    pub(crate) fn applied_deadline_nanos(&self, index: u32) -> u64 {
        self.clock.tick_length.tick_start_nanos(self.nodes.entry(index).deadline().get())
    }

    /// Changes the period of a periodic timer. Returns false if the timer is not periodic, will not
    /// run again, or is of another shard.
    #[must_use = "the period is not set if the timer is not periodic or has ended"]
    pub(crate) fn set_period(&mut self, handle: TimerHandle, period: Duration) -> bool {
        let (index, generation) = (handle.index(), handle.generation);
        let will_run_again = handle.shard() == self.handle_template.shard()
            && self.nodes.try_adopt_page_of(index, generation)
            && self.nodes.entry(index).state().will_run_again(generation);
        if will_run_again {
            let period = self.clock.tick_length.clamp_period_nanos(period);
            let node = self.nodes.entry(index);
            if node.is_not_admitted() {
                // Before a periodic timer's admission, its node's `deadline` holds the period.
                node.deadline().set(period);
            } else {
                self.nodes.schedule_mut(index).period = period;
            }
        }
        will_run_again
    }

    /// Reads the clock with inlined code, so that an idle turn need not save registers for a call.
    /// Returns false if the caller must read the clock with [`read_slow`](ShardClock::read_slow).
    #[inline(always)]
    pub(crate) fn try_read_clock(&mut self) -> bool {
        if self.clock.try_estimate() {
            return true;
        }
        let is_manual = self.clock.try_read_manual();
        if is_manual {
            self.shared.publish_clock_nanos(self.clock.latest_reading.min);
        }
        is_manual
    }

    /// Reads the clock. If a turn now would have nothing to do, counts an idle turn and returns
    /// true. If this returns false, the caller must begin a pass.
    #[inline(always)]
    pub(crate) fn try_turn_without_pass(&mut self) -> bool {
        self.read_clock();
        self.finish_turn_if_idle()
    }

    /// Uses `now`, an instant that the loop has read, as a reading of the clock. Ignores `now` if
    /// it is before the latest reading.
    pub(crate) fn use_loop_reading(&mut self, now: Instant) {
        self.clock.latest_reading.advance_to(Reading::exact(self.clock.source_clock.nanos_at(now)));
        self.publish_clock();
    }

    /// Begins a turn after [`try_read_clock`](Self::try_read_clock) has returned false.
    #[inline(never)]
    pub(super) fn turn_with_slow_reading(&mut self, budget: usize) {
        if !self.try_turn_without_pass() {
            self.begin_pass_and_end_if_empty(budget);
        }
    }

    /// If a turn at the latest reading would have nothing to do, counts an idle turn and returns
    /// true.
    #[inline(always)]
    pub(crate) fn finish_turn_if_idle(&mut self) -> bool {
        let now = self.clock.latest_reading.min;
        let is_idle = now < self.clock.tick_length.tick_start_nanos(self.wheel.idle_until)
            && self.stats.counts.turns < self.stats.skip_passes_until_turn.get()
            && !self.nodes.may_need_trim
            && self.shared.mailbox.is_empty();
        if is_idle {
            self.clock.turn_start = now;
            self.stats.counts.turns += 1;
            self.shared.gauges.record_idle_turn(now);
            self.publish_live_count();
        }
        is_idle
    }

    /// Begins a pass at the latest reading of the clock. Ends the pass if there is nothing to
    /// process.
    pub(super) fn begin_pass_and_end_if_empty(&mut self, budget: usize) {
        let has_urgent_messages = self.begin_pass(budget);
        if !has_urgent_messages
            && self.wheel.is_pass_done()
            && !self.backlog.may_have_low_priority_messages()
        {
            // Messages that arrive after this point belong to the next pass.
            self.end_pass();
        }
    }

    /// Begins a pass: reclaims nodes and pages, and sets the tick at which the pass ends. Returns
    /// true if the pass must consume urgent messages before the first due timer fires.
    #[inline(always)]
    pub(crate) fn begin_pass(&mut self, budget: usize) -> bool {
        if self.stats.is_in_pass {
            self.record_abandoned_pass();
        }
        self.clock.turn_start_before_last_pass =
            mem::replace(&mut self.clock.turn_start, self.clock.latest_reading.min);
        self.stats.counts.turns += 1;
        self.stats.is_in_pass = true;
        self.stats.skip_passes_until_turn.set(0);
        self.stats.turn_length_is_unmeasured.set(true);
        self.nodes.trim_budget = SLAB_TRIMS_PER_PASS_MAX;
        self.shared.gauges.record_turn_begin(self.clock.turn_start, self.stats.counts.turns);
        if self.nodes.may_have_memory_to_reclaim() {
            self.reclaim_nodes_and_pages();
        }
        self.publish_live_count();
        // The pass consumes messages about added and reset timers before the first due timer fires.
        // So timers usually fire in tick order, regardless of which thread added or reset them.
        let message_budget = budget.min(MESSAGES_PER_TURN_MAX);
        let has_urgent_messages = self.backlog.begin_pass(&self.shared.mailbox, message_budget);
        let pass_end = self.clock.tick_length.tick_at(self.clock.turn_start);
        if has_urgent_messages || !self.wheel.try_complete_idle_pass(pass_end) {
            self.wheel.begin_pass(&self.nodes, pass_end, budget);
        }
        has_urgent_messages
    }

    #[cold]
    fn record_abandoned_pass(&mut self) {
        self.stats.counts.turns_behind += u64::from(self.is_behind());
        self.stats.last_pass_left_work = true;
        if self.stats.counts.turns >= self.stats.next_publish_turn.get() {
            self.publish_counts();
        }
    }

    /// Returns freed nodes of remotely added timers to their pages. Also retires and frees surplus
    /// pages, unless the shard has ended.
    #[inline(never)]
    fn reclaim_nodes_and_pages(&mut self) {
        self.nodes.return_freed_remote_nodes();
        if self.nodes.may_need_trim && !self.is_closed {
            self.nodes.trim_pages();
        }
    }

    /// Claims and counts the next due timer of this pass.
    #[inline(always)]
    pub(crate) fn claim_next_due(&mut self) -> Option<ClaimedTimer<T>> {
        loop {
            let (node, deadline) = self.wheel.pop_due_entry(&self.nodes)?;
            match node.state().claim() {
                ClaimOutcome::Claimed(run) => {
                    let due = self.clock.tick_length.tick_start_nanos(deadline);
                    let claimed = node.to_claimed_timer(run, due);
                    self.count_run(&claimed);
                    self.publish_lateness(due);
                    return Some(claimed);
                }
                ClaimOutcome::NewDeadline { is_periodic } => {
                    self.stats.counts.remote_resets += 1;
                    let index = node.index();
                    if let Some(claimed) = self.apply_remote_reset(index, is_periodic) {
                        return Some(claimed);
                    }
                }
                // Skips the timer: the owner completes its remote cancel or reset when it consumes
                // the corresponding message.
                ClaimOutcome::AwaitsMessage => (),
            }
        }
    }

    /// Links a timer at the deadline that another thread has requested. If the pass has already
    /// reached the requested deadline, claims and returns the timer instead of linking it.
    #[inline]
    pub(super) fn apply_remote_reset(
        &mut self,
        index: u32,
        is_periodic: bool,
    ) -> Option<ClaimedTimer<T>> {
        let node = self.nodes.entry(index);
        let nanos = node.requested_deadline().load_nanos();
        let deadline = self.clock.tick_length.deadline_tick(nanos);
        if is_periodic || deadline <= self.wheel.pass_end {
            return self.apply_remote_reset_slow(index, is_periodic);
        }
        if self.wheel.try_relink_as_postponable(&self.nodes, node, deadline) {
            node.linked_deadline().store_nanos(nanos);
            node.state().allow_remote_postponing();
        }
        None
    }

    #[inline(never)]
    fn apply_remote_reset_slow(
        &mut self,
        index: u32,
        is_periodic: bool,
    ) -> Option<ClaimedTimer<T>> {
        let deadline = self.take_requested_deadline(index, is_periodic);
        let node = self.nodes.entry(index);
        let current = self.wheel.relink_unless_reached(&self.nodes, node, deadline).err()?;
        match node.state().claim() {
            ClaimOutcome::Claimed(run) => {
                let claimed =
                    node.to_claimed_timer(run, self.clock.tick_length.tick_start_nanos(current));
                self.count_already_due_run(&claimed, deadline);
                Some(claimed)
            }
            ClaimOutcome::NewDeadline { .. } => {
                // Another reset has ended since the owner took the deadline of the previous one. If
                // the new deadline is already due, the next turn fires the timer.
                self.stats.counts.remote_resets += 1;
                let deadline = self.take_requested_deadline(index, is_periodic);
                self.wheel.link(&self.nodes, self.nodes.entry(index), deadline);
                None
            }
            ClaimOutcome::AwaitsMessage => None,
        }
    }

    /// Returns the tick of the requested deadline. For a periodic timer, also stores the time from
    /// which the timer now counts its period.
    fn take_requested_deadline(&mut self, index: u32, is_periodic: bool) -> u64 {
        let node = self.nodes.entry(index);
        let (nanos, period_start) =
            (node.requested_deadline().load_nanos(), node.linked_deadline().load_nanos());
        if is_periodic {
            self.nodes.schedule_mut(index).due = period_start;
        }
        self.clock.tick_length.deadline_tick(nanos)
    }

    /// Counts the run of a timer whose remote add or reset requested the tick `deadline`, which the
    /// pass had already reached. Lets remote adds use the room of the timer.
    #[inline]
    fn count_already_due_run(&mut self, claimed: &ClaimedTimer<T>, deadline: u64) {
        self.count_run(claimed);
        self.publish_live_count();
        // A deadline of zero means "run at once", which is never late.
        if deadline > 0 {
            self.publish_lateness(self.clock.tick_length.tick_start_nanos(deadline));
        }
    }

    /// Counts a run, and if the timer is one-shot, also counts the timer as fired.
    #[inline]
    fn count_run(&mut self, claimed: &ClaimedTimer<T>) {
        self.stats.counts.runs += 1;
        if !claimed.run.is_periodic() {
            self.stats.counts.fired += 1;
            self.stats.live_count -= 1;
        }
    }

    /// Publishes the lateness of a timer that fires now and was due at `due`.
    #[inline]
    fn publish_lateness(&self, due: u64) {
        let is_due_since_last_pass = due > self.clock.turn_start_before_last_pass;
        let cause = match (is_due_since_last_pass, self.stats.last_pass_left_work) {
            (true, _) => LateCause::LateTurn,
            (false, true) => LateCause::UnfinishedTurn,
            // The timer was added or reset after its deadline, so the loop did not cause its
            // lateness.
            (false, false) => return,
        };
        let lateness = self.clock.turn_start.saturating_sub(due);
        self.shared.gauges.lateness_by_cause[cause as usize].add_duration(lateness);
    }

    /// Finishes the run of a claimed timer. Frees the timer's node, unless a message about the
    /// timer is queued, whose consumption will free it.
    #[inline(always)]
    pub(crate) fn finish_run(&mut self, claimed: ClaimedTimer<T>) {
        let (index, generation) = (claimed.index, claimed.run.generation());
        if let FreeWhen::Now = claimed.finish_run() {
            self.free_node(index, generation);
        }
    }

    /// Arms a claimed periodic timer again, for the first run that is due after the beginning of
    /// this turn. Returns the new deadline, in nanoseconds of the clock. If a cancel during the run
    /// in progress has ended the timer, counts the cancel and returns the payload as the error. A
    /// caller that gets this error must call [`finish_run`](Self::finish_run).
    pub(crate) fn rearm(&mut self, index: u32) -> Result<u64, T> {
        let next_due = self.nodes.schedule_mut(index).advance_past(self.clock.turn_start);
        let node = self.nodes.entry(index);
        if let Err(is_remote) = node.state().rearm() {
            self.stats.count_cancelled();
            self.stats.counts.remote_cancels += u64::from(is_remote);
            // A canceller of a running timer leaves the payload in the node.
            return Err(node.take_payload());
        }
        self.wheel.link(&self.nodes, node, self.clock.tick_length.deadline_tick(next_due));
        Ok(next_due)
    }

    pub(crate) fn next_turn_instant(&self) -> Option<Instant> {
        self.next_turn_nanos().map(|nanos| self.clock.source_clock.instant_at(nanos))
    }

    /// Returns the time, in nanoseconds of the clock, at which the shard next needs a turn, if any.
    pub(crate) fn next_turn_nanos(&self) -> Option<u64> {
        // Queued messages may request an elapsed deadline, so the loop must call `turn` at once.
        if !self.backlog.is_empty()
            || self.shared.mailbox.urgent.has_messages()
            || self.has_untaken_messages()
        {
            return Some(self.clock.turn_start);
        }
        let next_due =
            self.wheel.next_pass_tick().map(|tick| self.clock.tick_length.tick_start_nanos(tick));
        next_due.filter(|&nanos| nanos < u64::MAX)
    }

    /// Returns the duration from now to `sleep_end`, a time in nanoseconds of the clock; `None`
    /// means for ever. Unless the caller is a callback, also publishes the counts and `sleep_end`
    /// for metrics and watchdogs.
    pub(crate) fn publish_next_due(&self, sleep_end: Option<u64>) -> Option<Duration> {
        let now = self.clock.source_clock.nanos();
        // Remote adds may now use the room of timers cancelled since the last turn.
        self.publish_live_count();
        // If payloads are callbacks, each turn ends its own pass. So if a pass is in progress, the
        // caller is a callback, and the loop is not about to sleep.
        if !(self.stats.is_in_pass && self.shared.slab.holds_callbacks) {
            self.publish_counts();
            let (stats, gauges) = (&self.stats, &self.shared.gauges);
            gauges.set_next_due(self.clock.wake_up_time_to_publish(sleep_end));
            if stats.is_in_pass {
                // The loop abandons the pass and sleeps, so the turn ends here.
                gauges.record_turn_end(stats.counts.turns);
            }
            if stats.turn_length_is_unmeasured.replace(false) {
                let end = now.max(self.clock.latest_reading.min);
                let length = end.saturating_sub(self.clock.turn_start);
                gauges.longest_turn_nanos.set(gauges.longest_turn_nanos.get().max(length));
            }
        }
        sleep_end.map(|nanos| self.clock.time_until(nanos, now))
    }

    /// Returns the time until which the owner may sleep; `None` means for ever. The second value is
    /// true if a remote cancel must end this sleep, so that the owner drops the payload in time.
    pub(crate) fn sleep_end(&self) -> (Option<u64>, bool) {
        let (now, next_turn) = (self.clock.latest_reading.min, self.next_turn_nanos());
        let drop_cancelled_within = self.drop_cancelled_within_nanos;
        if drop_cancelled_within == u64::MAX {
            return (next_turn, false);
        }
        if self.short_sleeps_until.get() == u64::MAX {
            self.short_sleeps_until
                .set(self.clock.turn_start.saturating_add(drop_cancelled_within));
        }
        let short_sleep_end = now.saturating_add(drop_cancelled_within);
        if now < self.short_sleeps_until.get() {
            return (
                Some(next_turn.map_or(short_sleep_end, |next_turn| next_turn.min(short_sleep_end))),
                false,
            );
        }
        (next_turn, next_turn.is_none_or(|next_turn| next_turn > short_sleep_end))
    }

    /// Returns the two values of [`sleep_end`](Self::sleep_end), and true if the sleep lasts at
    /// least `LONG_SLEEP_NANOS`. Before a sleep of this length, frees some surplus pages. If
    /// surplus pages remain, [shortens](Self::shorten_long_sleep) the sleep, so that a later turn
    /// can free them.
    pub(crate) fn sleep_end_after_trim(&mut self) -> (Option<u64>, bool, bool) {
        let (mut sleep_end, ends_on_cancel) = self.sleep_end();
        let is_long = self.is_long_sleep(sleep_end);
        if is_long && !self.is_closed {
            self.nodes.return_freed_remote_nodes();
            // With virtual time, the sleep is not shortened, so this call frees all pages.
            let is_virtual = self.shared.clock.is_virtual();
            let max_trims = if is_virtual { usize::MAX } else { SLAB_TRIMS_PER_SLEEP_MAX };
            self.nodes.trim_pages_repeatedly(max_trims);
            sleep_end = self.shorten_long_sleep(sleep_end);
        }
        (sleep_end, ends_on_cancel, is_long)
    }

    /// Shortens a long sleep to `LONG_SLEEP_NANOS` if surplus pages remain, so that the next turn
    /// can free some of these pages. With virtual time, always returns `sleep_end`, because runs
    /// must be repeatable.
    pub(super) fn shorten_long_sleep(&self, sleep_end: Option<u64>) -> Option<u64> {
        if !self.nodes.has_pages_to_free() || self.shared.clock.is_virtual() {
            return sleep_end;
        }
        let shortened_end = self.shortest_long_sleep_end();
        Some(sleep_end.map_or(shortened_end, |sleep_end| sleep_end.min(shortened_end)))
    }

    /// Returns the end of a sleep of `LONG_SLEEP_NANOS` that begins now.
    pub(crate) fn shortest_long_sleep_end(&self) -> u64 {
        self.clock.latest_reading.min.saturating_add(LONG_SLEEP_NANOS)
    }

    pub(super) fn is_long_sleep(&self, sleep_end: Option<u64>) -> bool {
        sleep_end.is_none_or(|sleep_end| {
            sleep_end.saturating_sub(self.clock.latest_reading.min) >= LONG_SLEEP_NANOS
        })
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.counts_without_queue();
        self.for_each_message(|index, node| {
            let is_admitted =
                self.nodes.has_page_of(index) && !self.nodes.entry(index).is_not_admitted();
            counts.queued += 1;
            counts.uncollected +=
                u64::from(is_admitted && node.state.has_unconsumed_remote_cancel());
        });
        counts
    }

    /// Calls `visit` with the index and the node of each message that the owner has not consumed.
    fn for_each_message(&self, mut visit: impl FnMut(u32, &NodeView<'_>)) {
        let pinned = pin();
        for mut unvisited_messages in
            self.backlog.message_lists().into_iter().chain(self.shared.mailbox.peek_messages())
        {
            while unvisited_messages.first_index != 0
                && let Some(node) = self.shared.slab.node(unvisited_messages.first_index, &pinned)
            {
                visit(unvisited_messages.first_index, &node);
                unvisited_messages = unvisited_messages.without_first(node.mailbox_link.get());
            }
        }
    }

    pub(crate) fn metrics(&self) -> ShardMetrics {
        self.publish_occupancy();
        ShardMetrics { counts: self.counts(), ..ShardMetrics::of(&self.shared) }
    }

    #[cfg(feature = "origins")]
    pub(crate) fn live_timers_by_call_site(&self) -> crate::metrics::LiveTimersByCallSite {
        let now = self.clock.now();
        crate::metrics::LiveTimersByCallSite::new(self.nodes.timer_origins(), now)
    }

    /// Returns the counts except `uncollected` and `queued`, which are zero.
    #[inline]
    fn counts_without_queue(&self) -> Counts {
        Counts {
            live: self.stats.live_count.into(),
            panicked: self.shared.hooks.panic_count(),
            relinked: self.wheel.relinked,
            clock_regressions: self.clock.regression_count,
            ..self.stats.counts
        }
    }

    /// If the shard limits its live timers, publishes their number, which remote adds compare with
    /// the limit. The published number excludes up to [`WAKE_AT_QUEUED_MESSAGES`] cancelled timers
    /// whose messages are in the backlog. A thread that adds a remote timer also subtracts the
    /// cancels in the mailbox, before it compares the number with the limit.
    #[inline]
    pub(crate) fn publish_live_count(&self) {
        if self.live_limit < INDEX_MAX {
            self.publish_live_count_to_admission();
        }
    }

    #[inline(never)]
    fn publish_live_count_to_admission(&self) {
        let cancelled = self.backlog.cancelled_count().min(WAKE_AT_QUEUED_MESSAGES);
        let live_count = self.stats.live_count.saturating_sub(cancelled).into();
        let published_live_count = self.stats.published_live_count.replace(live_count);
        self.shared.admission_limit.publish_live_count(published_live_count, live_count);
    }

    /// Publishes the counts and the next deadline of a wheel that no loop drives. Returns the next
    /// deadline, remote requests included, or `u64::MAX` if there is none. Also returns the lower
    /// bound of the latest clock reading.
    #[cold]
    pub(crate) fn publish_undriven_and_get_next_due(&self) -> (u64, u64) {
        let next_due =
            self.wheel.next_pass_tick().map(|tick| self.clock.tick_length.tick_start_nanos(tick));
        self.publish_counts();
        self.stats.next_publish_turn.set(0);
        self.request_pass();
        self.shared.gauges.set_next_due(self.clock.wake_up_time_to_publish(next_due));
        let remote_due = self.shared.gauges.remote_due_while_undriven();
        (next_due.unwrap_or(u64::MAX).min(remote_due), self.clock.latest_reading.min)
    }

    /// Returns the earliest deadline, in nanoseconds of the clock, of the remote adds and resets
    /// whose messages wait for a turn; `u64::MAX` if there are none.
    #[cold]
    pub(crate) fn earliest_queued_deadline(&self) -> u64 {
        let mut earliest_due = u64::MAX;
        self.for_each_message(|_, node| {
            if node.state.has_new_deadline_if_pending(node.state.generation()) == Some(true) {
                let due = self.clock.tick_length.round_up(node.requested_deadline().load_nanos());
                earliest_due = earliest_due.min(due);
            }
        });
        earliest_due
    }

    /// Returns the number of adds that may follow before an add checks again whether the loop has
    /// begun.
    pub(crate) fn adds_until_loop_check(&self) -> u64 {
        self.stats.counts.added.clamp(1, 256)
    }

    /// Returns true if the loop has run a turn or has computed the length of a sleep.
    pub(crate) fn loop_has_begun(&self) -> bool {
        self.stats.counts.turns > 0 || self.stats.next_publish_turn.get() != 0
    }

    /// Ends the pass in progress. Returns true if messages or due entries remain for the next pass.
    #[inline(always)]
    pub(crate) fn end_pass(&mut self) -> bool {
        let (is_behind, turns) = (self.has_pending_work(), self.stats.counts.turns);
        self.stats.is_in_pass = false;
        self.nodes.trim_budget = u32::MAX;
        self.stats.last_pass_left_work = is_behind;
        self.stats.counts.turns_behind += u64::from(is_behind);
        self.shared.gauges.record_turn_end(turns);
        self.publish_live_count();
        if turns >= self.stats.next_publish_turn.get() {
            self.publish_counts();
        }
        if !is_behind {
            self.stats.skip_passes_until_turn.set(self.stats.next_publish_turn.get());
        }
        is_behind
    }

    /// Makes the next turn begin a pass, even if the turn has nothing else to do.
    pub(crate) fn request_pass(&self) {
        self.stats.skip_passes_until_turn.set(0);
    }

    /// Publishes the counts, if any of them except `turns` and `panicked` has changed. Also
    /// publishes the occupied slots, if a reader has requested them.
    #[inline(never)]
    pub(crate) fn publish_counts(&self) {
        let &Counts { added, cancelled, handed_back, resets, remote_resets, .. } =
            &self.stats.counts;
        let &Counts { runs, turns_behind, turns, .. } = &self.stats.counts;
        // These counters never decrease, so if their sum is unchanged, no counter has changed.
        let counter_sum: u64 =
            [added, runs, cancelled, handed_back, resets, remote_resets, turns_behind].iter().sum();
        let queued = self.backlog.message_count();
        let digest = (self.wheel.relinked + self.clock.regression_count + counter_sum, queued);
        self.stats.next_publish_turn.set(turns + COUNTS_PUBLISH_INTERVAL_TURNS);
        if self.stats.last_published_digest.replace(digest) != digest {
            let counts = Counts {
                uncollected: self.backlog.cancelled_count().into(),
                queued: queued.into(),
                ..self.counts_without_queue()
            };
            self.shared.gauges.publish_counts(counts);
        }
        if self.shared.gauges.occupancy_is_requested() {
            self.publish_occupancy();
        }
    }

    #[cold]
    fn publish_occupancy(&self) {
        self.shared.gauges.publish_occupancy(self.wheel.occupied_slot_counts());
    }

    /// Closes the mailbox, then ends every timer that is not running, and frees the shard's number.
    /// A second call returns no timers. The caller must call
    /// [`drop_cancelled_payloads`](TimersAtClose::drop_cancelled_payloads) on the result, at a
    /// point where user code may run.
    pub(crate) fn close(&mut self) -> TimersAtClose<T> {
        let mut ended_timers =
            TimersAtClose { pending_timers: Vec::new(), cancelled_payloads: Vec::new() };
        if mem::replace(&mut self.is_closed, true) {
            return ended_timers;
        }
        self.add_allowance_end = 0;
        self.shared.mailbox.close();
        self.backlog = Backlog::default();
        self.nodes.adopt_all_pages();
        for index in self.nodes.possibly_used_indices() {
            self.end_timer_at_close(index, &mut ended_timers);
        }
        if self.stats.is_in_pass {
            self.end_pass();
        }
        self.publish_counts();
        registry::unregister(
            self.shared.number,
            self.next_generation.max(self.nodes.remote_generation_bound()),
        );
        ended_timers
    }

    fn end_timer_at_close(&mut self, index: u32, ended_timers: &mut TimersAtClose<T>) {
        let node = self.nodes.entry(index);
        let outcome = node.state().end_at_close();
        let has_payload = match outcome {
            CloseOutcome::NoPayload => return,
            CloseOutcome::HandedBack { .. } => true,
            CloseOutcome::Cancelled { has_payload } => has_payload,
        };
        let payload = has_payload.then(|| node.take_payload());
        if node.is_not_admitted() {
            self.stats.count_admitted();
        }
        let due = match outcome {
            CloseOutcome::HandedBack { has_new_deadline: true } => {
                self.clock.tick_length.round_up(node.requested_deadline().load_nanos())
            }
            _ => self.applied_deadline_nanos(index),
        };
        self.wheel.unlink_if_linked(&self.nodes, node);
        if let CloseOutcome::Cancelled { .. } = outcome {
            self.stats.count_cancelled();
            self.stats.counts.remote_cancels += 1;
            ended_timers.cancelled_payloads.extend(payload);
        } else {
            self.stats.live_count -= 1;
            self.stats.counts.handed_back += 1;
            let generation = node.state().generation();
            let handle = self.handle_template.with_index_and_generation(index, generation);
            ended_timers.pending_timers.extend(payload.map(|mut payload| {
                (self.on_handed_back)(&mut payload);
                TimerAtClose { handle, due, payload }
            }));
        }
    }

    #[cold]
    pub(super) fn next_message_step(&mut self) -> Option<UserCodeStep<T>> {
        self.consume_messages(&mut 0, |_| true)
    }

    /// Consumes messages of the pass's current phase
    /// ([`MessagePhase`](crate::cross_core::mailbox::MessagePhase)), within the budget. Returns the
    /// first [`UserCodeStep`] that a message requires. If no message requires a step, ends the
    /// urgent phase and returns `None`. Increments `cancelled_count` for each remotely cancelled
    /// timer. If `wants_payload` returns false for a cancelled timer, frees the node without
    /// dropping the payload.
    #[inline]
    pub(crate) fn consume_messages(
        &mut self,
        cancelled_count: &mut usize,
        wants_payload: impl Fn(OwnerNodeRef<'_, T>) -> bool,
    ) -> Option<UserCodeStep<T>> {
        loop {
            // The owner adopted the page of a remote timer's node when it put the timer's first
            // message, an add, into FIFO order.
            let node_and_link = |index| {
                let node = self.nodes.entry(index);
                (node, node.mailbox_link().get())
            };
            let Some((node, link)) = self.backlog.remove_next_message(node_and_link) else {
                if self.refill_backlog_or_end_phase() {
                    continue;
                }
                return None;
            };
            let index = node.index();
            debug_assert!(self.nodes.has_page_of(index), "a message of a node that is gone");
            // `link` is the index of the message after the next one, so this call prefetches two
            // messages ahead.
            self.nodes.prefetch(link);
            let consumed_message = node.state().consume_message();
            match consumed_message {
                ConsumedMessage::Cancelled { has_payload } => {
                    *cancelled_count += 1;
                    let generation = node.state().generation();
                    self.stats.counts.remote_cancels += 1;
                    if node.is_not_admitted() {
                        self.stats.count_admitted();
                    }
                    // The timer is not linked if it was cancelled before its admission, or if a
                    // remote reset was in progress then. Nor is a timer that the owner has popped
                    // but could not claim.
                    self.wheel.unlink_if_linked(&self.nodes, node);
                    self.stats.count_cancelled();
                    if has_payload {
                        self.short_sleeps_until.set(u64::MAX);
                        if mem::needs_drop::<T>() && wants_payload(node) {
                            let payload = node.take_payload();
                            self.free_node(index, generation);
                            return Some(UserCodeStep::Cancelled(payload));
                        }
                    }
                    self.free_node(index, generation);
                }
                ConsumedMessage::AlreadyEnded => {
                    let generation = node.state().generation();
                    self.free_node(index, generation);
                }
                // Admits a remotely added timer: links it, or claims it if the pass has already
                // reached its deadline. This code is inline, because a separate function would look
                // up the node again.
                ConsumedMessage::NewDeadline { is_periodic }
                | ConsumedMessage::ResetInProgress { is_periodic }
                    if node.is_not_admitted() =>
                {
                    let mut node = node;
                    if is_periodic {
                        // Before a periodic timer's admission, its node's `deadline` holds the
                        // period.
                        self.nodes.schedule_mut(index).period = node.deadline().get();
                        node = self.nodes.entry(index);
                    }
                    node.admit(self.clock.latest_reading.min);
                    self.stats.count_admitted();
                    if let ConsumedMessage::ResetInProgress { .. } = consumed_message {
                        // The owner links the timer when it consumes the next message of the
                        // resetting thread.
                        continue;
                    }
                    let nanos = node.requested_deadline().load_nanos();
                    let deadline = self.clock.tick_length.deadline_tick(nanos);
                    if !is_periodic && deadline > self.wheel.pass_end {
                        self.wheel.link(&self.nodes, node, deadline);
                        continue;
                    }
                    let current = self.wheel.current_tick;
                    if !is_periodic && deadline <= current {
                        node.deadline().set(deadline);
                        match node.state().claim() {
                            ClaimOutcome::Claimed(run) => {
                                let due = self.clock.tick_length.tick_start_nanos(current);
                                let claimed = node.to_claimed_timer(run, due);
                                self.count_already_due_run(&claimed, deadline);
                                return Some(UserCodeStep::Due(claimed));
                            }
                            // A reset has ended since the owner consumed the message.
                            ClaimOutcome::NewDeadline { .. } => {
                                self.stats.counts.remote_resets += 1;
                            }
                            ClaimOutcome::AwaitsMessage => continue,
                        }
                    }
                    if let Some(claimed) = self.apply_remote_reset_slow(index, is_periodic) {
                        return Some(UserCodeStep::Due(claimed));
                    }
                }
                ConsumedMessage::NewDeadline { is_periodic } => {
                    self.stats.counts.remote_resets += 1;
                    if let Some(claimed) = self.apply_remote_reset(index, is_periodic) {
                        return Some(UserCodeStep::Due(claimed));
                    }
                }
                ConsumedMessage::ResetInProgress { .. } | ConsumedMessage::Nothing => (),
            }
        }
    }

    /// Returns true if this phase now has a message to consume; see
    /// [`Backlog::refill_or_end_phase`].
    #[inline(never)]
    fn refill_backlog_or_end_phase(&mut self) -> bool {
        let replace_link = |index, link| {
            self.nodes.adopt_page_of_message(index);
            self.nodes.entry(index).mailbox_link().replace(link)
        };
        let has_message = self.backlog.refill_or_end_phase(&self.shared.mailbox, replace_link);
        // A remote add subtracts only the cancels in the mailbox from the live count. So this call
        // must subtract the cancels that have moved from the mailbox to the backlog.
        self.publish_live_count();
        has_message
    }

    /// Removes remotely cancelled timers until
    /// [`grant_add_allowance(max_adds)`](Self::grant_add_allowance) succeeds. If this function
    /// returns a payload, the caller must drop the payload and call the function again. Returns an
    /// error if no timer can be added.
    ///
    /// Consumes only low-priority messages, although an urgent message may belong to a cancelled
    /// timer: urgent messages may fire timers, so only a pass may consume them.
    #[cold]
    pub(crate) fn make_room(&mut self, max_adds: u64) -> Result<Option<T>, AddErrorReason> {
        while let Err(reason) = self.grant_add_allowance(max_adds) {
            // Consumes one low-priority message. A callback may add the timer during a pass, so the
            // phase of that pass is saved and restored.
            let interrupted_phase =
                mem::replace(&mut self.backlog.phase, MessagePhase::low_priority(1));
            let step = self.next_message_step();
            let MessagePhase { budget, .. } =
                mem::replace(&mut self.backlog.phase, interrupted_phase);
            if budget > 0 {
                return Err(reason);
            }
            // Messages may remain in the backlog, which only a pass checks, so the next turn must
            // begin one.
            self.stats.last_pass_left_work = true;
            self.request_pass();
            debug_assert!(!matches!(step, Some(UserCodeStep::Due(_))), "a message about a cancel");
            if let Some(UserCodeStep::Cancelled(payload)) = step {
                return Ok(Some(payload));
            }
        }
        Ok(None)
    }
}

impl Engine<Callback> {
    /// Returns the next callback for the caller to run or drop, if a pass has begun. If no callback
    /// is left, ends the pass and returns `None`.
    pub(crate) fn next_callback_step(&mut self) -> Option<UserCodeStep<Callback>> {
        if !self.stats.is_in_pass {
            return None;
        }
        if self.backlog.phase.is_urgent
            && let Some(step) = self.next_message_step()
        {
            return Some(step);
        }
        if let Some(claimed) = self.claim_next_due() {
            return Some(UserCodeStep::Due(claimed));
        }
        if self.backlog.may_have_low_priority_messages()
            && let Some(step) = self.next_message_step()
        {
            return Some(step);
        }
        self.end_pass();
        None
    }
}

impl<T> Drop for Engine<T> {
    fn drop(&mut self) {
        let pending = self.close().drop_cancelled_payloads(&self.shared);
        if self.shared.parker.is_undriven() {
            let (last_turn_start, remote_due) =
                (self.clock.turn_start, self.shared.gauges.remote_due_while_undriven());
            // If a pending timer was due at or before the last turn, another thread has usually
            // added or reset it after that turn. So the report on an undriven wheel uses
            // `remote_due`, the earliest deadline that other threads have published, in place of
            // the timer's deadline.
            let due = pending.iter().map(|timer| timer.due);
            let due = due.map(|due| if due > last_turn_start { due } else { remote_due });
            let due = due.min().unwrap_or(u64::MAX);
            // A wheel that never had a driver never fires its timers, so the report on this wheel
            // does not wait until a timer is overdue.
            let (min_overdue_nanos, reason) = match (self.stats.counts.turns, pending.len()) {
                (0, 1..) => {
                    (SHORT_OVERDUE_GRACE_NANOS, UndrivenReason::DroppedWithoutTurn(pending.len()))
                }
                (_, dropped) => (0, UndrivenReason::DroppedAfterLastTurn(dropped)),
            };
            // The function of a `Clock::from_fn` panics if it uses a thread-local that the exiting
            // thread has destroyed. A panic that leaves a destructor of a thread-local ends the
            // process.
            catch_panic_silently(|| {
                let overdue = self.shared.clock.nanos().saturating_sub(due);
                self.shared.report_undriven_wheel(overdue.max(min_overdue_nanos), reason);
            });
        }
        for timer in pending {
            self.shared.hooks.drop_catching_panic(timer.payload);
        }
    }
}
