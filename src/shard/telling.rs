//! What the owner tells other threads about its timers and turns (see `gauges`).

use std::{cell::Cell, mem};

use super::Shard;
use crate::{
    gauges::{Counts, LateBy},
    limits::TURNS_UNTOLD,
    metrics::ShardMetrics,
};

/// What is to be told.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// A pass has begun and not ended.
    in_pass: bool,
    /// Passes are never given up, so that who asks in one is a callback, and not the loop.
    passes_end: bool,
    /// The pass before has left something to this one.
    has_left: bool,
    /// The clock's reading with which the turn before began.
    before: u64,
    /// Until when an idle turn has nothing to tell: the moment at which the loop wanted to turn, as far as others were told. Zero if
    /// a pass has not ended, or has left something.
    quiet_until: Cell<u64>,
    /// The tick at which the timers were due that have just fired, one after the other, and how many there were.
    due: u64,
    timers: u32,
    /// The last turn has ended, and its length is not known yet.
    is_untimed: Cell<bool>,
    /// What had changed and how many messages waited, and how many turns there had been, when the counts were told last.
    told: Cell<(u64, u32)>,
    told_in: Cell<u64>,
}

impl<T> Shard<T> {
    /// What has become of the timers so far. Cost: some nanoseconds for each message that waits.
    pub fn counts(&self) -> Counts {
        let waiting = self.opened.left().into_iter().chain(self.shared.mailbox.waiting());
        let (held, queued) = self.look_through(waiting);
        Counts { held, queued, ..self.counted() }
    }

    /// What the shard does, and how late its timers fire, up to this moment. Other threads ask
    /// [`metrics::shards`](crate::metrics::shards).
    pub fn metrics(&self) -> ShardMetrics {
        self.shared.gauges.tell_levels(self.wheel.occupied());
        ShardMetrics { counts: self.counts(), ..ShardMetrics::of(self.number, &self.shared) }
    }

    /// Where in the program the live timers were added, and how long ago. (A periodic timer is left out during its own run.)
    /// Needs the feature `origins`.
    ///
    /// Cost: some nanoseconds for each timer that was live at once.
    #[cfg(feature = "origins")]
    pub fn live_report(&self) -> crate::metrics::LiveReport {
        let now = self.clock.nanos().max(self.latest.lo);
        crate::metrics::LiveReport::new(self.nodes.added(), now)
    }

    /// Returns the counts without the messages that wait.
    #[inline]
    fn counted(&self) -> Counts {
        Counts {
            live: self.live.into(),
            panicked: self.shared.hooks.panicked(),
            touched: self.wheel.touched(),
            ..self.counts
        }
    }

    /// Whoever drives it takes every pass to its end.
    pub(crate) fn passes_end(&mut self) {
        self.telling.passes_end = true;
    }

    /// A turn begins, idle or not.
    #[inline]
    pub(super) fn turn_at(&mut self, now: u64) {
        // What the last one has not told, because its pass was given up, is told by its clock.
        if self.telling.in_pass {
            self.give_up_pass();
        }
        self.telling.before = mem::replace(&mut self.turn_nanos, now);
        self.counts.turns += 1;
    }

    #[cold]
    #[inline(never)]
    fn give_up_pass(&mut self) {
        self.tell_firing();
    }

    /// Whether an idle turn has nothing to tell: no pass has left anything, the loop has not asked for this turn, and it has not been
    /// long since something was told.
    #[inline]
    pub(super) fn is_quiet(&self, now: u64) -> bool {
        now < self.telling.quiet_until.get()
            && self.counts.turns - self.telling.told_in.get() < TURNS_UNTOLD
    }

    /// Whether a pass has begun and not ended.
    #[inline]
    pub(super) fn is_in_pass(&self) -> bool {
        self.telling.in_pass
    }

    /// A pass begins, in a turn that is told of.
    #[inline]
    pub(super) fn begin_pass(&mut self) {
        // One that is given up leaves what it leaves.
        self.telling.has_left |= mem::replace(&mut self.telling.in_pass, true);
        self.telling.quiet_until.set(0);
        self.shared.gauges.turn_begins(self.turn_nanos, self.counts.turns);
    }

