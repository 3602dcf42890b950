//! The messages that the owner has taken out of the mailbox and not consumed yet. A `Backlog` also
//! holds the message budget of a *pass*, the part of a turn that consumes messages and fires
//! timers. The owner consumes urgent messages in FIFO order, and low-priority messages newest
//! first.

use std::mem;

use super::{FIRST_INEXACT_COUNT, Mailbox, MessageList, Stack};
use crate::limits::REVERSED_MESSAGES_PER_TURN_MAX;

/// The index of urgent messages in arrays with one item per priority.
const URGENT: usize = 0;
const LOW: usize = 1;

#[derive(Debug, Default)]
enum PassPhase {
    /// The pass began without messages, and has not checked the mailbox since.
    BeganEmpty,
    /// The first phase of a pass, which consumes only urgent messages.
    Urgent,
    /// The pass consumes messages of both priorities.
    #[default]
    BothPriorities,
}

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The messages of each priority that are ready to be consumed, urgent messages in FIFO order.
    pub(super) ready: [MessageList; 2],
    /// Urgent messages that are not reversed yet, newest first. While there are any, no urgent
    /// message is consumed, and `reversed` holds the urgent messages that are already in FIFO
    /// order.
    unreversed: MessageList,
    reversed: MessageList,
    /// The number of messages that may still be reversed in this pass.
    pub(super) reversals_left: usize,
    /// True if this pass has taken low-priority messages out of the mailbox.
    has_taken_low: bool,
    /// True for each priority of which this pass takes no more messages out of the mailbox. Each
    /// check of the mailbox may cost a cache miss.
    taking_done: [bool; 2],
    phase: PassPhase,
    /// The number of messages that may be consumed now.
    budget: usize,
    /// The part of the budget that is reserved for low-priority messages until the urgent phase
    /// ends.
    budget_reserved_for_low: usize,
    /// True if the most recent odd budget was divided in favor of low-priority messages.
    pub(super) last_odd_budget_favored_low: bool,
}

impl Backlog {
    #[inline]
    pub(crate) fn begin_pass(&mut self, budget: usize) {
        self.has_taken_low = false;
        self.taking_done = [false; 2];
        self.phase = PassPhase::BothPriorities;
        self.reversals_left = REVERSED_MESSAGES_PER_TURN_MAX;
        self.budget = budget;
        self.budget_reserved_for_low = 0;
    }

    /// Begins a pass without messages. [`end_urgent_phase`](Self::end_urgent_phase) sets the budget
    /// of the pass.
    #[inline]
    pub(crate) fn begin_empty_pass(&mut self) {
        self.phase = PassPhase::BeganEmpty;
    }

    /// If the backlog has urgent messages, makes the pass consume only these until
    /// [`end_urgent_phase`](Self::end_urgent_phase). Reserves up to half of the budget for
    /// low-priority messages in the backlog, so that a flood of urgent messages does not starve
    /// these. Half of an odd budget is rounded up and down alternately, so that a budget of one
    /// starves neither priority.
    #[inline]
    pub(crate) fn begin_urgent_phase(&mut self) {
        if self.has_urgent() {
            self.phase = PassPhase::Urgent;
            let is_odd = !self.budget.is_multiple_of(2);
            self.last_odd_budget_favored_low ^= is_odd;
            let half = self.budget / 2 + usize::from(is_odd && self.last_odd_budget_favored_low);
            self.budget_reserved_for_low = half.min(self.ready[LOW].count() as usize);
            self.budget -= self.budget_reserved_for_low;
        }
    }

    /// Returns true if the pass is in its first phase, which consumes only urgent messages.
    #[inline]
    pub(crate) fn is_in_urgent_phase(&self) -> bool {
        matches!(self.phase, PassPhase::Urgent)
    }

