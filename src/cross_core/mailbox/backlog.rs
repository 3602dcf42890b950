//! Messages taken out of the mailbox and not consumed yet, and the message budget of a pass. Urgent
//! messages are in FIFO order, the others newest first.

use std::mem;

use super::{COUNT_LIMIT, Mailbox, MessageList, Stack};
use crate::limits::REVERSED_MAX;

/// The index of urgent messages in an array of both kinds.
const URGENT: usize = 0;
const LOW: usize = 1;

/// The messages that the owner has taken and not consumed.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The messages of each kind. Urgent messages are here in FIFO order.
    pub(super) taken: [MessageList; 2],
    /// Urgent messages that are still newest first. No urgent message is consumed until all are
    /// reversed. Until then, `reversed` holds the messages that are in FIFO order.
    unreversed: MessageList,
    reversed: MessageList,
    /// The number of messages that may still be reversed in this pass.
    pub(super) reversals_left: usize,
    /// The kinds that this pass has taken, and those that it has polled. A pass does not poll
    /// before every message, because other threads write to the stack's cache line.
    kinds_taken: [bool; 2],
    kinds_polled: [bool; 2],
    /// True at the beginning of a pass, while only urgent messages are consumed.
    urgent_only: bool,
    /// The pass began without messages, and has not polled the mailbox since.
    began_empty: bool,
    /// The number of messages that may be consumed now.
    budget: usize,
    /// The part of the budget that is reserved for the end of the pass.
    reserved_for_low: usize,
    /// The extra message of the last odd budget was reserved for low-priority messages.
    pub(super) odd_went_to_low: bool,
}

impl Backlog {
    /// Begins a pass with a message budget. A pass takes each kind from the mailbox at most once.
    #[inline]
    pub(crate) fn begin_pass(&mut self, budget: usize) {
        self.kinds_taken = [false; 2];
        self.kinds_polled = [false; 2];
        self.urgent_only = false;
        self.began_empty = false;
        self.reversals_left = REVERSED_MAX;
        self.budget = budget;
        self.reserved_for_low = 0;
    }

    /// Begins a pass without messages. [`poll_again`](Self::poll_again) sets its budget.
    #[inline]
    pub(crate) fn begin_empty_pass(&mut self) {
        (self.urgent_only, self.began_empty) = (false, true);
    }

    /// If a message is urgent, makes the pass consume only urgent messages until
    /// [`poll_again`](Self::poll_again). Up to half of the budget is reserved for the low-priority
    /// messages that wait, so that a flood of urgent messages does not starve them. With an odd
    /// budget, the extra message goes to each kind in turn, so that a budget of one starves
    /// neither.
    #[inline]
    pub(crate) fn reserve_for_low(&mut self) {
        self.urgent_only = self.has_urgent();
        if self.urgent_only {
            let is_odd = !self.budget.is_multiple_of(2);
            self.odd_went_to_low ^= is_odd;
            let half = self.budget / 2 + usize::from(is_odd && self.odd_went_to_low);
            self.reserved_for_low = half.min(self.taken[LOW].count() as usize);
            self.budget -= self.reserved_for_low;
        }
    }

    /// Returns true while only urgent messages are consumed.
    #[inline]
    pub(crate) fn is_urgent_only(&self) -> bool {
        self.urgent_only
    }

    /// Enables low-priority messages after the last due timer, and lets the pass poll again each
    /// kind that it has not taken. A pass that began without messages gets this `budget`.
    pub(crate) fn poll_again(&mut self, budget: usize) {
        if self.began_empty {
            return self.begin_pass(budget);
        }
        self.budget += mem::take(&mut self.reserved_for_low);
        self.urgent_only = false;
        self.kinds_polled = self.kinds_taken;
    }

    /// Uses up the budget, so that [`next`](Self::next) leaves later messages to the next pass.
    #[inline]
    pub(crate) fn end_pass(&mut self) {
        self.budget = 0;
    }

    /// Takes the queued messages of each kind of which no taken message is left. A pass takes each
    /// kind at most once: later messages wait for the next pass, so that a flood does not prolong
    /// this one.
    #[inline]
    pub(crate) fn take_from(&mut self, mailbox: &Mailbox) {
        let [urgent, low] = mailbox.stacks();
        self.take_kind(URGENT, urgent);
        self.take_kind(LOW, low);
    }

