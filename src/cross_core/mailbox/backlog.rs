//! The owner's backlog of messages, and the message budget of a *pass*, the part of a turn that
//! consumes messages and fires timers. The owner consumes urgent messages in FIFO order, and
//! low-priority messages newest first.

use std::mem;

use super::{FIRST_INEXACT_COUNT, Mailbox, MessageList};
use crate::limits::REVERSED_MESSAGES_PER_TURN_MAX;

/// The index of low-priority messages in `Backlog::ready_by_priority`.
const LOW_PRIORITY_INDEX: usize = 0;
/// The index of urgent messages in `Backlog::ready_by_priority`.
const URGENT_INDEX: usize = 1;

/// The messages that the owner has taken out of the mailbox and not consumed yet.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The messages of each priority that are ready to be consumed, urgent messages in FIFO order.
    pub(super) ready_by_priority: [MessageList; 2],
    /// Urgent messages that are not reversed yet: newest first. While this list has messages, the
    /// owner consumes no urgent message.
    pub(super) urgent_newest_first: MessageList,
    /// Urgent messages in FIFO order. The messages move to `ready_by_priority` once
    /// `urgent_newest_first`, which holds older messages, is empty.
    urgent_oldest_first: MessageList,
    pub(crate) phase: MessagePhase,
    /// The part of the pass's budget that is reserved for low-priority messages.
    budget_reserved_for_low: usize,
    /// True if half of the most recent odd budget was rounded up for low-priority messages.
    pub(super) last_odd_budget_favored_low: bool,
}

/// The phase of a pass. If there are urgent messages, a pass begins with the *urgent phase*. The
/// last phase consumes only low-priority messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessagePhase {
    pub(crate) is_urgent: bool,
    /// True if this phase may still take messages out of the mailbox, at most once. Later messages
    /// wait for the next pass, so that a flood does not prolong this pass.
    may_take_from_mailbox: bool,
    /// The number of messages that this phase may still consume.
    pub(crate) budget: usize,
}

impl MessagePhase {
    pub(crate) const fn low_priority(budget: usize) -> Self {
        Self { is_urgent: false, may_take_from_mailbox: true, budget }
    }
}

impl Backlog {
    /// Begins a pass. If there are urgent messages, begins with the urgent phase and returns true.
    /// If there are no messages when a pass begins, the pass consumes none, even if some arrive
    /// later.
    #[inline]
    pub(crate) fn begin_pass(&mut self, mailbox: &Mailbox, budget: usize) -> bool {
        if self.is_empty() && mailbox.is_empty() {
            self.phase = MessagePhase::default();
            return false;
        }
        self.begin_pass_with_messages(mailbox, budget)
    }

    #[inline(never)]
    fn begin_pass_with_messages(&mut self, mailbox: &Mailbox, budget: usize) -> bool {
        self.phase = MessagePhase::low_priority(budget);
        let has_urgent_messages = self.ready_by_priority[URGENT_INDEX].first_index
            | self.urgent_newest_first.first_index
            != 0
            || mailbox.urgent.has_messages();
        if has_urgent_messages {
            self.begin_urgent_phase(mailbox);
        }
        has_urgent_messages
    }

    /// Reserves up to half of the budget for low-priority messages, so that a flood of urgent
    /// messages does not starve them. Half of an odd budget is rounded up and down alternately, so
    /// that a budget of one starves neither priority.
    fn begin_urgent_phase(&mut self, mailbox: &Mailbox) {
        let MessagePhase { is_urgent, budget, .. } = &mut self.phase;
        *is_urgent = true;
        let is_odd = !budget.is_multiple_of(2);
        self.last_odd_budget_favored_low ^= is_odd;
        let half_budget = *budget / 2 + usize::from(is_odd && self.last_odd_budget_favored_low);
        let low_count =
            self.ready_by_priority[LOW_PRIORITY_INDEX].count() + mailbox.low_priority.depth();
        self.budget_reserved_for_low = half_budget.min(low_count as usize);
        *budget -= self.budget_reserved_for_low;
    }

    /// Returns true if this pass may have low-priority messages to consume.
    #[inline]
    pub(crate) fn may_have_low_priority_messages(&self) -> bool {
        self.phase.may_take_from_mailbox
            || self.ready_by_priority[LOW_PRIORITY_INDEX].first_index != 0
    }

    /// Returns true if the pass in progress still has to take messages out of the mailbox.
    pub(crate) fn must_take_from_mailbox(&self, mailbox: &Mailbox) -> bool {
        let MessagePhase { is_urgent, may_take_from_mailbox, .. } = self.phase;
        is_urgent && may_take_from_mailbox && mailbox.urgent.has_messages()
            || (is_urgent || may_take_from_mailbox) && mailbox.low_priority.has_messages()
    }

