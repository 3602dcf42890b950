//! The numbers that a shard's owner publishes. Any thread can read these numbers through the module
//! `metrics`.
//!
//! The owner copies its private counts to [`Gauges`] when its loop computes how long to sleep, and
//! about every 64 turns. Other threads write only `stall_count`, `occupancy_requested`,
//! `remote_due_while_undriven` and `overdue_grace_nanos`. The owner and the readers never wait for
//! each other.
//!
//! A reader of a `Timers::per_worker` wheel first calls `refresh_counts`, which publishes the
//! counts unless another thread has claimed the wheel.
//!
//! The [`Counts`] are one consistent [`Snapshot`]. Other numbers may be newer or older than the
//! `Counts`.

mod counts;
mod histogram;

use std::sync::OnceLock;

pub use self::{counts::Counts, histogram::Histogram};
use self::{counts::WORD_COUNT, histogram::AtomicHistogram};
use crate::{
    limits::{LONG_OVERDUE_GRACE_NANOS, SHARD_WHEEL_LEVELS, SHORT_OVERDUE_GRACE_NANOS},
    util::{
        snapshot::Snapshot,
        sync::{AtomicU64, IS_LOOM, Ordering},
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateCause {
    /// The loop called `turn` late: the timer fired in the first turn after its deadline.
    LateTurn = 0,
    /// The previous turn reached the timer's deadline, but did not finish.
    UnfinishedTurn = 1,
}

/// A number that any thread may read. The number orders no other data.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: the number orders nothing.
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        // Relaxed: the number orders nothing.
        self.0.store(value, Ordering::Relaxed);
    }
}

#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Gauges {
    shard_has_name: bool,
    counts: Snapshot<WORD_COUNT>,
    /// Publishes the current counts of a wheel of `Timers::per_worker`.
    pub(crate) refresh_counts: OnceLock<Box<dyn Fn() + Send + Sync>>,
    turns_begun: AtomicU64,
    turns_ended: AtomicU64,
    /// The clock's reading at the beginning of the latest turn.
    turn_began_at: AtomicU64,
    /// The time at which the loop must begin its next turn, as last published.
    next_due: AtomicU64,
    /// The earliest deadline that another thread has requested while no loop drove the shard;
    /// `u64::MAX` if there is none.
    remote_due_while_undriven: AtomicU64,
    /// The time, in nanoseconds, for which a timer must be overdue before a missing loop is
    /// reported. `u64::MAX` disables the report.
    pub(crate) overdue_grace_nanos: Gauge,
    pub(crate) longest_turn_nanos: Gauge,
    pub(crate) lateness_by_cause: [AtomicHistogram; 2],
    pub(crate) callback_durations: AtomicHistogram,
    /// Nonzero if a thread has requested `occupied_slots_by_level`, whose publication takes a few
    /// microseconds.
    pub(crate) occupancy_requested: Gauge,
    occupied_slots_by_level: [Gauge; SHARD_WHEEL_LEVELS],
    pub(crate) stall_count: Gauge,
}

/// Marks a level of `occupied_slots_by_level` that was never published.
const UNPUBLISHED_OCCUPANCY: u64 = u64::MAX;

/// The state of a shard's turns. Times are in nanoseconds of the shard's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnState {
    pub(crate) turns_begun: u64,
    pub(crate) is_in_turn: bool,
    pub(crate) latest_turn_began_at: u64,
    /// The time at which the loop must begin its next turn; `u64::MAX` means never.
    pub(crate) next_due: u64,
}

impl TurnState {
    /// Returns the due time of the next turn. Returns `None` during a turn, if no turn is needed,
    /// or if the next turn's due time is not published yet.
    pub(crate) fn pending_turn_due(self) -> Option<u64> {
        let Self { is_in_turn, latest_turn_began_at, next_due, .. } = self;
        (!is_in_turn && latest_turn_began_at < next_due && next_due < u64::MAX).then_some(next_due)
    }
}

