//! Consumes remote requests: messages of the mailbox, and moves found in the word of a due timer.

use super::engine::{Claimed, Engine};
use crate::{
    cross_core::{
        mailbox::Messages,
        reclaim::pin,
        slab::{Ended, NodeRef},
        state::Collected,
    },
    wheel::Storage,
};

/// The remaining work for a message. It is done while nothing is borrowed.
#[must_use]
pub(crate) enum Message<P> {
    /// The timer was cancelled. The caller drops its payload, if it is there.
    Cancelled(Option<P>),
    /// The timer was moved to a deadline that has elapsed. It runs now.
    Due(Claimed),
    /// Nothing remains to be done.
    Done,
}

/// A payload that a pass has taken out of a node.
#[must_use]
pub(crate) enum Payload<T> {
    /// The timer has fired.
    Due(T),
    /// Another thread has cancelled the timer.
    Cancelled(T),
}

impl<T> Engine<T> {
    /// Consumes the messages that were urgent when the pass began, up to the first timer that runs
    /// now.
    #[cold]
    pub(super) fn next_urgent(&mut self) -> Option<Claimed> {
        let claimed = self.next_due_message();
        if claimed.is_none() {
            self.take_remaining();
        }
        claimed
    }

    /// Consumes the remaining messages and new ones, up to the first timer that runs now. If there
    /// is none, ends the pass.
    pub(super) fn next_remaining_or_end(&mut self) -> Option<Claimed> {
        let claimed = if self.take_remaining() { self.next_due_message() } else { None };
        if claimed.is_none() {
            self.backlog.end_pass();
            self.end_pass();
        }
        claimed
    }

    fn next_due_message(&mut self) -> Option<Claimed> {
        loop {
            match self.next_message(|node| Some(node.take_payload()))? {
                Message::Cancelled(payload) => self.shared.hooks.drop_catching_panic(payload),
                Message::Due(claimed) => return Some(claimed),
                Message::Done => (),
            }
        }
    }

    /// Returns the next payload of this pass. If there is none, ends the pass. The caller runs or
    /// drops the payload when it no longer borrows the shard.
    pub(crate) fn next_payload(&mut self) -> Option<Payload<T>> {
        if !self.stats.in_pass {
            return None;
        }
        if self.urgent_comes_first() {
            if let Some(payload) = self.next_message_payload() {
                return Some(payload);
            }
            self.take_remaining();
        }
        if let Some((claimed, ended)) = self.claim_due(Ended::of) {
            self.count_ended(claimed.index, ended.freed);
            return Some(Payload::Due(ended.payload));
        }
        if self.take_remaining()
            && let Some(payload) = self.next_message_payload()
        {
            return Some(payload);
        }
        self.backlog.end_pass();
        self.end_pass();
        None
    }

    fn next_message_payload(&mut self) -> Option<Payload<T>> {
        loop {
            match self.next_message(|node| Some(node.take_payload()))? {
                Message::Cancelled(Some(payload)) => return Some(Payload::Cancelled(payload)),
                Message::Due(claimed) => {
                    let (claimed, ended) = self.end(claimed);
                    self.count_ended(claimed.index, ended.freed);
                    return Some(Payload::Due(ended.payload));
                }
                Message::Cancelled(None) | Message::Done => (),
            }
        }
    }

