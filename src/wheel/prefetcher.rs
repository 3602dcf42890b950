//! Prefetches the entries of the next ticks.
//!
//! A list can be walked only as fast as each entry's cache line arrives, so the lists of several
//! ticks are walked side by side. For each entry that the pass unlinks, two of the walkers take a
//! step. By the time of a walker's next step, the cache line that it prefetched has arrived. When a
//! list changes, its walker may end up in another list. That does no harm, because walkers only
//! prefetch.

use super::{level::Geometry, slot::Slots, storage::Storage};
use crate::limits::PREFETCHED_TICKS;

/// One walker for each of the next ticks.
#[derive(Debug)]
pub(super) struct Prefetcher {
    /// The entry that each walker prefetched last; 0 at the end of its list.
    cursors: [u32; PREFETCHED_TICKS],
    next_walker: usize,
    /// The tick up to which walkers have been started.
    started_until: u64,
}

impl Prefetcher {
    pub(super) const fn new() -> Self {
        Self { cursors: [0; PREFETCHED_TICKS], next_walker: 0, started_until: 0 }
    }

    /// Starts walkers for the ticks after `tick`.
    #[inline]
    pub(super) fn start_walkers<const BITS: u32, const LEVELS: usize>(
        &mut self,
        tick: u64,
        slots: &Slots<BITS, LEVELS>,
        storage: &impl Storage,
    ) {
        let last = tick.saturating_add(PREFETCHED_TICKS as u64);
        for ahead in self.started_until.max(tick).saturating_add(1)..=last {
            let first = slots.first(Geometry::<BITS, LEVELS>::near_at(ahead));
            if first != 0 {
                self.cursors[self.next_walker] = first;
                self.next_walker = (self.next_walker + 1) % PREFETCHED_TICKS;
                storage.prefetch(first);
            }
        }
        self.started_until = last;
    }

    /// Moves one walker by a step.
    #[inline]
    pub(super) fn step(&mut self, storage: &impl Storage) {
        let cursor = &mut self.cursors[self.next_walker];
        self.next_walker = (self.next_walker + 1) % PREFETCHED_TICKS;
        if *cursor != 0 {
            *cursor = storage.next_if_allocated(*cursor);
            storage.prefetch(*cursor);
        }
    }
}
