//! No turn is long (P7): a tick relinks few entries, and a turn keeps to its budget. The tests count
//! relinked and fired entries, not time.
#![cfg(feature = "std")]

mod common;
#[path = "common/kinds.rs"]
mod kinds;

use common::on_a_thread;
use corewheel::{Cancel, Key, Wheel};
use kinds::{Handle, TimerSet, for_each_kind, for_each_shard};

/// The number of entries; smaller in debug builds.
const ENTRIES: usize = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
/// The range of far deadlines, in ticks; smaller in debug builds.
const FAR_TICKS: u32 = if cfg!(debug_assertions) { 250_000 } else { 1_800_000 };

/// The number of ticks over which the wheel cascades one slot of the second level.
const UPPER_SLOT_TICKS: usize = 2_048;
/// Maximum number of entries that a tick relinks because they were reset to later deadlines but
/// stayed in the tick's slot.
const POSTPONABLE_PER_SLOT_MAX: usize = 96;

/// Advances until the wheel is empty. Asserts that each tick relinks at most `relinked_max` entries.
fn assert_few_relinked_until_empty(wheel: &mut Wheel<u32>, relinked_max: usize, what: &str) {
    while !wheel.is_empty() {
        let (tick, before) = (wheel.now() + 1, wheel.relinked());
        wheel.advance(tick).for_each(drop);
        let relinked = usize::try_from(wheel.relinked() - before).expect("few");
        assert!(relinked <= relinked_max, "{what}: tick {tick} relinked {relinked} entries");
    }
}

fn spread_over(ticks: u32) -> Wheel<u32> {
    let (mut wheel, mut random) = (Wheel::new(), fastrand::Rng::with_seed(1));
    (0..ENTRIES).for_each(|_| _ = wheel.insert(random.u32(1..=ticks).into(), 0));
    wheel
}

#[test]
fn a_tick_relinks_at_most_two_entries() {
    assert_few_relinked_until_empty(&mut spread_over(120_000), 0, "near");
    assert_few_relinked_until_empty(&mut spread_over(FAR_TICKS), 2, "far");
}

type Insert = fn(&mut Wheel<u32>) -> Key;

const INSERTS: [(&str, Insert); 4] = [
    ("late", |wheel| wheel.insert(0, 0)),
    ("near", |wheel| wheel.insert(1_000, 0)),
    ("far", |wheel| wheel.insert(200_001, 0)),
    ("far, with slack", |wheel| wheel.insert_with_slack(200_001, 8_000, 0)),
];

/// Returns the new deadline of an entry, given its number; 0 means no reset.
type NewDeadline = fn(u64) -> u64;

