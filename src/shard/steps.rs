//! A timer's life in steps: what the public methods and `local` are made of. An ending has several, so that nothing is
//! borrowed between them while the user's code runs.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use super::{Shard, schedule::Schedule};
use crate::{
    clock::{Clock, Reading},
    error::AddErrorReason,
    handle::TimerHandle,
    limits::GENERATION_MAX,
    origin::Origin,
    shared::Shared,
    slab::Node,
    state::{Cancel, Claim, Freed, Kind, Movable},
    tick::{TickLength, saturating_nanos},
};

/// A due timer that the owner has claimed and not yet finished.
#[must_use]
pub(crate) struct Claimed<T> {
    pub(crate) index: u32,
    pub(crate) payload: T,
    /// The deadline in nanoseconds of the clock, rounded up to a tick.
    pub(crate) due: u64,
}

/// A timer that its owner has cancelled.
#[must_use]
pub(crate) enum Ended<T> {
    /// The payload of this index is to be taken next.
    Entry(u32),
    /// It had been added by another thread, and not arrived.
    Unseen(Option<T>),
}

/// When a timer is due, in nanoseconds of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) nanos: u64,
    /// How much later it may fire.
    pub(crate) slack: u64,
}

impl Due {
    pub(crate) fn at(nanos: u64) -> Self {
        Self { nanos, slack: 0 }
    }

