//! A shard's clock, its latest reading, and the beginnings of turns.

use std::{mem, time::Instant};

use crate::clock::{Clock, ClockReader, Reading, tick::TickLength};

/// The clock of a shard. Times are in nanoseconds of this clock.
#[derive(Debug)]
pub(super) struct Time {
    pub(super) clock: Clock,
    pub(super) tick: TickLength,
    reader: ClockReader,
    /// The latest reading of the clock. It never goes back.
    pub(super) latest: Reading,
    /// The reading at the beginning of the last turn.
    pub(super) turn_start: u64,
    /// The reading at the beginning of the turn before that one.
    pub(super) previous_turn_start: u64,
    /// The number of times the clock went back.
    pub(super) regressions: u64,
}

impl Time {
    /// Reads the clock for the first time.
    pub(super) fn new(clock: Clock, tick: TickLength) -> Self {
        let mut reader = clock.reader();
        let latest = reader.read(&clock);
        let (turn_start, previous_turn_start) = (latest.min, 0);
        Self { clock, tick, reader, latest, turn_start, previous_turn_start, regressions: 0 }
    }

    /// Reads the clock. Returns true if the new reading begins at or after the end of the latest
    /// one.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs an idle turn 11 instructions")]
    pub(super) fn read(&mut self) -> bool {
        let reading = self.reader.read(&self.clock);
        let is_later = reading.min >= self.latest.max;
        if is_later {
            self.latest = reading;
        } else {
            self.read_slow(reading);
        }
        is_later
    }

    /// Handles a reading that overlaps the latest one or is before it.
    #[cold]
    #[inline(never)]
    fn read_slow(&mut self, reading: Reading) {
        self.regressions += u64::from(!self.latest.advance_to(reading));
    }

    /// Uses the reading of a loop that has read the clock itself.
    pub(super) fn use_loop_reading(&mut self, now: Instant) {
        self.latest.advance_to(Reading::exact(self.clock.nanos_at(now)));
    }

    /// Returns the present time as one number, not before the latest reading.
    pub(super) fn now(&self) -> u64 {
        self.clock.nanos().max(self.latest.min)
    }

    /// Begins a turn.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: u64) {
        self.previous_turn_start = mem::replace(&mut self.turn_start, now);
    }

    /// Returns the wake-up time for the next deadline, in nanoseconds. For a deadline that is not
    /// after the last turn, this is one nanosecond after that turn.
    pub(super) fn wake_up_time(&self, next: Option<u64>) -> u64 {
        next.map_or(u64::MAX, |next| next.max(self.turn_start.saturating_add(1)))
    }
}