    /// Consumes the next message within the budget. `take` takes the payload of a cancelled timer.
    #[inline]
    pub(crate) fn next_message<P>(
        &mut self,
        take: impl FnOnce(NodeRef<'_, T>) -> Option<P>,
    ) -> Option<Message<P>> {
        let (index, link) = match self.take_message() {
            (0, _) => self.take_new_message()?,
            taken => taken,
        };
        // The message after the next comes from another core's cache. The next one is on its way.
        self.nodes.prefetch(link);
        let node = self.nodes.entry(index);
        Some(match node.state().collect() {
            Collected::Cancelled { has_payload } => {
                Message::Cancelled(self.collect_cancelled(index, has_payload, take))
            }
            Collected::Freed => {
                self.nodes.free(index);
                Message::Done
            }
            Collected::Moved { periodic } => {
                let claimed = if node.is_not_admitted() {
                    self.admit(index, periodic)
                } else {
                    self.stats.counts.resets_elsewhere += 1;
                    self.apply_move(index, periodic)
                };
                claimed.map_or(Message::Done, Message::Due)
            }
            Collected::Nothing => Message::Done,
        })
    }

    /// Takes the next message within the budget. Returns its index and its link, zero if there is
    /// none.
    #[inline]
    fn take_message(&mut self) -> (u32, u32) {
        let nodes = &mut self.nodes;
        self.backlog.next(|index| nodes.node_of_message(index).link().get())
    }

    /// Polls the mailbox, at most once for each kind in a pass. It finds messages after the backlog
    /// of an earlier pass, or if the mailbox was empty at the beginning. After the last message of
    /// the budget, the pass learns here whether it leaves a backlog.
    #[inline(never)]
    fn take_new_message(&mut self) -> Option<(u32, u32)> {
        if !self.backlog.may_take_more() {
            return None;
        }
        self.take_mailbox();
        Some(self.take_message()).filter(|&(index, _)| index != 0)
    }

    /// Collects the next remotely cancelled timer ahead of its order, because an add needs its
    /// room. Returns `None` if no such timer waits.
    #[cold]
    pub(crate) fn next_cancelled<P>(
        &mut self,
        take: impl FnOnce(NodeRef<'_, T>) -> Option<P>,
    ) -> Option<Message<P>> {
        let nodes = &mut self.nodes;
        let link_of = |index| nodes.node_of_message(index).link().get();
        let index = self.backlog.next_cancelled(&self.shared.mailbox, link_of);
        if index == 0 {
            return None;
        }
        // The others are out of the mailbox, where an idle turn looks.
        self.stats.note_backlog();
        match self.nodes.entry(index).state().collect() {
            Collected::Cancelled { has_payload } => {
                Some(Message::Cancelled(self.collect_cancelled(index, has_payload, take)))
            }
            other => unreachable!("a message that can wait is about a cancelled timer: {other:?}"),
        }
    }

    /// Collects a remotely cancelled timer. It is in no slot if it was due and its claim failed, or
    /// if it was not admitted.
    #[inline]
    fn collect_cancelled<P>(
        &mut self,
        index: u32,
        has_payload: bool,
        take: impl FnOnce(NodeRef<'_, T>) -> Option<P>,
    ) -> Option<P> {
        let node = self.nodes.entry(index);
        let payload = if has_payload {
            self.short_sleeps_until = self.time.turn.saturating_add(self.shared.drop_within);
            take(node)
        } else {
            None
        };
        self.stats.counts.cancelled_elsewhere += 1;
        if node.is_not_admitted() {
            self.count_cancelled_unseen();
        } else {
            self.wheel.unlink_if_linked(&self.nodes, node);
            self.stats.count_cancelled();
        }
        self.nodes.free(index);
        payload
    }

    /// Returns the number of messages that mean a live, remotely cancelled timer, and the number of
    /// all messages.
    pub(super) fn count_messages(&self, waiting: impl IntoIterator<Item = Messages>) -> (u64, u64) {
        let (mut held, mut messages) = (0, 0);
        for mut waiting in waiting {
            loop {
                let index = waiting.first;
                if index == 0 {
                    break;
                }
                let (link, is_held) = self.count_message(index);
                waiting = waiting.rest(link);
                messages += 1;
                held += u64::from(is_held);
            }
        }
        (held, messages)
    }

    /// Returns the link of a message, and whether it means a live, remotely cancelled timer.
    fn count_message(&self, index: u32) -> (u32, bool) {
        if self.nodes.knows(index) {
            let node = self.nodes.entry(index);
            return (node.link().get(), !node.is_not_admitted() && node.state().is_held());
        }
        let pinned = pin();
        let node = self.shared.slab.node(index, &pinned);
        (node.map_or(0, |node| node.link.get()), false)
    }
}
