//! What the threads show each other while the run goes on: figures for the live view. The verdict does not read any of them.
//!
//! All of it is relaxed: each value stands for itself and nothing else is read because of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::broker::Totals;
use crate::tally::Tally;

#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) cores: Vec<CoreFigures>,
    pub(crate) sent: Tally,
    pub(crate) completed: Tally,
    pub(crate) timed_out: Tally,
}

impl Board {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            cores: (0..cores).map(|_| CoreFigures::default()).collect(),
            sent: Tally::default(),
            completed: Tally::default(),
            timed_out: Tally::default(),
        }
    }

    /// Whether nothing is watched any more on any core.
    pub(crate) fn is_settled(&self) -> bool {
        self.cores.iter().all(|core| core.watches.load(Relaxed) == 0)
    }
}

/// What one core of the server says about itself, on a cache line of its own: each core writes after every turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CoreFigures {
    live: AtomicU64,
    watches: AtomicU64,
    by_condition: AtomicU64,
    expired: AtomicU64,
    worst_lateness_us: AtomicU64,
}

impl CoreFigures {
    pub(crate) fn publish(&self, totals: &Totals) {
        self.live.store(totals.live, Relaxed);
        self.watches.store(totals.watches, Relaxed);
        self.by_condition.store(totals.by_condition, Relaxed);
        self.expired.store(totals.expired, Relaxed);
    }

    pub(crate) fn note_lateness(&self, late: Duration) {
        let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.worst_lateness_us.fetch_max(micros, Relaxed);
    }

    /// In words, for the live view.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{:>6} wait {:>6} watches {:>7} completed {:>6} timed out, at worst {:>6} us late",
            self.live.load(Relaxed),
            self.watches.load(Relaxed),
            self.by_condition.load(Relaxed),
            self.expired.load(Relaxed),
            self.worst_lateness_us.load(Relaxed),
        )
    }
}