impl Gauges {
    /// Creates the gauges of a shard. In loom models, shards without a name publish neither counts
    /// nor turns, because other threads' reads of these numbers add interleavings.
    pub(crate) fn new(shard_has_name: bool) -> Self {
        Self {
            shard_has_name,
            next_due: AtomicU64::new(u64::MAX),
            remote_due_while_undriven: AtomicU64::new(u64::MAX),
            overdue_grace_nanos: Gauge(AtomicU64::new(u64::MAX)),
            occupied_slots_by_level: [(); SHARD_WHEEL_LEVELS]
                .map(|()| Gauge(AtomicU64::new(UNPUBLISHED_OCCUPANCY))),
            ..Self::default()
        }
    }

    /// Returns true if the shard publishes its counts and turns.
    #[inline]
    fn is_publishing(&self) -> bool {
        !IS_LOOM || self.shard_has_name
    }

    /// Records the beginning of a turn that may fire timers or consume messages.
    #[inline]
    pub(crate) fn record_turn_begin(&self, now: u64, turn_number: u64) {
        if self.is_publishing() {
            // Relaxed: the Release store below publishes this value.
            self.turn_began_at.store(now, Ordering::Relaxed);
            // Release: publishes `turn_began_at`, and the `turns_ended` of earlier turns. Pairs
            // with the Acquire in `turn_state`.
            self.turns_begun.store(turn_number, Ordering::Release);
        }
    }

