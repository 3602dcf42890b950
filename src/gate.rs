//! How many timers a shard may have, as far as other threads must know.
//!
//! The owner counts its timers itself, and says how many at both ends of a turn, at each arrival, and when its loop asks
//! how long it may sleep. What comes from other threads is counted here until it has arrived, and let in as long as that and what the
//! owner had stay within the limit. So the owner's own adds keep to the limit exactly, and those from elsewhere to within what the owner
//! itself has added since. A shard without a limit has no gate, and nothing is written here.

use crate::{
    limits::INDEX_MAX,
    sync::{AtomicU32, Ordering},
};

#[derive(Debug)]
pub(crate) struct Gate {
    limit: u32,
    live: AtomicU32,
    arriving: AtomicU32,
}

impl Gate {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, live: AtomicU32::new(0), arriving: AtomicU32::new(0) }
    }

    /// Whether one more may come, where so many have been `cancelled` that the owner counts still. If so, it has come, or
    /// [`left`](Self::left).
    pub(crate) fn admits(&self, cancelled: impl FnOnce() -> u32) -> bool {
        if self.is_open() {
            return true;
        }
        // Acquire: whoever is not counted here any more is in what is read next (see `left`).
        let arriving = self.arriving.fetch_add(1, Ordering::Acquire);
        // Relaxed: read after the above.
        let there = arriving.saturating_add(self.live.load(Ordering::Relaxed));
        let admits = there < self.limit || there.saturating_sub(cancelled()) < self.limit;
        if !admits {
            self.left();
        }
        admits
    }

    /// One comes whether it may or not: what this crate itself sends.
    pub(crate) fn lets_in(&self) {
        if !self.is_open() {
            // Relaxed: as in `admits`.
            self.arriving.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One that was let in has arrived at the owner, which has counted it by now, or has gone.
    pub(crate) fn left(&self) {
        if !self.is_open() {
            // Release: publishes what the owner has counted to `admits`.
            self.arriving.fetch_sub(1, Ordering::Release);
        }
    }

    /// The owner has so many.
    #[inline]
    pub(crate) fn set_live(&self, live: u32) {
        // Relaxed, both: the owner alone writes it, and `left` publishes what must be seen.
        if !self.is_open() && self.live.load(Ordering::Relaxed) != live {
            self.live.store(live, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.limit >= INDEX_MAX
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_lets_in_up_to_the_limit() {
        let gate = Gate::new(3);
        gate.set_live(1);
        assert_eq!([(); 3].map(|()| gate.admits(|| 0)), [true, true, false]);
        gate.left();
        assert!(gate.admits(|| 0));
        gate.set_live(2);
        gate.left();
        assert!(!gate.admits(|| 0));
        gate.set_live(1);
        gate.lets_in();
        assert!(!gate.admits(|| 0), "it counts, although it is not asked");
        gate.left();
        assert!(gate.admits(|| 0));
    }

    #[test]
    fn without_a_limit_it_counts_nothing() {
        let gate = Gate::new(INDEX_MAX);
        assert!((0..100).all(|_| gate.admits(|| 0)));
        // Relaxed: one thread.
        assert_eq!(gate.arriving.load(Ordering::Relaxed), 0);
    }
}
