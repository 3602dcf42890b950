//! How a pass begins: with the time, and with what other threads have asked for. (It ends in `telling`.)

use super::Shard;
use crate::limits::{GUEST, INDEX_MAX, MESSAGES_MAX, PAGE_BITS};

impl<T> Shard<T> {
    /// Begins a pass.
    pub(crate) fn begin(&mut self, budget: usize) {
        let now = self.read_clock().lo;
        self.begin_pass(now);
        self.nodes.free_some();
        self.tell_gate();
        // What was left of the mailbox may need it.
        if self.wheel.has_too_much() && self.opened.is_empty() {
            self.give_page_back();
        }
        self.begin_mailbox(budget);
        let target = self.tick.now(self.turn_nanos);
        // What is urgent is met before the wheel's time moves: so what is due is handed out in order, whoever has asked for it.
        if self.begins_with_urgent() {
            self.wheel.begin_to_look(target, budget);
        } else {
            self.wheel.begin(target, budget);
        }
    }

    /// Begins a pass, and ends it if there is nothing to do in it. Whether there is.
    #[inline]
    pub(crate) fn begin_or_end(&mut self, budget: usize) -> bool {
        self.begin(budget);
        let is_idle = self.is_idle();
        if is_idle {
            self.end_pass();
        }
        !is_idle
    }

    /// Whether there is nothing to do in a pass that has just begun: most turns of a busy loop find nothing.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.wheel.is_done() && self.opened.is_empty()
    }

    /// Whether what is urgent is to be met now, and nothing else.
    #[inline]
    pub(crate) fn begins_with_urgent(&self) -> bool {
        self.opened.holds_others()
    }

    /// Takes what has arrived since the last pass.
    #[inline]
    fn begin_mailbox(&mut self, budget: usize) {
        self.opened.begin_pass(budget.min(MESSAGES_MAX));
        self.take_mailbox();
        self.opened.hold_others(!self.counts.turns.is_multiple_of(2));
        if !self.guests.are_none() {
            self.guests.tidy(&self.shared.guests);
        }
    }

    /// Nothing is due any more: what can wait comes now, and something may have arrived meanwhile.
    #[inline]
    pub(crate) fn look_again(&mut self) {
        self.opened.look_again();
    }

    /// Takes what has arrived, of each kind once in a pass.
    #[inline]
    pub(super) fn take_mailbox(&mut self) {
        self.opened.take_more(&self.shared.mailbox);
        if self.opened.next_to_reverse() != 0 {
            self.reverse_some();
        }
    }

    /// What other threads have asked for is met in the order in which it came.
    #[cold]
    fn reverse_some(&mut self) {
        loop {
            let index = self.opened.next_to_reverse();
            if index == 0 {
                break;
            }
            let link = if index & GUEST == 0 {
                &self.nodes.node(index).link
            } else {
                self.guests.meet(&self.shared.guests, index & !GUEST);
                &self.guests.place(index & !GUEST).node.link
            };
            let below = link.get();
            if below & GUEST == 0 {
                self.nodes.prefetch(below);
            } else {
                self.guests.prefetch(below & !GUEST);
            }
            self.opened.reverse(link);
        }
    }

    /// Other threads may fill the shard up from what it has now.
    #[inline]
    pub(crate) fn tell_gate(&self) {
        if self.limit < INDEX_MAX {
            self.shared.gate.set_live(self.live);
        }
    }

    /// Gives memory back that has not been needed, at most a page.
    #[cold]
    fn give_page_back(&mut self) {
        // What is left of a shard that has ended goes as a whole.
        if self.closed || !self.nodes.may_retire() {
            return;
        }
        let Some(page) = self.wheel.shrink() else { return };
        let retired = self.nodes.retire_page(&self.shared.slab, page << PAGE_BITS);
        debug_assert!(retired, "the wheel and the slab have the same pages");
        self.schedules.drop_page(page);
        self.origins.drop_page(page);
    }
}
