//! Messages taken out of the mailbox and not consumed yet, and the message budget of a pass. Urgent
//! messages are in FIFO order, the others newest first.

use std::mem;

use super::{Link, MANY, Mailbox, Messages, Stack};
use crate::limits::REVERSED_MAX;

/// The index of each kind.
const URGENT: usize = 0;
const CAN_WAIT: usize = 1;

/// The messages that the owner has taken and not consumed.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// Messages of each kind: urgent ones first, in FIFO order.
    pub(super) left: [Messages; 2],
    /// Urgent messages that are still newest first. While there are any, no urgent message is
    /// consumed.
    unreversed: Messages,
    /// The number of messages that may still be reversed in this pass.
    reversible: usize,
    /// The kinds taken in this pass, and the kinds polled. A pass polls each kind once and not once
    /// per message, because other threads write to that cache line.
    is_taken: [bool; 2],
    is_looked_for: [bool; 2],
    /// Only urgent messages are consumed now, at the beginning of a pass.
    urgent_only: bool,
    /// The number of messages that may be consumed now.
    budget: usize,
    /// The part of the budget that is held for the end of the pass.
    held: usize,
    /// The larger half of the last odd budget was for cancels.
    pub(super) rounds_up: bool,
}

impl Opened {
    /// Begins a pass with a message budget. Each kind is taken from the mailbox once in a pass.
    #[inline]
    pub(crate) fn begin_pass(&mut self, budget: usize) {
        self.is_taken = [false; 2];
        self.is_looked_for = [false; 2];
        self.urgent_only = false;
        self.reversible = REVERSED_MAX;
        self.budget = budget;
        self.held = 0;
    }

    /// If a message is urgent, consumes only urgent ones until the pass [looks
    /// again](Self::look_again). Half of the budget is held for low-priority messages, if enough of
    /// them wait. So no flood of urgent messages starves them. The larger half of an odd budget
    /// alternates between the kinds, since the budget may be one.
    #[inline]
    pub(crate) fn hold_others(&mut self) {
        self.urgent_only = self.has_urgent();
        if self.urgent_only {
            let is_odd = !self.budget.is_multiple_of(2);
            self.rounds_up ^= is_odd;
            let half = self.budget / 2 + usize::from(is_odd && self.rounds_up);
            self.held = half.min(self.left[CAN_WAIT].count as usize);
            self.budget -= self.held;
        }
    }

    /// Returns true if low-priority messages are held.
    #[inline]
    pub(crate) fn holds_others(&self) -> bool {
        self.urgent_only
    }

    /// Releases the low-priority messages after the last due timer, and polls again for the kinds
    /// that were empty.
    #[inline]
    pub(crate) fn look_again(&mut self) {
        self.budget += mem::take(&mut self.held);
        self.urgent_only = false;
        self.is_looked_for = self.is_taken;
    }

    /// Ends the pass: later messages belong to the next one, however often this one is polled.
    #[inline]
    pub(crate) fn end_pass(&mut self) {
        self.budget = 0;
    }

    /// Returns true if the budget is used up for now.
    #[inline]
    pub(crate) fn has_met_enough(&self) -> bool {
        self.budget == 0
    }

    /// Takes the messages of each kind that is used up, once in a pass. Later messages are left to
    /// the next pass, so that a flood does not prolong this one.
    #[inline]
    pub(crate) fn take_more(&mut self, mailbox: &Mailbox) {
        let [urgent, can_wait] = mailbox.stacks();
        self.take_kind(URGENT, urgent);
        self.take_kind(CAN_WAIT, can_wait);
    }

    #[inline]
    fn take_kind(&mut self, kind: usize, stack: &Stack) {
        let is_left = if kind == URGENT { self.has_urgent() } else { self.left[kind].first != 0 };
        if is_left || self.is_looked_for[kind] {
            return;
        }
        self.is_looked_for[kind] = true;
        if stack.has_any() {
            let taken = stack.take();
            self.is_taken[kind] = true;
            let place = if kind == URGENT && taken.second != 0 {
                &mut self.unreversed
            } else {
                &mut self.left[kind]
            };
            *place = taken;
        }
    }

    /// Returns the next urgent message whose link is to be reversed in this pass, 0 if there is
    /// none.
    #[inline]
    pub(crate) fn next_to_reverse(&self) -> u32 {
        if self.reversible == 0 { 0 } else { self.unreversed.first }
    }

    /// Moves that message, whose link is `link`, before the later ones.
    pub(crate) fn reverse(&mut self, link: &Link) {
        self.reversible -= 1;
        let (index, later) = (self.unreversed.first, &mut self.left[URGENT]);
        self.unreversed = self.unreversed.rest(link.get());
        link.set(later.second);
        *later = Messages { first: index, second: later.first, count: (later.count + 1).min(MANY) };
    }

    /// Returns the message to consume next, 0 if there is none.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        let kind = self.next_kind();
        if kind == CAN_WAIT && self.urgent_only { 0 } else { self.left[kind].first }
    }

    /// Consumes the next message, whose link is `link`. When this exhausts the budget, polls again
    /// so that the pass knows whether it leaves a backlog.
    #[inline]
    pub(crate) fn meet(&mut self, link: u32, mailbox: &Mailbox) {
        let kind = self.next_kind();
        self.left[kind] = self.left[kind].rest(link);
        self.budget -= 1;
        if self.has_met_enough() {
            self.take_more(mailbox);
        }
    }

    /// Returns the next message about a cancelled timer ahead of its order, for an add that needs
    /// room; 0 if there is none.
    pub(crate) fn next_cancelled(&mut self, mailbox: &Mailbox) -> u32 {
        let [_, can_wait] = mailbox.stacks();
        if self.left[CAN_WAIT].first == 0 && can_wait.has_any() {
            self.left[CAN_WAIT] = can_wait.take();
        }
        self.left[CAN_WAIT].first
    }

    /// Consumes that message, whose link is `link`.
    pub(crate) fn meet_cancelled(&mut self, link: u32) {
        self.left[CAN_WAIT] = self.left[CAN_WAIT].rest(link);
    }

    /// Returns the number of taken messages about cancelled timers; `MANY` is a lower bound.
    pub(crate) fn cancelled(&self) -> u32 {
        self.left[CAN_WAIT].count
    }

    /// Returns the kind to consume next: urgent ones at the beginning of a pass; at its end
    /// low-priority ones, then new urgent ones.
    #[inline]
    fn next_kind(&self) -> usize {
        let is_ready = self.left[URGENT].first != 0 && self.unreversed.first == 0;
        if is_ready && (self.urgent_only || self.left[CAN_WAIT].first == 0) {
            URGENT
        } else {
            CAN_WAIT
        }
    }

    /// Returns true if a taken message is urgent.
    #[inline]
    fn has_urgent(&self) -> bool {
        self.left[URGENT].first != 0 || self.unreversed.first != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let [urgent, can_wait] = &self.left;
        (urgent.first | can_wait.first | self.unreversed.first) == 0
    }

    /// Returns the number of taken messages; for each kind, `MANY` is a lower bound.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        let [urgent, can_wait] = &self.left;
        (urgent.count + self.unreversed.count).min(MANY) + can_wait.count
    }

    /// Returns the taken messages, in no order.
    #[inline]
    pub(crate) fn left(&self) -> [Messages; 3] {
        let [urgent, can_wait] = self.left;
        [urgent, can_wait, self.unreversed]
    }
}