    #[inline]
    fn take_kind(&mut self, kind: usize, stack: &Stack) {
        let is_left = if kind == URGENT { self.has_urgent() } else { self.taken[kind].first != 0 };
        if is_left || self.kinds_polled[kind] {
            return;
        }
        self.kinds_polled[kind] = true;
        if stack.has_messages() {
            let taken = stack.take();
            self.kinds_taken[kind] = true;
            let place = if kind == URGENT && taken.second != 0 {
                &mut self.unreversed
            } else {
                &mut self.taken[kind]
            };
            *place = taken;
        }
    }

    /// Returns true if this pass must and may reverse urgent messages.
    #[inline]
    pub(crate) fn must_reverse(&self) -> bool {
        self.unreversed.first != 0 && self.reversals_left != 0
    }

    /// Reverses urgent messages into FIFO order, within the limit of this pass. `exchange` sets the
    /// link of a message and returns the previous link.
    pub(crate) fn reverse(&mut self, mut exchange: impl FnMut(u32, u32) -> u32) {
        if !self.must_reverse() {
            return;
        }
        let (mut from, mut to) = (self.unreversed, self.reversed);
        let (reversals_left, mut reversed) = (self.reversals_left, 0);
        while from.first != 0 && reversed as usize != reversals_left {
            let third = exchange(from.first, to.second);
            (to.first, to.second) = (from.first, to.first);
            (from.first, from.second) = (from.second, third);
            reversed += 1;
        }
        from.count = from.count_minus(reversed);
        to.count = (to.count + reversed).min(COUNT_LIMIT);
        self.reversals_left -= reversed as usize;
        (self.unreversed, self.reversed) = (from, to);
        if from.first == 0 {
            self.taken[URGENT] = mem::take(&mut self.reversed);
        }
    }

    /// Consumes the next message within the budget. While [`is_urgent_only`](Self::is_urgent_only),
    /// that is an urgent message. Otherwise low-priority messages come first. Returns the message's
    /// index, and its link as `link_of` returns it, or zeros if there is no message.
    #[inline]
    pub(crate) fn next(&mut self, link_of: impl FnOnce(u32) -> u32) -> (u32, u32) {
        let is_urgent = self.urgent_only || self.taken[LOW].first == 0;
        let messages = &mut self.taken[if is_urgent { URGENT } else { LOW }];
        let index = messages.first;
        if index == 0 || self.budget == 0 {
            return (0, 0);
        }
        let link = link_of(index);
        *messages = messages.without_first(link);
        self.budget -= 1;
        (index, link)
    }

    /// Returns true if a kind has not been polled in this pass.
    #[inline]
    pub(crate) fn has_unpolled_kind(&self) -> bool {
        self.kinds_polled != [true; 2]
    }

    /// Consumes the next message about a cancelled timer early, for an add that needs room. Returns
    /// its index, 0 if there is none.
    pub(crate) fn next_cancelled(
        &mut self,
        mailbox: &Mailbox,
        link_of: impl FnOnce(u32) -> u32,
    ) -> u32 {
        let [_, low] = mailbox.stacks();
        let messages = &mut self.taken[LOW];
        if messages.first == 0 && low.has_messages() {
            *messages = low.take();
        }
        let index = messages.first;
        if index != 0 {
            *messages = messages.without_first(link_of(index));
        }
        index
    }

    /// Returns the number of taken messages about cancelled timers; `COUNT_LIMIT` is a lower bound.
    pub(crate) fn cancelled_count(&self) -> u32 {
        self.taken[LOW].count()
    }

    #[inline]
    fn has_urgent(&self) -> bool {
        self.taken[URGENT].first != 0 || self.unreversed.first != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let [urgent, low] = &self.taken;
        (urgent.first | low.first | self.unreversed.first) == 0
    }

    /// Returns the number of taken messages; for each kind, `COUNT_LIMIT` is a lower bound.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        let urgent = [self.taken[URGENT], self.unreversed, self.reversed];
        let urgent: u32 = urgent.iter().map(MessageList::count).sum();
        urgent.min(COUNT_LIMIT) + self.cancelled_count()
    }

    /// Returns the taken messages, in no order.
    #[inline]
    pub(crate) fn taken(&self) -> [MessageList; 4] {
        let [urgent, low] = self.taken;
        [urgent, low, self.unreversed, self.reversed]
    }
}
