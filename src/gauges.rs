//! What a shard's owner says of itself, for whoever wants to know (`metrics`).
//!
//! The owner counts in numbers of its own and copies them here when its loop asks how long it may sleep, and every 64 turns,
//! so that a timer costs it no more than the counting. All of it is written by the owner alone (but for the stalls, and the
//! wish to know of the levels), and read by any thread at any moment: a reader never holds the owner up, and an owner that
//! stalls never holds up a reader.
//!
//! What must be seen together, the [`Counts`], is one [`Newest`]. The rest are words that are read for their own sake.

mod counts;
mod histogram;
mod newest;

pub(crate) use self::counts::WORDS;
pub use self::{counts::Counts, histogram::Histogram};
use self::{histogram::Cells, newest::Newest};
use crate::{
    limits::SHARD_LEVELS,
    sync::{AtomicU64, IS_MODEL, Ordering},
};

/// Why a timer fired late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateBy {
    /// This is the first turn since its deadline.
    Loop = 0,
    /// An earlier turn has left it.
    Turn = 1,
}

#[derive(Debug)]
pub(crate) struct Gauges {
    has_name: bool,
    /// Of all shards of the process, how many had been made with this one.
    serial: AtomicU64,
    counts: Newest<WORDS>,
    turns_begun: AtomicU64,
    turns_ended: AtomicU64,
    /// What the clock showed when the last turn began.
    turn_began: AtomicU64,
    /// When the loop was to turn next, as of its last question.
    next_due: AtomicU64,
    longest_turn: AtomicU64,
    lateness: [Cells; 2],
    callbacks: Cells,
    /// Somebody wants to know how full the levels are: to say so costs more than the rest.
    levels_wanted: AtomicU64,
    /// In how many slots of each level there are timers.
    occupied: [AtomicU64; SHARD_LEVELS],
    stalls: AtomicU64,
}

/// How full a level is that nobody has wanted to know of.
const UNTOLD: u64 = u64::MAX;

/// A shard's turns, in nanoseconds of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// Of which shard.
    pub(crate) serial: u64,
    pub(crate) begun: u64,
    pub(crate) is_in_turn: bool,
    pub(crate) began: u64,
    /// `u64::MAX` if nothing was due.
    pub(crate) next_due: u64,
}

impl Gauges {
    /// Of a shard with a name or without: in models, where each word is one more thing to be interleaved, those without say
    /// nothing.
    pub(crate) fn new(has_name: bool) -> Self {
        Self {
            has_name,
            serial: AtomicU64::new(0),
            counts: Newest::default(),
            turns_begun: AtomicU64::new(0),
            turns_ended: AtomicU64::new(0),
            turn_began: AtomicU64::new(0),
            next_due: AtomicU64::new(u64::MAX),
            longest_turn: AtomicU64::new(0),
            lateness: Default::default(),
            callbacks: Cells::default(),
            levels_wanted: AtomicU64::new(0),
            occupied: [(); SHARD_LEVELS].map(|()| AtomicU64::new(UNTOLD)),
            stalls: AtomicU64::new(0),
        }
    }

    /// The shard is the `serial`-th of the process. Before anybody else sees it.
    pub(crate) fn set_serial(&self, serial: u64) {
        if self.tells() {
            // Relaxed: published with the shard.
            self.serial.store(serial, Ordering::Relaxed);
        }
    }

    /// Which shard of the process it is: no other one ever is.
    pub(crate) fn serial(&self) -> u64 {
        // Relaxed: it has not changed since the shard was published.
        self.serial.load(Ordering::Relaxed)
    }

    #[inline]
    fn tells(&self) -> bool {
        !IS_MODEL || self.has_name
    }

    /// The owner begins a turn, its `begun`-th.
    #[inline]
    pub(crate) fn turn_begins(&self, now: u64, begun: u64) {
        if self.tells() {
            // Relaxed: published by the next store.
            self.turn_began.store(now, Ordering::Relaxed);
            // Release: when it began, and that those before have ended; pairs with the Acquire in `turns`.
            self.turns_begun.store(begun, Ordering::Release);
        }
    }

    /// The owner has ended that turn.
    #[inline]
    pub(crate) fn turn_ends(&self, begun: u64) {
        if self.tells() {
            // Relaxed: a single word, read for its own sake; a thread that sees it late takes a turn for a moment longer than it is.
            self.turns_ended.store(begun, Ordering::Relaxed);
        }
    }

    /// The owner's counts have changed.
    #[inline]
    pub(crate) fn tell(&self, counts: &[u64; WORDS]) {
        if self.tells() {
            self.counts.tell(counts);
        }
    }

    /// The loop has asked when it is to turn next.
    #[inline]
    pub(crate) fn wants_turn_at(&self, next_due: u64) {
        if self.tells() {
            // Relaxed: a single word, read for its own sake.
            self.next_due.store(next_due, Ordering::Relaxed);
        }
    }

