//! Netty's `HashedWheelTimer`.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use corewheel::{AddErrorReason, Cancel, Config, ManualClock, TimerHandle, Wheel, local_timer};

use crate::{
    CANCELS, Drops, HOUR, RING, TOO_LONG, Tiny, add_a_batch_whose_first_cancels_the_rest,
    assert_sound,
    common::{TICK, on_a_thread, operations},
    fire_tick_by_tick, first_to_fire, on_a_core, shard, turn_after,
};

/// #14959, with its numbers: of eleven timeouts of the same tick the first that runs cancels the other ten.
#[test]
fn bug_12_a_timer_cancelled_in_the_tick_it_fires_in_was_counted_twice() {
    for cancel in CANCELS {
        on_a_core(|clock| {
            let drops = add_a_batch_whose_first_cancels_the_rest(11, cancel);
            assert_eq!(
                (turn_after(clock, 1).fired, local_timer().len(), drops.count()),
                (1, 0, 11)
            );
            let counts = local_timer().counts();
            assert_eq!((counts.added, counts.fired, counts.cancelled), (11, 1, 10));
            assert_eq!((counts.live, counts.held), (0, 0));
        });
    }
}

/// #14959: with a limit, each timeout that was counted twice made room for one too many.
#[test]
fn bug_12_the_limit_grew_with_each_timer_counted_twice() {
    for cancel in CANCELS {
        let clock = ManualClock::new();
        let config = Config::new().tick(TICK).clock(&clock).limit(11);
        on_a_thread(|| {
            config.install().expect("a fresh thread");
            for _ in 0..3 {
                add_a_batch_whose_first_cancels_the_rest(11, cancel);
                assert!(
                    local_timer()
                        .try_add(TICK, || ())
                        .is_err_and(|error| error.reason() == AddErrorReason::Full)
                );
                assert_eq!((turn_after(&clock, 1).fired, local_timer().len()), (1, 0));
            }
            assert_sound(local_timer().counts());
        });
    }
}

/// #2662, on one thread: timers that another one has cancelled are moved down the levels, one entry per turn, before
/// their messages are read; none is put back.
#[test]
fn bug_13_a_cancelled_timer_was_linked_again() {
    let clock = ManualClock::new();
    let (mut shard, drops) = (shard(&clock), Drops::default());
    let delays = [1, 100, 200_000, 200_001, 5_000_000].map(|ticks| TICK * ticks);
    let handles = [(); 20].map(|()| delays.map(|delay| shard.add(delay, drops.one())));
    let kept = shard.add(delays[2], drops.one());
    on_a_thread(|| {
        assert!(handles.iter().flatten().all(|handle| handle.cancel() == Cancel::Cancelled))
    });
    assert!(
        handles
            .iter()
            .flatten()
            .all(|&handle| !shard.reset(handle, TICK) && shard.cancel(handle).is_none())
    );
    clock.advance(delays[2] - TICK);
    for _ in 0..1_000 {
        shard.turn_within(1);
        assert!(shard.next_expired().is_none(), "only the one that was kept may fire");
    }
    assert_eq!((shard.len(), drops.count(), shard.is_behind()), (1, 100, false));
    clock.advance(TICK);
    shard.turn();
    assert!(shard.next_expired().is_some() && shard.next_expired().is_none() && !kept.is_pending());
    assert!(shard.next_deadline().is_none());
    assert_sound(shard.counts());
}

