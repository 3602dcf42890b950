//! Publishes the owner's counts of timers and turns to other threads (see `gauges`).

use std::{cell::Cell, mem};

use super::Shard;
use crate::{
    gauges::{Counts, LateBy},
    limits::TURNS_UNPUBLISHED,
    metrics::ShardMetrics,
};

/// The state of publishing.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// A pass has begun and not ended.
    in_pass: bool,
    /// Passes are never abandoned. A query during a pass then comes from a callback and not from
    /// the loop.
    passes_end: bool,
    /// The preceding pass left a backlog to this one.
    has_left: bool,
    /// Until this moment, a turn has nothing to do besides due timers and messages. It is the
    /// wake-up time that the loop last published. It is zero if a pass has not ended or has left
    /// work.
    quiet_until: Cell<u64>,
    /// The common deadline, as a tick, of the timers that fired last, and their number.
    due: u64,
    timers: u32,
    /// The last turn has ended, and its length is not known yet.
    is_untimed: Cell<bool>,
    /// The sum of changes and the number of queued messages when the counts were last published.
    last_published: Cell<(u64, u32)>,
    /// The turn that publishes the counts at the latest.
    publish_at: Cell<u64>,
}

impl<T> Shard<T> {
    /// Returns the counts of the timers so far. Cost: some nanoseconds for each queued message.
    pub fn counts(&self) -> Counts {
        let waiting = self.backlog.left().into_iter().chain(self.shared.mailbox.waiting());
        let (held, queued) = self.count_messages(waiting);
        Counts { held, queued, ..self.counted() }
    }

    /// Returns the activity of the shard and the lateness of its timers, up to this moment. Other
    /// threads call [`metrics::shards`](crate::metrics::shards).
    pub fn metrics(&self) -> ShardMetrics {
        self.shared.gauges.publish_levels(self.wheel.occupied());
        ShardMetrics { counts: self.counts(), ..ShardMetrics::of(self.number, &self.shared) }
    }

    /// Returns where in the program the live timers were added, and their ages. A periodic timer is
    /// left out during its own run. Needs the feature `origins`.
    ///
    /// Cost: some nanoseconds for each timer of the shard's largest number of live timers.
    #[cfg(feature = "origins")]
    pub fn live_report(&self) -> crate::metrics::LiveReport {
        let now = self.time.now();
        crate::metrics::LiveReport::new(self.nodes.added(), now)
    }

    /// Returns the counts without the messages that wait.
    #[inline]
    fn counted(&self) -> Counts {
        Counts {
            live: self.live.into(),
            panicked: self.shared.hooks.panicked(),
            touched: self.wheel.touched(),
            clock_regressions: self.time.regressions,
            ..self.counts
        }
    }

    /// Returns the number of timers added so far.
    pub(crate) fn added(&self) -> u64 {
        self.counts.added
    }

    /// Declares that the driver takes every pass to its end.
    pub(crate) fn passes_end(&mut self) {
        self.stats.passes_end = true;
    }

    /// Begins a turn, idle or not.
    #[inline]
    pub(super) fn count_turn(&mut self, now: u64) {
        self.time.begin_turn(now);
        self.counts.turns += 1;
    }

    /// Returns true if a turn in which nothing is due has nothing to do: no pass has left a
    /// backlog, the loop did not announce this turn, and the counts were published recently.
    #[inline]
    pub(super) fn is_quiet(&self, now: u64) -> bool {
        now < self.stats.quiet_until.get() && self.counts.turns < self.stats.publish_at.get()
    }

    /// Notes that messages wait outside the mailbox, although no pass has left them.
    pub(super) fn leaves_backlog(&mut self) {
        self.stats.has_left = true;
        self.leaves_work();
    }

    /// Notes that the next turn has work, although no pass has left it.
    pub(crate) fn leaves_work(&self) {
        self.stats.quiet_until.set(0);
    }

    /// Whether a pass has begun and not ended.
    #[inline]
    pub(super) fn is_in_pass(&self) -> bool {
        self.stats.in_pass
    }

    /// Begins a pass of a turn that is published.
    #[inline]
    pub(super) fn begin_pass(&mut self) {
        if self.stats.in_pass {
            // An abandoned pass is published with the time of its turn.
            self.publish_fired();
        }
        self.count_turn(self.time.latest.lo);
        // An abandoned pass keeps its backlog.
        self.stats.has_left |= mem::replace(&mut self.stats.in_pass, true);
        self.stats.quiet_until.set(0);
        self.shared.gauges.turn_begins(self.time.turn, self.counts.turns);
    }

