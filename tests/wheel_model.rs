//! `Wheel` against a sorted map: random insert, remove, reset and advance, with `next_deadline` compared and the
//! invariants checked after every operation, on tiny geometries (where wrapped levels are ordinary) and the real one,
//! from start times up to the end of the range.

mod common;

use std::collections::BTreeSet;

use common::{any_magnitude, operations, seeded};
use corewheel::{Key, Wheel};

/// The obvious implementation: a sorted set of deadlines.
struct Model {
    now: u64,
    sorted: BTreeSet<(u64, usize)>,
    live: Vec<Live>,
    /// Where each value is in `live`.
    places: Vec<Option<usize>>,
    stale: Vec<Key>,
    /// Live ones that have been reset.
    moved: u64,
}

struct Live {
    key: Key,
    deadline: u64,
    value: usize,
    was_reset: bool,
}

impl Model {
    fn new(now: u64) -> Self {
        Self { now, sorted: BTreeSet::new(), live: Vec::new(), places: Vec::new(), stale: Vec::new(), moved: 0 }
    }

    fn next_value(&self) -> usize {
        self.places.len()
    }

    fn insert(&mut self, key: Key, deadline: u64) {
        let (deadline, value) = (deadline.max(self.now), self.next_value());
        self.places.push(Some(self.live.len()));
        self.live.push(Live { key, deadline, value, was_reset: false });
        self.sorted.insert((deadline, value));
    }

    fn reset(&mut self, place: usize, deadline: u64) {
        let live = &mut self.live[place];
        self.sorted.remove(&(live.deadline, live.value));
        live.deadline = deadline.max(self.now);
        self.sorted.insert((live.deadline, live.value));
        self.moved += u64::from(!std::mem::replace(&mut live.was_reset, true));
    }

    fn remove(&mut self, place: usize) -> Live {
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

    fn earliest(&self) -> Option<u64> {
        self.sorted.first().map(|&(deadline, _)| deadline)
    }
}

/// The wheel and its model, side by side.
struct Pair<const BITS: u32, const LEVELS: usize> {
    wheel: Wheel<usize, BITS, LEVELS>,
    model: Model,
}

impl<const BITS: u32, const LEVELS: usize> Pair<BITS, LEVELS> {
    fn starting_at(now: u64) -> Self {
        Self { wheel: Wheel::starting_at(now), model: Model::new(now) }
    }

    fn any_operation(&mut self, random: &mut fastrand::Rng, most: usize) {
        match random.u32(..100) {
            0..40 if self.model.live.len() < most => self.insert(random),
            0..55 => self.remove(random),
            55..75 => self.reset(random),
            75..77 => self.use_a_stale_key(random),
            _ => self.advance(random),
        }
        assert_eq!(self.wheel.len(), self.model.live.len());
        self.compare_next_deadline();
    }

    /// Mostly near, at times far or past.
    fn any_deadline(&self, random: &mut fastrand::Rng) -> u64 {
        match random.u32(..10) {
            0 => any_magnitude(random),
            1 => self.model.now.wrapping_sub(random.u64(..3)),
            2..5 => self.model.now.saturating_add(random.u64(..4)),
            _ => self.model.now.saturating_add(any_magnitude(random)),
        }
    }

    fn insert(&mut self, random: &mut fastrand::Rng) {
        let deadline = self.any_deadline(random);
        let key = self.wheel.insert(deadline, self.model.next_value());
        self.model.insert(key, deadline);
    }

    fn remove(&mut self, random: &mut fastrand::Rng) {
        if let Some(place) = self.any_live(random) {
            let gone = self.model.remove(place);
            assert_eq!(self.wheel.remove(gone.key), Some(gone.value));
        }
    }

    fn reset(&mut self, random: &mut fastrand::Rng) {
        if let Some(place) = self.any_live(random) {
            let deadline = self.any_deadline(random);
            assert!(self.wheel.reset(self.model.live[place].key, deadline));
            self.model.reset(place, deadline);
        }
    }

    fn use_a_stale_key(&mut self, random: &mut fastrand::Rng) {
        if let Some(&stale) = random.choice(&self.model.stale) {
            assert_eq!(self.wheel.remove(stale), None);
            assert!(!self.wheel.reset(stale, self.model.now));
        }
    }

    fn any_live(&self, random: &mut fastrand::Rng) -> Option<usize> {
        let live = self.model.live.len();
        (live > 0).then(|| random.usize(..live))
    }

    /// Moves time on, stays, tries to go back, or goes exactly where the wheel wants to be woken; takes all that is due
    /// or stops half-way.
    fn advance(&mut self, random: &mut fastrand::Rng) {
        let to = match random.u32(..20) {
            0 => self.model.now.saturating_add(any_magnitude(random)),
            1 => self.model.now.wrapping_sub(random.u64(..2)),
            2..6 => self.wheel.next_deadline().unwrap_or(self.model.now),
            _ => self.model.now.saturating_add(random.u64(..6)),
        };
        let limit = if random.u32(..4) == 0 { random.usize(..3) } else { usize::MAX };
        self.advance_to(to.max(self.model.now), limit);
        assert_eq!(self.wheel.now(), self.model.now);
    }

