//! The messages that the owner has taken out of the mailbox and not consumed yet. A `Backlog` also
//! holds the message budget of a *pass*, the part of a turn that consumes messages and fires
//! timers. The owner consumes urgent messages in FIFO order, and low-priority messages newest
//! first.

use std::mem;

use super::{EMPTY, FIRST_INEXACT_COUNT, Mailbox, MessageList};
use crate::{limits::REVERSED_MESSAGES_PER_TURN_MAX, util::sync::Ordering};

/// The index of low-priority messages in arrays with one item per priority.
const LOW: usize = 0;
const URGENT: usize = 1;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The messages of each priority that are ready to be consumed, urgent messages in FIFO order.
    pub(super) ready: [MessageList; 2],
    /// Urgent messages that are not reversed yet, newest first. While there are any, no urgent
    /// message is consumed, and `reversed` holds the urgent messages that are already in FIFO
    /// order.
    pub(super) unreversed: MessageList,
    reversed: MessageList,
    /// True in the first phase of a pass, which consumes only urgent messages. The second phase
    /// consumes only low-priority messages.
    in_urgent_phase: bool,
    /// True if this phase has not taken messages out of the mailbox yet. Messages that arrive later
    /// wait for the next pass, so that a flood does not prolong this pass.
    may_take: bool,
    /// The number of messages that this phase may still consume.
    budget: usize,
    /// The part of the pass's budget that the urgent phase leaves to low-priority messages.
    budget_reserved_for_low: usize,
    /// True if the most recent odd budget was divided in favor of low-priority messages.
    pub(super) last_odd_budget_favored_low: bool,
}

impl Backlog {
    /// Begins a pass. Returns true if there are urgent messages, so that the pass begins with the
    /// urgent phase.
    #[inline]
    pub(crate) fn begin_pass(&mut self, mailbox: &Mailbox, budget: usize) -> bool {
        (self.in_urgent_phase, self.may_take, self.budget) = (false, true, budget);
        let has_urgent =
            self.ready[URGENT].first | self.unreversed.first != 0 || mailbox.urgent.has_messages();
        if has_urgent {
            self.begin_urgent_phase(mailbox);
        }
        has_urgent
    }

    /// Reserves up to half of the budget for low-priority messages, so that a flood of urgent
    /// messages does not starve these. Half of an odd budget is rounded up and down alternately, so
    /// that a budget of one starves neither priority.
    #[inline(never)]
    fn begin_urgent_phase(&mut self, mailbox: &Mailbox) {
        self.in_urgent_phase = true;
        let is_odd = !self.budget.is_multiple_of(2);
        self.last_odd_budget_favored_low ^= is_odd;
        let half = self.budget / 2 + usize::from(is_odd && self.last_odd_budget_favored_low);
        let low = self.cancelled_count() + mailbox.cancelled_count();
        self.budget_reserved_for_low = half.min(low as usize);
        self.budget -= self.budget_reserved_for_low;
    }

    #[inline]
    pub(crate) fn is_in_urgent_phase(&self) -> bool {
        self.in_urgent_phase
    }

    /// Returns false if the pass has no further messages. A message that arrives after the phase
    /// has taken messages may also make the result true.
    #[inline]
    pub(crate) fn may_have_messages(&self, mailbox: &Mailbox) -> bool {
        // Relaxed: a later turn sees a message that is missed here, and `take_all` acquires.
        self.in_urgent_phase
            || self.ready[LOW].first != 0
            || mailbox.low.head.load(Ordering::Relaxed) != EMPTY
    }

    /// Reduces the budget by `messages`. The caller has consumed a batch that counted as one
    /// message.
    pub(crate) fn charge(&mut self, messages: usize) {
        self.budget = self.budget.saturating_sub(messages);
    }

