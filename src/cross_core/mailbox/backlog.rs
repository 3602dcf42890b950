//! The messages that the owner has taken out of the mailbox and not consumed yet. A `Backlog` also
//! holds the message budget of a *pass*, the part of a turn that consumes messages and fires
//! timers. The owner consumes urgent messages in FIFO order, and low-priority messages newest
//! first.

use std::mem;

use super::{FIRST_INEXACT_COUNT, Mailbox, MessageList};
use crate::limits::REVERSED_MESSAGES_PER_TURN_MAX;

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
    pub(crate) phase: Phase,
    /// The part of the pass's budget that the urgent phase leaves to low-priority messages.
    budget_reserved_for_low: usize,
    /// True if the most recent odd budget was divided in favor of low-priority messages.
    pub(super) last_odd_budget_favored_low: bool,
}

/// The phase of a pass. If there are urgent messages, the first phase consumes only these. The last
/// phase consumes only low-priority messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phase {
    is_urgent: bool,
    /// True until this phase has taken messages out of the mailbox, or has reversed messages that
    /// an earlier pass took. Messages that arrive later wait for the next pass, so that a flood
    /// does not prolong this pass.
    may_take: bool,
    /// The number of messages that this phase may still consume.
    pub(crate) budget: usize,
}

impl Phase {
    pub(crate) const fn low(budget: usize) -> Self {
        Self { is_urgent: false, may_take: true, budget }
    }
}

impl Backlog {
    /// Begins a pass. Returns true if there are urgent messages, so that the pass begins with the
    /// urgent phase.
    #[inline]
    pub(crate) fn begin_pass(&mut self, mailbox: &Mailbox, budget: usize) -> bool {
        self.phase = Phase::low(budget);
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
        let Phase { is_urgent, budget, .. } = &mut self.phase;
        *is_urgent = true;
        let is_odd = !budget.is_multiple_of(2);
        self.last_odd_budget_favored_low ^= is_odd;
        let half = *budget / 2 + usize::from(is_odd && self.last_odd_budget_favored_low);
        let low = self.ready[LOW].count() + mailbox.cancelled_count();
        self.budget_reserved_for_low = half.min(low as usize);
        *budget -= self.budget_reserved_for_low;
    }

    #[inline]
    pub(crate) fn is_in_urgent_phase(&self) -> bool {
        self.phase.is_urgent
    }

    /// Returns false if the pass has no further messages. A message that arrives after the phase
    /// has taken messages may also make the result true.
    #[inline]
    pub(crate) fn may_have_messages(&self, mailbox: &Mailbox) -> bool {
        self.phase.is_urgent || self.ready[LOW].first != 0 || mailbox.low.has_messages()
    }

    /// Returns true if the mailbox has messages that the pass in progress has still to take.
    pub(crate) fn has_untaken(&self, mailbox: &Mailbox) -> bool {
        let Phase { is_urgent, may_take, .. } = self.phase;
        is_urgent && may_take && mailbox.urgent.has_messages()
            || (is_urgent || may_take) && mailbox.low.has_messages()
    }

    /// Reduces the budget by `messages`. The caller has consumed a batch that counted as one
    /// message.
    pub(crate) fn charge(&mut self, messages: usize) {
        self.phase.budget = self.phase.budget.saturating_sub(messages);
    }

    /// Returns the index of the next message of this phase. Returns 0 if there is no message, or if
    /// the budget is spent.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        if self.phase.budget == 0 { 0 } else { self.ready[usize::from(self.phase.is_urgent)].first }
    }

    /// Removes the message that [`next`](Self::next) has returned. `link` is the message's link.
    #[inline]
    pub(crate) fn remove_next(&mut self, link: u32) {
        let messages = &mut self.ready[usize::from(self.phase.is_urgent)];
        *messages = messages.without_first(link);
        self.phase.budget -= 1;
    }

    /// Takes the messages of this phase out of the mailbox, once per phase, unless urgent messages
    /// of an earlier pass still wait for their reversal. The caller has called
    /// [`next`](Self::next), which has returned no message. Reverses urgent messages into FIFO
    /// order, up to a limit per pass; `exchange` sets the link of a message and returns the
    /// previous link. Returns true if `next` would return a message now. Otherwise, ends the urgent
    /// phase: the remaining urgent messages wait for the next pass, so that a timer that another
    /// thread adds while due timers fire does not fire in the same turn.
    pub(crate) fn take_or_end_phase(
        &mut self,
        mailbox: &Mailbox,
        exchange: impl FnMut(u32, u32) -> u32,
    ) -> bool {
        let has_message = self.ready[usize::from(self.phase.is_urgent)].first != 0;
        if !has_message && mem::take(&mut self.phase.may_take) {
            if self.phase.is_urgent {
                if self.unreversed.first == 0 {
                    self.unreversed = mailbox.urgent.take_all();
                }
                self.reverse(REVERSED_MESSAGES_PER_TURN_MAX, exchange);
            } else {
                self.ready[LOW] = mailbox.low.take_all();
            }
            if self.next() != 0 {
                return true;
            }
        }
        if self.phase.is_urgent {
            self.phase = Phase::low(self.phase.budget + self.budget_reserved_for_low);
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