    /// Records the beginning of an idle turn, so that readers do not consider the loop late.
    #[inline]
    pub(crate) fn record_idle_turn(&self, now: u64) {
        if self.is_publishing() {
            // Relaxed: an independent word. An idle turn publishes only its time, so a reader may
            // combine this time with the number of an earlier turn.
            self.turn_began_at.store(now, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn record_turn_end(&self, turn_number: u64) {
        if self.is_publishing() {
            // Relaxed: an independent word. For a thread that sees this store late, the turn
            // appears slightly longer.
            self.turns_ended.store(turn_number, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn publish_counts(&self, counts: Counts) {
        if self.is_publishing() {
            self.counts.publish(&counts.to_words());
        }
    }

    #[inline]
    pub(crate) fn set_next_due(&self, next_due: u64) {
        if self.is_publishing() {
            // Relaxed: an independent word.
            self.next_due.store(next_due, Ordering::Relaxed);
        }
    }

    /// Forgets the deadlines that other threads requested while no loop drove the shard.
    pub(crate) fn reset_remote_due_while_undriven(&self) {
        if self.is_publishing() {
            // Relaxed: an independent word.
            self.remote_due_while_undriven.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Raises the grace period of overdue timers to `LONG_OVERDUE_GRACE_NANOS`, unless the report
    /// is disabled.
    pub(crate) fn extend_overdue_grace(&self) {
        // Relaxed: the number orders nothing.
        self.overdue_grace_nanos.0.fetch_max(LONG_OVERDUE_GRACE_NANOS, Ordering::Relaxed);
    }

    /// Lowers the grace period of overdue timers from `LONG_OVERDUE_GRACE_NANOS` to
    /// `SHORT_OVERDUE_GRACE_NANOS`.
    pub(crate) fn shorten_overdue_grace(&self) {
        let (long_grace, short_grace) = (LONG_OVERDUE_GRACE_NANOS, SHORT_OVERDUE_GRACE_NANOS);
        // Both `Relaxed`: the number orders nothing. The compare-and-swap fails if a report has
        // disabled further reports.
        let _ = self.overdue_grace_nanos.0.compare_exchange(
            long_grace,
            short_grace,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Returns true if the caller must report a timer that has been overdue for `overdue_nanos`.
    /// After a call has returned true, all calls return false until `overdue_grace_nanos` is set.
    pub(crate) fn claim_undriven_report(&self, overdue_nanos: u64) -> bool {
        // Relaxed: the number orders nothing. If several threads swap, only one of them gets the
        // old grace period, and reports.
        self.is_publishing()
            && overdue_nanos >= self.overdue_grace_nanos.get()
            && self.overdue_grace_nanos.0.swap(u64::MAX, Ordering::Relaxed) != u64::MAX
    }

    /// Publishes the deadline of a remote request that no turn has handled. Readers assume that the
    /// latest turn has handled all deadlines up to its beginning. So a deadline at or before the
    /// beginning of the latest turn is raised to 1 ns after this beginning.
    pub(crate) fn lower_remote_due_while_undriven(&self, due: u64) {
        if self.is_publishing() {
            // Relaxed: the caller is the owner, or has acquired the store in
            // `Parker::set_undriven`.
            let turn_began_at = self.turn_began_at.load(Ordering::Relaxed);
            let due = due.max(turn_began_at.saturating_add(1));
            // Relaxed: an independent word.
            self.remote_due_while_undriven.fetch_min(due, Ordering::Relaxed);
        }
    }

    pub(crate) fn remote_due_while_undriven(&self) -> u64 {
        // Relaxed: an independent word.
        self.remote_due_while_undriven.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn occupancy_is_requested(&self) -> bool {
        !IS_LOOM && self.occupancy_requested.get() != 0
    }

    pub(crate) fn publish_occupancy(&self, occupied_slots_by_level: impl Iterator<Item = u32>) {
        for (published_count, slot_count) in
            self.occupied_slots_by_level.iter().zip(occupied_slots_by_level)
        {
            published_count.set(slot_count.into());
        }
        // This store may erase a reader's concurrent request, which the reader's next reading
        // repeats.
        self.occupancy_requested.set(0);
    }

    /// Returns the number of occupied slots of each level, if the owner has published them.
    pub(crate) fn occupied_slots_by_level(&self) -> Option<[u64; SHARD_WHEEL_LEVELS]> {
        let slots = self.occupied_slots_by_level.each_ref().map(Gauge::get);
        (!slots.contains(&UNPUBLISHED_OCCUPANCY)).then_some(slots)
    }

    pub(crate) fn count_stall(&self) {
        // Relaxed: the number orders nothing.
        self.stall_count.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        if let Some(refresh_counts) = self.refresh_counts.get() {
            refresh_counts();
        }
        Counts::from_words(self.counts.read())
    }

    pub(crate) fn turn_state(&self) -> TurnState {
        // Acquire: the load of `turn_began_at` below returns the time of turn `turns_begun`, or of
        // a later turn. Pairs with the Release in `record_turn_begin`.
        let turns_begun = self.turns_begun.load(Ordering::Acquire);
        // Relaxed: the three words loaded below are independent of each other.
        let turns_ended = self.turns_ended.load(Ordering::Relaxed);
        TurnState {
            turns_begun,
            is_in_turn: turns_begun > turns_ended,
            latest_turn_began_at: self.turn_began_at.load(Ordering::Relaxed),
            next_due: self.next_due.load(Ordering::Relaxed),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn occupancy_is_published_once_per_request() {
        let gauges = Gauges::new(true);
        assert_eq!(
            (gauges.occupancy_is_requested(), gauges.occupied_slots_by_level()),
            (false, None)
        );
        gauges.occupancy_requested.set(1);
        assert!(gauges.occupancy_is_requested());
        gauges.publish_occupancy(0..);
        assert!(
            !gauges.occupancy_is_requested()
                && gauges.occupied_slots_by_level().is_some_and(|slots| slots[..3] == [0, 1, 2])
        );
    }

    /// `turn_state` must not combine a turn's number with the beginning of the previous turn.
    /// Otherwise, `metrics::Watchdog` would count the sleep between the two turns as part of a
    /// turn.
    #[test]
    fn a_reader_of_a_turn_sees_when_it_began() {
        const TURN_NANOS: u64 = 1_000;
        let (gauges, last) = (Gauges::new(true), if cfg!(miri) { 30 } else { 100_000 });
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1..=last {
                    gauges.record_turn_begin(turn * TURN_NANOS, turn);
                    gauges.record_turn_end(turn);
                }
            });
            let mut begun = 0;
            while begun < last {
                let turns = gauges.turn_state();
                assert!(
                    turns.turns_begun >= begun
                        && turns.latest_turn_began_at >= turns.turns_begun * TURN_NANOS,
                    "{turns:?}"
                );
                begun = turns.turns_begun;
            }
        });
        assert!(!gauges.turn_state().is_in_turn);
    }
}