    /// Lets the pass consume low-priority messages. From now on, [`take_from`](Self::take_from)
    /// takes low-priority messages once, unless this pass has already taken some. Urgent messages
    /// in the mailbox wait for the next pass, so that a timer that another thread adds while due
    /// timers fire does not fire in the same turn. A pass that began without messages gets
    /// `budget`.
    pub(crate) fn end_urgent_phase(&mut self, budget: usize) {
        if matches!(self.phase, PassPhase::BeganEmpty) {
            self.begin_pass(budget);
        }
        self.budget += mem::take(&mut self.budget_reserved_for_low);
        self.phase = PassPhase::BothPriorities;
        self.taking_done = [true, self.has_taken_low];
    }

    /// Reduces the budget by `messages`. The caller has consumed a batch that counted as one
    /// message.
    pub(crate) fn charge(&mut self, messages: usize) {
        self.budget = self.budget.saturating_sub(messages);
    }

    /// Takes all messages of each priority out of the mailbox. Skips a priority if the backlog has
    /// messages of it, or if this pass has already checked the mailbox for it. Messages that arrive
    /// later wait for the next pass, so that a flood does not prolong this pass.
    #[inline]
    pub(crate) fn take_from(&mut self, mailbox: &Mailbox) {
        self.take_messages_of(URGENT, &mailbox.urgent);
        self.take_messages_of(LOW, &mailbox.low);
    }

    #[inline]
    fn take_messages_of(&mut self, priority: usize, stack: &Stack) {
        let has_leftovers =
            if priority == URGENT { self.has_urgent() } else { self.ready[priority].first != 0 };
        if has_leftovers || self.taking_done[priority] {
            return;
        }
        self.taking_done[priority] = true;
        if stack.has_messages() {
            let taken = stack.take_all();
            self.has_taken_low |= priority == LOW;
            let place = if priority == URGENT && taken.second != 0 {
                &mut self.unreversed
            } else {
                &mut self.ready[priority]
            };
            *place = taken;
        }
    }

    /// Returns true if there are urgent messages to reverse, and this pass may still reverse some.
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
        to.count = (to.count + reversed).min(FIRST_INEXACT_COUNT);
        self.reversals_left -= reversed as usize;
        (self.unreversed, self.reversed) = (from, to);
        if from.first == 0 {
            self.ready[URGENT] = mem::take(&mut self.reversed);
        }
    }

    /// Removes the next message, and returns its index and its link. Returns zeros if there is no
    /// message, or if the budget is spent. In the urgent phase, removes only urgent messages.
    /// Afterwards, removes low-priority messages first.
    #[inline(always)]
    pub(crate) fn pop(&mut self, link_of: impl FnOnce(u32) -> u32) -> (u32, u32) {
        let messages = &mut self.ready[self.next_priority()];
        let index = messages.first;
        if index == 0 || self.budget == 0 {
            return (0, 0);
        }
        let link = link_of(index);
        *messages = messages.without_first(link);
        self.budget -= 1;
        (index, link)
    }

    /// Returns true if [`pop`](Self::pop) would return a message.
    pub(crate) fn has_next(&self) -> bool {
        self.budget != 0 && self.ready[self.next_priority()].first != 0
    }

    #[inline]
    fn next_priority(&self) -> usize {
        if self.is_in_urgent_phase() || self.ready[LOW].first == 0 { URGENT } else { LOW }
    }

    /// Removes the next low-priority message, regardless of the budget, for an add that needs room.
    /// Returns the message's index, or 0 if there is none.
    pub(crate) fn pop_low(&mut self, mailbox: &Mailbox, link_of: impl FnOnce(u32) -> u32) -> u32 {
        let messages = &mut self.ready[LOW];
        if messages.first == 0 && mailbox.low.has_messages() {
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
    fn has_urgent(&self) -> bool {
        self.ready[URGENT].first != 0 || self.unreversed.first != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let [urgent, low] = &self.ready;
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
        let [urgent, low] = self.ready;
        [urgent, low, self.unreversed, self.reversed]
    }
}
