//! Prefetches the entries of the next ticks.
//!
//! A walk along one list waits for each entry's cache line. So several walkers, each on the list of
//! a different tick, take their steps in rotation. When an entry is relinked, a walker at this
//! entry continues in another list, and its prefetches are useless but harmless.

use super::{
    level::Geometry,
    slot::Slots,
    storage::{Entry, Storage},
};
use crate::limits::PREFETCHED_TICKS;

/// The walkers of a wheel: each prefetches the entries of one coming tick.
#[derive(Debug, Default)]
pub(super) struct Prefetcher {
    /// For each walker, the entry that the walker prefetched last; 0 after the end of the walker's
    /// list.
    walker_cursors: [u32; PREFETCHED_TICKS],
    next_walker: usize,
    /// The last tick whose slot `start_walkers` has already checked.
    last_checked_tick: u64,
}

impl Prefetcher {
    /// Checks the slot of each of the [`PREFETCHED_TICKS`] ticks after `tick`, unless an earlier
    /// call has checked the slot. Starts a walker for each checked slot that has entries.
    #[inline]
    pub(super) fn start_walkers<G: Geometry>(
        &mut self,
        tick: u64,
        slots: &Slots<G>,
        storage: &impl Storage,
    ) {
        let last_tick = tick.saturating_add(PREFETCHED_TICKS as u64);
        for coming_tick in self.last_checked_tick.max(tick).saturating_add(1)..=last_tick {
            let first_entry = slots.first_entry(G::first_level_slot_at(coming_tick));
            if first_entry != 0 {
                self.walker_cursors[self.next_walker] = first_entry;
                self.next_walker = (self.next_walker + 1) % PREFETCHED_TICKS;
                storage.prefetch(first_entry);
            }
        }
        self.last_checked_tick = last_tick;
    }

    /// Moves the next walker by one entry, and prefetches that entry.
    #[inline]
    pub(super) fn advance_walker(&mut self, storage: &impl Storage) {
        let cursor = &mut self.walker_cursors[self.next_walker];
        self.next_walker = (self.next_walker + 1) % PREFETCHED_TICKS;
        if *cursor != 0 {
            *cursor = storage.entry(*cursor).links().next.get();
            storage.prefetch(*cursor);
        }
    }
}
