//! Walking the lists of the ticks to come, so that their entries are in the cache when their time comes.
//!
//! A list can be walked only as fast as each entry's line arrives, so the lists of several ticks are walked side by side: for
//! each entry that is handed out, one walker takes a step, and by its next turn the line it asked for has come. A walker
//! may lose its way when its list changes, and nothing depends on where it goes.

use super::{slot::Slots, storage::Storage};
use crate::limits::TICKS_AHEAD;

/// One walker per tick to come.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The entry each has asked for and not looked at; 0 if it has come to an end.
    walkers: [u32; TICKS_AHEAD],
    turn: usize,
    /// The tick up to which walkers have been sent.
    sent: u64,
}

impl Ahead {
    pub(super) const fn new() -> Self {
        Self { walkers: [0; TICKS_AHEAD], turn: 0, sent: 0 }
    }

    /// Time has come to `tick`: sends walkers to the ticks after it, of which `slot` tells the slots.
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

    /// One walker takes a step.
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
