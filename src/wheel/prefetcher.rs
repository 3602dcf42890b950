//! Walks the lists of the coming ticks, so that their entries are in the cache in time.
//!
//! A list can be walked only as fast as each entry's cache line arrives, so the lists of several
//! ticks are walked side by side. For each returned entry, one walker takes a step, and by its next
//! turn the line it fetches has arrived. A walker may leave its list when that changes; no result
//! depends on its position.

use super::{level::Geometry, slot::Slots, storage::Storage};
use crate::limits::PREFETCHED_TICKS;

/// One walker per coming tick.
#[derive(Debug)]
pub(super) struct Prefetcher {
    /// The entry that each walker has prefetched and not read; 0 at the end of its list.
    cursors: [u32; PREFETCHED_TICKS],
    turn: usize,
    /// The tick up to which walkers have been started.
    sent: u64,
}

impl Prefetcher {
    pub(super) const fn new() -> Self {
        Self { cursors: [0; PREFETCHED_TICKS], turn: 0, sent: 0 }
    }

    /// Starts walkers for the ticks after `tick`.
    #[inline]
    pub(super) fn send<const BITS: u32, const LEVELS: usize>(
        &mut self,
        tick: u64,
        slots: &Slots<BITS, LEVELS>,
        storage: &impl Storage,
    ) {
        let last = tick.saturating_add(PREFETCHED_TICKS as u64);
        for ahead in self.sent.max(tick).saturating_add(1)..=last {
            let first = slots.first(Geometry::<BITS, LEVELS>::near_at(ahead));
            if first != 0 {
                self.cursors[self.turn] = first;
                self.turn = (self.turn + 1) % PREFETCHED_TICKS;
                storage.prefetch(first);
            }
        }
        self.sent = last;
    }

    /// Moves one walker by a step.
    #[inline]
    pub(super) fn step(&mut self, storage: &impl Storage) {
        let cursor = &mut self.cursors[self.turn];
        self.turn = (self.turn + 1) % PREFETCHED_TICKS;
        if *cursor != 0 {
            *cursor = storage.next_if_there(*cursor);
            storage.prefetch(*cursor);
        }
    }
}