const RESETS: [(&str, NewDeadline); 8] = [
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
fn no_tick_relinks_many_entries_after_a_mass_reset() {
    for (from, insert) in INSERTS {
        for (to, deadline) in RESETS {
            let mut wheel = Wheel::new();
            let keys: Vec<_> = (0..ENTRIES).map(|_| insert(&mut wheel)).collect();
            for (entry, &key) in (0..).zip(&keys) {
                let deadline = deadline(entry);
                assert!(deadline == 0 || wheel.reset(key, deadline));
            }
            let relinked_max = POSTPONABLE_PER_SLOT_MAX + ENTRIES.div_ceil(UPPER_SLOT_TICKS) + 1;
            assert_few_relinked_until_empty(
                &mut wheel,
                relinked_max,
                &format!("from {from} to {to}"),
            );
        }
    }
}

const BUDGET: usize = 1_000;

fn add_timers(timers: &mut dyn TimerSet, mut ticks: impl FnMut() -> u32) -> Vec<Handle> {
    (0..ENTRIES).map(|_| timers.add(ticks())).collect()
}

/// Makes passes until no due timer is left. Returns the number of fired timers.
fn catch_up(timers: &mut dyn TimerSet, ticks: u32) -> usize {
    let (mut fired, mut relinked, mut passes) = (0, 0, 0);
    loop {
        let result = timers.pass(if passes == 0 { ticks } else { 0 }, BUDGET);
        (fired, relinked, passes) = (fired + result.fired, relinked + result.relinked, passes + 1);
        assert!(result.fired + result.relinked <= BUDGET, "a pass exceeds its budget");
        if !result.behind {
            // A pass that leaves work behind has used up its budget.
            let used = fired + relinked;
            assert!(passes <= used / BUDGET + 1, "{passes} passes for {used} entries");
            return fired;
        }
    }
}

#[test]
fn many_due_timers_fire_within_the_budget_of_each_pass() {
    for_each_kind(|make| {
        // All timers are due at one tick.
        let mut timers = make();
        add_timers(&mut *timers, || 1_000);
        assert_eq!(catch_up(&mut *timers, 999), 0);
        assert_eq!(catch_up(&mut *timers, 1), ENTRIES);
        // All timers are reset, first to a later and then to an earlier deadline.
        let handles = add_timers(&mut *timers, || 200_000);
        assert!(handles.iter().all(|&handle| timers.reset(handle, 230_000)));
        assert_eq!(catch_up(&mut *timers, 229_999), 0);
        assert!(handles.iter().all(|&handle| timers.reset(handle, 20)));
        assert_eq!(catch_up(&mut *timers, 19), 0);
        assert_eq!(catch_up(&mut *timers, 1), ENTRIES);
        // Many timers become due during a long sleep.
        let mut random = fastrand::Rng::with_seed(1);
        add_timers(&mut *timers, || random.u32(1..=FAR_TICKS));
        let fired = catch_up(&mut *timers, FAR_TICKS / 2);
        assert!(fired > ENTRIES / 3);
        assert_eq!(fired + catch_up(&mut *timers, FAR_TICKS / 2), ENTRIES);
    });
}

#[test]
fn a_turn_collects_at_most_its_budget_of_remote_cancels() {
    for_each_shard(|make| {
        let (mut timers, mut ticks) = (make(), 2_000..);
        let flood = add_timers(&mut *timers, || ticks.next().expect("few"));
        (0..100).for_each(|_| _ = timers.add(1));
        let cancelled = |handle: &Handle| handle.timer().cancel() == Cancel::Cancelled;
        on_a_thread(|| assert!(flood.iter().all(cancelled)));
        let mut uncollected = ENTRIES;
        while uncollected > 0 {
            let result = timers.pass(1, BUDGET);
            let due = if uncollected == ENTRIES { 100 } else { 0 };
            assert_eq!(result.fired, due, "due timers fire first");
            assert_eq!(result.collected, BUDGET.min(uncollected), "collected timers");
            uncollected -= result.collected;
            assert_eq!(result.behind, uncollected > 0);
        }
    });
}

/// Maximum number of entries that a turn cascades from upper levels.
const CASCADED_AHEAD_PER_TURN_MAX: u64 = 8_192;

/// Advances to each `next_deadline`; some runs also advance at a heartbeat.
#[test]
fn a_turn_cascades_a_bounded_number_of_entries() {
    let many = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    for heartbeat in [None, Some(50), Some(250), Some(1_000)] {
        let mut wheel = Wheel::new();
        for entry in 0..many {
            let now = entry * 1_500 / many;
            assert_eq!(wheel.advance(now).count(), 0);
            wheel.insert(now + 600_000, ());
        }
        let mut early_turns = 0;
        while let Some(next) = wheel.next_deadline() {
            let beat = heartbeat.map_or(u64::MAX, |beat| (wheel.now() / beat + 1) * beat);
            let before = wheel.relinked();
            let fired = wheel.advance(next.min(beat)).count();
            let relinked = wheel.relinked() - before;
            let relinked_max = CASCADED_AHEAD_PER_TURN_MAX
                + if fired > 0 { POSTPONABLE_PER_SLOT_MAX as u64 } else { 0 };
            assert!(
                relinked <= relinked_max,
                "{relinked} entries at {}, heartbeat {heartbeat:?}",
                wheel.now()
            );
            early_turns += u64::from(fired == 0 && next < beat);
        }
        // There is an early turn per `CASCADED_AHEAD_PER_TURN_MAX` entries, and a few at slot
        // starts.
        assert!(
            early_turns <= many / CASCADED_AHEAD_PER_TURN_MAX + 8,
            "{early_turns} early turns, heartbeat {heartbeat:?}"
        );
    }
}
