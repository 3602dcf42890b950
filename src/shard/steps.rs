//! A timer's life in steps: what the public methods and `local` are made of. An ending has several, so that nothing is
//! borrowed between them while the user's code runs.

use std::{mem, num::NonZeroU32, sync::Arc, time::Duration};

use super::Shard;
use crate::{
    clock::Clock,
    error::AddErrorReason,
    handle::TimerHandle,
    limits::{GENERATION_MAX, PAGE_BITS},
    mailbox::Taken,
    registry,
    shared::Shared,
    slab::Node,
    state::{Cancel, Claim, Kind, Movable, Swept},
    tick::saturating_nanos,
};

/// A due timer that the owner has claimed and not yet finished.
#[must_use]
pub(crate) struct Claimed<T> {
    pub(crate) index: u32,
    pub(crate) payload: T,
    /// The deadline in nanoseconds of the clock, rounded up to a tick.
    pub(crate) due: u64,
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

/// A timer that was moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    /// When it is due now, in nanoseconds of the clock.
    pub(crate) due: u64,
    /// It has a schedule, which must follow.
    pub(crate) periodic: bool,
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
        } else if self.wheel.is_full() || self.next_generation > GENERATION_MAX {
            Some(AddErrorReason::Full)
        } else {
            None
        }
    }

    /// The reading of the clock that the last turn began with.
    pub(crate) fn turn_nanos(&self) -> u64 {
        self.turn_nanos
    }

    /// When the shard next wants a turn.
    pub(crate) fn next_nanos(&self) -> Option<u64> {
        if self.taken.newest != 0 {
            return Some(self.turn_nanos);
        }
        self.wheel.next_deadline().map(|tick| self.tick.start(tick))
    }

    /// The start of the first tick that is not before `nanos`.
    pub(crate) fn round_up(&self, nanos: u64) -> u64 {
        self.tick.start(self.tick.deadline(nanos))
    }

    pub(crate) fn at_least_a_tick(&self, period: Duration) -> Duration {
        period.max(Duration::from_nanos(self.tick.start(1)))
    }

    /// Entries of the wheel touched so far.
    pub(crate) fn touched(&self) -> u64 {
        self.wheel.touched()
    }

    /// The reading of the clock at `delay` from now.
    #[inline]
    pub(crate) fn nanos_after(&mut self, delay: Duration) -> u64 {
        self.read_clock().hi.saturating_add(saturating_nanos(delay))
    }

    /// The same, and up to `range` later: a moment that is far from those of the timers before.
    pub(crate) fn nanos_spread(&mut self, delay: Duration, range: Duration) -> u64 {
        // Multiples of the golden ratio, modulo one, fill the range evenly at every length (Weyl's sequence). Of spread timers
        // only: every 55th multiple, say, is near the one before.
        self.spread = self.spread.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let offset = (u128::from(self.spread) * u128::from(saturating_nanos(range))) >> 64;
        self.nanos_after(delay).saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
    }

    /// Adds a timer, whose payload is to be set next, to a shard that does not refuse.
    #[inline]
    pub(crate) fn insert(&mut self, due: Due, kind: Kind) -> TimerHandle {
        debug_assert_eq!(self.refusal(), None);
        let index = self.place(due);
        let generation = self.next_generation;
        self.next_generation += 1;
        self.nodes.node_for_new(&self.shared.slab, index).state.arm(generation, kind);
        self.counts.added += 1;
        self.counts.live += 1;
        let index = NonZeroU32::new(index).unwrap_or_else(|| unreachable!("a wheel never gives index 0"));
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

    /// Cancels a timer of this shard; if it is `Cancelled`, its payload is to be taken next.
    #[inline]
    pub(crate) fn cancel_own(&mut self, handle: TimerHandle) -> Cancel {
        let index = handle.index();
        let Some(node) = self.nodes.get(index) else {
            return Cancel::Ended;
        };
        let answer = node.state.cancel_own(handle.generation());
        if answer == Cancel::Cancelled {
            self.end_cancelled(index);
        }
        answer
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

    /// Moves a timer of this shard to `delay` from now, if that is possible.
    #[inline]
    pub(crate) fn reset_own(&mut self, handle: TimerHandle, delay: Duration) -> Option<Moved> {
        let node = self.nodes.get(handle.index())?;
        let Movable::Yes { periodic } = node.state.movable(handle.generation()) else {
            return None;
        };
        // If another thread cancels it now, it is cancelled after it was moved.
        let due = self.nanos_after(delay);
        self.wheel.reset(handle.index(), self.tick.deadline(due));
        Some(Moved { due, periodic })
    }

    /// Makes a private timer one that other threads may cancel.
    pub(crate) fn share_own(&self, handle: TimerHandle) {
        if self.is_pending_own(handle) {
            self.node(handle.index()).state.share();
        }
    }

    pub(crate) fn is_pending_own(&self, handle: TimerHandle) -> bool {
        self.nodes.get(handle.index()).is_some_and(|node| node.state.is_pending(handle.generation()))
    }

    /// Begins a pass; says which page of payloads has gone back, if any has.
    pub(crate) fn begin(&mut self, budget: usize) -> Option<u32> {
        self.turn_nanos = self.read_clock().lo;
        self.messages = budget;
        self.wheel.begin(self.tick.now(self.turn_nanos), budget);
        self.shrink()
    }

    /// Gives memory back that has not been needed, at most a page; its number.
    #[inline]
    fn shrink(&mut self) -> Option<u32> {
        if self.wheel.has_too_much() { self.give_page_back() } else { None }
    }

    #[cold]
    fn give_page_back(&mut self) -> Option<u32> {
        if !self.nodes.may_retire() {
            return None;
        }
        let page = self.wheel.shrink()?;
        let retired = self.nodes.retire_page(&self.shared.slab, page << PAGE_BITS);
        debug_assert!(retired, "the wheel and the slab have the same pages");
        Some(page)
    }

    /// Claims the next timer that is due in this pass. It is running from now on.
    #[inline]
    pub(crate) fn claim_due(&mut self) -> Option<Claimed<T>> {
        loop {
            let nodes = &self.nodes;
            let (index, deadline) = self.wheel.pop_due(|soon| nodes.prefetch(soon))?;
            // One that another thread has cancelled is left to its message.
            if self.node(index).state.claim() == Claim::Fires {
                let payload = self.wheel.take_value(index)?;
                self.counts.runs += 1;
                return Some(Claimed { index, payload, due: self.tick.start(deadline) });
            }
        }
    }

    /// A claimed timer ends by firing.
    #[inline]
    pub(crate) fn count_fired(&mut self) {
        self.counts.fired += 1;
        self.counts.live -= 1;
    }

    /// The run of a claimed timer is over, and its index free.
    #[inline]
    pub(crate) fn finish(&mut self, index: u32) {
        self.node(index).state.finish();
        self.wheel.release(index);
    }

    /// A claimed periodic timer goes on when the clock shows `nanos`. If it was cancelled during its run, it ends and the
    /// payload comes back.
    pub(crate) fn rearm(&mut self, index: u32, payload: T, nanos: u64) -> Option<T> {
        if self.node(index).state.rearm() {
            self.wheel.insert_again(index, self.tick.deadline(nanos));
            self.wheel.set_value(index, payload);
            return None;
        }
        self.counts.cancelled += 1;
        self.counts.live -= 1;
        self.finish(index);
        Some(payload)
    }

    /// Takes what is in the mailbox; what arrives later is left for the next time, so that a flood holds up nobody.
    #[inline]
    pub(crate) fn take_messages(&mut self) {
        self.nodes.free_some();
        if self.taken.newest == 0 {
            self.taken = self.shared.mailbox.take();
        }
    }

    /// The next timer that another thread has cancelled, of those that were taken. Its payload is to be taken next.
    #[inline]
    pub(crate) fn collect_cancelled(&mut self) -> Option<u32> {
        let index = self.taken.newest;
        if index == 0 || self.messages == 0 {
            return None;
        }
        self.messages -= 1;
        let node = self.nodes.node(index);
        self.taken = Taken { newest: node.link.below(), count: self.taken.count.saturating_sub(1) };
        node.state.collect();
        // It is in no slot if it was due and its claim failed.
        self.end_cancelled(index);
        Some(index)
    }

    #[inline]
    fn end_cancelled(&mut self, index: u32) {
        self.counts.cancelled += 1;
        self.counts.live -= 1;
        self.wheel.remove(index);
    }

    #[inline]
    fn node(&self, index: u32) -> &Node {
        self.nodes.node(index)
    }

    /// The last sweep: closes the mailbox, ends every timer, and gives back what was pending with its deadlines. Nothing,
    /// if that has been done before.
    pub(super) fn close(&mut self) -> Vec<(u64, T)> {
        let (mut pending, mut cancelled) = (Vec::new(), Vec::new());
        if mem::replace(&mut self.closed, true) {
            return pending;
        }
        self.shared.mailbox.close();
        self.taken = Taken::default();
        for index in 1..self.wheel.end_of_indices() {
            let Some(node) = self.nodes.get(index) else { continue };
            match node.state.sweep() {
                Swept::HandedBack => {
                    let nanos = self.due_nanos(index);
                    self.wheel.remove(index);
                    pending.extend(self.wheel.take_value(index).map(|payload| (nanos, payload)));
                }
                Swept::Cancelled => {
                    self.wheel.remove(index);
                    cancelled.extend(self.wheel.take_value(index));
                }
                Swept::Idle => (),
            }
        }
        let ended = u32::try_from(pending.len() + cancelled.len()).unwrap_or_else(|_| unreachable!("at most 2^25"));
        self.counts.live -= ended;
        self.counts.handed_back += pending.len() as u64;
        self.counts.cancelled += cancelled.len() as u64;
        registry::unregister(self.number, self.next_generation);
        for payload in cancelled {
            self.shared.hooks.isolate_drop(payload);
        }
        pending
    }
}
