//! What a thread's timer holds: a callback, once or again and again.

use crate::callback::{Once, Repeated};

/// The payload of a timer of callbacks.
pub(super) enum Task {
    Once(Once),
    Periodic(Periodic),
}

/// When a timer is due, in nanoseconds of the shard's clock.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    /// The next time, before rounding to a tick: so a period that is no multiple of the tick does not drift.
    pub(super) due: u64,
    /// Zero for a one-shot timer.
    pub(super) period: u64,
}

impl Schedule {
    pub(super) fn once(due: u64) -> Self {
        Self { due, period: 0 }
    }
}

/// A callback that runs again and again.
pub(super) struct Periodic {
    pub(super) callback: Repeated,
    schedule: Schedule,
}

impl Periodic {
    pub(super) fn new(callback: Repeated, schedule: Schedule) -> Self {
        Self { callback, schedule }
    }

    /// When the next run is due.
    pub(super) fn due(&self) -> u64 {
        self.schedule.due
    }

    /// The timer was moved by a reset: its period goes on from `due`.
    pub(super) fn move_to(&mut self, due: u64) {
        self.schedule.due = due;
    }

    /// Goes on to the first due moment after `now`: runs that were missed are skipped, the phase is kept.
    pub(super) fn go_on(&mut self, now: u64) {
        let Schedule { due, period } = self.schedule;
        let missed = now.saturating_sub(due) / period;
        self.schedule.due = due.saturating_add(period.saturating_mul(missed.saturating_add(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(due: u64, period: u64, now: u64) -> u64 {
        let mut periodic = Periodic::new(Repeated::new(|| {}), Schedule { due, period });
        periodic.go_on(now);
        periodic.due()
    }

    #[test]
    fn a_task_costs_no_more_than_its_parts() {
        assert_eq!(size_of::<Task>(), size_of::<Repeated>() + 16);
    }

    #[test]
    fn it_keeps_its_phase_and_skips_what_it_missed() {
        assert_eq!(next(100, 10, 100), 110);
        assert_eq!(next(100, 10, 109), 110);
        assert_eq!(next(100, 10, 110), 120);
        assert_eq!(next(100, 10, 1_005), 1_010);
        assert_eq!(next(u64::MAX - 5, 10, u64::MAX), u64::MAX);
        assert_eq!(next(0, u64::MAX, 0), u64::MAX);
    }
}
