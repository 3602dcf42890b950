//! Compares `Wheel` with a sorted set: random inserts, removes, resets and advances, with and
//! without slack and budgets.
#![allow(dead_code, reason = "no test uses all of it")]

#[path = "../common/mod.rs"]
pub(crate) mod common;

use std::collections::BTreeSet;

use common::seeded;
use corewheel::{Key, Wheel};

/// Returns a number below its argument, from a seeded generator or from the bytes of a fuzzer.
pub(crate) type Choose<'a> = dyn FnMut(u64) -> u64 + 'a;

/// A wheel and its model: a sorted set of deadlines.
pub(crate) struct ModelledWheel<const LEVEL_BITS: u32, const LEVELS: usize> {
    pub(crate) wheel: Wheel<usize, LEVEL_BITS, LEVELS>,
    now: u64,
    deadlines: BTreeSet<(u64, usize)>,
    live: Vec<Live>,
    /// The index in `live` of each inserted value; None after its entry has ended.
    live_index: Vec<Option<usize>>,
    stale: Vec<Key>,
    reset_count: u64,
}

struct Live {
    key: Key,
    deadline: u64,
    value: usize,
    was_reset: bool,
}

impl<const LEVEL_BITS: u32, const LEVELS: usize> ModelledWheel<LEVEL_BITS, LEVELS> {
    pub(crate) fn starting_at(now: u64) -> Self {
        Self {
            wheel: Wheel::starting_at(now),
            now,
            deadlines: BTreeSet::new(),
            live: Vec::new(),
            live_index: Vec::new(),
            stale: Vec::new(),
            reset_count: 0,
        }
    }

    /// Performs a random operation that leaves at most `live_max` live entries.
    pub(crate) fn do_random_operation(&mut self, choose: &mut Choose<'_>, live_max: usize) {
        let has_room = self.live.len() < live_max;
        match choose(100) {
            0..29 if has_room => {
                // A new entry that is already due may join the due entries of an unfinished
                // advance.
                let is_overdue = self.wheel.is_behind() && choose(2) == 0;
                self.insert_at(if is_overdue { self.now } else { self.any_deadline(choose) });
            }
            29 if has_room => {
                let (deadline, count) = (self.any_deadline(choose), choose(256));
                let room = live_max - self.live.len();
                (0..count).take(room).for_each(|_| self.insert_at(deadline));
            }
            30..40 if has_room => self.insert_with_slack(choose),
            0..54 => {
                if let Some(index) = self.any_live(choose) {
                    self.remove(index);
                }
            }
            54 => {
                let deadline = self.any_deadline(choose);
                (0..self.live.len()).for_each(|index| self.reset(index, deadline));
            }
            55..75 => {
                if let Some(index) = self.any_live(choose) {
                    let deadline = self.any_deadline(choose);
                    self.reset(index, deadline);
                }
            }
            75..77 => self.assert_stale_keys_do_nothing(choose),
            // Removes all but a few entries, so that the wheel frees memory.
            77 => {
                let remaining = index_below(choose, 4);
                while self.live.len() > remaining {
                    let index = self.any_live(choose).expect("an entry is live");
                    self.remove(index);
                }
            }
            _ => self.advance(choose),
        }
        assert_eq!((self.wheel.len(), self.wheel.now()), (self.live.len(), self.now));
        self.assert_next_deadline();
    }

    /// Advances to `u64::MAX`, and asserts that all live entries fire.
    pub(crate) fn fire_all_remaining(&mut self) {
        self.advance_within(u64::MAX, usize::MAX, usize::MAX);
        assert!(self.live.is_empty() && self.wheel.is_empty());
    }

    /// Returns a deadline: near, at any distance, just elapsed, or next to the start of a slot.
    fn any_deadline(&self, choose: &mut Choose<'_>) -> u64 {
        match choose(12) {
            0 => log_uniform(choose),
            1 => self.now.wrapping_sub(choose(3)),
            2..5 => self.now.saturating_add(choose(4)),
            5..7 => self.any_slot_boundary(choose),
            _ => self.now.saturating_add(log_uniform(choose)),
        }
    }

    /// Returns the start of a later slot of some level, or the tick before or after it.
    fn any_slot_boundary(&self, choose: &mut Choose<'_>) -> u64 {
        let bits = u64::from(LEVEL_BITS) * choose((LEVELS as u64).min(64 / u64::from(LEVEL_BITS)));
        let ahead = 1 + log_uniform(choose) % (4 << LEVEL_BITS);
        let start = (self.now >> bits).saturating_add(ahead).saturating_mul(1 << bits);
        start.saturating_add(choose(3)).saturating_sub(1)
    }

