//! The single steps of a timer's life, from which the public methods and `local` are built. An
//! ending takes several steps, so that nothing is borrowed while the user's code runs between them.

use std::{sync::Arc, time::Duration};

use super::Shard;
use crate::{
    clock::{
        Clock, Reading,
        schedule::Schedule,
        tick::{TickLength, saturating_nanos},
    },
    cross_core::{
        handle::TimerHandle,
        mailbox::Priority,
        origin::Origin,
        shared::Shared,
        slab::{Build, Ended, NodeRef},
        state::{Cancel, Claim, FollowUp, Freed, Kind, Movable, Move, Mover},
    },
    error::AddErrorReason,
    limits::{GENERATION_MAX, MOVES_APPLIED_MAX},
    wheel::{Entry, Storage},
    when::When,
};

/// A due timer that the owner has claimed and not yet finished, and whose payload is in its node.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Claimed {
    pub(crate) index: u32,
    /// The deadline in nanoseconds of the clock, rounded up to a tick.
    pub(crate) due: u64,
}

/// When a timer is due, in nanoseconds of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) nanos: u64,
    /// How much later it may fire.
    pub(crate) slack: u64,
    /// The period of a periodic timer.
    pub(crate) period: u64,
}

impl Due {
    #[inline]
    pub(crate) fn at(nanos: u64) -> Self {
        Self { nanos, slack: 0, period: 0 }
    }
}

