//! When the periodic timers of a shard are due, apart from their payloads: most timers are one-shot and need no room for it.

use crate::paged::Paged;

/// When a periodic timer is due, in nanoseconds of the shard's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Schedule {
    /// The next time, before rounding to a tick: so a period that is no multiple of the tick does not drift.
    pub(crate) due: u64,
    pub(crate) period: u64,
}

impl Schedule {
    /// Goes on to the first due moment after `now`: runs that were missed are skipped, the phase is kept.
    fn go_on(&mut self, now: u64) {
        let missed = now.saturating_sub(self.due) / self.period;
        self.due = self.due.saturating_add(self.period.saturating_mul(missed.saturating_add(1)));
    }
}

/// The schedules of the periodic timers, by index.
#[derive(Debug)]
pub(crate) struct Schedules(Paged<Schedule>);

impl Schedules {
    pub(crate) const fn new() -> Self {
        Self(Paged::new())
    }

    pub(crate) fn set(&mut self, index: u32, schedule: Schedule) {
        self.0.grow_to(index);
        self.0[index] = schedule;
    }

    /// The timer was moved by a reset: its period goes on from `due`.
    pub(crate) fn move_to(&mut self, index: u32, due: u64) {
        self.0[index].due = due;
    }

    /// After a run: when the next one is due.
    pub(crate) fn next(&mut self, index: u32, now: u64) -> u64 {
        self.0[index].go_on(now);
        self.0[index].due
    }

    /// The timers of this page have gone.
    pub(crate) fn drop_page(&mut self, page: u32) {
        self.0.take_page(page as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PAGE_BITS;

    fn next(due: u64, period: u64, now: u64) -> u64 {
        let mut schedules = Schedules::new();
        schedules.set(7, Schedule { due, period });
        schedules.next(7, now)
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

    #[test]
    fn a_page_that_has_gone_is_not_kept() {
        let mut schedules = Schedules::new();
        schedules.set(7, Schedule { due: 1, period: 1 });
        schedules.drop_page(7 >> PAGE_BITS);
        assert!(schedules.0.get(7).is_none());
    }
}