    fn any_live(&self, choose: &mut Choose<'_>) -> Option<usize> {
        let live = self.live.len();
        (live > 0).then(|| index_below(choose, live))
    }

    pub(crate) fn insert_at(&mut self, deadline: u64) {
        let key = self.wheel.insert(deadline, self.live_index.len());
        self.record_insert(key, deadline);
    }

    fn insert_with_slack(&mut self, choose: &mut Choose<'_>) {
        let deadline = self.any_deadline(choose);
        // If the slack is as long as the delay, many entries share a tick.
        let delay = deadline.saturating_sub(self.now);
        let slack = if choose(2) == 0 { delay } else { log_uniform(choose) };
        let key = self.wheel.insert_with_slack(deadline, slack, self.live_index.len());
        // The wheel chooses the tick within the slack that is a multiple of the largest power of
        // two.
        let first = deadline.max(self.now.saturating_add(1));
        let last = deadline.saturating_add(slack);
        let mut multiples = (0..64).rev().map(|bits| last >> bits << bits);
        self.record_insert(key, multiples.find(|&multiple| multiple >= first).unwrap_or(last));
    }

    fn record_insert(&mut self, key: Key, deadline: u64) {
        let (deadline, value) = (deadline.max(self.now), self.live_index.len());
        self.live_index.push(Some(self.live.len()));
        self.live.push(Live { key, deadline, value, was_reset: false });
        self.deadlines.insert((deadline, value));
    }

    fn remove(&mut self, index: usize) {
        let Live { key, value, .. } = self.record_end(index);
        assert_eq!(self.wheel.remove(key), Some(value));
    }

    fn record_end(&mut self, index: usize) -> Live {
        let ended_entry = self.live.swap_remove(index);
        self.reset_count -= u64::from(ended_entry.was_reset);
        self.deadlines.remove(&(ended_entry.deadline, ended_entry.value));
        self.live_index[ended_entry.value] = None;
        if let Some(moved) = self.live.get(index) {
            self.live_index[moved.value] = Some(index);
        }
        if self.stale.len() < 1000 {
            self.stale.push(ended_entry.key);
        }
        ended_entry
    }

    pub(crate) fn reset(&mut self, index: usize, deadline: u64) {
        let live = &mut self.live[index];
        assert!(self.wheel.reset(live.key, deadline), "a live entry can be reset");
        self.deadlines.remove(&(live.deadline, live.value));
        live.deadline = deadline.max(self.now);
        self.deadlines.insert((live.deadline, live.value));
        self.reset_count += u64::from(!std::mem::replace(&mut live.was_reset, true));
    }

    fn assert_stale_keys_do_nothing(&mut self, choose: &mut Choose<'_>) {
        for _ in 0..self.stale.len().min(10) {
            let stale = self.stale[index_below(choose, self.stale.len())];
            assert_eq!(self.wheel.remove(stale), None);
            assert!(!self.wheel.reset(stale, self.now));
        }
    }

    /// Advances to a random time or to `next_deadline`. Takes all due entries, or stops at a budget
    /// of returned and relinked entries, or after `limit` entries.
    fn advance(&mut self, choose: &mut Choose<'_>) {
        let to = match choose(20) {
            0 => self.now.saturating_add(log_uniform(choose)),
            1 => self.now.wrapping_sub(choose(2)),
            2..6 => self.wheel.next_deadline().unwrap_or(self.now),
            _ => self.now.saturating_add(choose(6)),
        };
        let limit = if choose(4) == 0 { index_below(choose, 3) } else { usize::MAX };
        let budget = if choose(3) == 0 { index_below(choose, 6) } else { usize::MAX };
        self.advance_within(to.max(self.now), limit, budget);
    }