    /// Removes the next message of this phase, and returns its index and its link. Returns zeros if
    /// there is no message, or if the budget is spent.
    #[inline(always)]
    pub(crate) fn pop(&mut self, link_of: impl FnOnce(u32) -> u32) -> (u32, u32) {
        let messages = &mut self.ready[usize::from(self.in_urgent_phase)];
        let index = messages.first;
        if index == 0 || self.budget == 0 {
            return (0, 0);
        }
        let link = link_of(index);
        *messages = messages.without_first(link);
        self.budget -= 1;
        (index, link)
    }

    /// Takes the messages of this phase out of the mailbox, once per phase. The caller has called
    /// [`pop`](Self::pop), which has returned no message. Reverses urgent messages into FIFO order,
    /// up to a limit per pass; `exchange` sets the link of a message and returns the previous link.
    /// Returns true if `pop` would return a message now. Otherwise, ends the urgent phase: the
    /// remaining urgent messages wait for the next pass, so that a timer that another thread adds
    /// while due timers fire does not fire in the same turn.
    pub(crate) fn take_or_end_phase(
        &mut self,
        mailbox: &Mailbox,
        exchange: impl FnMut(u32, u32) -> u32,
    ) -> bool {
        let phase = usize::from(self.in_urgent_phase);
        if self.ready[phase].first == 0 && mem::take(&mut self.may_take) {
            if self.in_urgent_phase {
                if self.unreversed.first == 0 {
                    self.unreversed = mailbox.urgent.take_all();
                }
                self.reverse(REVERSED_MESSAGES_PER_TURN_MAX, exchange);
            } else {
                self.ready[LOW] = mailbox.low.take_all();
            }
            if self.budget != 0 && self.ready[phase].first != 0 {
                return true;
            }
        }
        if mem::take(&mut self.in_urgent_phase) {
            self.may_take = true;
            self.budget += self.budget_reserved_for_low;
        }
        false
    }

    /// Reverses up to `limit` urgent messages.
    pub(super) fn reverse(&mut self, limit: usize, mut exchange: impl FnMut(u32, u32) -> u32) {
        let (mut from, mut to, mut reversed) = (self.unreversed, self.reversed, 0);
        while from.first != 0 && reversed as usize != limit {
            let third = exchange(from.first, to.second);
            (to.first, to.second) = (from.first, to.first);
            (from.first, from.second) = (from.second, third);
            reversed += 1;
        }
        from.count = from.count_minus(reversed);
        to.count = (to.count + reversed).min(FIRST_INEXACT_COUNT);
        (self.unreversed, self.reversed) = (from, to);
        if from.first == 0 {
            self.ready[URGENT] = mem::take(&mut self.reversed);
        }
    }

    /// Removes the next low-priority message, regardless of the budget, for an add that needs room.
    /// Returns the message's index, or 0 if there is none.
    pub(crate) fn pop_low(&mut self, mailbox: &Mailbox, link_of: impl FnOnce(u32) -> u32) -> u32 {
        let messages = &mut self.ready[LOW];
        if messages.first == 0 {
            *messages = mailbox.low.take_all();
        }
        let index = messages.first;
        if index != 0 {
            *messages = messages.without_first(link_of(index));
        }
        index
    }

    /// Returns the number of low-priority messages in the backlog, which are about cancelled
    /// timers. From `FIRST_INEXACT_COUNT` on, the number may be inexact.
    pub(crate) fn cancelled_count(&self) -> u32 {
        self.ready[LOW].count()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let [low, urgent] = &self.ready;
        (urgent.first | low.first | self.unreversed.first) == 0
    }

    /// Returns the number of messages in the backlog. From `FIRST_INEXACT_COUNT` on, the number may
    /// be inexact.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        let urgent = [self.ready[URGENT], self.unreversed, self.reversed];
        let urgent: u32 = urgent.iter().map(MessageList::count).sum();
        urgent.min(FIRST_INEXACT_COUNT) + self.cancelled_count()
    }

    #[inline]
    pub(crate) fn lists(&self) -> [MessageList; 4] {
        let [low, urgent] = self.ready;
        [urgent, low, self.unreversed, self.reversed]
    }
}
