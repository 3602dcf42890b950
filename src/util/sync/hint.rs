//! Atomics that come from `std` even in loom models, so that no model interleaves them.

pub(crate) use std::sync::atomic::{AtomicBool as UnmodelledBool, AtomicU64 as UnmodelledU64};
use std::sync::atomic::{AtomicU32, Ordering};

/// A number that may be outdated. Only speed and memory use depend on the number.
#[derive(Debug)]
pub(crate) struct AtomicHint(AtomicU32);

impl AtomicHint {
    pub(crate) const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    #[inline]
    pub(crate) fn get(&self) -> u32 {
        // Relaxed: the number orders nothing.
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the number. Writes only a changed value, because many threads read the number's cache
    /// line.
    pub(crate) fn set(&self, value: u32) {
        if self.get() != value {
            // Relaxed: the number orders nothing.
            self.0.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_min(&self, value: u32) {
        if self.get() > value {
            // Relaxed: the number orders nothing.
            self.0.fetch_min(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn increment(&self) {
        // Relaxed: the number orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn decrement(&self) {
        // Relaxed: the number orders nothing.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
