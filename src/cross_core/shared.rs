//! The part of a shard that every thread may use: the nodes, the mailbox, the clock, and the calls
//! that wake the owner.

use std::{panic::RefUnwindSafe, sync::Arc, thread, time::Duration};

use crate::{
    clock::{
        Clock, READING_WIDTH_MAX_NANOS, Reading,
        tick::{TickLength, TimerSchedule, saturating_nanos},
    },
    cross_core::{
        admission::AdmissionLimit,
        call_site::CallSite,
        callback::{IntoCallback, SendCallback},
        hooks::Hooks,
        mailbox::{Mailbox, MailboxLink, PushOutcome},
        parker::{Parker, SleepId},
        reclaim::{Protected, pin},
        slab::{ArmedNode, Slab, TakenNode},
        state::{BeginResetOutcome, Cancel, StepAfterCancelOrReset, TimerStatus},
    },
    error::{AddError, AddErrorReason},
    gauges::{Gauges, TurnState},
    limits::{LONG_OVERDUE_GRACE_NANOS, WAKE_AT_QUEUED_MESSAGES},
    trace::{self, UndrivenReason, UndrivenWheel},
    util::{
        panics::catch_panic_silently,
        prefetch::prefetch,
        sync::{AtomicU64, Ordering},
    },
    wheel::coarsest_tick,
    when::{RequestedTime, SpreadSequence, When},
};

/// The parts that are often written have an alignment of 128 bytes, so that they share no cache line
/// with other parts. Many processors fetch lines of 64 bytes in pairs.
pub(crate) struct Shared {
    /// The number by which handles find the shard. The registry sets this number and `serial`.
    pub(crate) number: u32,
    /// Identifies the shard: no other shard of the process has this serial.
    pub(crate) serial: u64,
    pub(crate) clock: Clock,
    /// The owner's latest reading of a clock that can go backwards; zero for other clocks. Remote
    /// requests use this reading if their own reading is earlier.
    owner_clock_nanos: AtomicU64,
    pub(crate) tick_length: TickLength,
    pub(crate) hooks: Hooks,
    pub(crate) slab: Arc<Slab>,
    pub(crate) mailbox: Mailbox,
    pub(crate) parker: Parker,
    pub(crate) spread_sequence: SpreadSequence,
    pub(crate) admission_limit: AdmissionLimit,
    pub(crate) gauges: Gauges,
    pub(crate) name: Box<str>,
}

// User code runs only between operations on this state, so a panic of user code leaves no operation
// half done (P5 and P6 in `ARCHITECTURE.md`).
impl RefUnwindSafe for Shared {}

/// The result of a remote operation, and the owner's sleep if the caller must end it.
#[must_use]
pub(crate) struct RemoteOutcome<R> {
    pub(crate) answer: R,
    /// The owner's sleep that the caller must end, after releasing all borrows of corewheel's
    /// state.
    pub(crate) sleep_to_interrupt: Option<SleepId>,
}

/// Identifies a remotely added timer within its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemotelyAddedId {
    pub(crate) index: u32,
    pub(crate) generation: u64,
}