    pub(crate) fn advance_within(&mut self, to: u64, limit: usize, budget: usize) {
        self.now = to;
        let (mut taken_count, before) = (0, self.wheel.relinked());
        let due: Vec<_> = self.wheel.advance_within(to, budget).take(limit).collect();
        for (deadline, value) in due {
            let index = self.live_index[value].expect("an entry fires once");
            assert_eq!(deadline, self.live[index].deadline);
            assert_eq!(Some(deadline), self.earliest(), "in deadline order");
            assert!(deadline <= to, "never early");
            self.record_end(index);
            taken_count += 1;
        }
        let relinked = usize::try_from(self.wheel.relinked() - before).expect("few");
        let used_budget = taken_count + relinked;
        assert!(used_budget <= budget, "{relinked} relinked, and {taken_count} fired");
        let was_stopped = taken_count == limit || used_budget == budget;
        let has_due_entries = self.earliest().is_some_and(|earliest| earliest <= to);
        assert!(was_stopped || !has_due_entries, "never late");
        assert!(was_stopped || !self.wheel.is_behind(), "a complete advance is behind");
        let next = self.wheel.next_deadline();
        assert!(was_stopped || next.is_none_or(|next| next > to), "work is left behind");
        assert!(self.wheel.is_behind() || !has_due_entries, "due entries are left");
    }

    fn earliest(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Asserts that `next_deadline` is not later than the earliest deadline. If it is earlier, and
    /// no live entry has been reset, it is one of these ticks:
    ///
    /// - the start of a slot that contains the earliest deadline,
    /// - the start of a cascade, at most one tick per live entry before the start of a slot.
    pub(crate) fn assert_next_deadline(&self) {
        let (next, earliest) = (self.wheel.next_deadline(), self.earliest());
        assert_eq!(next.is_some(), earliest.is_some());
        if let (Some(next), Some(earliest)) = (next, earliest) {
            assert!(next <= earliest, "{next} is later than {earliest}");
            let mut levels = (0..64).step_by(LEVEL_BITS as usize).take(LEVELS);
            let is_start = levels.any(|bits| earliest >> bits << bits == next);
            let may_be_early = self.reset_count > 0 || self.may_be_cascade_start(next);
            assert!(is_start || may_be_early, "{next} is not the start of a slot of {earliest}");
        }
    }

    /// Returns whether a cascade may begin at `tick`, because a slot with an entry starts soon.
    fn may_be_cascade_start(&self, tick: u64) -> bool {
        let levels = || (0..64).step_by(LEVEL_BITS as usize).take(LEVELS);
        let slot_starts_of =
            |&(deadline, _): &(u64, usize)| levels().map(move |it| deadline >> it << it);
        let starts = self.deadlines.iter().flat_map(slot_starts_of);
        starts
            .filter(|&start| start > tick)
            .any(|start| start - tick <= self.deadlines.len() as u64)
    }

    /// Checks the wheel's invariants in debug builds: at random steps under Miri or with up to
    /// eight levels, otherwise after each step.
    fn check_invariants(&self, random: &mut fastrand::Rng) {
        #[cfg(debug_assertions)]
        if (LEVELS > 8 && !cfg!(miri)) || random.u32(..if cfg!(miri) { 20 } else { 20_000 }) == 0 {
            self.wheel.check();
        }
        let _ = random;
    }
}

fn index_below(choose: &mut Choose<'_>, bound: usize) -> usize {
    usize::try_from(choose(bound as u64)).expect("below a usize")
}

/// Returns a random number whose length in bits is nearly uniform.
pub(crate) fn log_uniform(choose: &mut Choose<'_>) -> u64 {
    choose(u64::MAX) >> choose(64)
}

/// Returns a start time, often just before a power of two or `u64::MAX`.
pub(crate) fn any_start_time(choose: &mut Choose<'_>) -> u64 {
    match choose(6) {
        0 => 0,
        1 => u64::MAX - choose(2000),
        2 => (1 << choose(64)) - 1,
        3 => (1_u64 << choose(64)).saturating_sub(choose(100)),
        _ => log_uniform(choose),
    }
}

/// Performs about `operation_count` random operations, `per_wheel` of them on each wheel.
pub(crate) fn assert_agrees_with_the_model<const LEVEL_BITS: u32, const LEVELS: usize>(
    operation_count: u64,
    per_wheel: u64,
    live_max: usize,
) {
    // Printed only if the test fails.
    println!("{LEVEL_BITS} bits, {LEVELS} levels");
    seeded(0..(operation_count / per_wheel).max(1), |random| {
        let mut checks = random.fork();
        let choose: &mut Choose<'_> = &mut |bound| random.u64(..bound);
        let mut modelled_wheel =
            ModelledWheel::<LEVEL_BITS, LEVELS>::starting_at(any_start_time(choose));
        for _ in 0..per_wheel.min(operation_count) {
            modelled_wheel.do_random_operation(choose, live_max);
            modelled_wheel.check_invariants(&mut checks);
        }
        modelled_wheel.fire_all_remaining();
    });
}
