//! The schedule of a periodic timer.

/// The next run and the period of a timer, in nanoseconds of the shard's clock. A one-shot timer
/// has period zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimerSchedule {
    /// The time of the next run, not rounded to a tick, because rounding would make the runs drift.
    pub(crate) due: u64,
    pub(crate) period: u64,
}

impl TimerSchedule {
    /// Advances `due` by at least one whole period, until `due` is after `now`. So missed runs are
    /// skipped. Returns the new `due`. The period must not be zero.
    pub(crate) fn advance_past(&mut self, now: u64) -> u64 {
        let missed = now.saturating_sub(self.due) / self.period;
        self.due = self.due.saturating_add(self.period.saturating_mul(missed.saturating_add(1)));
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(due: u64, period: u64, now: u64) -> u64 {
        TimerSchedule { due, period }.advance_past(now)
    }

    #[test]
    fn advance_past_keeps_the_phase_and_skips_missed_runs() {
        assert_eq!(next(100, 10, 100), 110);
        assert_eq!(next(100, 10, 109), 110);
        assert_eq!(next(100, 10, 110), 120);
        assert_eq!(next(100, 10, 1_005), 1_010);
        assert_eq!(next(u64::MAX - 5, 10, u64::MAX), u64::MAX);
        assert_eq!(next(0, u64::MAX, 0), u64::MAX);
    }
}
