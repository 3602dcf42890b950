//! What other threads have asked for, as the owner meets it: in the mailbox, or in the word of a timer that is due.

use super::{Shard, steps::Claimed};
use crate::{mailbox::Messages, reclaim::pin, slab::OwnerNodes, state::Collected, wheel::Storage};

/// What is to be done about a message when nothing is borrowed.
#[must_use]
pub(crate) enum Message<P> {
    /// The timer was cancelled: its payload, if it is there, is to be dropped.
    Cancelled(Option<P>),
    /// The timer was moved to a moment that has come: it runs now.
    Due(Claimed),
    /// Nothing: it has been dealt with.
    Done,
}

impl<T> Shard<T> {
    /// Takes in what was urgent when the pass began, up to the first timer that runs now.
    #[cold]
    pub(super) fn take_in_before(&mut self) -> Option<Claimed> {
        let claimed = self.take_in();
        if claimed.is_none() {
            self.look_again();
        }
        claimed
    }

    /// Takes in the rest, and what has arrived meanwhile, up to the first timer that runs now; if there is none, the pass ends.
    pub(super) fn take_in_or_end(&mut self) -> Option<Claimed> {
        let claimed = if self.look_again() { self.take_in() } else { None };
        if claimed.is_none() {
            self.opened.end_pass();
            self.end_pass();
        }
        claimed
    }

    fn take_in(&mut self) -> Option<Claimed> {
        loop {
            match self.next_message(|nodes, index| Some(nodes.take_payload(index)))? {
                Message::Cancelled(payload) => self.shared.hooks.isolate_drop(payload),
                Message::Due(claimed) => return Some(claimed),
                Message::Done => (),
            }
        }
    }

    /// Deals with the next message of those that were taken, within the budget. `take` takes the payload of a cancelled timer.
    #[inline]
    pub(crate) fn next_message<P>(
        &mut self,
        take: impl FnOnce(&OwnerNodes<T>, u32) -> Option<P>,
    ) -> Option<Message<P>> {
        if self.opened.has_met_enough() {
            return None;
        }
        // After what an earlier pass has left, or if nothing was there when this one began.
        self.take_mailbox();
        let index = self.opened.next();
        if index == 0 {
            return None;
        }
        self.nodes.meet(index);
        let link = self.nodes.link(index).get();
        self.opened.meet(link, &self.shared.mailbox);
        // The message after the next comes from another core's cache. The next one is on its way.
        self.nodes.prefetch(link);
        Some(match self.nodes.collect(index) {
            Collected::Cancelled { has_payload } => {
                Message::Cancelled(self.collect_cancelled(index, has_payload, take))
            }
            Collected::Freed => {
                self.nodes.free(index);
                Message::Done
            }
            Collected::Moved { periodic } => {
                if self.nodes.is_not_admitted(index) {
                    self.admit(index);
                } else {
                    self.counts.resets_elsewhere += 1;
                }
                self.settle(index, periodic).map_or(Message::Done, Message::Due)
            }
            Collected::Nothing => Message::Done,
        })
    }

    /// Collects the next timer that another thread has cancelled, out of turn: an add needs its room. `None` if no such timer waits.
    #[cold]
    pub(crate) fn next_cancelled<P>(
        &mut self,
        take: impl FnOnce(&OwnerNodes<T>, u32) -> Option<P>,
    ) -> Option<Message<P>> {
        let index = self.opened.next_cancelled(&self.shared.mailbox);
        if index == 0 {
            return None;
        }
        self.nodes.meet(index);
        self.opened.meet_cancelled(self.nodes.link(index).get());
        match self.nodes.collect(index) {
            Collected::Cancelled { has_payload } => {
                Some(Message::Cancelled(self.collect_cancelled(index, has_payload, take)))
            }
            other => unreachable!("a message that can wait is about a cancelled timer: {other:?}"),
        }
    }

    /// Another thread has cancelled a timer. It is in no slot if it was due and its claim failed, or was not admitted.
    #[inline]
    fn collect_cancelled<P>(
        &mut self,
        index: u32,
        has_payload: bool,
        take: impl FnOnce(&OwnerNodes<T>, u32) -> Option<P>,
    ) -> Option<P> {
        let payload = if has_payload {
            self.short_sleeps_until = self.turn_nanos.saturating_add(self.shared.drop_within);
            take(&self.nodes, index)
        } else {
            None
        };
        self.counts.cancelled_elsewhere += 1;
        if self.nodes.is_not_admitted(index) {
            self.count_cancelled_unseen();
        } else {
            self.count_cancelled();
            self.wheel.unlink_if_linked(&self.nodes, index);
        }
        self.nodes.free(index);
        payload
    }

    /// How many of these messages mean a live timer that another thread has cancelled, and how many they are.
    pub(super) fn look_through(&self, waiting: impl IntoIterator<Item = Messages>) -> (u64, u64) {
        let (mut held, mut messages) = (0, 0);
        for mut waiting in waiting {
            loop {
                let index = waiting.first;
                if index == 0 {
                    break;
                }
                let (link, is_held) = self.look_at(index);
                waiting = waiting.rest(link);
                messages += 1;
                held += u64::from(is_held);
            }
        }
        (held, messages)
    }

    /// Where the link of a message leads, and whether it means a live timer that another thread has cancelled.
    fn look_at(&self, index: u32) -> (u32, bool) {
        if self.nodes.knows(index) {
            let is_live = !self.nodes.is_not_admitted(index);
            let is_held = is_live && self.nodes.state(index).is_held();
            return (self.nodes.link(index).get(), is_held);
        }
        let link = self.shared.slab.with(index, &pin(), |node| node.link.get());
        (link.unwrap_or(0), false)
    }
}
