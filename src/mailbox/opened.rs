//! What the owner has taken out of its mailbox and not met: urgent messages in the order in which they came, the others newest first;
//! and how many of them a pass may meet.

use std::mem;

use super::{Arrived, Link, MANY, Mailbox, Messages, Stack};
use crate::limits::REVERSED_MAX;

/// The place of each kind.
const URGENT: usize = 0;
const CAN_WAIT: usize = 1;

/// What the owner has taken and not dealt with.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// Of each kind; the urgent ones first, and those in the order in which they came.
    pub(super) left: [Messages; 2],
    /// Urgent ones that are the newest first still. As long as there are any, no urgent one is met.
    unreversed: Messages,
    /// So many may be reversed in this pass.
    reversible: usize,
    /// Which kinds have been taken in this pass, and which have been looked for: not once for each message, in a line that others
    /// write to.
    is_taken: [bool; 2],
    is_looked_for: [bool; 2],
    /// The pass is at its beginning: what can wait does so.
    urgent_only: bool,
    /// So many messages may be met now.
    budget: usize,
    /// And so many more at the end of the pass.
    held: usize,
    /// The larger half of the last odd budget was for cancels.
    pub(super) rounds_up: bool,
}

impl Opened {
    /// A pass of the owner begins, which may meet so many: what arrives from here on is taken once in it.
    #[inline]
    pub(crate) fn begin_pass(&mut self, budget: usize) {
        self.is_taken = [false; 2];
        self.is_looked_for = [false; 2];
        self.urgent_only = false;
        self.reversible = REVERSED_MAX;
        self.budget = budget;
        self.held = 0;
    }

    /// If anything is urgent, only that is met until the pass [looks again](Self::look_again). Half of what the pass may meet is for
    /// what can wait, if there is so much: so that goes on, however much else is asked for. The larger half of an odd number goes to
    /// each kind by turns, since the number may be one.
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

    /// Whether what can wait does so.
    #[inline]
    pub(crate) fn holds_others(&self) -> bool {
        self.urgent_only
    }

    /// Nothing is due any more: what can wait comes now; and of which kind nothing was there, something may have arrived meanwhile.
    #[inline]
    pub(crate) fn look_again(&mut self) {
        self.budget += mem::take(&mut self.held);
        self.urgent_only = false;
        self.is_looked_for = self.is_taken;
    }

    /// The pass is over: what arrives from here on is the next one's, however often this one is asked.
    #[inline]
    pub(crate) fn end_pass(&mut self) {
        self.budget = 0;
    }

    /// Whether the pass has met as many as it may for now.
    #[inline]
    pub(crate) fn has_met_enough(&self) -> bool {
        self.budget == 0
    }

    /// Takes the messages of each kind of which none is left, once in a pass; what arrives later is left for the next one, so that a
    /// flood holds up nobody.
    #[inline]
    pub(crate) fn take_more(&mut self, mailbox: &Mailbox) {
        let [urgent, can_wait] = mailbox.stacks();
        self.take_kind(URGENT, urgent, Stack::has_any);
        self.take_kind(CAN_WAIT, can_wait, Stack::has_any);
    }

    /// Takes the messages of the kinds that are known to have arrived, once in a pass.
    #[inline]
    pub(crate) fn take_arrived(&mut self, mailbox: &Mailbox, arrived: Arrived) {
        let [urgent, can_wait] = mailbox.stacks();
        self.take_kind(URGENT, urgent, |_| arrived.urgent);
        self.take_kind(CAN_WAIT, can_wait, |_| arrived.can_wait);
    }

    #[inline]
    fn take_kind(&mut self, kind: usize, stack: &Stack, has_any: impl FnOnce(&Stack) -> bool) {
        let is_left = if kind == URGENT { self.has_urgent() } else { self.left[kind].first != 0 };
        if is_left || self.is_looked_for[kind] {
            return;
        }
        self.is_looked_for[kind] = true;
        if has_any(stack) {
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

    /// The next urgent message whose link is to be reversed in this pass, 0 if there is none.
    #[inline]
    pub(crate) fn next_to_reverse(&self) -> u32 {
        if self.reversible == 0 { 0 } else { self.unreversed.first }
    }

    /// Puts that message, which has this link, before those that came later.
    pub(crate) fn reverse(&mut self, link: &Link) {
        self.reversible -= 1;
        let (index, later) = (self.unreversed.first, &mut self.left[URGENT]);
        self.unreversed = self.unreversed.rest(link.get());
        link.set(later.second);
        *later = Messages { first: index, second: later.first, count: (later.count + 1).min(MANY) };
    }

    /// The message that is to be met next, 0 if there is none.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        let kind = self.next_kind();
        if kind == CAN_WAIT && self.urgent_only { 0 } else { self.left[kind].first }
    }

    /// The next one, which has this `link`, is being met. If that is enough, it is looked for more: the pass is to know whether it
    /// leaves any.
    #[inline]
    pub(crate) fn meet(&mut self, link: u32, mailbox: &Mailbox) {
        let kind = self.next_kind();
        self.left[kind] = self.left[kind].rest(link);
        self.budget -= 1;
        if self.has_met_enough() {
            self.take_more(mailbox);
        }
    }

    /// Takes the next message about a cancelled timer out of turn, for an add that needs room; 0 if there is none.
    pub(crate) fn next_cancelled(&mut self, mailbox: &Mailbox) -> u32 {
        let [_, can_wait] = mailbox.stacks();
        if self.left[CAN_WAIT].first == 0 && can_wait.has_any() {
            self.left[CAN_WAIT] = can_wait.take();
        }
        self.left[CAN_WAIT].first
    }

    /// That message, which has this `link`, is being met.
    pub(crate) fn meet_cancelled(&mut self, link: u32) {
        self.left[CAN_WAIT] = self.left[CAN_WAIT].rest(link);
    }

    /// How many messages about cancelled timers are left; `MANY` is that or more.
    pub(crate) fn cancelled(&self) -> u32 {
        self.left[CAN_WAIT].count
    }

    /// Urgent ones at the beginning of a pass; at its end what can wait, and then what is urgent and has come meanwhile.
    #[inline]
    fn next_kind(&self) -> usize {
        let is_ready = self.left[URGENT].first != 0 && self.unreversed.first == 0;
        if is_ready && (self.urgent_only || self.left[CAN_WAIT].first == 0) {
            URGENT
        } else {
            CAN_WAIT
        }
    }

    /// Whether any that is left is urgent.
    #[inline]
    fn has_urgent(&self) -> bool {
        self.left[URGENT].first != 0 || self.unreversed.first != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let [urgent, can_wait] = &self.left;
        (urgent.first | can_wait.first | self.unreversed.first) == 0
    }

    /// How many messages are left; of each kind, `MANY` is that or more.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        let [urgent, can_wait] = &self.left;
        (urgent.count + self.unreversed.count).min(MANY) + can_wait.count
    }

    /// What is left, in no order.
    #[inline]
    pub(crate) fn left(&self) -> [Messages; 3] {
        let [urgent, can_wait] = self.left;
        [urgent, can_wait, self.unreversed]
    }
}
