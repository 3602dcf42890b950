//! `Wheel` against a sorted set: random inserts, removes, resets and advances, with and without
//! slack and budgets.
#![allow(dead_code, reason = "no test uses all of it")]

#[path = "../common/mod.rs"]
pub(crate) mod common;

use std::collections::BTreeSet;

use common::seeded;
use corewheel::{Key, Wheel};

/// Returns a number below its argument, from a seeded generator or from the bytes of a fuzzer.
pub(crate) type Choose<'a> = dyn FnMut(u64) -> u64 + 'a;

/// A wheel and its model: a sorted set of deadlines.
pub(crate) struct Pair<const BITS: u32, const LEVELS: usize> {
    pub(crate) wheel: Wheel<usize, BITS, LEVELS>,
    now: u64,
    sorted: BTreeSet<(u64, usize)>,
    live: Vec<Live>,
    /// The index of each value in `live`.
    places: Vec<Option<usize>>,
    stale: Vec<Key>,
    /// The number of live entries that have been reset.
    moved: u64,
}

struct Live {
    key: Key,
    deadline: u64,
    value: usize,
    was_reset: bool,
}

impl<const BITS: u32, const LEVELS: usize> Pair<BITS, LEVELS> {
    pub(crate) fn starting_at(now: u64) -> Self {
        Self {
            wheel: Wheel::starting_at(now),
            now,
            sorted: BTreeSet::new(),
            live: Vec::new(),
            places: Vec::new(),
            stale: Vec::new(),
            moved: 0,
        }
    }

    /// Makes a random operation, which leaves at most `most` live entries.
    pub(crate) fn any_operation(&mut self, choose: &mut Choose<'_>, most: usize) {
        let has_room = self.live.len() < most;
        match choose(100) {
            0..29 if has_room => {
                // An insert that is due at once may join the due entries of an unfinished advance.
                let late = self.wheel.is_behind() && choose(2) == 0;
                self.insert_at(if late { self.now } else { self.any_deadline(choose) });
            }
            29 if has_room => {
                let (deadline, count) = (self.any_deadline(choose), choose(256));
                let room = most - self.live.len();
                (0..count).take(room).for_each(|_| self.insert_at(deadline));
            }
            30..40 if has_room => self.insert_within(choose),
            0..54 => {
                if let Some(place) = self.any_live(choose) {
                    self.remove(place);
                }
            }
            54 => {
                let deadline = self.any_deadline(choose);
                (0..self.live.len()).for_each(|place| self.reset(place, deadline));
            }
            55..75 => {
                if let Some(place) = self.any_live(choose) {
                    let deadline = self.any_deadline(choose);
                    self.reset(place, deadline);
                }
            }
            75..77 => self.use_stale_keys(choose),
            // Few entries stay, so that memory is freed.
            77 => {
                let stay = index(choose, 4);
                while self.live.len() > stay {
                    let place = self.any_live(choose).expect("an entry is live");
                    self.remove(place);
                }
            }
            _ => self.advance(choose),
        }
        assert_eq!((self.wheel.len(), self.wheel.now()), (self.live.len(), self.now));
        self.compare_next_deadline();
    }

    /// All entries fire at the end of time.
    pub(crate) fn finish(&mut self) {
        self.advance_within(u64::MAX, usize::MAX, usize::MAX);
        assert!(self.live.is_empty() && self.wheel.is_empty());
    }

    /// Mostly a near deadline, at times a far one, a past one, or one beside the start of a slot.
    fn any_deadline(&self, choose: &mut Choose<'_>) -> u64 {
        match choose(12) {
            0 => magnitude(choose),
            1 => self.now.wrapping_sub(choose(3)),
            2..5 => self.now.saturating_add(choose(4)),
            5..7 => self.any_boundary(choose),
            _ => self.now.saturating_add(magnitude(choose)),
        }
    }

    /// The start of one of the next slots of some level, the tick before, or the tick after.
    fn any_boundary(&self, choose: &mut Choose<'_>) -> u64 {
        let bits = u64::from(BITS) * choose((LEVELS as u64).min(64 / u64::from(BITS)));
        let ahead = 1 + magnitude(choose) % (4 << BITS);
        let start = (self.now >> bits).saturating_add(ahead).saturating_mul(1 << bits);
        start.saturating_add(choose(3)).saturating_sub(1)
    }