impl<R> RemoteOutcome<R> {
    fn no_wake_needed(answer: R) -> Self {
        Self { answer, sleep_to_interrupt: None }
    }
}

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        tick_length: TickLength,
        hooks: Hooks,
        limit: u32,
        name: Option<String>,
        slab: Arc<Slab>,
    ) -> Self {
        let has_name = name.is_some();
        let name =
            name.or_else(|| thread::current().name().map(str::to_owned)).unwrap_or_default().into();
        Self {
            number: 0,
            serial: 0,
            spread_sequence: SpreadSequence::new(clock.next_spread_seed()),
            clock,
            owner_clock_nanos: AtomicU64::new(0),
            tick_length,
            hooks,
            slab,
            mailbox: Mailbox::default(),
            parker: Parker::default(),
            admission_limit: AdmissionLimit::new(limit),
            gauges: Gauges::new(has_name),
            name,
        }
    }

    /// Announces that the owner will sleep until `sleep_end` at the latest. If `ends_on_cancel` is
    /// true, a remote cancel that leaves the payload to the owner ends the sleep. Returns `None` if
    /// the owner must consume messages first, or if another thread is waking the owner.
    pub(crate) fn announce_sleep(&self, sleep_end: u64, ends_on_cancel: bool) -> Option<SleepId> {
        let can_be_unparked = self.hooks.try_set_thread_to_unpark(self.parker.owner_has_parked());
        let announcement = self.parker.announce_sleep(sleep_end, ends_on_cancel);
        if can_be_unparked && !self.mailbox.must_not_sleep(WAKE_AT_QUEUED_MESSAGES, ends_on_cancel)
        {
            return Some(announcement);
        }
        self.parker.clear_announcement(announcement);
        None
    }

    /// Wakes the owner, and returns true if this call has woken it. If no loop drives the wheel,
    /// returns false, and reports an overdue timer.
    pub(crate) fn wake(&self, sleep: SleepId) -> bool {
        if sleep.is_undriven() {
            if let Some(due) = self.turn_state_with_undriven_due().pending_turn_due() {
                self.report_overdue_timer(self.clock.nanos().saturating_sub(due));
            }
            return false;
        }
        let has_woken = self.hooks.try_wake_owner(sleep);
        if has_woken {
            if self.must_time_waits() {
                // Relaxed: `clear_announcement` publishes the time.
                self.parker.unparked_at_nanos.store(self.clock.nanos(), Ordering::Relaxed);
            }
            self.parker.clear_announcement(sleep);
        }
        has_woken
    }

    /// Ends the announcement of the owner's sleep. Reports a wait that went on for a second after
    /// an unpark, because this wait needs a wake hook.
    pub(crate) fn end_sleep(&self, sleep: SleepId) {
        if self.parker.clear_announcement(sleep) || !self.must_time_waits() {
            return;
        }
        if let Some(unparked_at) = self.parker.unparked_at(sleep) {
            let waited_nanos = self.clock.nanos().saturating_sub(unparked_at);
            if waited_nanos >= LONG_OVERDUE_GRACE_NANOS {
                self.report_undriven_wheel(waited_nanos, UndrivenReason::UnparkEndsNoWait);
            }
        }
    }

    /// Returns true if a wake-up only unparks the owner, which may not end the owner's wait. Once
    /// this is false, it stays false.
    fn must_time_waits(&self) -> bool {
        self.hooks.only_unpark_wakes() && !self.clock.is_virtual()
    }

    /// Reports a timer that has been overdue for `overdue_nanos`, as
    /// [`report_undriven_wheel`](Self::report_undriven_wheel) describes.
    #[cold]
    pub(crate) fn report_overdue_timer(&self, overdue_nanos: u64) {
        self.report_undriven_wheel(overdue_nanos, UndrivenReason::Overdue);
    }

    /// Reports that no loop drives the wheel, if `overdue_nanos` is at least the grace period.
    /// Reports at most once until `overdue_grace_nanos` is set. The caller must hold no borrow of
    /// corewheel's state, because a report may run user code.
    #[cold]
    pub(crate) fn report_undriven_wheel(&self, overdue_nanos: u64, reason: UndrivenReason) {
        if self.gauges.claim_undriven_report(overdue_nanos) {
            let (number, overdue) = (self.number, Duration::from_nanos(overdue_nanos));
            // Only a thread marks its wheel as undriven.
            let wheel = match (self.slab.holds_callbacks, self.parker.is_undriven()) {
                (false, _) => UndrivenWheel::Shard,
                (true, false) => UndrivenWheel::OfTimers,
                (true, true) => UndrivenWheel::OfThread,
            };
            // Unparks the owner, because a waking thread that finds the lock held omits its unpark.
            let thread = self.hooks.try_unpark().map(|thread| thread.id());
            catch_panic_silently(|| {
                trace::report_undriven_wheel(number, &self.name, thread, overdue, wheel, reason);
            });
        }
    }

    /// Returns the state of the owner's turns. If no loop drives the wheel, `next_due` includes the
    /// deadlines of remote requests.
    pub(crate) fn turn_state_with_undriven_due(&self) -> TurnState {
        let mut turn_state = self.gauges.turn_state();
        if self.parker.is_undriven() {
            turn_state.next_due = turn_state.next_due.min(self.gauges.remote_due_while_undriven());
        }
        turn_state
    }

    /// Wakes the owner after a refused add, if the mailbox has messages: consuming messages about
    /// cancelled timers makes room.
    #[cold]
    pub(crate) fn wake_to_make_room(&self) {
        if self.mailbox.depth() > 0
            && let Some(sleep) = self.parker.sleep_in_progress_with_fence()
        {
            self.wake(sleep);
        }
    }

    /// Publishes the owner's reading of a clock that can go backwards.
    #[inline]
    pub(crate) fn publish_clock_nanos(&self, nanos: u64) {
        // Relaxed: other threads may use a slightly older reading.
        self.owner_clock_nanos.store(nanos, Ordering::Relaxed);
    }

    /// Adds a timer from a remote thread. A zero period means one-shot. If `ignores_limit` is true,
    /// ignores the limit of live timers.
    #[inline(always)]
    pub(crate) fn add_remote<C: IntoCallback<Closure: Send> + Send>(
        &self,
        schedule: TimerSchedule,
        call_site: CallSite,
        callback: C,
        ignores_limit: bool,
    ) -> Result<RemoteOutcome<RemotelyAddedId>, AddError<C::Closure>> {
        match self.reserve_node(ignores_limit) {
            Ok(node) => self.push_armed(node.arm(schedule, call_site, callback), schedule.due),
            Err(reason) => Err(AddError::new(reason, callback.into_closure())),
        }
    }

    /// Takes a node for a remote timer, and reserves room within the limit of live timers.
    #[inline(always)]
    fn reserve_node(&self, ignores_limit: bool) -> Result<TakenNode, AddErrorReason> {
        if self.mailbox.is_closed() {
            return Err(AddErrorReason::ShutDown);
        }
        let cancelled_in_mailbox =
            || self.mailbox.low_priority.depth().min(WAKE_AT_QUEUED_MESSAGES);
        if !self.admission_limit.try_reserve_room(ignores_limit, cancelled_in_mailbox) {
            return Err(AddErrorReason::Full);
        }
        let node = self.slab.take_remote_node(pin());
        node.ok_or_else(|| {
            self.admission_limit.release_reservation();
            AddErrorReason::Full
        })
    }

    /// Pushes an armed node, whose timer is due at `due`. If the shard has ended, usually returns
    /// the closure in the error.
    #[inline(always)]
    fn push_armed<C: IntoCallback>(
        &self,
        armed_node: ArmedNode<C>,
        due: u64,
    ) -> Result<RemoteOutcome<RemotelyAddedId>, AddError<C::Closure>> {
        let answer =
            RemotelyAddedId { index: armed_node.node.index, generation: armed_node.generation };
        match self.mailbox.urgent.push(answer.index, armed_node.mailbox_link(), false) {
            PushOutcome::Queued { depth, .. } => Ok(RemoteOutcome {
                answer,
                sleep_to_interrupt: self
                    .sleep_to_interrupt_for_deadline(is_multiple_of_wake_depth(depth), || due),
            }),
            PushOutcome::Closed => {
                // No node or room is reused after the shard's end, so this node is not freed, and
                // its room is not released. If another thread has changed the timer, for example by
                // `StateWord::end_at_close`, `undo_arm` returns no closure, and the add counts as
                // successful.
                armed_node.undo_arm().map_or(Ok(RemoteOutcome::no_wake_needed(answer)), |closure| {
                    Err(AddError::new(AddErrorReason::ShutDown, closure))
                })
            }
        }
    }

    /// Returns the present time plus `delay_nanos`, in nanoseconds of the clock.
    #[inline]
    pub(crate) fn nanos_after(&self, delay_nanos: u64) -> u64 {
        // Relaxed: the reading may be slightly outdated.
        let now = self.clock.nanos().max(self.owner_clock_nanos.load(Ordering::Relaxed));
        now.saturating_add(delay_nanos)
    }

    /// Returns the deadline of a timer that is added or reset now, in nanoseconds of the clock.
    #[inline(always)]
    pub(crate) fn deadline_nanos(&self, when: When) -> u64 {
        match (when.deadline, when.as_delay()) {
            (_, Some(delay)) => {
                let (now, delay) = (self.read_clock(), saturating_nanos(delay));
                let delay_start = if delay == 0 { now.min } else { now.max };
                self.tick_length.backdate_if_elapsed(delay_start.saturating_add(delay), delay == 0)
            }
            (RequestedTime::AtNanos(nanos), _) => nanos,
            _ => self.deadline_nanos_from_reading(when, self.read_clock()),
        }
    }

    /// Reads the clock for a remote request. Unless a virtual clock goes back, the owner's readings
    /// in later turns are at least the lower bound of this reading. So the owner's next turn fires
    /// a timer that is due at this lower bound.
    #[inline]
    fn read_clock(&self) -> Reading {
        let max = self.nanos_after(0);
        let reading_width = if self.clock.is_inexact() { READING_WIDTH_MAX_NANOS } else { 0 };
        Reading { min: max.saturating_sub(reading_width), max }
    }

    /// Returns the deadline of a timer that is reset now, and the start of a periodic timer's next
    /// period, in nanoseconds of the clock. An elapsed deadline is backdated
    /// (`backdate_if_elapsed`), so that the next turn fires the timer, but the period's start is
    /// not backdated.
    pub(crate) fn reset_due_and_period_start(&self, when: When) -> (u64, u64) {
        if let RequestedTime::AtNanos(nanos) = when.deadline {
            return (nanos, nanos);
        }
        let now = self.read_clock();
        let nanos = self.deadline_nanos_from_reading(when, now);
        (nanos, self.tick_length.period_start_after_reset(nanos, now.min, now.max))
    }

    /// Returns the deadline of a timer that is added or reset at `now`. Among future ticks within
    /// the slack, chooses the tick that is divisible by the largest power of two, so that timers
    /// share ticks.
    #[inline(never)]
    pub(crate) fn deadline_nanos_from_reading(&self, when: When, now: Reading) -> u64 {
        let spread_offset =
            Duration::from_nanos(self.spread_sequence.next_delay_nanos(when.spread_range));
        let deadline_with_offset = |offset: Duration| match when.deadline {
            RequestedTime::After(delay) => {
                now.max.saturating_add(saturating_nanos(delay.saturating_add(offset)))
            }
            // Adds the offset before the conversion, because the instant alone may be before the
            // clock's origin.
            RequestedTime::At(instant) => {
                instant.checked_add(offset).map_or(u64::MAX, |instant| self.clock.nanos_at(instant))
            }
            RequestedTime::AtNanos(nanos) => nanos.saturating_add(saturating_nanos(offset)),
        };
        let spread_due = deadline_with_offset(spread_offset);
        let first_tick =
            self.tick_length.deadline_tick(spread_due).max(self.tick_length.tick_at(now.max) + 1);
        let last_tick = self
            .tick_length
            .tick_at(deadline_with_offset(spread_offset.saturating_add(when.slack)));
        if first_tick <= last_tick && !when.slack.is_zero() {
            return self.tick_length.tick_start_nanos(coarsest_tick(first_tick, last_tick));
        }
        let has_elapsed = match when.deadline {
            // A nonzero delay has not elapsed, even if a saturated `spread_due` equals `now.max`.
            RequestedTime::After(delay) => delay.is_zero() && spread_due <= now.max,
            // If `spread_due` is between the bounds of `now`, reads the clock exactly.
            _ => spread_due <= now.min || spread_due <= now.max && spread_due <= self.clock.nanos(),
        };
        let deadline = if has_elapsed { spread_due.min(now.min) } else { spread_due };
        self.tick_length.backdate_if_elapsed(deadline, has_elapsed)
    }

    pub(crate) fn has_elapsed(&self, nanos: u64) -> bool {
        self.nanos_after(0) >= nanos
    }

    /// Returns the owner's sleep if the caller must end it: if the sleep may last beyond the
    /// deadline that `deadline_nanos` returns, or `ends_any_sleep` is true. The caller must just
    /// have made its request. If no loop drives the wheel, also publishes the deadline.
    #[inline]
    fn sleep_to_interrupt_for_deadline(
        &self,
        ends_any_sleep: bool,
        deadline_nanos: impl FnOnce() -> u64,
    ) -> Option<SleepId> {
        let sleep = self.parker.sleep_in_progress_after_rmw()?;
        let due = self.tick_length.round_up(deadline_nanos());
        let sleeps_past = self.parker.sleeps_past(due);
        if sleeps_past && sleep.is_undriven() {
            self.publish_due_while_undriven(due);
        }
        (sleeps_past || ends_any_sleep).then_some(sleep)
    }

    /// Publishes the deadline of a remote request while no loop drives the wheel. An elapsed
    /// deadline becomes the present time.
    #[cold]
    #[inline(never)]
    fn publish_due_while_undriven(&self, due: u64) {
        self.gauges.lower_remote_due_while_undriven(due.max(self.clock.nanos()));
    }

    /// Returns the owner's sleep in progress if a cancel must end it, or if `ends_any_sleep` is
    /// true.
    #[inline(never)]
    fn sleep_to_interrupt_after_cancel(&self, ends_any_sleep: bool) -> Option<SleepId> {
        self.parker
            .sleep_in_progress_with_fence()
            .filter(|sleep| ends_any_sleep || sleep.ends_on_cancel())
    }
}

