//! What is known of a shard, from its making to its end.

use std::collections::BTreeSet;

use corewheel::Counts;

use crate::plan::{Id, Nanos};

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "they have nothing to do with one another")]
pub(crate) struct Life {
    /// The core whose clock it has.
    pub(crate) core: usize,
    pub(crate) tick: Nanos,
    pub(crate) limit: usize,
    pub(crate) has_ended: bool,
    /// The latest reading of the clock by its owner.
    pub(super) latest: Nanos,
    /// Readings that went back.
    pub(super) regressions: u64,
    /// The tick of the last turn, and its reading.
    pub(super) target: u64,
    pub(super) turn_now: Nanos,
    pub(super) turn: Option<Turn>,
    pub(super) turns: u64,
    /// The live ones, by the last tick at which they may fire.
    pub(super) live: BTreeSet<(u64, Id)>,
    pub(super) added: u64,
    pub(super) refused: u64,
    pub(super) fired: u64,
    pub(super) runs: u64,
    pub(super) cancelled: u64,
    /// Timers whose messages may wait.
    pub(super) asked: Vec<Id>,
    /// One of the messages is about a deadline.
    pub(super) urgent: bool,
    /// Nobody knows which of the messages have been dealt with.
    pub(super) partly: bool,
    pub(super) unarrived: u64,
    pub(super) held: u64,
    /// What its owner saw last.
    pub(super) seen: Counts,
    /// What other threads have been told of how many there are.
    pub(super) told: u64,
    pub(super) asleep: Option<Asleep>,
    /// The last pass has left something, as the shard said.
    pub(super) behind: bool,
    /// Callbacks of the last turn have added, moved or cancelled timers.
    pub(super) was_nested: bool,
    /// How often the shard may still want to be turned for nothing.
    pub(super) needless: u64,
}

/// A timer that is further ahead, in ticks, may want some turns on its way: beyond the first level, of which the revolution that
/// runs is a part.
const FAR: u64 = (1 << 17) - (1 << 11);
const ON_ITS_WAY: u64 = 5;

/// A turn that is under way.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// What has run was due at this tick or later.
    pub(super) order: u64,
    pub(super) fired: usize,
    /// Cancelled by its callbacks.
    pub(super) cancelled: u64,
    /// Messages that came meanwhile, at most.
    pub(super) came: u64,
    /// Operations by its callbacks.
    pub(super) nested: u64,
    pub(super) before: Counts,
    /// The shard has said that it wants to be turned just then.
    pub(super) is_wanted: bool,
    /// It meets all that was asked for before; what of that is due after this tick comes in order.
    pub(super) in_order_after: Option<u64>,
}

/// An announced sleep.
#[derive(Debug)]
pub(crate) struct Asleep {
    pub(super) until: Nanos,
    pub(super) wakes: u64,
    pub(super) planned: u64,
    /// Something was asked for that perhaps, or certainly, cannot wait.
    pub(super) may_wake: bool,
    pub(super) must_wake: bool,
}

impl Life {
    pub(super) fn new(core: usize, tick: Nanos, limit: usize, now: Nanos) -> Self {
        Self {
            core,
            tick,
            limit,
            has_ended: false,
            latest: now,
            regressions: 0,
            target: now / tick,
            turn_now: now,
            turn: None,
            turns: 0,
            live: BTreeSet::new(),
            added: 0,
            refused: 0,
            fired: 0,
            runs: 0,
            cancelled: 0,
            asked: Vec::new(),
            urgent: false,
            partly: false,
            unarrived: 0,
            held: 0,
            seen: Counts::default(),
            told: 0,
            asleep: None,
            behind: false,
            was_nested: false,
            needless: 0,
        }
    }

    /// The tick of a deadline.
    pub(super) fn tick_of(&self, due: Nanos) -> u64 {
        due.div_ceil(self.tick)
    }

    /// When a tick begins.
    pub(super) fn start(&self, tick: u64) -> Nanos {
        tick.saturating_mul(self.tick)
    }

    /// The owner reads the clock, which shows `now`.
    pub(super) fn read(&mut self, now: Nanos) -> Nanos {
        if now < self.latest {
            self.regressions += 1;
        }
        self.latest = self.latest.max(now);
        self.latest
    }

    /// What another thread takes for the time.
    pub(super) fn read_elsewhere(&self, now: Nanos) -> Nanos {
        now.max(self.latest)
    }

    pub(crate) fn is_turning(&self) -> bool {
        self.turn.is_some()
    }

    /// A timer is due between these ticks now: whoever sleeps longer must be woken.
    pub(super) fn wants(&mut self, ticks: [u64; 2]) {
        let [first, last] = ticks.map(|tick| self.start(tick));
        // Within a turn, or after one that was cut short, the wheel has not gone on to its end.
        if ticks[1].saturating_sub(self.target) >= FAR || self.is_turning() || self.behind {
            self.needless += ON_ITS_WAY;
        }
        if let Some(asleep) = &mut self.asleep {
            asleep.may_wake |= first < asleep.until;
            asleep.must_wake |= last < asleep.until;
        }
    }
}
