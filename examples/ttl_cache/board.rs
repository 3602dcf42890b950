//! What the cores show each other and whoever looks on.
//!
//! All of it is relaxed: each value stands for itself and nothing else is read because of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct Board(Vec<Figures>);

/// What one core says about itself, on a cache line of its own: each core writes after every turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Figures {
    pub(crate) clients: Figure,
    pub(crate) keys: Figure,
    pub(crate) expiring: Figure,
    pub(crate) expired: Figure,
    pub(crate) bytes: Figure,
    /// Requests that came from connections of other cores.
    pub(crate) from_elsewhere: Figure,
}

#[derive(Debug, Default)]
pub(crate) struct Figure(AtomicU64);

impl Figure {
    pub(crate) fn show(&self, value: impl TryInto<u64>) {
        self.0.store(value.try_into().unwrap_or(u64::MAX), Relaxed);
    }
}

impl Board {
    pub(crate) fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Figures::default()).collect())
    }

    pub(crate) fn cores(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn of(&self, core: usize) -> &Figures {
        &self.0[core]
    }

    /// One figure of all cores together.
    pub(crate) fn total(&self, figure: impl Fn(&Figures) -> &Figure) -> u64 {
        self.0.iter().map(|figures| figure(figures).0.load(Relaxed)).sum()
    }
}
