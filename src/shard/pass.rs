//! How a pass begins: with the time, and with what other threads have asked for. (It ends in `telling`.)

use super::Shard;
use crate::limits::{INDEX_MAX, LONG_SLEEP, MESSAGES_MAX};

impl<T> Shard<T> {
    /// Begins a pass for which the clock has been read, and ends it if there is nothing to do in it. Whether there is.
    pub(crate) fn begin_or_end(&mut self, budget: usize) -> bool {
        self.begin(budget);
        let is_idle = self.wheel.is_done() && self.opened.is_empty();
        if is_idle {
            // Messages that arrive from here on belong to the next pass.
            self.opened.end_pass();
            self.end_pass();
        }
        !is_idle
    }

    /// Reads the clock for a turn. Returns true if it finds nothing to do, as most turns of a busy loop: neither in the wheel, nor in the
    /// mailbox, nor for memory and metrics.
    #[inline]
    pub(crate) fn turn_is_idle(&mut self) -> bool {
        let now = self.read_clock().lo;
        self.turn_at(now);
        let target = self.tick.now(now);
        self.arrived = self.shared.mailbox.arrived();
        self.is_quiet(now)
            && self.arrived.is_none()
            && !self.nodes.has_garbage()
            && self.wheel.pass_is_idle(target)
    }

    /// Begins a pass that may have something to do.
    #[inline]
    fn begin(&mut self, budget: usize) {
        self.begin_pass();
        self.nodes.return_nodes();
        if self.nodes.has_garbage() && !self.closed {
            // The memory of a shard that has ended is freed as a whole.
            self.nodes.trim();
        }
        self.tell_gate();
        self.begin_mailbox(budget);
        let target = self.tick.now(self.turn_nanos);
        // What is urgent is met before the wheel's time moves: so what is due is handed out in order, whoever has asked for it.
        if self.begins_with_urgent() {
            self.wheel.begin_to_look(&self.nodes, target, budget);
        } else {
            self.wheel.begin(&self.nodes, target, budget);
        }
    }

    /// Frees memory that is not needed, if the owner is about to sleep for long: a loop that sleeps does not turn for that.
    /// Returns true if the sleep is long.
    pub(crate) fn trim_before_sleep(&mut self, until: Option<u64>) -> bool {
        let is_long = until.is_none_or(|until| until.saturating_sub(self.latest.lo) >= LONG_SLEEP);
        if is_long && self.nodes.has_garbage() && !self.closed {
            self.nodes.trim_fully();
        }
        is_long
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
        if self.has_messages() {
            self.opened.take_arrived(&self.shared.mailbox, self.arrived);
            if self.opened.next_to_reverse() != 0 {
                self.reverse_some();
            }
            self.opened.hold_others();
        }
    }

    /// Nothing is due any more: what can wait comes now, and something may have arrived meanwhile. Whether there is any.
    #[inline]
    pub(crate) fn look_again(&mut self) -> bool {
        self.arrived = self.shared.mailbox.arrived();
        self.has_messages() && self.look_into_mailbox()
    }

    #[inline(never)]
    fn look_into_mailbox(&mut self) -> bool {
        self.opened.look_again();
        self.take_mailbox();
        !self.opened.is_empty()
    }

    #[inline]
    fn has_messages(&self) -> bool {
        !self.arrived.is_none() || !self.opened.is_empty()
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
            self.nodes.meet(index);
            let link = self.nodes.link(index);
            self.nodes.prefetch_link(link.get());
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
}
