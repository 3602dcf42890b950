//! Periodic timers added by `ShardRef::add_periodic` and `Shard::add_periodic`. The module
//! `callbacks` tests a thread's own periodic timers, and the simulator tests the schedules.

use std::{
    mem,
    time::{Duration, Instant},
};

use corewheel::{Cancel, Clock, Config, ShardRef, When, local_timer};

use crate::support::{
    Counter, Log, OnDrop, TICK, assert_counts_add_up, assert_stale, call_from_another_thread,
    configured_shard, in_checked_virtual_time, manual_shard, must_not_run, on_a_thread,
    on_configured_thread, panics, turn_at_each_tick,
};

/// The admission must not overwrite a period that the owner has already set.
#[test]
fn the_owner_may_set_the_period_before_and_after_admission() {
    in_checked_virtual_time(|clock| {
        for is_admitted in [false, true] {
            let times = Log::new();
            let (written, time, start) = (times.clone(), clock.clone(), clock.elapsed());
            let run = move || written.write(time.elapsed() - start);
            let handle = call_from_another_thread(|shard| shard.add_periodic(TICK * 10, run));
            if is_admitted {
                local_timer().turn();
            }
            assert!(!on_a_thread(move || local_timer().set_period(handle, TICK)));
            assert!(local_timer().set_period(handle, TICK * 3));
            turn_at_each_tick(clock, 20);
            assert!(local_timer().set_period(handle, Duration::ZERO), "becomes one tick");
            turn_at_each_tick(clock, 4);
            let expected = [10, 13, 16, 19, 22, 23, 24].map(|ticks| TICK * ticks);
            assert_eq!(times.take(), expected, "admitted: {is_admitted}");
            assert_eq!(handle.cancel(), Cancel::Cancelled);
            assert!(!local_timer().set_period(handle, TICK));
            let once = call_from_another_thread(|shard| shard.add(TICK * 50, must_not_run));
            assert!(!local_timer().set_period(once, TICK), "a one-shot timer has no period");
            assert_eq!(once.cancel(), Cancel::Cancelled);
        }
    });
}

#[test]
fn a_forgotten_or_unwound_expiry_loses_no_payload() {
    let (mut shard, clock) = manual_shard();
    let drops = Counter::default();
    let handle = shard.add_periodic(TICK, (0, OnDrop(drops.callback())));
    for round in 0..3 {
        clock.advance(TICK);
        shard.turn();
        let mut expiry = shard.next_expiry().expect("a due timer");
        expiry.as_mut().payload.0 += 1;
        if round == 0 {
            mem::forget(expiry);
        } else {
            assert!(panics(move || {
                let _expiry = expiry;
                panic!("planned");
            }));
        }
        assert!(shard.next_expiry().is_none());
        assert_eq!((shard.len(), drops.get()), (1, 0));
    }
    // A drain returns the payload of a forgotten expiry.
    clock.advance(TICK);
    shard.turn();
    mem::forget(shard.next_expiry().expect("a due timer"));
    let drained = shard.drain();
    assert_eq!(drained.iter().map(|(_, payload)| payload.0).collect::<Vec<_>>(), [3]);
    assert_eq!(drained[0].0, clock.now() + TICK);
    assert_stale(handle);
    drop(drained);
    assert_eq!(drops.get(), 1);
    assert_counts_add_up(shard.counts());
}

/// The period is counted from the reset itself, not from the beginning of its tick.
#[test]
fn a_run_after_a_reset_to_an_elapsed_time_is_followed_by_a_full_period() {
    let (mut shard, clock) = configured_shard(Config::new().tick(TICK * 10));
    for is_remote in [false, true] {
        for age in [0, 3, 64] {
            let handle = shard.add_periodic(TICK * 100, ());
            clock.advance(TICK * 69);
            let begin = clock.elapsed() - TICK * age;
            let when = match age {
                0 => When::after(Duration::ZERO),
                _ => When::at(clock.now() - TICK * age),
            };
            let by_owner = !is_remote && shard.reset(handle, when);
            assert!(by_owner || on_a_thread(|| handle.reset(when)));
            shard.turn();
            assert!(shard.next_expiry().is_some() && shard.next_expiry().is_none());
            let next = clock.elapsed() + shard.time_left(handle).expect("it is pending");
            let expected = (begin + TICK * 100).as_millis().next_multiple_of(10);
            assert_eq!(next.as_millis(), expected, "{age} ms ago, remote: {is_remote}");
            assert_eq!(shard.cancel(handle), Some(()));
        }
    }
}