    fn any_live(&self, choose: &mut Choose<'_>) -> Option<usize> {
        let live = self.live.len();
        (live > 0).then(|| index(choose, live))
    }

    pub(crate) fn insert_at(&mut self, deadline: u64) {
        let key = self.wheel.insert(deadline, self.places.len());
        self.is_inserted(key, deadline);
    }

    fn insert_within(&mut self, choose: &mut Choose<'_>) {
        let deadline = self.any_deadline(choose);
        // If the slack is as long as the delay, many entries share a tick.
        let delay = deadline.saturating_sub(self.now);
        let slack = if choose(2) == 0 { delay } else { magnitude(choose) };
        let key = self.wheel.insert_within(deadline, slack, self.places.len());
        // The deadline is the multiple of the largest power of two.
        let first = deadline.max(self.now.saturating_add(1));
        let last = deadline.saturating_add(slack);
        let mut multiples = (0..64).rev().map(|bits| last >> bits << bits);
        self.is_inserted(key, multiples.find(|&multiple| multiple >= first).unwrap_or(last));
    }

    fn is_inserted(&mut self, key: Key, deadline: u64) {
        let (deadline, value) = (deadline.max(self.now), self.places.len());
        self.places.push(Some(self.live.len()));
        self.live.push(Live { key, deadline, value, was_reset: false });
        self.sorted.insert((deadline, value));
    }

    fn remove(&mut self, place: usize) {
        let Live { key, value, .. } = self.is_removed(place);
        assert_eq!(self.wheel.remove(key), Some(value));
    }

    fn is_removed(&mut self, place: usize) -> Live {
        let gone = self.live.swap_remove(place);
        self.moved -= u64::from(gone.was_reset);
        self.sorted.remove(&(gone.deadline, gone.value));
        self.places[gone.value] = None;
        if let Some(moved) = self.live.get(place) {
            self.places[moved.value] = Some(place);
        }
        if self.stale.len() < 1000 {
            self.stale.push(gone.key);
        }
        gone
    }

    pub(crate) fn reset(&mut self, place: usize, deadline: u64) {
        let live = &mut self.live[place];
        assert!(self.wheel.reset(live.key, deadline), "a live entry can be reset");
        self.sorted.remove(&(live.deadline, live.value));
        live.deadline = deadline.max(self.now);
        self.sorted.insert((live.deadline, live.value));
        self.moved += u64::from(!std::mem::replace(&mut live.was_reset, true));
    }

    fn use_stale_keys(&mut self, choose: &mut Choose<'_>) {
        let touched = self.wheel.touched();
        for _ in 0..self.stale.len().min(10) {
            let stale = self.stale[index(choose, self.stale.len())];
            assert_eq!(self.wheel.remove(stale), None);
            assert!(!self.wheel.reset(stale, self.now));
        }
        assert_eq!(self.wheel.touched(), touched, "a stale key touches nothing");
    }

    /// Advances to a random time or to `next_deadline`. Takes all due entries, or stops at a budget
    /// or a limit.
    fn advance(&mut self, choose: &mut Choose<'_>) {
        let to = match choose(20) {
            0 => self.now.saturating_add(magnitude(choose)),
            1 => self.now.wrapping_sub(choose(2)),
            2..6 => self.wheel.next_deadline().unwrap_or(self.now),
            _ => self.now.saturating_add(choose(6)),
        };
        let limit = if choose(4) == 0 { index(choose, 3) } else { usize::MAX };
        let budget = if choose(3) == 0 { index(choose, 6) } else { usize::MAX };
        self.advance_within(to.max(self.now), limit, budget);
    }