/// Returns true if a push that makes a mailbox stack `depth` messages deep must end the owner's
/// sleep. Every `WAKE_AT_QUEUED_MESSAGES`-th message must end the sleep, because an earlier wake-up
/// may have failed.
#[inline]
fn is_multiple_of_wake_depth(depth: u32) -> bool {
    depth.is_multiple_of(WAKE_AT_QUEUED_MESSAGES)
}

/// The operations of a remote thread. The thread is pinned, so no operation reads a freed page.
impl Protected<'_, Shared> {
    /// Cancels an owner-added timer by one CAS and one push. Returns `None` unless the state word
    /// is `Armed` without flags (`state`).
    #[inline]
    pub(crate) fn try_cancel_remote_fast(
        &self,
        index: u32,
        generation: u64,
    ) -> Option<RemoteOutcome<Cancel>> {
        let node = self.slab.node(index, self.pinned)?;
        if !node.state.try_cancel_remote_fast(generation) {
            return None;
        }
        let sleep_to_interrupt = self.push_cancelled(index, node.mailbox_link, true);
        Some(RemoteOutcome { answer: Cancel::Cancelled, sleep_to_interrupt })
    }

    /// Cancels a timer. Moves the payload to `payload_out` if the caller must drop it.
    pub(crate) fn cancel(
        &self,
        index: u32,
        generation: u64,
        payload_out: &mut Option<SendCallback>,
    ) -> RemoteOutcome<Cancel> {
        // Without a node, the timer has ended: its page was retired, or the handle belongs to an
        // earlier shard with this number and more pages.
        let Some(node) = self.slab.node(index, self.pinned) else {
            return RemoteOutcome::no_wake_needed(Cancel::Ended);
        };
        let (answer, mut next_step) = node.state.cancel_remote(generation);
        if next_step == StepAfterCancelOrReset::TakePayload {
            next_step = node.take_remote_payload(payload_out);
        }
        let sleep_to_interrupt = match next_step {
            StepAfterCancelOrReset::Push => {
                self.push_cancelled(index, node.mailbox_link, payload_out.is_none())
            }
            // Pushes nothing, because a message about an add or reset is queued or about to be
            // pushed. Ends a sleep that is marked `ends_on_cancel`, so that the owner drops the
            // payload in time.
            _ if answer == Cancel::Cancelled && payload_out.is_none() => {
                self.sleep_to_interrupt_after_cancel(false)
            }
            _ => None,
        };
        RemoteOutcome { answer, sleep_to_interrupt }
    }

    /// Resets a timer. `due_and_period_start` returns the new deadline, and the time from which a
    /// periodic timer counts its period, in nanoseconds of the clock.
    #[inline(always)]
    pub(crate) fn reset(
        &self,
        index: u32,
        generation: u64,
        due_and_period_start: impl FnOnce() -> (u64, u64),
        payload_out: &mut Option<SendCallback>,
    ) -> RemoteOutcome<bool> {
        let Some(node) = self.slab.node(index, self.pinned) else {
            return RemoteOutcome::no_wake_needed(false);
        };
        // Prefetches, so that the cache misses overlap the reading of the clock.
        prefetch(node.state);
        prefetch(node.requested_deadline());
        prefetch(node.linked_deadline());
        let (nanos, period_start) = due_and_period_start();
        match node.state.begin_reset(generation) {
            BeginResetOutcome::Refused => return RemoteOutcome::no_wake_needed(false),
            BeginResetOutcome::Superseded => return RemoteOutcome::no_wake_needed(true),
            BeginResetOutcome::Begun { is_postponable } => {
                let needs_no_message =
                    is_postponable && nanos >= node.linked_deadline().load_nanos();
                node.requested_deadline().store_nanos(nanos);
                // A *postponable* timer (`state`) is never periodic.
                if !is_postponable && node.state.is_periodic() {
                    node.linked_deadline().store_nanos(period_start);
                }
                if needs_no_message && node.state.end_reset_without_message() {
                    return RemoteOutcome::no_wake_needed(true);
                }
            }
        }
        let mut next_step = node.state.end_reset_or_cancel();
        if next_step == Some(StepAfterCancelOrReset::TakePayload) {
            next_step = Some(node.take_remote_payload(payload_out));
        }
        let answer = next_step.is_some();
        if payload_out.is_some() {
            // Another thread cancelled the timer during this reset, so this thread has taken the
            // payload.
            let push_message = || self.push_cancelled(index, node.mailbox_link, false);
            let sleep_to_interrupt =
                (next_step == Some(StepAfterCancelOrReset::Push)).then(push_message).flatten();
            return RemoteOutcome { answer, sleep_to_interrupt };
        }
        let mut ends_any_sleep = false;
        if next_step == Some(StepAfterCancelOrReset::Push) {
            match self.mailbox.urgent.push(index, node.mailbox_link, false) {
                PushOutcome::Queued { depth, .. } => {
                    ends_any_sleep = is_multiple_of_wake_depth(depth);
                }
                PushOutcome::Closed => return RemoteOutcome::no_wake_needed(answer),
            }
        }
        // Reads the requested deadline only after the push: another thread may have reset the timer
        // again without a message, because the node was *queued*.
        let mut sleep_to_interrupt = self.sleep_to_interrupt_for_deadline(ends_any_sleep, || {
            node.requested_deadline().load_nanos()
        });
        // Reads the state word after the fence in `sleep_to_interrupt_for_deadline`, because a
        // canceller may have checked for a sleep before this thread's push. If another thread has
        // cancelled the timer, this thread must end a sleep marked `ends_on_cancel`, so that the
        // owner drops the payload in time.
        if sleep_to_interrupt.is_none()
            && let Some(sleep) = self.parker.sleep_in_progress()
            && sleep.ends_on_cancel()
            && !node.state.is_pending(generation)
        {
            sleep_to_interrupt = Some(sleep);
        }
        RemoteOutcome { answer, sleep_to_interrupt }
    }

    /// Pushes the message of a cancelled timer. If `has_payload` is true, the owner must drop the
    /// payload. Returns the owner's sleep if the caller must end it.
    #[inline]
    fn push_cancelled(&self, index: u32, link: &MailboxLink, has_payload: bool) -> Option<SleepId> {
        match self.mailbox.low_priority.push(index, link, has_payload) {
            // The first message that leaves a payload to the owner ends a sleep marked
            // `ends_on_cancel`, so that the owner drops the payload in time.
            PushOutcome::Queued { depth, has_set_payload_flag }
                if has_set_payload_flag || is_multiple_of_wake_depth(depth) =>
            {
                self.sleep_to_interrupt_after_cancel(is_multiple_of_wake_depth(depth))
            }
            _ => None,
        }
    }

    pub(crate) fn status(&self, index: u32, generation: u64) -> TimerStatus {
        self.slab
            .node(index, self.pinned)
            .map_or(TimerStatus::Ended, |node| node.state.status(generation))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{cross_core::callback::OneShotClosure, limits::INDEX_MAX};

    /// The shard may end between an adder's check of the mailbox and its push.
    #[test]
    fn an_add_to_a_closed_mailbox_returns_the_callback() {
        let tick = TickLength::new(Duration::from_millis(1)).expect("valid");
        let (slab, _nodes) = Slab::for_callbacks();
        let shared =
            Shared::new(Clock::monotonic(), tick, Hooks::new(None, None), INDEX_MAX, None, slab);
        shared.mailbox.close();
        let callback = Arc::new(());
        for _ in 0..5 {
            let captured = Arc::clone(&callback);
            let node = shared.slab.take_remote_node(pin()).expect("there is a node");
            let run = OneShotClosure(move || drop(captured));
            let armed = node.arm(TimerSchedule { due: 0, period: 0 }, CallSite::caller(), run);
            let refused = shared.push_armed(armed, 0).map(drop);
            assert!(refused.is_err());
            drop(refused);
            assert_eq!(Arc::strong_count(&callback), 1);
        }
    }
}
