//! The end of a shard and of a thread.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use corewheel::{Cancel, Config, ManualClock, Shard, TimerHandle, Wheel, local_timer};

use crate::{
    common::{TICK, operations},
    ends_soon,
    support::{Counter, CountsDrop, HOUR, cancel_elsewhere, shard_by},
};

/// When it is dropped, makes a shard and ends it, and cancels a timer of the one that is ending.
struct EndsAShard(ManualClock, Option<TimerHandle>);

impl Drop for EndsAShard {
    fn drop(&mut self) {
        let mut other = shard_by(&self.0);
        other.add(TICK, ());
        assert_eq!(other.drain().len(), 1);
        assert!(self.1.is_none_or(|handle| handle.cancel() == Cancel::Ended));
    }
}

/// Makes shards whose payloads and hooks end others, and ends them.
fn end_shards(clock: &ManualClock) {
    for round in 0..operations(100).min(3_000) {
        let captured = EndsAShard(clock.clone(), None);
        let hook = move || _ = &captured;
        let mut shard: Shard<EndsAShard> =
            Shard::with_config(Config::new().clock(clock).on_wake(hook)).expect("valid");
        let first = shard.add(TICK, EndsAShard(clock.clone(), None));
        let second = shard.add(HOUR, EndsAShard(clock.clone(), Some(first)));
        assert!(round % 3 > 0 || cancel_elsewhere(second) == Cancel::Cancelled);
        if round % 2 == 0 {
            assert!(!shard.drain().is_empty());
        }
    }
}

/// DPDK eb63c85d: stopping all timers took a lock and then called what took it again. Here two
/// threads end shards while a third one looks at what they leave behind: so each frees what the
/// other one could not free, and its hooks with it.
#[test]
fn bug_20_stopping_all_timers_took_a_lock_twice() {
    ends_soon(|| {
        let (clock, is_over) = (ManualClock::new(), AtomicBool::new(false));
        let looked_at = shard_by(&clock).add(TICK, ());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(looked_at.cancel(), Cancel::Ended);
                }
            });
            let enders = [0; 2].map(|_| scope.spawn(|| end_shards(&clock)));
            let ended = enders.map(|ender| ender.join().is_ok());
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(ended, [true; 2], "no assertion failed");
        });
    });
}

/// glommio #239.
#[test]
fn bug_41_timers_that_had_not_fired_leaked_with_their_executor() {
    // Ticks to be due in: near, far, further and never.
    const DELAYS: [u64; 6] = [1, 2, 77, 150_000, 1 << 30, 1 << 50];
    let (drops, mut wheel) = (Counter::default(), Wheel::<CountsDrop>::new());
    for delay in DELAYS {
        for copy in 0..300 {
            let key = wheel.insert(delay + copy, drops.on_drop());
            assert!(copy % 3 > 0 || wheel.reset(key, delay * 2));
        }
    }
    drop(wheel.advance(100).next());
    drop(wheel);
    assert_eq!(drops.get(), 300 * DELAYS.len(), "of a wheel");

    let (drops, clock) = (Counter::default(), ManualClock::new());
    let held = drops.clone();
    let panics: thread::JoinHandle<()> = thread::spawn(move || {
        Config::new().clock(&clock).install().expect("a fresh thread");
        for delay in DELAYS.map(|ticks| TICK * u32::try_from(ticks).unwrap_or(u32::MAX)) {
            let (once, large, again) = (held.on_drop(), held.on_drop(), held.on_drop());
            let room = [0; 20];
            local_timer().add(delay, move || drop(once));
            local_timer().add(delay, move || _ = (&large, room));
            local_timer().add_periodic(delay, move || _ = &again);
        }
        resume_unwind(Box::new("as planned"));
    });
    assert!(panics.join().is_err());
    assert_eq!(drops.get(), 3 * DELAYS.len(), "of a thread that panics");
}
