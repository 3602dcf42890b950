//! No turn pauses (P7): however many entries there are, a tick touches those that it fires and a few more, and a budget is
//! a budget. Entries touched are counted, not time, so a noisy machine changes nothing.
#![cfg(feature = "std")]

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use common::{TICK, in_virtual_time};
use corewheel::{Cancel, Config, Key, ManualClock, Shard, TimerHandle, Wheel, local_timer};

/// Entries, and how far ahead the far ones are: fewer where no optimiser helps.
const ENTRIES: usize = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
const FAR: u64 = if cfg!(debug_assertions) { 250_000 } else { 1_800_000 };

/// Ticks of a revolution: in so many, the entries of a slot of the second level are handed down.
const REVOLUTION: usize = 2_048;
/// Entries that were reset to later and wait in the slot of one tick at most.
const CROWD: usize = 96;

/// What a tick may touch besides what it fires, if `crowd` entries were put into one slot of an upper level.
fn bound(crowd: usize) -> usize {
    CROWD + crowd.div_ceil(REVOLUTION) + 1
}

/// Time goes on tick by tick until nobody is left. No tick touches more than it fires and `most`.
fn go_on(wheel: &mut Wheel<u32>, most: usize, what: &str) {
    let mut touched = wheel.touched();
    while !wheel.is_empty() {
        let tick = wheel.now() + 1;
        let fired = wheel.advance(tick).count();
        let more = usize::try_from(wheel.touched() - touched).expect("few") - fired;
        assert!(more <= most, "{what}: tick {tick} touched {more} that it did not fire");
        touched = wheel.touched();
    }
}

fn spread_over(ticks: u64) -> Wheel<u32> {
    let (mut wheel, mut random) = (Wheel::new(), fastrand::Rng::with_seed(1));
    (0..ENTRIES).for_each(|_| _ = wheel.insert(random.u64(1..=ticks), 0));
    wheel
}

#[test]
fn a_tick_touches_what_it_fires() {
    go_on(&mut spread_over(120_000), 0, "near");
}

#[test]
fn a_tick_hands_down_a_few() {
    go_on(&mut spread_over(FAR), 2, "far");
}

type Insert = fn(&mut Wheel<u32>) -> Key;

/// Where all entries are put at first.
const FROM: [(&str, Insert); 4] = [
    ("late", |wheel| wheel.insert(0, 0)),
    ("near", |wheel| wheel.insert(1_000, 0)),
    ("far", |wheel| wheel.insert(200_001, 0)),
    ("aligned", |wheel| wheel.insert_within(200_001, 8_000, 0)),
];

/// To which deadline an entry is moved; 0: it is not.
type Move = fn(u64) -> u64;

/// Where they are all moved to, each in its turn.
const TO: [(&str, Move); 8] = [
    ("where they are", |_| 0),
    ("a tick later", |_| 200_010),
    ("soon", |_| 50),
    ("rather soon", |_| 1_500),
    ("in half a minute", |_| 30_000),
    ("in ten minutes", |_| 600_000),
    ("anywhere soon", |entry| 300 + entry % 200),
    ("anywhere", |entry| 205_000 + entry % 60_000),
];

#[test]
fn a_crowd_that_was_moved_is_not_met_at_once() {
    for (from, insert) in FROM {
        for (to, deadline) in TO {
            let mut wheel = Wheel::new();
            let keys: Vec<_> = (0..ENTRIES).map(|_| insert(&mut wheel)).collect();
            for (entry, &key) in (0..).zip(&keys) {
                let deadline = deadline(entry);
                assert!(deadline == 0 || wheel.reset(key, deadline));
            }
            go_on(&mut wheel, bound(ENTRIES), &format!("from {from} to {to}"));
        }
    }
}

const BUDGET: usize = 1_000;

/// What a pass did.
struct Did {
    fired: usize,
    /// Taken in that were cancelled elsewhere.
    collected: usize,
    touched: usize,
    behind: bool,
}

/// A wheel, a shard, or the thread's timer.
trait Timers {
    fn add(&mut self, ticks: u64);
    fn reset_all(&mut self, ticks: u64);
    /// So many ticks pass, and then a pass is made within the budget. What fired was not earlier than what fired before.
    fn pass(&mut self, ticks: u64) -> Did;
}

#[derive(Default)]
struct OfWheel(Wheel<()>, Vec<Key>, u64);

impl Timers for OfWheel {
    fn add(&mut self, ticks: u64) {
        self.1.push(self.0.insert(self.0.now() + ticks, ()));
    }

    fn reset_all(&mut self, ticks: u64) {
        let deadline = self.0.now() + ticks;
        self.1.iter().for_each(|&key| assert!(self.0.reset(key, deadline)));
    }

    fn pass(&mut self, ticks: u64) -> Did {
        let (before, mut fired) = (self.0.touched(), 0);
        for (deadline, ()) in self.0.advance_within(self.0.now() + ticks, BUDGET) {
            assert!(deadline >= self.2, "in order");
            self.2 = deadline;
            fired += 1;
        }
        let touched = count(self.0.touched() - before);
        Did { fired, collected: 0, touched, behind: self.0.is_behind() }
    }
}

struct OfShard {
    shard: Shard<()>,
    clock: ManualClock,
    handles: Vec<TimerHandle>,
    latest: Option<Instant>,
}

impl OfShard {
    fn new() -> Self {
        let clock = ManualClock::new();
        let shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
        Self { shard, clock, handles: Vec::new(), latest: None }
    }
}

impl Timers for OfShard {
    fn add(&mut self, ticks: u64) {
        self.handles.push(self.shard.add(Duration::from_millis(ticks), ()));
    }

