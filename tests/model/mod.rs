//! `Wheel` against a sorted map: random insert, remove, reset and advance, with and without slack and budgets, with
//! `next_deadline` compared and the invariants checked after every operation.
//!
//! The tests in `tests/` run it with the limits of production, those in `src/wheel/tests.rs` with the tiny ones.
#![allow(dead_code, reason = "no test uses all of it")]

#[path = "../common/mod.rs"]
pub(crate) mod common;

use std::collections::BTreeSet;

use common::{any_magnitude, seeded};
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
        Self {
            now,
            sorted: BTreeSet::new(),
            live: Vec::new(),
            places: Vec::new(),
            stale: Vec::new(),
            moved: 0,
        }
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

    /// Where an entry with slack goes.
    fn chosen(&self, deadline: u64, slack: u64) -> u64 {
        let (first, last) =
            (deadline.max(self.now.saturating_add(1)), deadline.saturating_add(slack));
        let multiples = (0..64).rev().map(|bits| last >> bits << bits);
        multiples.into_iter().find(|&multiple| multiple >= first).unwrap_or(last)
    }

    fn earliest(&self) -> Option<u64> {
        self.sorted.first().map(|&(deadline, _)| deadline)
    }
}

/// The wheel and its model, side by side.
pub(crate) struct Pair<const BITS: u32, const LEVELS: usize> {
    pub(crate) wheel: Wheel<usize, BITS, LEVELS>,
    model: Model,
}

impl<const BITS: u32, const LEVELS: usize> Pair<BITS, LEVELS> {
    pub(crate) fn starting_at(now: u64) -> Self {
        Self { wheel: Wheel::starting_at(now), model: Model::new(now) }
    }

    fn any_operation(&mut self, random: &mut fastrand::Rng, most: usize) {
        match random.u32(..100) {
            0..30 if self.model.live.len() < most => self.insert(random),
            30..40 if self.model.live.len() < most => self.insert_within(random),
            0..54 => self.remove(random),
            54..55 => self.move_all_together(random),
            55..75 => self.reset(random),
            75..77 => self.use_stale_keys(random),
            77..78 => self.leave(random),
            _ => self.advance(random),
        }
        assert_eq!(self.wheel.len(), self.model.live.len());
        self.compare_next_deadline();
    }

    /// Mostly near, at times far or past, or where a slot begins.
    fn any_deadline(&self, random: &mut fastrand::Rng) -> u64 {
        match random.u32(..12) {
            0 => any_magnitude(random),
            1 => self.model.now.wrapping_sub(random.u64(..3)),
            2..5 => self.model.now.saturating_add(random.u64(..4)),
            5..7 => self.any_boundary(random),
            _ => self.model.now.saturating_add(any_magnitude(random)),
        }
    }

    /// The start of one of the next slots of some level, the tick before, or the one after.
    fn any_boundary(&self, random: &mut fastrand::Rng) -> u64 {
        let bits = BITS * random.u32(..shift(LEVELS).min(64 / BITS));
        let ahead = 1 + any_magnitude(random) % (4 << BITS);
        let start = (self.model.now >> bits).saturating_add(ahead).saturating_mul(1 << bits);
        start.saturating_add(random.u64(..3)).saturating_sub(1)
    }

    fn insert(&mut self, random: &mut fastrand::Rng) {
        // What comes late to a pass that is not over meets what that has left.
        let late = self.wheel.is_behind() && random.bool();
        self.insert_at(if late { self.model.now } else { self.any_deadline(random) });
    }

    pub(crate) fn insert_at(&mut self, deadline: u64) {
        let key = self.wheel.insert(deadline, self.model.next_value());
        self.model.insert(key, deadline);
    }

    fn insert_within(&mut self, random: &mut fastrand::Rng) {
        let deadline = self.any_deadline(random);
        // With as much slack as it is far, many meet.
        let far = deadline.saturating_sub(self.model.now);
        let slack = if random.bool() { far } else { any_magnitude(random) };
        let key = self.wheel.insert_within(deadline, slack, self.model.next_value());
        self.model.insert(key, self.model.chosen(deadline, slack));
    }

    /// Everyone goes where the others go, so that there is a crowd.
    fn move_all_together(&mut self, random: &mut fastrand::Rng) {
        let deadline = self.any_deadline(random);
        for place in 0..self.model.live.len() {
            assert!(self.wheel.reset(self.model.live[place].key, deadline));
            self.model.reset(place, deadline);
        }
    }