/// The owner does not turn until the first runs are overdue.
#[test]
fn the_period_of_a_remote_request_does_not_depend_on_when_the_owner_turns() {
    for is_remote in [false, true] {
        on_configured_thread(Config::new().tick(TICK * 10), |clock| {
            clock.set(TICK * 1_000);
            let add = |shard: &ShardRef| shard.add_periodic(TICK * 21, || ());
            let own = local_timer().shard_ref();
            let added = if is_remote { call_from_another_thread(add) } else { add(&own) };
            let moved = local_timer().add_periodic(TICK * 100, || ());
            let by_owner = !is_remote && moved.reset(TICK * 25);
            assert!(by_owner || on_a_thread(|| moved.reset(TICK * 25)));
            clock.set(TICK * 1_080);
            assert_eq!(local_timer().turn().fired, 2);
            let due = [added, moved].map(|handle| local_timer().time_left(handle));
            // The next runs are due at 1,084 and 1,125 ms, rounded up to the wheel's tick of 10 ms.
            assert_eq!(due, [Some(TICK * 10), Some(TICK * 50)], "remote: {is_remote}");
        });
    }
}

/// The first deadline is a tick minus a nanosecond after the second. A valid period start can be
/// this long after a backdated deadline, so a stale start of the first reset would look valid.
#[test]
fn a_remote_reset_replaces_the_start_of_an_earlier_one() {
    let (mut shard, clock) = manual_shard();
    let handle = shard.add_periodic(TICK * 10, ());
    let instant = shard.now() + TICK * 21 - Duration::from_nanos(1);
    on_a_thread(move || assert!(handle.reset(instant) && handle.reset(TICK * 20)));
    clock.set(TICK * 20);
    shard.turn();
    assert!(shard.next_expiry().is_some() && shard.next_expiry().is_none());
    assert_eq!(shard.time_left(handle), Some(TICK * 10));
}

/// In the first tick, a deadline is backdated only to the clock's zero.
#[test]
fn a_reset_in_the_first_tick_counts_the_period_from_the_reset() {
    for is_remote in [false, true] {
        let (mut shard, clock) = configured_shard(Config::new().tick(TICK * 10));
        let handle = shard.add_periodic(TICK * 105, ());
        clock.set(TICK * 3);
        let by_owner = !is_remote && shard.reset(handle, Duration::ZERO);
        assert!(by_owner || on_a_thread(|| handle.reset(Duration::ZERO)));
        clock.set(TICK * 9);
        shard.turn();
        assert!(shard.next_expiry().is_some() && shard.next_expiry().is_none());
        let next = clock.elapsed() + shard.time_left(handle).expect("it is pending");
        assert_eq!(next, TICK * 110, "remote: {is_remote}");
    }
}

#[test]
fn a_reset_to_a_past_instant_keeps_its_phase_with_the_fast_clock() {
    on_a_thread(|| {
        Config::new().clock(Clock::fast()).install().expect("a new thread");
        let turn_until = |end| {
            while Instant::now() < end {
                local_timer().turn();
            }
        };
        turn_until(Instant::now() + 20 * TICK);
        let handle = local_timer().add_periodic(10 * TICK, || ());
        let other = local_timer().add(TICK, || ());
        let start_of_a_tick = local_timer().deadline(other).expect("it is pending");
        turn_until(start_of_a_tick + 3 * TICK);
        for is_remote in [false, true] {
            let past = When::at(start_of_a_tick - 10 * TICK);
            assert!(if is_remote {
                on_a_thread(|| handle.reset(past))
            } else {
                handle.reset(past)
            });
            (0..2).for_each(|_| _ = local_timer().turn());
            let next = local_timer().deadline(handle).expect("it is pending");
            let offset = (next - start_of_a_tick).as_nanos() % (10 * TICK).as_nanos();
            assert_eq!(offset, 0, "remote: {is_remote}");
        }
    });
}
