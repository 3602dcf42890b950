//! A shard's clock, its latest reading, and the start times of turns.

use std::{mem, time::Duration};

use crate::clock::{Clock, ClockReader, Reading, tick::TickLength};

/// The clock of a shard. Times are in nanoseconds of this clock.
#[derive(Debug)]
pub(super) struct ShardClock {
    pub(super) clock: Clock,
    pub(super) tick: TickLength,
    reader: ClockReader,
    /// The bounds on the time at the latest reading. Neither bound ever decreases.
    pub(super) latest: Reading,
    /// The lower bound of the reading at the beginning of the latest turn. Before the first turn,
    /// the lower bound of the first reading.
    pub(super) turn_start: u64,
    /// The previous `turn_start`; zero at first.
    pub(super) previous_turn_start: u64,
    /// The number of readings that showed that the clock had gone back.
    pub(super) regressions: u64,
}

impl ShardClock {
    pub(super) fn new(clock: Clock, tick: TickLength) -> Self {
        let mut reader = ClockReader::new(&clock);
        let latest = reader.read_slow(&clock);
        let (turn_start, previous_turn_start) = (latest.min, 0);
        Self { clock, tick, reader, latest, turn_start, previous_turn_start, regressions: 0 }
    }

    #[inline(always)]
    pub(super) fn read(&mut self) {
        if !self.try_read() {
            self.read_slow();
        }
    }

    /// Reads the clock with inlined code. Returns false if the reading needs the slow path, because
    /// the machine's clock must be read.
    #[inline(always)]
    pub(super) fn try_read(&mut self) -> bool {
        let Some(reading) = self.reader.try_read(&self.clock) else { return false };
        self.advance_to(reading);
        true
    }

    #[inline(never)]
    fn read_slow(&mut self) {
        let reading = self.reader.read_slow(&self.clock);
        self.advance_to(reading);
    }

    /// Updates `latest` from a new reading. Neither bound moves back. Counts a regression if the
    /// whole new reading is before `latest`.
    #[inline(always)]
    fn advance_to(&mut self, reading: Reading) {
        if reading.min >= self.latest.max {
            self.latest = reading;
        } else {
            self.regressions += u64::from(!self.latest.advance_to(reading));
        }
    }

    /// Returns the present time in nanoseconds, but not before the lower bound of the latest
    /// reading.
    pub(super) fn now(&self) -> u64 {
        self.clock.nanos().max(self.latest.min)
    }

    /// Returns the time from `now`, a reading of the clock, until `nanos`; zero if the latest
    /// reading has reached `nanos`. The result counts from `now`, even if the clock has gone back
    /// and `now` is before the latest reading.
    pub(super) fn time_until(&self, nanos: u64, now: u64) -> Duration {
        let wait = if nanos > self.latest.min { nanos.saturating_sub(now) } else { 0 };
        Duration::from_nanos(wait)
    }

    #[inline]
    pub(super) fn begin_turn(&mut self) {
        self.previous_turn_start = mem::replace(&mut self.turn_start, self.latest.min);
    }

    /// Returns the wake-up time to publish: the deadline `next`, or `u64::MAX` for `None`. The
    /// result is at least 1 ns after the latest turn began, because other threads assume that a
    /// turn has handled all wake-up times up to its beginning.
    pub(super) fn wake_up_time(&self, next: Option<u64>) -> u64 {
        next.map_or(u64::MAX, |next| next.max(self.turn_start.saturating_add(1)))
    }
}
