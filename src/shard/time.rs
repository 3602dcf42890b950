//! A shard's clock: what it shows, what it showed last, and when the turns began.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::Due;
use crate::{
    clock::{
        Clock, Reader, Reading,
        tick::{TickLength, saturating_nanos},
    },
    cross_core::shared::Shared,
    when::When,
};

/// The clock of a shard. Times are nanoseconds of it.
#[derive(Debug)]
pub(super) struct Time {
    pub(super) clock: Clock,
    pub(super) tick: TickLength,
    reader: Reader,
    /// The latest reading of the clock. It stays if the clock goes back.
    pub(super) latest: Reading,
    /// The reading that the last turn began with.
    pub(super) turn: u64,
    /// The reading that the turn before began with.
    pub(super) turn_before: u64,
    /// How often the clock went back.
    pub(super) regressions: u64,
}

impl Time {
    /// Reads the clock for the first time.
    pub(super) fn new(clock: Clock, tick: TickLength, shared: &Shared) -> Self {
        let mut reader = clock.reader();
        let latest = reader.read(&clock);
        if clock.may_go_back() {
            shared.hold_clock(latest.hi);
        }
        let (turn, turn_before) = (latest.lo, 0);
        Self { clock, tick, reader, latest, turn, turn_before, regressions: 0 }
    }

    /// Reads the clock.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an idle turn 11 instructions")]
    pub(super) fn read(&mut self, shared: &Shared) -> Reading {
        let reading = self.reader.read(&self.clock);
        if reading.lo > self.latest.hi {
            self.latest = reading;
            if self.clock.may_go_back() {
                shared.hold_clock(reading.hi);
            }
        } else if reading != self.latest {
            self.hold(reading);
        }
        self.latest
    }

    /// Handles a clock that has gone back or reads an interval.
    #[cold]
    #[inline(never)]
    fn hold(&mut self, reading: Reading) {
        self.regressions += u64::from(!self.latest.hold(reading));
    }

    /// Takes the reading of a loop that has read the clock itself.
    pub(super) fn read_by_loop(&mut self, now: Instant, shared: &Shared) -> u64 {
        self.latest.hold(Reading::exact(self.clock.nanos_at(now)));
        if self.clock.may_go_back() {
            shared.hold_clock(self.latest.hi);
        }
        self.latest.lo
    }

    /// Returns the present, exact and not before the latest reading.
    pub(super) fn now(&self) -> u64 {
        self.clock.nanos().max(self.latest.lo)
    }

    /// Returns the deadline of a timer that is added or moved now, with this delay.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an add 20 instructions")]
    pub(super) fn due_after(&mut self, delay: Duration, shared: &Shared) -> u64 {
        let now = self.read(shared).hi;
        let delay = saturating_nanos(delay);
        self.tick.due(now.saturating_add(delay), delay == 0)
    }

    /// Returns when a timer is due that is added now at an instant, with slack or spread.
    #[inline(never)]
    pub(super) fn due_roughly(&mut self, when: When, shared: &Shared) -> Due {
        let now = self.read(shared).hi;
        let nanos = shared.nanos_of(when, now);
        Due { nanos, slack: saturating_nanos(when.slack), period: 0 }
    }

    /// Returns true if the clock certainly shows `nanos` or more.
    #[inline]
    pub(super) fn has_elapsed(&mut self, nanos: u64, shared: &Shared) -> bool {
        self.latest.lo >= nanos || self.read(shared).lo >= nanos
    }

    /// Begins a turn.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: u64) {
        self.turn_before = mem::replace(&mut self.turn, now);
    }
}
