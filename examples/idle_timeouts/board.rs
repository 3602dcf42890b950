//! What the threads show each other while the run goes on: figures for the live view, whom the admin has released, and
//! that it is over. The verdict does not read any of the figures.
//!
//! All of it is relaxed: each value stands for itself and nothing else is read because of it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corewheel::Counts;

#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) cores: Vec<CoreFigures>,
    pub(crate) connected: Tally,
    pub(crate) left: Tally,
    released: Vec<AtomicBool>,
    pub(crate) cancelled: Tally,
    over: AtomicBool,
}

impl Board {
    pub(crate) fn new(cores: usize, connections: u32) -> Self {
        Self {
            cores: (0..cores).map(|_| CoreFigures::default()).collect(),
            connected: Tally::default(),
            left: Tally::default(),
            released: (0..connections).map(|_| AtomicBool::new(false)).collect(),
            cancelled: Tally::default(),
            over: AtomicBool::new(false),
        }
    }

    /// The admin has cancelled the idle timer of this connection: its client may fall silent.
    pub(crate) fn release(&self, id: u32) {
        self.released[id as usize].store(true, Relaxed);
        self.cancelled.one_more();
    }

    pub(crate) fn is_released(&self, id: u32) -> bool {
        self.released[id as usize].load(Relaxed)
    }

    /// Tells the server's loops to end; a sleeping one must also be woken.
    pub(crate) fn call_it_over(&self) {
        self.over.store(true, Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU32);

impl Tally {
    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// What one core of the server says about itself, on a cache line of its own: each core writes after every turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CoreFigures {
    live: AtomicU64,
    fired: AtomicU64,
    cancelled: AtomicU64,
    worst_lateness_us: AtomicU64,
}

impl CoreFigures {
    pub(crate) fn publish(&self, counts: &Counts) {
        self.live.store(counts.live, Relaxed);
        self.fired.store(counts.fired, Relaxed);
        self.cancelled.store(counts.cancelled, Relaxed);
    }

    pub(crate) fn note_lateness(&self, late: Duration) {
        let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.worst_lateness_us.fetch_max(micros, Relaxed);
    }

    /// In words, for the live view.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{:>6} live {:>6} fired {:>6} cancelled, at worst {:>6} us late",
            self.live.load(Relaxed),
            self.fired.load(Relaxed),
            self.cancelled.load(Relaxed),
            self.worst_lateness_us.load(Relaxed),
        )
    }
}
