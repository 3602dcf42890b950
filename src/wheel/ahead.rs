//! Walks the lists of the coming ticks, so that their entries are in the cache in time.
//!
//! A list can be walked only as fast as each entry's cache line arrives, so the lists of several
//! ticks are walked side by side. For each returned entry, one walker takes a step, and by its next
//! turn the line it fetches has arrived. A walker may leave its list when that changes; no result
//! depends on its position.

use super::{slot::Slots, storage::Storage};
use crate::limits::TICKS_AHEAD;

/// One walker per coming tick.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The entry that each walker has prefetched and not read; 0 at the end of its list.
    walkers: [u32; TICKS_AHEAD],
    turn: usize,
    /// The tick up to which walkers have been started.
    sent: u64,
}

impl Ahead {
    pub(super) const fn new() -> Self {
        Self { walkers: [0; TICKS_AHEAD], turn: 0, sent: 0 }
    }

    /// Starts walkers for the ticks after `tick`, whose slots `slot` returns.
    #[inline]
    pub(super) fn send(
        &mut self,
        tick: u64,
        slots: &Slots,
        storage: &impl Storage,
        slot: impl Fn(u64) -> u32,
    ) {
        let last = tick.saturating_add(TICKS_AHEAD as u64);
        for ahead in self.sent.max(tick).saturating_add(1)..=last {
            let first = slots.first(slot(ahead));
            if first != 0 {
                self.walkers[self.turn] = first;
                self.turn = (self.turn + 1) % TICKS_AHEAD;
                storage.prefetch(first);
            }
        }
        self.sent = last;
    }

    /// Moves one walker by a step.
    #[inline]
    pub(super) fn step(&mut self, storage: &impl Storage) {
        let walker = &mut self.walkers[self.turn];
        self.turn = (self.turn + 1) % TICKS_AHEAD;
        if *walker != 0 {
            *walker = storage.next_if_there(*walker);
            storage.prefetch(*walker);
        }
    }
}
