//! A timer's life in steps: what the public methods and `local` are made of. An ending has several, so that nothing is
//! borrowed between them while the user's code runs.

use std::{sync::Arc, time::Duration};

use super::Shard;
use crate::{
    clock::{Clock, Reading},
    error::AddErrorReason,
    handle::TimerHandle,
    limits::{GENERATION_MAX, SETTLES_MAX},
    mailbox::Urgency,
    origin::Origin,
    schedule::Schedule,
    shared::Shared,
    slab::{Build, OwnerNodes},
    state::{Cancel, Claim, Freed, Kind, Movable, Move, Mover, Next},
    tick::{TickLength, saturating_nanos},
    wheel::Storage,
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

    pub(crate) fn within(nanos: u64, slack: Duration) -> Self {
        Self { slack: saturating_nanos(slack), ..Self::at(nanos) }
    }

    pub(crate) fn every(period: u64, first: u64) -> Self {
        Self { period, ..Self::at(first) }
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
        &self.clock
    }

    /// Why no timer can be added; `None` if one can, as long as there is a node for it.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<AddErrorReason> {
        if self.closed {
            Some(AddErrorReason::ShutDown)
        } else if self.live >= self.limit || self.next_generation > GENERATION_MAX {
            Some(AddErrorReason::Full)
        } else {
            None
        }
    }

    /// When the shard next wants a turn.
    pub(crate) fn next_nanos(&self) -> Option<u64> {
        // A deadline may have come from elsewhere.
        if !self.opened.is_empty() || self.shared.mailbox.is_urgent() {
            return Some(self.turn_nanos);
        }
        self.wheel.next_deadline().map(|tick| self.tick.start(tick))
    }

    pub(crate) fn tick(&self) -> TickLength {
        self.tick
    }

    /// After a run of a periodic timer: when the next one is due, in nanoseconds of the clock.
    pub(crate) fn next_run(&mut self, index: u32) -> u64 {
        self.nodes.periodic(index).after(self.turn_nanos)
    }

    /// Entries of the wheel touched so far.
    pub(crate) fn touched(&self) -> u64 {
        self.wheel.touched()
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an idle turn 11 instructions")]
    pub(super) fn read_clock(&mut self) -> Reading {
        let reading = self.reader.read(&self.clock);
        if reading.lo > self.latest.hi {
            self.latest = reading;
            if self.clock.may_go_back() {
                self.shared.hold_clock(reading.hi);
            }
        } else if reading != self.latest {
            self.hold_reading(reading);
        }
        self.latest
    }

    /// The clock has gone back, or does not know the time exactly.
    #[cold]
    #[inline(never)]
    fn hold_reading(&mut self, reading: Reading) {
        self.counts.clock_regressions += u64::from(!self.latest.hold(reading));
    }

    /// The reading of the clock at `delay` from now.
    #[inline]
    pub(crate) fn nanos_after(&mut self, delay: Duration) -> u64 {
        self.read_clock().hi.saturating_add(saturating_nanos(delay))
    }

    /// When a timer is due that is added now with that delay. Without a delay that rounds up to the last tick that has begun, so that
    /// the next turn fires it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an add 20 instructions")]
    pub(crate) fn due_after(&mut self, delay: Duration) -> u64 {
        let now = self.read_clock().hi;
        let delay = saturating_nanos(delay);
        // A choice of a number, not of a path: adds are slower with another branch.
        let back = if delay == 0 { self.tick.all_but_a_nano() } else { 0 };
        now.saturating_add(delay).saturating_sub(back)
    }

    /// Whether the clock shows `nanos` or more, for certain.
    #[inline]
    pub(crate) fn has_come(&mut self, nanos: u64) -> bool {
        self.latest.lo >= nanos || self.read_clock().lo >= nanos
    }

    /// The reading of the clock at `delay` from now, and up to `range` later: a moment that is far from those of the timers before.
    pub(crate) fn nanos_spread(&mut self, delay: Duration, range: Duration) -> u64 {
        // Multiples of the golden ratio, modulo one, fill the range evenly at every length (Weyl's sequence). Spread timers alone move
        // it on: each 55th multiple, say, would be near the one before.
        self.spread = self.spread.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let offset = (u128::from(self.spread) * u128::from(saturating_nanos(range))) >> 64;
        self.nanos_after(delay).saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
    }

    /// Adds a timer to a shard that does not refuse. Returns the payload if there is no node left.
    #[inline]
    pub(crate) fn insert<B: Build<T>>(
        &mut self,
        due: Due,
        kind: Kind,
        origin: Origin,
        payload: B,
    ) -> Result<TimerHandle, B> {
        debug_assert_eq!(self.refusal(), None);
        let generation = self.next_generation;
        let index = self.nodes.arm(generation, kind, payload)?;
        self.next_generation += 1;
        self.counts.added += 1;
        self.live += 1;
        let deadline = self.tick.deadline(due.nanos);
        if due.slack == 0 {
            self.wheel.link(&self.nodes, index, deadline);
        } else {
            let last = self.tick.now(due.nanos.saturating_add(due.slack));
            self.wheel.link_within(&self.nodes, index, deadline, last.saturating_sub(deadline));
        }
        if kind == Kind::Periodic {
            self.nodes.set_schedule(index, Schedule { due: due.nanos, period: due.period });
        }
        self.nodes.set_added(index, origin, || self.clock.nanos().max(self.latest.lo));
        Ok(TimerHandle::new(self.number, index, generation))
    }

    /// When a timer that lives is due.
    pub(crate) fn due_nanos(&self, index: u32) -> u64 {
        self.tick.start(self.nodes.deadline(index))
    }

    /// Cancels a timer of this shard and returns what `take` takes of its payload; the error is why it was not won.
    #[inline]
    pub(crate) fn cancel_own<P>(
        &mut self,
        handle: TimerHandle,
        take: impl FnOnce(&OwnerNodes<T>, u32) -> P,
    ) -> Result<P, Cancel> {
        let index = handle.index();
        if !self.nodes.finds(index, handle.generation()) {
            return Err(Cancel::Ended);
        }
        let freed = self.nodes.cancel(index, handle.generation())?;
        let payload = take(&self.nodes, index);
        if freed == Freed::Now {
            self.count_cancelled();
            self.wheel.unlink(&self.nodes, index);
            self.nodes.free(index);
        } else {
            self.withdraw(index);
        }
        Ok(payload)
    }

    /// Unlinks a cancelled timer whose node stays in use until its message arrives.
    #[cold]
    fn withdraw(&mut self, index: u32) {
        if self.nodes.is_not_admitted(index) {
            self.count_cancelled_unseen();
        } else {
            self.count_cancelled();
            self.wheel.unlink_if_linked(&self.nodes, index);
        }
    }

    #[inline]
    pub(super) fn count_cancelled(&mut self) {
        self.counts.cancelled += 1;
        self.live -= 1;
    }

    /// A timer of another thread has been cancelled before it was admitted.
    pub(super) fn count_cancelled_unseen(&mut self) {
        self.counts.added += 1;
        self.counts.cancelled += 1;
        self.shared.gate.left();
    }

    /// Moves a timer of this shard to `delay` from now, if that is possible; when it is due then, in nanoseconds of the clock.
    #[inline]
    pub(crate) fn reset_own(&mut self, handle: TimerHandle, delay: Duration) -> Option<u64> {
        self.reset_own_to(handle, |shard| shard.nanos_after(delay))
    }

    /// The same, to a moment that is asked for if it can be moved.
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
        if handle.is_remote() && self.nodes.is_not_admitted(index) {
            let due = due(self);
            return self.reset_not_admitted(handle, due);
        }
        match self.nodes.state(index).movable(handle.generation()) {
            // If another thread cancels it now, it is cancelled after it was moved.
            Movable::Plainly => {
                let due = due(self);
                self.wheel.relink(&self.nodes, index, self.tick.deadline(due));
                self.counts.resets += 1;
                Some(due)
            }
            Movable::Otherwise { periodic, astray } => {
                let due = due(self);
                self.reset_otherwise(index, due, periodic, astray);
                Some(due)
            }
            Movable::No => None,
        }
    }

    /// Resets a periodic timer, or one that another thread has reset, off the hot path.
    #[cold]
    #[inline(never)]
    fn reset_otherwise(&mut self, index: u32, due: u64, periodic: bool, astray: bool) {
        let deadline = self.tick.deadline(due);
        self.counts.resets += 1;
        if astray {
            self.wheel.relink_or_link(&self.nodes, index, deadline);
        } else {
            self.wheel.relink(&self.nodes, index, deadline);
        }
        if periodic {
            self.nodes.periodic(index).due = due;
        }
    }

    /// Resets a remote timer that is not admitted yet, as another thread would.
    #[cold]
    #[inline(never)]
    fn reset_not_admitted(&mut self, handle: TimerHandle, due: u64) -> Option<u64> {
        let index = handle.index();
        let state = self.nodes.state(index);
        match state.begin_move(handle.generation()) {
            Move::Refused => return None,
            // Another thread's move comes just after this one.
            Move::Overtaken => (),
            Move::Begun => {
                self.nodes.requested(index).write(due);
                if state.end_move(Mover::Owner) == (true, Next::Push) {
                    let _ =
                        self.shared.mailbox.push(index, self.nodes.link(index), Urgency::Urgent);
                }
            }
        }
        self.counts.resets += 1;
        Some(due)
    }

    /// Makes a private timer one that other threads may cancel.
    pub(crate) fn share_own(&self, handle: TimerHandle) {
        if self.is_pending_here(handle) {
            self.nodes.state(handle.index()).share();
        }
    }

    pub(crate) fn is_pending_own(&mut self, handle: TimerHandle) -> bool {
        self.nodes.finds(handle.index(), handle.generation()) && self.is_pending_here(handle)
    }

    fn is_pending_here(&self, handle: TimerHandle) -> bool {
        self.nodes.state(handle.index()).is_pending(handle.generation())
    }

    /// Claims the next timer that is due in this pass. It is running from now on.
    #[inline]
    pub(crate) fn claim_due(&mut self) -> Option<Claimed> {
        loop {
            let (index, deadline) = self.wheel.pop_due(&self.nodes)?;
            match self.nodes.claim(index) {
                Claim::Fires => {
                    self.count_due(deadline);
                    return Some(Claimed { index, due: self.tick.start(deadline) });
                }
                Claim::Moved { periodic } => {
                    self.counts.resets_elsewhere += 1;
                    let claimed = self.settle(index, periodic);
                    if claimed.is_some() {
                        return claimed;
                    }
                }
                // It is left to its message.
                Claim::Held => (),
            }
        }
    }

    /// Links a timer at the deadline of a remote reset or add. Claims it if that deadline has elapsed and the pass is past it;
    /// otherwise the pass reaches it in order.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&mut self, index: u32, mut periodic: bool) -> Option<Claimed> {
        for _ in 0..SETTLES_MAX {
            let nanos = self.nodes.requested(index).read();
            let deadline = self.tick.deadline(nanos);
            if periodic {
                self.nodes.periodic(index).due = nanos;
            }
            let Err(due) = self.wheel.place_in_order(&self.nodes, index, deadline) else {
                return None;
            };
            match self.nodes.claim(index) {
                Claim::Fires => {
                    self.count_arrived_due(self.tick.start(deadline));
                    return Some(Claimed { index, due: self.tick.start(due) });
                }
                Claim::Moved { periodic: again } => {
                    self.counts.resets_elsewhere += 1;
                    periodic = again;
                }
                Claim::Held => return None,
            }
        }
        // Another thread keeps resetting it to elapsed deadlines. It fires in the next pass unless it is reset again.
        let deadline = self.tick.deadline(self.nodes.requested(index).read());
        self.wheel.relink_or_link(&self.nodes, index, deadline);
        None
    }

    /// A timer of another thread counts from now on.
    pub(super) fn admit(&mut self, index: u32) {
        self.nodes.admit(index);
        self.nodes.set_admitted(index, || self.clock.nanos().max(self.latest.lo));
        self.counts.added += 1;
        self.live += 1;
        // In this order: it is never missing from both, see `gate`.
        self.shared.gate.set_live(self.live);
        self.shared.gate.left();
    }

    /// A claimed timer ends by firing.
    #[inline]
    pub(crate) fn count_fired(&mut self) {
        self.counts.fired += 1;
        self.live -= 1;
    }

    /// The run of a claimed timer is over.
    #[inline]
    pub(crate) fn finish(&mut self, index: u32) {
        if self.nodes.state(index).finish() == Freed::Now {
            self.nodes.free(index);
        }
    }

    /// A claimed periodic timer goes on when the clock shows `nanos`. If it was cancelled during its run, the payload comes
    /// back, to be dropped before the timer is finished.
    pub(crate) fn rearm(&mut self, index: u32, nanos: u64) -> Option<T> {
        let payload = self.nodes.rearm(index);
        if payload.is_none() {
            self.wheel.link(&self.nodes, index, self.tick.deadline(nanos));
        } else {
            self.count_cancelled();
            let elsewhere = self.nodes.state(index).was_stopped_elsewhere();
            self.counts.cancelled_elsewhere += u64::from(elsewhere);
        }
        payload
    }
}