    /// Ends the pass. Returns true if it has left a backlog to the next one.
    #[inline]
    pub(crate) fn end_pass(&mut self) -> bool {
        let is_behind = self.is_behind();
        if mem::replace(&mut self.stats.in_pass, false) {
            self.publish_fired();
            self.stats.has_left = is_behind;
            self.stats.quiet_until.set(if is_behind { 0 } else { u64::MAX });
            self.counts.overruns += u64::from(is_behind);
            self.shared.gauges.turn_ends(self.counts.turns);
            self.stats.is_untimed.set(true);
            self.publish_live();
            if self.counts.turns >= self.stats.publish_at.get() {
                self.publish();
            }
        }
        is_behind
    }

    /// Publishes the counts if they have changed.
    #[inline]
    pub(super) fn publish(&self) {
        let &Counts { cancelled, handed_back, resets, resets_elsewhere, .. } = &self.counts;
        let &Counts { overruns, turns, .. } = &self.counts;
        // `touched` counts the changes of the wheel. No counter ever decreases, so an unchanged sum
        // means unchanged counts.
        let apart =
            cancelled + handed_back + resets + resets_elsewhere + self.time.regressions + overruns;
        let changed = (self.wheel.touched() + apart, self.backlog.count());
        self.stats.publish_at.set(turns + TURNS_UNPUBLISHED);
        if self.stats.last_published.replace(changed) != changed {
            let held = self.backlog.cancelled().into();
            let counts = Counts { held, queued: self.backlog.count().into(), ..self.counted() };
            self.shared.gauges.publish(&counts.to_words());
        }
        if self.shared.gauges.wants_levels() {
            self.shared.gauges.publish_levels(self.wheel.occupied());
        }
    }

    /// Counts a timer that fires and was due at tick `due`.
    #[inline]
    pub(super) fn count_due(&mut self, due: u64) {
        self.counts.runs += 1;
        if due != self.stats.due {
            self.publish_fired();
            self.stats.due = due;
        }
        self.stats.timers += 1;
    }

    /// Counts a remotely added or moved timer whose deadline had elapsed when the owner consumed
    /// its message.
    pub(super) fn count_arrived_due(&mut self, due: u64) {
        self.counts.runs += 1;
        // Zero means that it was to run at once.
        if due > 0 {
            self.publish_late(due, 1);
        }
    }

    /// Publishes the lateness of the last timers with a common deadline.
    #[inline]
    fn publish_fired(&mut self) {
        let timers = mem::take(&mut self.stats.timers);
        if timers > 0 {
            self.publish_late(self.time.tick.start(self.stats.due), timers);
        }
    }

    /// Publishes the lateness of `timers` timers whose deadline was `due`, in nanoseconds of the
    /// clock.
    fn publish_late(&self, due: u64, timers: u32) {
        let by = match (due > self.time.turn_before, self.stats.has_left) {
            (true, _) => LateBy::Loop,
            (false, true) => LateBy::Turn,
            // They had elapsed when they were added or moved, to run at once: nothing is late.
            (false, false) => return,
        };
        self.shared.gauges.fired_late(by, self.time.turn.saturating_sub(due), timers);
    }

    /// Publishes the counts and the next deadline for a loop that has not asked yet. Returns that
    /// deadline and the present, in nanoseconds of the clock. Other threads publish the deadlines
    /// of their requests.
    #[cold]
    pub(crate) fn tell_unasked(&self) -> (u64, u64) {
        let next = self.wheel.next_deadline().map(|tick| self.time.tick.start(tick));
        self.publish();
        self.shared.gauges.wants_turn_at(self.wanted_at(next));
        (next.unwrap_or(u64::MAX), self.time.latest.lo)
    }

    /// Returns the wake-up time that the loop wants after the last turn. An elapsed deadline
    /// becomes one nanosecond after that turn.
    fn wanted_at(&self, next: Option<u64>) -> u64 {
        next.map_or(u64::MAX, |next| next.max(self.time.turn.saturating_add(1)))
    }

    /// Records that the loop is about to sleep until `next`.
    #[inline]
    pub(super) fn asked_at(&self, now: u64, next: Option<u64>) {
        // Timers that the loop has cancelled since its turn make room for other threads, which
        // cannot wake it to learn of that.
        self.publish_live();
        if self.stats.in_pass && self.stats.passes_end {
            return;
        }
        self.publish();
        let wanted_at = self.wanted_at(next);
        self.stats.quiet_until.update(|quiet_until| quiet_until.min(wanted_at));
        self.shared.gauges.wants_turn_at(wanted_at);
        if self.stats.in_pass {
            // The pass was given up.
            self.shared.gauges.turn_ends(self.counts.turns);
        }
        if self.stats.is_untimed.replace(false) {
            self.shared.gauges.turn_took(now.saturating_sub(self.time.turn));
        }
    }
}
