//! glommio's executor.

use std::{panic::resume_unwind, thread};

use corewheel::{Cancel, Config, Cores, ManualClock, Shard, Wheel, local_timer};

use crate::{
    CountsDrop, Drops, HOUR, cancel_elsewhere,
    common::{TICK, in_virtual_time},
    shard,
};

/// How many each of these adds.
const ADDED: usize = 6 * 300;

/// Ticks to be due in: near, far, further and never; and in one tick so many that they are a crowd.
const DELAYS: [u64; 6] = [1, 2, 77, 150_000, 1 << 30, 1 << 50];

/// A wheel with timers in every place, of which it has handed out one of those that are due.
fn wheel_of(drops: &Drops) -> Wheel<CountsDrop> {
    let mut wheel = Wheel::new();
    for delay in DELAYS {
        for copy in 0..300 {
            let spread = if delay == 77 { 0 } else { copy };
            let key = wheel.insert(delay + spread, drops.one());
            assert!(copy % 3 > 0 || wheel.reset(key, delay + 2 * spread));
        }
    }
    drop(wheel.advance(100).next());
    wheel.insert(0, drops.one());
    wheel.insert_within(1 << 20, 1 << 20, drops.one());
    wheel
}

/// The same of a shard, and some that another thread has cancelled.
fn shard_of(drops: &Drops, clock: &ManualClock) -> Shard<CountsDrop> {
    let mut shard = shard(clock);
    for delay in DELAYS.map(|ticks| TICK * u32::try_from(ticks).unwrap_or(u32::MAX)) {
        for copy in 0..300 {
            let handle = shard.add(delay, drops.one());
            assert!(copy % 3 > 0 || shard.reset(handle, delay * 2));
            assert!(copy % 7 > 0 || cancel_elsewhere(handle) == Cancel::Cancelled);
        }
    }
    clock.advance(TICK * 100);
    shard.turn();
    drop(shard.next_expired());
    shard.add_at(clock.now() - TICK, drops.one());
    shard.add_within(HOUR, HOUR, drops.one());
    shard
}

/// The same of a thread's timer, one-shot and periodic, in place and boxed.
fn fill_the_threads_timer(drops: &Drops) {
    for delay in DELAYS.map(|ticks| TICK * u32::try_from(ticks).unwrap_or(u32::MAX)) {
        for copy in 0..75 {
            let (once, large) = (drops.one(), (drops.one(), [copy; 20]));
            let (again, private) = (drops.one(), drops.one());
            let handle = local_timer().add(delay, move || drop(once));
            local_timer().add(delay, move || drop(large));
            local_timer().add_periodic(delay, move || _ = &again);
            local_timer().add_local(delay, move || drop(private));
            assert!(copy % 7 > 0 || cancel_elsewhere(handle) == Cancel::Cancelled);
        }
    }
}

/// #239.
#[test]
fn bug_41_timers_that_had_not_fired_leaked_with_their_executor() {
    let (drops, clock) = (Drops::default(), ManualClock::new());
    drop(wheel_of(&drops));
    assert_eq!(drops.count(), ADDED + 2, "of a wheel");

    let drops = Drops::default();
    drop(shard_of(&drops, &clock));
    assert_eq!(drops.count(), ADDED + 2, "of a shard");

    let drops = Drops::default();
    let (pending, dropped) = (shard_of(&drops, &clock).drain(), drops.count());
    assert_eq!(pending.len() + dropped, ADDED + 2, "of a drained shard");
    drop(pending);
    assert_eq!(drops.count(), ADDED + 2);
}

#[test]
fn bug_41_timers_that_had_not_fired_leaked_with_their_thread() {
    let drops = Drops::default();
    in_virtual_time(|clock| {
        fill_the_threads_timer(&drops);
        clock.advance(TICK * 5);
        local_timer().turn_within(20);
    });
    assert_eq!(drops.count(), ADDED, "of a thread that ends");

    let (drops, clock) = (Drops::default(), ManualClock::new());
    let held = drops.clone();
    let panicked: thread::JoinHandle<()> = thread::spawn(move || {
        Config::new().clock(&clock).install().expect("a fresh thread");
        fill_the_threads_timer(&held);
        resume_unwind(Box::new("as planned"));
    });
    assert!(panicked.join().is_err());
    assert_eq!(drops.count(), ADDED, "of a thread that panics");

    let (drops, clock) = (Drops::default(), ManualClock::new());
    let (held, config) = (drops.clone(), move |_| Config::new().clock(&clock));
    let cores =
        Cores::builder().shards(2).config(config).start(move |_| fill_the_threads_timer(&held));
    assert!(cores.expect("they start").join().iter().all(Result::is_ok));
    assert_eq!(drops.count(), 2 * ADDED, "of two cores");
}