    /// Subtracts `extra_messages` from the budget, after a batch of several messages, or an event
    /// with several watches, has counted as one message.
    pub(crate) fn charge_budget(&mut self, extra_messages: usize) {
        self.phase.budget = self.phase.budget.saturating_sub(extra_messages);
    }

    /// Removes the next message of this phase. Returns the message's node and link, which
    /// `node_and_link` looks up by the node's index. Returns `None` if no message is ready, or if
    /// the budget is spent.
    #[inline]
    pub(crate) fn remove_next_message<N>(
        &mut self,
        node_and_link: impl FnOnce(u32) -> (N, u32),
    ) -> Option<(N, u32)> {
        let messages = &mut self.ready_by_priority[usize::from(self.phase.is_urgent)];
        let index = messages.first_index;
        if self.phase.budget == 0 || index == 0 {
            return None;
        }
        self.phase.budget -= 1;
        let (node, link) = node_and_link(index);
        *messages = messages.without_first(link);
        Some((node, link))
    }

    /// Called after [`remove_next_message`](Self::remove_next_message) has returned `None`. Takes
    /// the messages of this phase out of the mailbox, at most once per phase. Reverses urgent
    /// messages into FIFO order, up to a limit per pass. `replace_link` sets the link of a message
    /// and returns the previous link.
    ///
    /// Returns true if this phase now has a message to consume. If the urgent phase has no message
    /// to consume, ends this phase: the remaining urgent messages wait for the next pass.
    pub(crate) fn refill_or_end_phase(
        &mut self,
        mailbox: &Mailbox,
        replace_link: impl FnMut(u32, u32) -> u32,
    ) -> bool {
        let priority_index = usize::from(self.phase.is_urgent);
        let has_message = self.ready_by_priority[priority_index].first_index != 0;
        if !has_message && mem::take(&mut self.phase.may_take_from_mailbox) {
            if self.phase.is_urgent {
                if self.urgent_newest_first.first_index == 0 {
                    self.urgent_newest_first = mailbox.urgent.take_all();
                }
                self.reverse_urgent(REVERSED_MESSAGES_PER_TURN_MAX, replace_link);
            } else {
                self.ready_by_priority[LOW_PRIORITY_INDEX] = mailbox.low_priority.take_all();
            }
            if self.phase.budget > 0 && self.ready_by_priority[priority_index].first_index != 0 {
                return true;
            }
        }
        if self.phase.is_urgent {
            self.phase =
                MessagePhase::low_priority(self.phase.budget + self.budget_reserved_for_low);
        }
        false
    }

    /// Moves up to `limit` messages from `urgent_newest_first` to `urgent_oldest_first`. When
    /// `urgent_newest_first` is empty, the reversed messages become ready.
    pub(super) fn reverse_urgent(
        &mut self,
        limit: usize,
        mut replace_link: impl FnMut(u32, u32) -> u32,
    ) {
        let (mut unreversed, mut reversed, mut moved_count) =
            (self.urgent_newest_first, self.urgent_oldest_first, 0);
        while unreversed.first_index != 0 && moved_count as usize != limit {
            let third_index = replace_link(unreversed.first_index, reversed.second_index);
            (reversed.first_index, reversed.second_index) =
                (unreversed.first_index, reversed.first_index);
            (unreversed.first_index, unreversed.second_index) =
                (unreversed.second_index, third_index);
            moved_count += 1;
        }
        (unreversed.count, reversed.count) =
            (unreversed.count - moved_count, reversed.count + moved_count);
        (self.urgent_newest_first, self.urgent_oldest_first) = (unreversed, reversed);
        if unreversed.first_index == 0 {
            self.ready_by_priority[URGENT_INDEX] = mem::take(&mut self.urgent_oldest_first);
        }
    }

    /// Returns the number of low-priority messages in the backlog. A number of at least
    /// `FIRST_INEXACT_COUNT` may be inexact.
    #[inline]
    pub(crate) fn cancelled_count(&self) -> u32 {
        self.ready_by_priority[LOW_PRIORITY_INDEX].count()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let [low, urgent] = &self.ready_by_priority;
        (urgent.first_index | low.first_index | self.urgent_newest_first.first_index) == 0
    }

    /// Returns the number of messages in the backlog. A number of at least `FIRST_INEXACT_COUNT`
    /// may be inexact.
    #[inline]
    pub(crate) fn message_count(&self) -> u32 {
        let urgent = [
            self.ready_by_priority[URGENT_INDEX],
            self.urgent_newest_first,
            self.urgent_oldest_first,
        ];
        let urgent: u32 = urgent.iter().map(MessageList::count).sum();
        urgent.min(FIRST_INEXACT_COUNT) + self.cancelled_count()
    }

    #[inline]
    pub(crate) fn message_lists(&self) -> [MessageList; 4] {
        let [low, urgent] = self.ready_by_priority;
        [urgent, low, self.urgent_newest_first, self.urgent_oldest_first]
    }
}