    /// The owner's last turn took so long.
    #[inline]
    pub(crate) fn turn_took(&self, nanos: u64) {
        // Relaxed: the owner alone writes it, and it is read for its own sake.
        if self.tells() && nanos > self.longest_turn.load(Ordering::Relaxed) {
            self.longest_turn.store(nanos, Ordering::Relaxed);
        }
    }

    /// So many timers fired that much late.
    pub(crate) fn fired_late(&self, by: LateBy, nanos: u64, timers: u32) {
        if self.tells() {
            self.lateness[by as usize].add(nanos, timers);
        }
    }

    /// A callback that was timed took so long.
    pub(crate) fn callback_took(&self, nanos: u64) {
        if self.tells() {
            self.callbacks.add(nanos, 1);
        }
    }

    /// Whether somebody wants to know how full the levels are. (In models nobody does.)
    #[inline]
    pub(crate) fn wants_levels(&self) -> bool {
        // Relaxed: a wish, which may be heard a little later.
        !IS_MODEL && self.levels_wanted.load(Ordering::Relaxed) != 0
    }

    /// So many slots of each level have timers.
    pub(crate) fn tell_levels(&self, occupied: impl Iterator<Item = u32>) {
        for (place, slots) in self.occupied.iter().zip(occupied) {
            // Relaxed: single words, each read for its own sake.
            place.store(slots.into(), Ordering::Relaxed);
        }
        // Relaxed: whoever wishes again in this moment may have to wish once more.
        self.levels_wanted.store(0, Ordering::Relaxed);
    }

    /// Somebody wants to know.
    pub(crate) fn want_levels(&self) {
        // Relaxed: as in `wants_levels`.
        self.levels_wanted.store(1, Ordering::Relaxed);
    }

    /// In how many slots of each level there are timers, as the owner has last said; `None` if it has not.
    pub(crate) fn occupied(&self) -> Option<[u64; SHARD_LEVELS]> {
        // Relaxed: as in `tell_levels`.
        let occupied = self.occupied.each_ref().map(|place| place.load(Ordering::Relaxed));
        (!occupied.contains(&UNTOLD)).then_some(occupied)
    }

    /// A watch has found that the owner does not turn.
    pub(crate) fn stalled(&self) {
        // Relaxed: a counter, of whichever threads watch.
        self.stalls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stalls(&self) -> u64 {
        // Relaxed: a counter, read for its own sake.
        self.stalls.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> [u64; WORDS] {
        self.counts.read()
    }

    pub(crate) fn lateness(&self, by: LateBy) -> Histogram {
        self.lateness[by as usize].read()
    }

    pub(crate) fn callback_durations(&self) -> Histogram {
        self.callbacks.read()
    }

    pub(crate) fn longest_turn(&self) -> u64 {
        // Relaxed: a single word, read for its own sake.
        self.longest_turn.load(Ordering::Relaxed)
    }

    pub(crate) fn turns(&self) -> Turns {
        // Acquire: when that turn began, or a later one; pairs with the Release in `turn_begins`.
        let begun = self.turns_begun.load(Ordering::Acquire);
        // Relaxed, here and below: single words. The end after the beginning, so that a turn that ends meanwhile has ended.
        let ended = self.turns_ended.load(Ordering::Relaxed);
        Turns {
            serial: self.serial(),
            begun,
            is_in_turn: begun > ended,
            began: self.turn_began.load(Ordering::Relaxed),
            next_due: self.next_due.load(Ordering::Relaxed),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn levels_are_told_once_to_who_has_asked() {
        let gauges = Gauges::new(true);
        assert_eq!((gauges.wants_levels(), gauges.occupied()), (false, None));
        gauges.want_levels();
        assert!(gauges.wants_levels());
        gauges.tell_levels(0..);
        assert!(
            !gauges.wants_levels()
                && gauges.occupied().is_some_and(|slots| slots[..3] == [0, 1, 2])
        );
    }

    /// Otherwise a watch takes it for one that has lasted since the turn before, sleep included.
    #[test]
    fn who_sees_a_turn_sees_when_it_began() {
        const NANOS: u64 = 1_000;
        let (gauges, last) = (Gauges::new(true), if cfg!(miri) { 30 } else { 100_000 });
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1..=last {
                    gauges.turn_begins(turn * NANOS, turn);
                    gauges.turn_ends(turn);
                }
            });
            let mut begun = 0;
            while begun < last {
                let turns = gauges.turns();
                assert!(turns.begun >= begun && turns.began >= turns.begun * NANOS, "{turns:?}");
                begun = turns.begun;
            }
        });
        assert!(!gauges.turns().is_in_turn);
    }
}
