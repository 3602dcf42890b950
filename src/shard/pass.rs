//! The beginning of a pass: reads the clock and takes remote requests. `stats` has its end.

use std::time::Instant;

use super::Shard;
use crate::limits::{INDEX_MAX, LONG_SLEEP, MESSAGES_MAX};

impl<T> Shard<T> {
    /// Begins a pass after the clock was read, and ends it if it finds no work. Returns true if
    /// there is work.
    pub(crate) fn begin_or_end(&mut self, budget: usize) -> bool {
        self.begin(budget);
        let is_idle = self.wheel.is_done() && self.backlog.is_empty();
        if is_idle {
            // Messages that arrive from here on belong to the next pass.
            self.backlog.end_pass();
            self.end_pass();
        }
        !is_idle
    }

    /// Reads the clock, and runs the turn if it finds no work. Otherwise returns false, and the
    /// caller begins a pass. Most turns of a busy loop are idle.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an idle turn 10 instructions")]
    pub(crate) fn turn_is_idle(&mut self) -> bool {
        let now = self.read_clock().lo;
        self.finds_no_work(now)
    }

    /// Runs the turn of a loop that has read the clock itself, if it finds no work.
    pub(crate) fn turn_is_idle_at(&mut self, now: Instant) -> bool {
        self.time.read_by_loop(now);
        self.publish_clock();
        self.finds_no_work(self.time.latest.lo)
    }

    /// Runs the turn at `now` if it finds no work.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an idle turn 10 instructions")]
    fn finds_no_work(&mut self, now: u64) -> bool {
        let is_idle = now < self.time.tick.start(self.wheel.idle_until())
            && self.is_quiet(now)
            && !self.nodes.has_garbage()
            && self.shared.mailbox.is_empty();
        if is_idle {
            self.count_turn(now);
        }
        is_idle
    }

    /// Begins a pass that may have something to do.
    #[inline]
    pub(crate) fn begin(&mut self, budget: usize) {
        self.begin_pass();
        self.nodes.return_nodes();
        if self.nodes.has_garbage() && !self.closed {
            // The memory of a shard that has ended is freed as a whole.
            self.nodes.trim();
        }
        self.publish_live();
        self.begin_mailbox(budget);
        // Urgent messages are consumed before the wheel's time moves. So timers fire in tick order,
        // regardless of which thread added or moved them.
        let target = self.time.tick.now(self.time.turn);
        if self.begins_with_urgent() || !self.wheel.pass_is_idle(target) {
            self.wheel.begin(&self.nodes, target, budget);
        }
    }

    /// Frees empty pages if the owner is about to sleep for long, since a sleeping loop does not
    /// turn to free them. Returns true if the sleep is long.
    pub(crate) fn trim_before_sleep(&mut self, until: Option<u64>) -> bool {
        let is_long = self.is_long_sleep(until);
        if is_long && !self.closed {
            self.nodes.return_nodes();
            self.nodes.trim_fully();
        }
        is_long
    }

    /// Frees the pages that have been retired, as
    /// [`trim_before_sleep`](Self::trim_before_sleep) does, if the shard is only borrowed.
    pub(super) fn free_before_sleep(&self, until: Option<u64>) {
        if self.is_long_sleep(until) {
            self.nodes.free_retired();
        }
    }

    fn is_long_sleep(&self, until: Option<u64>) -> bool {
        until.is_none_or(|until| until.saturating_sub(self.time.latest.lo) >= LONG_SLEEP)
    }

    /// Returns true if only urgent messages are to be consumed now.
    #[inline]
    pub(crate) fn begins_with_urgent(&self) -> bool {
        self.backlog.holds_others()
    }

    /// Takes the messages that have arrived since the last pass.
    #[inline]
    fn begin_mailbox(&mut self, budget: usize) {
        self.backlog.begin_pass(budget.min(MESSAGES_MAX));
        if self.has_messages() {
            self.take_mailbox();
            self.backlog.hold_others();
        }
    }

    /// Takes low-priority messages and new arrivals after the last due timer. Returns true if there
    /// are any.
    #[inline]
    pub(crate) fn look_again(&mut self) -> bool {
        self.has_messages() && self.look_into_mailbox()
    }

    #[inline(never)]
    fn look_into_mailbox(&mut self) -> bool {
        self.backlog.look_again();
        self.take_mailbox();
        !self.backlog.is_empty()
    }

    #[inline]
    fn has_messages(&self) -> bool {
        !self.shared.mailbox.is_empty() || !self.backlog.is_empty()
    }

    /// Takes the messages that have arrived, once per kind in a pass.
    #[inline]
    pub(super) fn take_mailbox(&mut self) {
        self.backlog.take_more(&self.shared.mailbox);
        if self.backlog.must_reverse() {
            // The request that came first is consumed first.
            let nodes = &mut self.nodes;
            self.backlog.reverse(|index, link| nodes.sender(index).link().exchange(link));
        }
    }

    /// Publishes the number of live timers, which limits remote adds.
    #[inline]
    pub(crate) fn publish_live(&self) {
        if self.limit < INDEX_MAX {
            self.shared.admission.set_live(self.live);
        }
    }
}