/// #2662, as it was: each timer is cancelled from another thread the moment it has been added, while its owner moves,
/// turns and uses its node again.
#[test]
fn bug_13_a_timer_cancelled_at_once_from_elsewhere_was_linked_again() {
    let (sender, added) = mpsc::channel::<TimerHandle>();
    let canceller = thread::spawn(move || {
        added.iter().filter(|handle| handle.cancel() == Cancel::Cancelled).count()
    });
    let (drops, timers) = (Drops::default(), operations(20_000).min(200_000));
    let counts = on_a_thread(|| {
        for round in 0..timers {
            let held = drops.one();
            let delay = Duration::from_micros(round % 3 * 500);
            let handle = local_timer().add(delay, move || drop(held));
            sender.send(handle).expect("the canceller listens");
            if round % 2 == 0 {
                let _moved_or_cancelled = handle.reset(delay + TICK);
            }
            local_timer().turn();
        }
        drop(sender);
        let begun = Instant::now();
        while !local_timer().is_empty() {
            local_timer().turn();
            assert!(begun.elapsed() < TOO_LONG, "a timer is left: {:?}", local_timer().counts());
        }
        local_timer().counts()
    });
    assert_sound(counts);
    let cancelled = canceller.join().expect("it ends") as u64;
    assert_eq!((counts.added, counts.cancelled, counts.held), (timers, cancelled, 0));
    assert_eq!(drops.count() as u64, timers);
}

/// #13018: of the timers of one slot, only those before the first one of a later revolution were looked at. Here all
/// of them are `ring` ticks apart.
fn a_slot_of_many_revolutions<const BITS: u32, const LEVELS: usize>(ring: usize, end: u64) {
    let rising: Vec<u64> = (5..=end).step_by(ring).collect();
    let falling = rising.iter().rev().copied().collect();
    let mut mixed = rising.clone();
    fastrand::Rng::with_seed(7).shuffle(&mut mixed);
    for deadlines in [rising, falling, mixed] {
        let mut wheel = Wheel::<u64, BITS, LEVELS>::starting_at(0);
        for (place, &deadline) in deadlines.iter().enumerate() {
            // Every other one was reset, and stands in the first one's slot until then.
            let first = if place % 2 == 0 { deadline } else { 5 };
            let key = wheel.insert(first, deadline);
            assert!(wheel.reset(key, deadline));
        }
        assert_eq!(fire_tick_by_tick(&mut wheel, end), deadlines.len());
    }
}

#[test]
fn bug_14_timers_behind_one_of_a_later_revolution_were_skipped() {
    let end = if cfg!(miri) { 600 } else { 4_000 };
    // A revolution; the first level; levels above.
    for ring in [2, 128, 512, 1024] {
        a_slot_of_many_revolutions::<1, 64>(ring, end);
    }
    for ring in [8, 512, 1024] {
        a_slot_of_many_revolutions::<3, 22>(ring, end);
    }
}

/// #1953: a deadline in the past fired a whole revolution later. Also folly 055fce5f.
#[test]
fn bug_15_a_deadline_in_the_past_fired_a_revolution_late() {
    for now in [0, 1, RING - 1, RING, RING + 1, 1 << 40] {
        for ago in [0, 1, 2, RING - 1, RING, RING + 1, u64::MAX] {
            let mut wheel = Tiny::<u64>::starting_at(now);
            let moved = wheel.insert(now + 1_000, 1);
            wheel.insert(now.saturating_sub(ago), 2);
            assert_eq!((wheel.next_deadline(), wheel.is_behind()), (Some(now), false));
            assert_eq!(wheel.advance(now).collect::<Vec<_>>(), [(now, 2)]);
            assert!(wheel.reset(moved, now.saturating_sub(ago)));
            assert_eq!(first_to_fire(&mut wheel), (now, 1));
        }
    }
    let clock = ManualClock::new();
    let (mut shard, begun) = (shard(&clock), clock.now());
    clock.advance(HOUR);
    for past in [begun.checked_sub(HOUR).unwrap_or(begun), begun, clock.now() - TICK, clock.now()] {
        shard.add_at(past, ());
        assert_eq!(shard.time_until_next(), Some(Duration::ZERO));
        shard.turn();
        assert!(shard.next_expired().is_some_and(|expired| expired.deadline <= clock.now()));
        assert!(shard.next_expired().is_none());
    }
}