    pub(crate) fn advance_within(&mut self, to: u64, limit: usize, budget: usize) {
        self.now = to;
        let (mut taken, before) = (0, self.wheel.touched());
        let due: Vec<_> = self.wheel.advance_within(to, budget).take(limit).collect();
        for (deadline, value) in due {
            let place = self.places[value].expect("an entry fires once");
            assert_eq!(deadline, self.live[place].deadline);
            assert_eq!(Some(deadline), self.earliest(), "in deadline order");
            assert!(deadline <= to, "never early");
            self.is_removed(place);
            taken += 1;
        }
        let touched = usize::try_from(self.wheel.touched() - before).expect("few");
        assert!((taken..=budget).contains(&touched), "{touched} touched, and {taken} fired");
        let stopped = taken == limit || touched == budget;
        let left_due = self.earliest().is_some_and(|earliest| earliest <= to);
        assert!(stopped || !left_due, "never late");
        assert!(stopped || !self.wheel.is_behind(), "a complete advance is behind");
        let next = self.wheel.next_deadline();
        assert!(stopped || next.is_none_or(|next| next > to), "work is left behind");
        assert!(self.wheel.is_behind() || !left_due, "due entries are left");
    }

    fn earliest(&self) -> Option<u64> {
        self.sorted.first().map(|&(deadline, _)| deadline)
    }

    /// Asserts that `next_deadline` is not later than the earliest deadline. If it is earlier, it
    /// is one of these:
    ///
    /// - the start of a slot of the earliest entry,
    /// - the start of a slot that a live entry was moved away from,
    /// - the start of a cascade, at most one tick per entry before the start of a slot.
    pub(crate) fn compare_next_deadline(&self) {
        let (next, truth) = (self.wheel.next_deadline(), self.earliest());
        assert_eq!(next.is_some(), truth.is_some());
        if let (Some(next), Some(truth)) = (next, truth) {
            assert!(next <= truth, "{next} is later than {truth}");
            let mut levels = (0..64).step_by(BITS as usize).take(LEVELS);
            let is_start = levels.any(|bits| truth >> bits << bits == next);
            let may_be_early = self.moved > 0 || self.is_for_a_portion(next);
            assert!(is_start || may_be_early, "{next} is not the start of a slot of {truth}");
        }
    }

    /// Returns whether a cascade may begin at `tick`, because a slot of an entry starts soon.
    fn is_for_a_portion(&self, tick: u64) -> bool {
        let levels = || (0..64).step_by(BITS as usize).take(LEVELS);
        let starts_of =
            |&(deadline, _): &(u64, usize)| levels().map(move |it| deadline >> it << it);
        let starts = self.sorted.iter().flat_map(starts_of);
        starts.filter(|&start| start > tick).any(|start| start - tick <= self.sorted.len() as u64)
    }

    /// Checks the invariants: at random steps in large geometries and under Miri, otherwise always.
    fn check(&self, random: &mut fastrand::Rng) {
        #[cfg(debug_assertions)]
        if (LEVELS > 8 && !cfg!(miri)) || random.u32(..if cfg!(miri) { 20 } else { 20_000 }) == 0 {
            self.wheel.check();
        }
        let _ = random;
    }
}

fn index(choose: &mut Choose<'_>, bound: usize) -> usize {
    usize::try_from(choose(bound as u64)).expect("below a usize")
}

/// Returns a number whose size in bits is uniform.
pub(crate) fn magnitude(choose: &mut Choose<'_>) -> u64 {
    choose(u64::MAX) >> choose(64)
}

/// Returns a start time, often just before the wheel wraps or time ends.
pub(crate) fn start_times(choose: &mut Choose<'_>) -> u64 {
    match choose(6) {
        0 => 0,
        1 => u64::MAX - choose(2000),
        2 => (1 << choose(64)) - 1,
        3 => (1_u64 << choose(64)).saturating_sub(choose(100)),
        _ => magnitude(choose),
    }
}

/// Makes `total` operations, `each` of them on one wheel.
pub(crate) fn agrees_with_the_model<const BITS: u32, const LEVELS: usize>(
    total: u64,
    each: u64,
    most: usize,
) {
    // Printed only if the test fails.
    println!("{BITS} bits, {LEVELS} levels");
    seeded(0..(total / each).max(1), |random| {
        let mut checks = random.fork();
        let choose: &mut Choose<'_> = &mut |bound| random.u64(..bound);
        let mut pair = Pair::<BITS, LEVELS>::starting_at(start_times(choose));
        for _ in 0..each.min(total) {
            pair.any_operation(choose, most);
            pair.check(&mut checks);
        }
        pair.finish();
    });
}
