//! `Wheel` against a plain list: what is due is whatever has a deadline that has come.

use arbitrary::Arbitrary;
use corewheel::{Key, Wheel};

use crate::moment::Moment;

/// A run: where time begins, and what is done.
#[derive(Arbitrary, Debug)]
pub struct Run {
    /// Which of the tiny geometries.
    pub geometry: u8,
    start: u64,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Operation {
    Insert(Moment),
    InsertWithin(Moment, Moment),
    /// So many with the same deadline: a crowd, and pages of entries.
    InsertMany(Moment, u8),
    Reset(u16, Moment),
    ResetAll(Moment),
    Remove(u16),
    /// All but so many go, so that memory does.
    Leave(u8),
    /// A key of an entry that has gone finds nothing.
    Stale(u16),
    Advance(Moment),
    AdvanceWithin(Moment, u8),
    /// Stops after so many were handed out.
    AdvanceAndStop(Moment, u8),
    /// Goes where the wheel wants to be woken.
    Wake,
}

#[derive(Clone, Copy)]
struct Live {
    key: Key,
    deadline: u64,
    value: u32,
}

struct Pair<const BITS: u32, const LEVELS: usize> {
    wheel: Wheel<u32, BITS, LEVELS>,
    now: u64,
    live: Vec<Live>,
    stale: Vec<Key>,
    /// Something has been reset: the wheel may want to look where it was.
    was_reset: bool,
    values: u32,
}

/// More entries would only be slower.
const MOST: usize = 2_000;

impl Run {
    /// Holds a wheel of this geometry to the model; panics where they differ.
    ///
    /// # Panics
    ///
    /// If the wheel is wrong.
    pub fn check<const BITS: u32, const LEVELS: usize>(&self) {
        let wheel = Wheel::starting_at(self.start);
        let (live, stale) = (Vec::new(), Vec::new());
        let mut pair = Pair::<BITS, LEVELS> {
            wheel,
            now: self.start,
            live,
            stale,
            was_reset: false,
            values: 0,
        };
        for &operation in &self.operations {
            pair.apply(operation);
            pair.compare();
        }
        pair.finish();
    }
}

impl<const BITS: u32, const LEVELS: usize> Pair<BITS, LEVELS> {
    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Insert(at) => self.insert(at.from(self.now)),
            Operation::InsertWithin(at, slack) => {
                self.insert_within(at.from(self.now), slack.length())
            }
            Operation::InsertMany(at, count) => {
                (0..count).for_each(|_| self.insert(at.from(self.now)))
            }
            Operation::Reset(which, at) => self.reset(which, at.from(self.now)),
            Operation::ResetAll(at) => {
                (0..self.live.len()).for_each(|place| self.reset_at(place, at.from(self.now)))
            }
            Operation::Remove(which) => self.remove(which),
            Operation::Leave(stay) => {
                while self.live.len() > stay.into() {
                    self.remove(u16::MAX);
                }
            }
            Operation::Stale(which) => self.use_stale(which),
            Operation::Advance(to) => self.advance(to.from(self.now), usize::MAX, usize::MAX),
            Operation::AdvanceWithin(to, budget) => {
                self.advance(to.from(self.now), budget.into(), usize::MAX)
            }
            Operation::AdvanceAndStop(to, most) => {
                self.advance(to.from(self.now), usize::MAX, most.into())
            }
            Operation::Wake => {
                let next = self.wheel.next_deadline().unwrap_or(self.now);
                self.advance(next, usize::MAX, usize::MAX);
            }
        }
    }

    fn insert(&mut self, deadline: u64) {
        if self.live.len() < MOST {
            let key = self.wheel.insert(deadline, self.values);
            self.note(key, deadline.max(self.now));
        }
    }

    fn insert_within(&mut self, deadline: u64, slack: u64) {
        if self.live.len() < MOST {
            let key = self.wheel.insert_within(deadline, slack, self.values);
            self.note(
                key,
                roundest(deadline.max(self.now.saturating_add(1)), deadline.saturating_add(slack)),
            );
        }
    }

    fn note(&mut self, key: Key, deadline: u64) {
        self.live.push(Live { key, deadline: deadline.max(self.now), value: self.values });
        self.values += 1;
    }

    fn reset(&mut self, which: u16, deadline: u64) {
        if let Some(place) = usize::from(which).checked_rem(self.live.len()) {
            self.reset_at(place, deadline);
        }
    }

    fn reset_at(&mut self, place: usize, deadline: u64) {
        assert!(self.wheel.reset(self.live[place].key, deadline), "a live entry can be moved");
        self.live[place].deadline = deadline.max(self.now);
        self.was_reset = true;
    }

    fn remove(&mut self, which: u16) {
        if let Some(place) = usize::from(which).checked_rem(self.live.len()) {
            let gone = self.live.swap_remove(place);
            assert_eq!(
                self.wheel.remove(gone.key),
                Some(gone.value),
                "a live entry can be taken out"
            );
            self.stale.push(gone.key);
        }
    }

    fn use_stale(&mut self, which: u16) {
        if let Some(place) = usize::from(which).checked_rem(self.stale.len()) {
            assert_eq!(self.wheel.remove(self.stale[place]), None, "it has gone");
            assert!(!self.wheel.reset(self.stale[place], self.now), "it has gone");
        }
    }

    fn advance(&mut self, to: u64, budget: usize, most: usize) {
        self.now = self.now.max(to);
        let (before, mut last, mut taken) = (self.wheel.touched(), 0, 0);
        for (deadline, value) in self.wheel.advance_within(to, budget).take(most) {
            let place =
                self.live.iter().position(|live| live.value == value).expect("an entry fires once");
            let fired = self.live.swap_remove(place);
            assert_eq!(fired.deadline, deadline, "at its own tick");
            assert!(deadline <= self.now, "never early");
            assert!(deadline >= last, "in the order of the deadlines");
            self.stale.push(fired.key);
            (last, taken) = (deadline, taken + 1);
        }
        let touched = self.wheel.touched() - before;
        assert!(touched <= budget as u64, "{touched} touched with a budget of {budget}");
        let is_due = self.live.iter().any(|live| live.deadline <= self.now);
        assert!(!is_due || taken == most || touched == budget as u64, "never late");
        assert!(!is_due || self.wheel.is_behind(), "it says that something is left");
    }

    fn compare(&self) {
        assert_eq!((self.wheel.len(), self.wheel.now()), (self.live.len(), self.now));
        let (next, truth) =
            (self.wheel.next_deadline(), self.live.iter().map(|live| live.deadline).min());
        assert_eq!(next.is_some(), truth.is_some());
        if let (Some(next), Some(truth)) = (next, truth) {
            assert!(next <= truth, "a sleep until {next} would miss {truth}");
            assert!(
                self.was_reset || Self::is_a_slots_start(next, truth),
                "woken at {next} for nothing"
            );
        }
        // Of a large geometry it would take too long.
        #[cfg(debug_assertions)]
        if BITS < 4 {
            self.wheel.check();
        }
    }

    /// Whether `next` is the start of a slot that holds `truth`.
    fn is_a_slots_start(next: u64, truth: u64) -> bool {
        let bits = (0..64).step_by(BITS as usize);
        bits.into_iter().any(|bits| truth >> bits << bits == next)
    }

    /// At the end of time all fire.
    fn finish(&mut self) {
        self.advance(u64::MAX, usize::MAX, usize::MAX);
        assert!(self.live.is_empty() && self.wheel.is_empty());
    }
}

/// Of the ticks from `first` to `last`, the multiple of the largest power of two.
fn roundest(first: u64, last: u64) -> u64 {
    let multiples = (0..64).rev().map(|bits| last >> bits << bits);
    multiples.into_iter().find(|&multiple| multiple >= first).unwrap_or(last)
}