    fn reset_all(&mut self, ticks: u64) {
        self.handles
            .iter()
            .for_each(|&handle| assert!(self.shard.reset(handle, Duration::from_millis(ticks))));
    }

    fn pass(&mut self, ticks: u64) -> Did {
        let (before, mut fired) = (self.shard.counts(), 0);
        self.clock.advance(Duration::from_millis(ticks));
        self.shard.turn_within(BUDGET);
        while let Some(expired) = self.shard.next_expired() {
            assert!(self.latest.is_none_or(|latest| expired.deadline >= latest), "in order");
            self.latest = Some(expired.deadline);
            fired += 1;
        }
        let after = self.shard.counts();
        let behind = self.shard.is_behind();
        assert!(!behind || self.shard.time_until_next() == Some(Duration::ZERO));
        let (collected, touched) =
            (count(after.cancelled - before.cancelled), count(after.touched - before.touched));
        Did { fired, collected, touched, behind }
    }
}

struct OfThread(ManualClock, Vec<TimerHandle>);

impl Timers for OfThread {
    fn add(&mut self, ticks: u64) {
        self.1.push(local_timer().add(Duration::from_millis(ticks), || {}));
    }

    fn reset_all(&mut self, ticks: u64) {
        self.1.iter().for_each(|handle| assert!(handle.reset(Duration::from_millis(ticks))));
    }

    fn pass(&mut self, ticks: u64) -> Did {
        self.0.advance(Duration::from_millis(ticks));
        let turn = local_timer().turn_within(BUDGET);
        assert!(!turn.behind || local_timer().time_until_next() == Some(Duration::ZERO));
        Did {
            fired: turn.fired,
            collected: turn.collected,
            touched: count(turn.touched),
            behind: turn.behind,
        }
    }
}

fn count(entries: u64) -> usize {
    usize::try_from(entries).expect("few")
}

fn for_each_kind(test: fn(&mut dyn Timers)) {
    test(&mut OfWheel::default());
    test(&mut OfShard::new());
    in_virtual_time(|clock| test(&mut OfThread(clock.clone(), Vec::new())));
}

/// Passes, of which each is within the budget, until nothing is left that is due. How many fired.
fn catch_up(timers: &mut dyn Timers, ticks: u64) -> usize {
    let (mut fired, mut touched, mut passes) = (0, 0, 0);
    loop {
        let did = timers.pass(if passes == 0 { ticks } else { 0 });
        (fired, touched, passes) = (fired + did.fired, touched + did.touched, passes + 1);
        assert!(did.touched <= BUDGET, "{} touched in a pass", did.touched);
        if !did.behind {
            // Each that was behind has used its budget up.
            assert!(passes <= touched / BUDGET + 1, "{passes} passes for {touched}");
            return fired;
        }
    }
}

#[test]
fn what_is_due_in_one_tick_fires_within_the_budget() {
    for_each_kind(|timers| {
        (0..ENTRIES).for_each(|_| timers.add(1_000));
        assert_eq!(catch_up(timers, 999), 0);
        assert_eq!(catch_up(timers, 1), ENTRIES);
    });
}

#[test]
fn what_was_all_moved_at_once_is_re_placed_within_the_budget() {
    for_each_kind(|timers| {
        (0..ENTRIES).for_each(|_| timers.add(200_000));
        timers.reset_all(230_000);
        assert_eq!(catch_up(timers, 229_999), 0);
        timers.reset_all(20);
        assert_eq!(catch_up(timers, 19), 0);
        assert_eq!(catch_up(timers, 1), ENTRIES);
    });
}

#[test]
fn a_long_sleep_is_made_up_for_within_the_budget() {
    for_each_kind(|timers| {
        let mut random = fastrand::Rng::with_seed(1);
        (0..ENTRIES).for_each(|_| timers.add(random.u64(1..=FAR)));
        let fired = catch_up(timers, FAR / 2);
        assert!(fired > ENTRIES / 3);
        assert_eq!(fired + catch_up(timers, FAR / 2), ENTRIES);
    });
}

fn cancel_elsewhere(handles: &[TimerHandle]) {
    let cancel = |handle: &TimerHandle| assert_eq!(handle.cancel(), Cancel::Cancelled);
    thread::scope(|scope| _ = scope.spawn(|| handles.iter().for_each(cancel)));
}

/// All but the last hundred, which are due, were cancelled elsewhere.
fn take_in(timers: &mut dyn Timers, flood: usize) {
    let mut left = flood;
    while left > 0 {
        let did = timers.pass(1);
        assert_eq!(did.fired, if left == flood { 100 } else { 0 }, "what is due goes first");
        assert_eq!(did.collected, BUDGET.min(left), "a budget of them is taken in");
        assert!(did.touched <= BUDGET + 100, "{} touched", did.touched);
        left -= did.collected;
        assert_eq!(did.behind, left > 0);
    }
}

#[test]
fn a_flood_of_cancels_is_taken_in_within_the_budget() {
    fn add_all(timers: &mut dyn Timers) {
        (0..ENTRIES).for_each(|entry| timers.add(2_000 + u64::try_from(entry).expect("few")));
        (0..100).for_each(|_| timers.add(1));
    }
    let mut timers = OfShard::new();
    add_all(&mut timers);
    cancel_elsewhere(&timers.handles[..ENTRIES]);
    take_in(&mut timers, ENTRIES);
    in_virtual_time(|clock| {
        let mut timers = OfThread(clock.clone(), Vec::new());
        add_all(&mut timers);
        cancel_elsewhere(&timers.1[..ENTRIES]);
        take_in(&mut timers, ENTRIES);
    });
}