    /// Nobody stays, or few, so that memory goes.
    fn leave(&mut self, random: &mut fastrand::Rng) {
        let stay = random.usize(..4);
        while self.model.live.len() > stay {
            self.remove(random);
        }
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

    fn use_stale_keys(&mut self, random: &mut fastrand::Rng) {
        let touched = self.wheel.touched();
        for _ in 0..10 {
            if let Some(&stale) = random.choice(&self.model.stale) {
                assert_eq!(self.wheel.remove(stale), None);
                assert!(!self.wheel.reset(stale, self.model.now));
            }
        }
        assert_eq!(self.wheel.touched(), touched, "a stale key touches nothing");
    }

    fn any_live(&self, random: &mut fastrand::Rng) -> Option<usize> {
        let live = self.model.live.len();
        (live > 0).then(|| random.usize(..live))
    }

    /// Moves time on, stays, tries to go back, or goes exactly where the wheel wants to be woken; takes all that is due, as
    /// much as a budget allows, or stops half-way.
    fn advance(&mut self, random: &mut fastrand::Rng) {
        let to = match random.u32(..20) {
            0 => self.model.now.saturating_add(any_magnitude(random)),
            1 => self.model.now.wrapping_sub(random.u64(..2)),
            2..6 => self.wheel.next_deadline().unwrap_or(self.model.now),
            _ => self.model.now.saturating_add(random.u64(..6)),
        };
        let limit = if random.u32(..4) == 0 { random.usize(..3) } else { usize::MAX };
        let budget = if random.u32(..3) == 0 { random.usize(..6) } else { usize::MAX };
        self.advance_within(to.max(self.model.now), limit, budget);
        assert_eq!(self.wheel.now(), self.model.now);
    }

    pub(crate) fn advance_to(&mut self, to: u64) {
        self.advance_within(to, usize::MAX, usize::MAX);
    }

    fn advance_within(&mut self, to: u64, limit: usize, budget: usize) {
        self.model.now = to;
        let (mut taken, before) = (0, self.wheel.touched());
        for (deadline, value) in self.wheel.advance_within(to, budget).take(limit) {
            let place = self.model.places[value].expect("an entry fires once");
            assert_eq!(deadline, self.model.live[place].deadline);
            assert_eq!(Some(deadline), self.model.earliest(), "in the order of the deadlines");
            assert!(deadline <= to, "never early");
            self.model.remove(place);
            taken += 1;
        }
        let touched = usize::try_from(self.wheel.touched() - before).expect("few");
        assert!(
            (taken..=budget).contains(&touched),
            "{touched} touched, {taken} of them fired, of at most {budget}"
        );
        let stopped = taken == limit || touched == budget;
        let left_due = self.model.earliest().is_some_and(|earliest| earliest <= to);
        assert!(stopped || !left_due, "never late");
        assert!(stopped || !self.wheel.is_behind(), "it went on to the end");
        assert!(self.wheel.is_behind() || !left_due, "it says that something is left");
    }

    /// Never later than the truth, and earlier only by being the start of a slot that the earliest entry is in, or
    /// that a live entry was reset away from.
    pub(crate) fn compare_next_deadline(&self) {
        let (next, truth) = (self.wheel.next_deadline(), self.model.earliest());
        assert_eq!(next.is_some(), truth.is_some());
        if let (Some(next), Some(truth)) = (next, truth) {
            let mut slot_starts =
                (0..LEVELS).map(|level| truth >> (BITS * shift(level)) << (BITS * shift(level)));
            assert!(next <= truth, "{next} is later than {truth}");
            let is_start = slot_starts.any(|start| start == next);
            assert!(
                is_start || self.model.moved > 0,
                "{next} is not the start of a slot of {truth}"
            );
        }
    }
}

fn shift(level: usize) -> u32 {
    u32::try_from(level).expect("levels are few")
}

/// Times at which something wraps or ends.
pub(crate) fn start_times(random: &mut fastrand::Rng) -> u64 {
    match random.u32(..6) {
        0 => 0,
        1 => u64::MAX - random.u64(..2000),
        2 => (1 << random.u32(..64)) - 1 - random.u64(..1),
        3 => (1_u64 << random.u32(..64)).saturating_sub(random.u64(..100)),
        _ => any_magnitude(random),
    }
}

/// `total` operations in all, on many wheels.
pub(crate) fn agrees_with_the_model<const BITS: u32, const LEVELS: usize>(
    total: u64,
    each: u64,
    most: usize,
) {
    seeded(0..(total / each).max(1), |random| {
        let mut pair = Pair::<BITS, LEVELS>::starting_at(start_times(random));
        for _ in 0..each.min(total) {
            pair.any_operation(random, most);
            // With large geometries it takes long, and Miri a thousand times as long.
            #[cfg(debug_assertions)]
            if (LEVELS > 8 && !cfg!(miri))
                || random.u32(..if cfg!(miri) { 20 } else { 20_000 }) == 0
            {
                pair.wheel.check();
            }
        }
    });
}