    /// The pass is over. Whether it has left something to the next one.
    #[inline]
    pub(crate) fn end_pass(&mut self) -> bool {
        let is_behind = self.is_behind();
        if mem::replace(&mut self.telling.in_pass, false) {
            self.tell_firing();
            self.telling.has_left = is_behind;
            self.telling.quiet_until.set(if is_behind { 0 } else { u64::MAX });
            self.counts.overruns += u64::from(is_behind);
            self.shared.gauges.turn_ends(self.counts.turns);
            self.telling.is_untimed.set(true);
            self.tell_gate();
            if self.counts.turns - self.telling.told_in.get() >= TURNS_UNTOLD {
                self.tell();
            }
        }
        is_behind
    }

    /// Tells what has been counted, if it has changed.
    #[inline]
    pub(super) fn tell(&self) {
        let &Counts { cancelled, handed_back, resets, resets_elsewhere, .. } = &self.counts;
        let &Counts { clock_regressions, overruns, turns, .. } = &self.counts;
        // What the wheel has to do with is counted there, and nothing is ever counted back: so a sum tells.
        let apart =
            cancelled + handed_back + resets + resets_elsewhere + clock_regressions + overruns;
        let changed = (self.wheel.touched() + apart, self.opened.count());
        self.telling.told_in.set(turns);
        if self.telling.told.replace(changed) != changed {
            let held = self.opened.cancelled().into();
            let counts = Counts { held, queued: self.opened.count().into(), ..self.counted() };
            self.shared.gauges.tell(&counts.to_words());
        }
        if self.shared.gauges.wants_levels() {
            self.shared.gauges.tell_levels(self.wheel.occupied());
        }
    }

    /// A timer that was due at that tick fires.
    #[inline]
    pub(super) fn count_due(&mut self, due: u64) {
        self.counts.runs += 1;
        if due != self.telling.due {
            self.tell_firing();
            self.telling.due = due;
        }
        self.telling.timers += 1;
    }

    /// A timer fires that another thread has added or moved, to a moment that had come when the owner met it.
    pub(super) fn count_arrived_due(&mut self, due: u64) {
        self.counts.runs += 1;
        // Zero: it was to run at once.
        if due > 0 {
            self.tell_late(due, 1);
        }
    }

    /// Tells how late those timers are that have fired and have the same deadline.
    #[inline]
    fn tell_firing(&mut self) {
        let timers = mem::take(&mut self.telling.timers);
        if timers > 0 {
            self.tell_late(self.tick.start(self.telling.due), timers);
        }
    }

    /// So many timers fire that were due when the clock showed `due`.
    fn tell_late(&self, due: u64, timers: u32) {
        let by = match (due > self.telling.before, self.telling.has_left) {
            (true, _) => LateBy::Loop,
            (false, true) => LateBy::Turn,
            // They were due when they were added or moved, to run at once: nothing is late.
            (false, false) => return,
        };
        self.shared.gauges.fired_late(by, self.turn_nanos.saturating_sub(due), timers);
    }

    /// Publishes the counts and the next deadline for a loop that has not asked yet. Returns that deadline and the
    /// present, in nanoseconds of the clock.
    #[cold]
    pub(crate) fn tell_unasked(&self) -> (u64, u64) {
        let next = self.next_nanos();
        self.tell();
        self.shared.gauges.wants_turn_at(self.wanted_at(next));
        (next.unwrap_or(u64::MAX), self.latest.lo)
    }

    /// When the loop wants to turn, after the last turn: a deadline that has elapsed would seem to have been met by it.
    fn wanted_at(&self, next: Option<u64>) -> u64 {
        next.map_or(u64::MAX, |next| next.max(self.turn_nanos.saturating_add(1)))
    }

    /// The loop asks how long it may sleep.
    #[inline]
    pub(super) fn asked_at(&self, now: u64, next: Option<u64>) {
        // What the loop has cancelled since its turn is room for others, who cannot wake it to hear of that.
        self.tell_gate();
        if self.telling.in_pass && self.telling.passes_end {
            return;
        }
        self.tell();
        let wanted_at = self.wanted_at(next);
        let is_quiet = !self.telling.in_pass && !self.telling.has_left;
        self.telling.quiet_until.set(if is_quiet { wanted_at } else { 0 });
        self.shared.gauges.wants_turn_at(wanted_at);
        if self.telling.in_pass {
            // The pass was given up.
            self.shared.gauges.turn_ends(self.counts.turns);
        }
        if self.telling.is_untimed.replace(false) {
            self.shared.gauges.turn_took(now.saturating_sub(self.turn_nanos));
        }
    }
}