    pub(crate) fn within(nanos: u64, slack: Duration) -> Self {
        Self { nanos, slack: saturating_nanos(slack) }
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

    /// Why no timer can be added; `None` if one can.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<AddErrorReason> {
        if self.closed {
            Some(AddErrorReason::ShutDown)
        } else if self.live >= self.limit
            || self.wheel.is_full()
            || self.next_generation > GENERATION_MAX
        {
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

    /// A periodic timer was added.
    pub(crate) fn set_schedule(&mut self, handle: TimerHandle, schedule: Schedule) {
        self.schedules.set(handle.index(), schedule);
    }

    /// After a run of a periodic timer: when the next one is due, in nanoseconds of the clock.
    pub(crate) fn next_run(&mut self, index: u32) -> u64 {
        self.schedules.next(index, self.turn_nanos)
    }

    /// Entries of the wheel touched so far.
    pub(crate) fn touched(&self) -> u64 {
        self.wheel.touched()
    }

    #[inline]
    pub(super) fn read_clock(&mut self) -> Reading {
        let reading = self.reader.read(&self.clock);
        let before = self.latest.hi;
        self.counts.clock_regressions += u64::from(!self.latest.hold(reading));
        if self.clock.may_go_back() && self.latest.hi > before {
            self.shared.hold_clock(self.latest.hi);
        }
        self.latest
    }

    /// The reading of the clock at `delay` from now.
    #[inline]
    pub(crate) fn nanos_after(&mut self, delay: Duration) -> u64 {
        self.read_clock().hi.saturating_add(saturating_nanos(delay))
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

    /// Adds a timer, whose payload is to be set next, to a shard that does not refuse.
    #[inline]
    pub(crate) fn insert(&mut self, due: Due, kind: Kind, origin: Origin) -> TimerHandle {
        debug_assert_eq!(self.refusal(), None);
        let index = self.place(due);
        let generation = self.next_generation;
        self.next_generation += 1;
        self.nodes.node_for_new(&self.shared.slab, index).state.arm(generation, kind);
        self.origins.set(index, origin, || self.clock.nanos().max(self.latest.lo));
        self.counts.added += 1;
        self.live += 1;
        let index =
            NonZeroU32::new(index).unwrap_or_else(|| unreachable!("a wheel never gives index 0"));
        TimerHandle::new(self.number, index, generation)
    }

    /// A free index, in the wheel where it is due.
    #[inline]
    fn place(&mut self, due: Due) -> u32 {
        let deadline = self.tick.deadline(due.nanos);
        if due.slack == 0 {
            return self.wheel.insert(deadline).index;
        }
        let last = self.tick.now(due.nanos.saturating_add(due.slack));
        self.wheel.insert_within(deadline, last.saturating_sub(deadline)).index
    }

    /// When a timer that lives is due.
    pub(crate) fn due_nanos(&self, index: u32) -> u64 {
        self.tick.start(self.wheel.deadline(index).unwrap_or(0))
    }

    /// Gives a timer its payload.
    #[inline]
    pub(crate) fn set_payload(&mut self, handle: TimerHandle, payload: T) {
        self.wheel.set_value(handle.index(), payload);
    }

    /// Cancels a timer of this shard; the error is why it was not won.
    #[inline]
    pub(crate) fn cancel_own(&mut self, handle: TimerHandle) -> Result<Ended<T>, Cancel> {
        let index = handle.index();
        let Some(node) = self.nodes.get(index) else {
            return self.cancel_guest(index, handle.generation());
        };
        match node.state.cancel_own(handle.generation())? {
            Freed::Now => self.end_cancelled(index),
            _ => self.withdraw(index),
        }
        Ok(Ended::Entry(index))
    }

    /// A timer has been cancelled, and its index is free.
    #[inline]
    pub(super) fn end_cancelled(&mut self, index: u32) {
        self.count_cancelled();
        self.wheel.remove(index);
    }

    /// A timer has been cancelled, and its index stays in use until its message has come.
    #[cold]
    fn withdraw(&mut self, index: u32) {
        self.count_cancelled();
        self.wheel.take_out(index);
    }

    #[inline]
    pub(super) fn count_cancelled(&mut self) {
        self.counts.cancelled += 1;
        self.live -= 1;
    }

    /// The payload of a timer that has just been cancelled.
    #[inline]
    pub(crate) fn take_payload(&mut self, index: u32) -> Option<T> {
        self.wheel.take_value(index)
    }

    /// The same, where it is.
    #[inline]
    pub(crate) fn payload(&self, index: u32) -> Option<&T> {
        self.wheel.value(index)
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
        let Some(node) = self.nodes.get(index) else {
            return self.reset_guest(index, handle.generation(), due);
        };
        match node.state.movable(handle.generation()) {
            // If another thread cancels it now, it is cancelled after it was moved.
            Movable::Plainly => {
                let due = due(self);
                self.wheel.reset(index, self.tick.deadline(due));
                self.counts.resets += 1;
                Some(due)
            }
            movable => self.reset_otherwise(movable, index, due),
        }
    }

    /// The same, off the hot path: of a timer that is not in its plainest state, or is a guest.
    #[cold]
    #[inline(never)]
    pub(super) fn reset_otherwise(
        &mut self,
        movable: Movable,
        index: u32,
        due: impl FnOnce(&mut Self) -> u64,
    ) -> Option<u64> {
        let (periodic, astray) = match movable {
            Movable::Plainly => (false, false),
            Movable::Otherwise { periodic, astray } => (periodic, astray),
            Movable::No => return None,
        };
        let due = due(self);
        let deadline = self.tick.deadline(due);
        self.counts.resets += 1;
        if astray {
            self.wheel.put_again(index, deadline);
        } else {
            self.wheel.reset(index, deadline);
        }
        if periodic {
            self.schedules.move_to(index, due);
        }
        Some(due)
    }

    /// Makes a private timer one that other threads may cancel.
    pub(crate) fn share_own(&self, handle: TimerHandle) {
        if self.is_pending_own(handle) {
            self.node(handle.index()).state.share();
        }
    }

    pub(crate) fn is_pending_own(&self, handle: TimerHandle) -> bool {
        self.nodes
            .get(handle.index())
            .is_some_and(|node| node.state.is_pending(handle.generation()))
    }

    /// Claims the next timer that is due in this pass. It is running from now on.
    #[inline]
    pub(crate) fn claim_due(&mut self) -> Option<Claimed<T>> {
        loop {
            let nodes = &self.nodes;
            let (index, deadline) = self.wheel.pop_due(|soon| nodes.prefetch(soon))?;
            match self.node(index).state.claim() {
                Claim::Fires => {
                    self.count_due(deadline);
                    return self.claimed(index, deadline);
                }
                claim => {
                    if let Some(claimed) = self.claim_otherwise(index, deadline, claim) {
                        return Some(claimed);
                    }
                }
            }
        }
    }

    #[inline]
    pub(super) fn claimed(&mut self, index: u32, deadline: u64) -> Option<Claimed<T>> {
        let payload = self.wheel.take_value(index)?;
        Some(Claimed { index, payload, due: self.tick.start(deadline) })
    }

    /// A claimed timer ends by firing.
    #[inline]
    pub(crate) fn count_fired(&mut self) {
        self.counts.fired += 1;
        self.live -= 1;
    }

    /// The run of a claimed timer is over, and its index free.
    #[inline]
    pub(crate) fn finish(&mut self, index: u32) {
        match self.node(index).state.finish() {
            Freed::Now => self.wheel.release(index),
            Freed::Queued => (),
            Freed::Guest => self.finish_guest(index),
        }
    }

    /// A claimed periodic timer goes on when the clock shows `nanos`. If it was cancelled during its run, the payload comes
    /// back, to be dropped before the timer is finished.
    pub(crate) fn rearm(&mut self, index: u32, payload: T, nanos: u64) -> Option<T> {
        if self.node(index).state.rearm() {
            self.wheel.insert_again(index, self.tick.deadline(nanos));
            self.wheel.set_value(index, payload);
            return None;
        }
        self.count_cancelled();
        self.counts.cancelled_elsewhere +=
            u64::from(self.node(index).state.was_stopped_elsewhere());
        Some(payload)
    }

    #[inline]
    pub(super) fn node(&self, index: u32) -> &Node {
        self.nodes.node(index)
    }
}