    fn advance_to(&mut self, to: u64, limit: usize) {
        self.model.now = to;
        let mut taken = 0;
        for (deadline, value) in self.wheel.advance(to).take(limit) {
            let place = self.model.places[value].expect("an entry fires once");
            assert_eq!(deadline, self.model.live[place].deadline);
            assert_eq!(Some(deadline), self.model.earliest(), "in the order of the deadlines");
            assert!(deadline <= to, "never early");
            self.model.remove(place);
            taken += 1;
        }
        let left_due = self.model.earliest().is_some_and(|earliest| earliest <= to);
        assert!(taken == limit || !left_due, "never late");
    }

    /// Never later than the truth, and earlier only by being the start of a slot that the earliest entry is in, or
    /// that a live entry was reset away from.
    fn compare_next_deadline(&self) {
        let (next, truth) = (self.wheel.next_deadline(), self.model.earliest());
        assert_eq!(next.is_some(), truth.is_some());
        if let (Some(next), Some(truth)) = (next, truth) {
            let mut slot_starts = (0..LEVELS).map(|level| truth >> (BITS * shift(level)) << (BITS * shift(level)));
            assert!(next <= truth, "{next} is later than {truth}");
            let is_start = slot_starts.any(|start| start == next);
            assert!(is_start || self.model.moved > 0, "{next} is not the start of a slot of {truth}");
        }
    }
}

fn shift(level: usize) -> u32 {
    u32::try_from(level).expect("levels are few")
}

/// Times at which something wraps or ends.
fn start_times(random: &mut fastrand::Rng) -> u64 {
    match random.u32(..6) {
        0 => 0,
        1 => u64::MAX - random.u64(..2000),
        2 => (1 << random.u32(..64)) - 1 - random.u64(..1),
        3 => (1_u64 << random.u32(..64)).saturating_sub(random.u64(..100)),
        _ => any_magnitude(random),
    }
}

/// `total` operations in all, on many wheels.
fn agrees_with_the_model<const BITS: u32, const LEVELS: usize>(total: u64, each: u64, most: usize) {
    seeded(0..(total / each).max(1), |random| {
        let mut pair = Pair::<BITS, LEVELS>::starting_at(start_times(random));
        for _ in 0..each {
            pair.any_operation(random, most);
            #[cfg(debug_assertions)]
            if LEVELS > 8 || random.u32(..20_000) == 0 {
                pair.wheel.check();
            }
        }
    });
}

#[test]
fn one_bit_and_64_levels() {
    agrees_with_the_model::<1, 64>(operations(15_000), 500, 40);
}

#[test]
fn two_bits_and_32_levels() {
    agrees_with_the_model::<2, 32>(operations(30_000), 500, 40);
}

#[test]
fn three_bits_and_22_levels() {
    agrees_with_the_model::<3, 22>(operations(30_000), 500, 40);
}

#[test]
fn five_bits_and_13_levels() {
    agrees_with_the_model::<5, 13>(operations(20_000), 1_000, 400);
}

#[test]
fn nine_bits_and_8_levels() {
    agrees_with_the_model::<9, 8>(operations(20_000), 5_000, 1_000);
}

#[test]
fn the_real_geometry() {
    agrees_with_the_model::<11, 6>(operations(100_000), 50_000, 10_000);
}

/// A slot boundary of every level is crossed with an entry in every other level alive, from one tick before to one
/// after: where a wheel that looks at the wrong slot first loses a near timer behind a far one.
#[test]
fn every_boundary_is_crossed_with_far_entries_alive() {
    for level in 1..32 {
        let boundary = 1_u64 << (2 * level);
        for before in 1..=boundary.min(5) {
            let mut pair = Pair::<2, 32>::starting_at(0);
            for far in 0..64 {
                let deadline = 1_u64 << far;
                let key = pair.wheel.insert(deadline, pair.model.next_value());
                pair.model.insert(key, deadline);
            }
            pair.advance_to(boundary - before, usize::MAX);
            for delay in 1..=10 {
                let key = pair.wheel.insert(boundary - before + delay, pair.model.next_value());
                pair.model.insert(key, boundary - before + delay);
            }
            for step in 1..=12 {
                pair.advance_to(boundary - before + step, usize::MAX);
                pair.compare_next_deadline();
            }
        }
    }
}

/// A sleeper that always wakes at `next_deadline` reaches any deadline with at most one look per level.
#[test]
fn a_deadline_costs_at_most_one_wake_per_level() {
    seeded(0..operations(300), |random| {
        let start = start_times(random);
        let mut wheel = Wheel::<(), 11, 6>::starting_at(start);
        let deadline = start.saturating_add(any_magnitude(random));
        wheel.insert(deadline, ());
        let mut wakes = 0;
        while let Some(next) = wheel.next_deadline() {
            wakes += 1;
            let fired = wheel.advance(next).next();
            assert_eq!(fired.is_some(), next == deadline);
        }
        assert!(wakes <= 6, "{wakes} wakes");
    });
}

/// Removing entries leaves nothing that would wake a sleeper.
#[test]
fn removed_entries_wake_nobody() {
    seeded(0..operations(20), |random| {
        let mut wheel = Wheel::<u32, 11, 6>::starting_at(start_times(random) / 2);
        let now = wheel.now();
        let keys: Vec<_> = (0..1000).map(|value| wheel.insert(now + 1 + any_magnitude(random) / 2, value)).collect();
        let last = wheel.insert(u64::MAX, u32::MAX);
        for key in keys {
            assert!(wheel.remove(key).is_some());
        }
        assert!(wheel.remove(last).is_some());
        assert_eq!(wheel.next_deadline(), None);
        assert_eq!(wheel.len(), 0);
    });
}