impl<T> Shard<T> {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.time.clock
    }

    /// Returns the reason why no timer can be added, or `None` if one can, provided that a node is
    /// left.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<AddErrorReason> {
        if self.closed {
            Some(AddErrorReason::ShutDown)
        } else if self.live >= self.limit || self.next_generation > self.last_generation {
            Some(AddErrorReason::Full)
        } else {
            None
        }
    }

    /// Refuses adds after `adds` more, for a caller that has something to do then. If generations
    /// are used up, all adds are refused.
    pub(crate) fn refuse_after(&mut self, adds: u64) {
        self.last_generation = (self.next_generation - 1).saturating_add(adds).min(GENERATION_MAX);
    }

    /// Returns the moment at which the shard next needs a turn.
    pub(crate) fn next_nanos(&self) -> Option<u64> {
        // An urgent message may carry an elapsed deadline.
        if !self.backlog.is_empty() || self.shared.mailbox.is_urgent() {
            return Some(self.time.turn);
        }
        self.wheel.next_deadline().map(|tick| self.time.tick.start(tick))
    }

    pub(crate) fn tick(&self) -> TickLength {
        self.time.tick
    }

    /// Returns the next deadline of a periodic timer after its run, in nanoseconds of the clock.
    pub(crate) fn next_run(&mut self, index: u32) -> u64 {
        self.nodes.periodic(index).after(self.time.turn)
    }

    /// Entries of the wheel touched so far.
    pub(crate) fn touched(&self) -> u64 {
        self.wheel.touched()
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as in `Time::read`")]
    pub(super) fn read_clock(&mut self) -> Reading {
        if self.time.read() {
            self.publish_clock();
        }
        self.time.latest
    }

    /// Publishes the latest reading of a clock that may go back: remote deadlines count from there.
    #[inline]
    pub(super) fn publish_clock(&self) {
        if self.time.clock.may_go_back() {
            self.shared.hold_clock(self.time.latest.hi);
        }
    }

    /// Returns the reading of the clock at `delay` from now.
    #[inline]
    pub(crate) fn nanos_after(&mut self, delay: Duration) -> u64 {
        self.read_clock().hi.saturating_add(saturating_nanos(delay))
    }

    /// Returns the deadline of a timer that is added or moved now, with this delay.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an add 20 instructions")]
    pub(crate) fn due_after(&mut self, delay: Duration) -> u64 {
        let now = self.read_clock().hi;
        let delay = saturating_nanos(delay);
        self.time.tick.due(now.saturating_add(delay), delay == 0)
    }

    /// Returns when a timer is due that is added now at an instant, with slack or spread.
    #[inline(never)]
    pub(crate) fn due_roughly(&mut self, when: When) -> Due {
        let now = self.read_clock().hi;
        let nanos = self.shared.nanos_of(when, now);
        Due { nanos, slack: saturating_nanos(when.slack), period: 0 }
    }

    /// Returns when a periodic timer is due that is added now.
    pub(crate) fn due_every(&mut self, period: Duration) -> Due {
        let period = self.time.tick.period(period);
        Due { period, ..Due::at(self.nanos_after(Duration::from_nanos(period))) }
    }

    /// Returns true if the clock certainly shows `nanos` or more.
    #[inline]
    pub(crate) fn has_elapsed(&mut self, nanos: u64) -> bool {
        self.time.latest.lo >= nanos || self.read_clock().lo >= nanos
    }

    /// Adds a timer to a shard that does not refuse. Takes the payload unless no node is left.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an add 45 instructions")]
    pub(crate) fn insert<B: Build<T>>(
        &mut self,
        due: Due,
        kind: Kind,
        origin: Origin,
        payload: &mut Option<B>,
    ) -> Result<TimerHandle, AddErrorReason> {
        debug_assert_eq!(self.refusal(), None);
        let index = self.nodes.take_node().ok_or(AddErrorReason::Full)?;
        let generation = self.next_generation;
        self.next_generation += 1;
        self.counts.added += 1;
        self.live += 1;
        let node = self.nodes.entry(index);
        let payload = payload.take().expect("a payload is added once");
        node.arm(generation, kind, payload, origin, || self.time.now());
        let deadline = self.time.tick.deadline(due.nanos);
        if due.slack == 0 {
            self.wheel.link(&self.nodes, node, deadline);
        } else {
            let last = self.time.tick.now(due.nanos.saturating_add(due.slack));
            self.wheel.link_within(&self.nodes, node, deadline, last.saturating_sub(deadline));
        }
        if kind == Kind::Periodic {
            self.nodes.set_schedule(index, Schedule { due: due.nanos, period: due.period });
        }
        Ok(TimerHandle::new(self.number, index, generation))
    }

    /// Returns the deadline of a live timer, in nanoseconds of the clock.
    pub(crate) fn due_nanos(&self, index: u32) -> u64 {
        self.time.tick.start(self.nodes.entry(index).deadline())
    }

    /// Cancels a timer of this shard. If the cancel wins, it calls `take`, which takes the payload.
    /// The error says why the cancel failed.
    #[inline]
    pub(crate) fn cancel_own(
        &mut self,
        handle: TimerHandle,
        take: impl FnOnce(NodeRef<'_, T>),
    ) -> Result<(), Cancel> {
        let index = handle.index();
        if !self.nodes.finds(index, handle.generation()) {
            return Err(Cancel::Ended);
        }
        let node = self.nodes.entry(index);
        let freed = node.state().cancel_own(handle.generation())?;
        take(node);
        if freed == Freed::Now {
            self.wheel.unlink(&self.nodes, node);
            self.nodes.free(index);
            self.count_cancelled();
        } else {
            self.cancel_keeping_node(index);
        }
        Ok(())
    }

    /// Unlinks a cancelled timer whose node stays in use until its message arrives.
    #[cold]
    fn cancel_keeping_node(&mut self, index: u32) {
        let node = self.nodes.entry(index);
        if node.is_not_admitted() {
            self.count_cancelled_unseen();
        } else {
            self.wheel.unlink_if_linked(&self.nodes, node);
            self.count_cancelled();
        }
    }

    #[inline]
    pub(super) fn count_cancelled(&mut self) {
        self.counts.cancelled += 1;
        self.live -= 1;
    }

    /// Counts a remote timer that was cancelled before it was admitted.
    pub(super) fn count_cancelled_unseen(&mut self) {
        self.counts.added += 1;
        self.counts.cancelled += 1;
        self.shared.admission.release();
    }

    /// Moves a timer of this shard to `delay` from now. Returns its deadline in nanoseconds of the
    /// clock, or `None` if it cannot be moved.
    #[inline]
    pub(crate) fn reset_own(&mut self, handle: TimerHandle, delay: Duration) -> Option<u64> {
        self.reset_own_to(handle, |shard| shard.due_after(delay))
    }

    /// Moves a timer of this shard to an instant, or with slack or spread.
    pub(crate) fn reset_own_roughly(&mut self, handle: TimerHandle, when: When) -> Option<u64> {
        self.reset_own_to(handle, |shard| shard.shared.due_roughly(when))
    }

    /// Moves a timer of this shard to the moment that `due` returns. `due` is called only if the
    /// timer can be moved.
    #[inline]
    pub(crate) fn reset_own_to(
        &mut self,
        handle: TimerHandle,
        due: impl FnOnce(&mut Self) -> u64,
    ) -> Option<u64> {
        let index = handle.index();
        if !self.nodes.finds(index, handle.generation()) {
            return None;
        }
        if handle.is_remote() && self.nodes.entry(index).is_not_admitted() {
            let due = due(self);
            return self.reset_not_admitted(handle, due);
        }
        match self.nodes.entry(index).state().movable(handle.generation()) {
            // A concurrent remote cancel is ordered after this move.
            Movable::Fast => {
                let due = due(self);
                let node = self.nodes.entry(index);
                self.wheel.relink(&self.nodes, node, self.time.tick.deadline(due));
                self.counts.resets += 1;
                Some(due)
            }
            Movable::Slow { periodic, unlinked } => {
                let due = due(self);
                self.reset_slow(index, due, periodic, unlinked);
                Some(due)
            }
            Movable::No => None,
        }
    }

    /// Resets a periodic timer, or a timer that another thread has reset. This is the slow path.
    #[cold]
    #[inline(never)]
    fn reset_slow(&mut self, index: u32, due: u64, periodic: bool, unlinked: bool) {
        let deadline = self.time.tick.deadline(due);
        self.counts.resets += 1;
        let node = self.nodes.entry(index);
        if unlinked {
            self.wheel.relink_or_link(&self.nodes, node, deadline);
        } else {
            self.wheel.relink(&self.nodes, node, deadline);
        }
        if periodic {
            self.nodes.periodic(index).due = due;
        }
    }

    /// Resets a remote timer before its admission, by the protocol of other threads.
    #[cold]
    #[inline(never)]
    fn reset_not_admitted(&mut self, handle: TimerHandle, due: u64) -> Option<u64> {
        let index = handle.index();
        let node = self.nodes.entry(index);
        match node.state().begin_move(handle.generation()) {
            Move::Refused => return None,
            // Another thread's move comes directly after this one.
            Move::Superseded => (),
            Move::Begun => {
                node.requested().write(due);
                if node.state().end_move(Mover::Owner) == (true, FollowUp::Push) {
                    let _ = self.shared.mailbox.push(index, node.link(), Priority::Urgent);
                }
            }
        }
        self.counts.resets += 1;
        Some(due)
    }

    /// Makes a private timer one that other threads may cancel.
    pub(crate) fn share_own(&self, handle: TimerHandle) {
        if self.is_pending_here(handle) {
            self.nodes.entry(handle.index()).state().share();
        }
    }

    pub(crate) fn is_pending_own(&mut self, handle: TimerHandle) -> bool {
        self.nodes.finds(handle.index(), handle.generation()) && self.is_pending_here(handle)
    }

    fn is_pending_here(&self, handle: TimerHandle) -> bool {
        self.nodes.entry(handle.index()).state().is_pending(handle.generation())
    }

    /// Claims the next due timer of this pass, which is running then, and calls `fire`.
    #[inline]
    pub(crate) fn claim_due<R>(
        &mut self,
        fire: impl Fn(NodeRef<'_, T>) -> R,
    ) -> Option<(Claimed, R)> {
        loop {
            let (node, deadline) = self.wheel.pop_due(&self.nodes)?;
            let index = node.index();
            match node.state().claim() {
                Claim::Fires => {
                    let fired = fire(node);
                    self.count_due(deadline);
                    return Some((Claimed { index, due: self.time.tick.start(deadline) }, fired));
                }
                Claim::Moved { periodic } => {
                    self.counts.resets_elsewhere += 1;
                    if let Some(claimed) = self.apply_move(index, periodic) {
                        return Some((claimed, fire(self.nodes.entry(index))));
                    }
                }
                // Its message completes the cancel.
                Claim::Held => (),
            }
        }
    }

    /// Links a timer at the deadline of a remote reset or add. Claims it if that deadline has
    /// elapsed and the pass is past it; otherwise the pass reaches it in order.
    #[cold]
    #[inline(never)]
    pub(super) fn apply_move(&mut self, index: u32, mut periodic: bool) -> Option<Claimed> {
        for _ in 0..MOVES_APPLIED_MAX {
            let nanos = self.nodes.entry(index).requested().read();
            let deadline = self.time.tick.deadline(nanos);
            if periodic {
                self.nodes.periodic(index).due = nanos;
            }
            let node = self.nodes.entry(index);
            let Err(due) = self.wheel.place_in_order(&self.nodes, node, deadline) else {
                return None;
            };
            match node.state().claim() {
                Claim::Fires => {
                    self.count_arrived_due(self.time.tick.start(deadline));
                    return Some(Claimed { index, due: self.time.tick.start(due) });
                }
                Claim::Moved { periodic: again } => {
                    self.counts.resets_elsewhere += 1;
                    periodic = again;
                }
                Claim::Held => return None,
            }
        }
        // Another thread keeps resetting it to elapsed deadlines. It fires in the next pass unless
        // it is reset again.
        let node = self.nodes.entry(index);
        let deadline = self.time.tick.deadline(node.requested().read());
        self.wheel.relink_or_link(&self.nodes, node, deadline);
        None
    }

    /// Admits a remote timer: it counts as live from now on. Links it, or claims it; see
    /// [`apply_move`](Self::apply_move).
    pub(super) fn admit(&mut self, index: u32, is_periodic: bool) -> Option<Claimed> {
        if is_periodic {
            let period = self.nodes.entry(index).requested_period();
            self.nodes.periodic(index).period = period;
        }
        self.nodes.entry(index).admit(|| self.time.now());
        self.counts.added += 1;
        self.live += 1;
        // The order matters: the timer is counted in at least one of both places at any moment, see
        // `admission`.
        self.shared.admission.set_live(self.live);
        self.shared.admission.release();
        self.apply_move(index, is_periodic)
    }

    /// Counts a claimed timer as fired.
    #[inline]
    pub(crate) fn count_fired(&mut self) {
        self.counts.fired += 1;
        self.live -= 1;
    }

    /// Ends a claimed timer and takes its payload, which the caller counts by
    /// [`count_ended`](Self::count_ended).
    pub(super) fn end(&mut self, claimed: Claimed) -> (Claimed, Ended<T>) {
        (claimed, Ended::of(self.nodes.entry(claimed.index)))
    }

    /// Counts a timer that has fired and ended, and frees its node.
    #[inline]
    pub(super) fn count_ended(&mut self, index: u32, freed: Freed) {
        self.count_fired();
        if freed == Freed::Now {
            self.nodes.free(index);
        }
    }

    /// Finishes the run of a claimed timer.
    #[inline]
    pub(crate) fn finish(&mut self, index: u32) {
        if self.nodes.entry(index).state().finish() == Freed::Now {
            self.nodes.free(index);
        }
    }

    /// Arms a claimed periodic timer for its next run at `nanos` of the clock. If it was cancelled
    /// during its run, returns the payload, to be dropped before the timer is finished.
    pub(crate) fn rearm(&mut self, index: u32, nanos: u64) -> Option<T> {
        let node = self.nodes.entry(index);
        let payload = node.rearm();
        if payload.is_none() {
            self.wheel.link(&self.nodes, node, self.time.tick.deadline(nanos));
        } else {
            let elsewhere = node.state().was_stopped_elsewhere();
            self.count_cancelled();
            self.counts.cancelled_elsewhere += u64::from(elsewhere);
        }
        payload
    }
}
