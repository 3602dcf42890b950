//! folly's `HHWheelTimer`.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use corewheel::{Cancel, ManualClock, Shard, local_timer};

use crate::{
    CANCELS, RING, Tiny, add_a_batch_whose_first_cancels_the_rest,
    common::{TICK, any_magnitude, operations, seeded},
    counter, expired, fire_tick_by_tick, never, on_a_core, shard, turn_after,
};

/// c53bda78: a slot was used for the next revolution while it still held timers of this one, which then fired with
/// them, or made those fire at once. Here the wheel lags behind by up to three revolutions when timers come for the
/// ones ahead.
#[test]
fn bug_21_a_lagging_wheel_fired_timers_of_the_next_revolution() {
    for lag in [1, 2, RING - 2, RING - 1, RING, RING + 1, 3 * RING] {
        for budget in [0, 1, 2, 10] {
            let mut wheel = Tiny::<u64>::starting_at(0);
            let overdue = lag.min(40);
            for deadline in 1..=overdue {
                wheel.insert(deadline, deadline);
            }
            let before = wheel.advance_within(lag, budget).take(1).count();
            let ahead = 2 * RING + 3;
            for deadline in lag + 1..=lag + ahead {
                wheel.insert(deadline, deadline);
            }
            let rest: BTreeSet<_> = wheel.advance(lag).collect();
            assert_eq!((before + rest.len()) as u64, overdue, "of those that are due");
            assert!(
                rest.iter().all(|&(deadline, value)| deadline == value && value <= lag),
                "{rest:?}"
            );
            assert_eq!(fire_tick_by_tick(&mut wheel, lag + ahead) as u64, ahead);
        }
    }
}

/// 09a84b28 (and libuv #4245, ratas 290f5d3): a timer that adds itself again is run again by the same pass, and the
/// loop starves.
#[test]
fn bug_22_a_timer_added_by_a_callback_ran_in_the_same_pass() {
    fn again(clock: ManualClock, way: u32, runs: Rc<Cell<u32>>) {
        let callback = move || {
            runs.set(runs.get() + 1);
            // Time goes on meanwhile: by now it is overdue.
            clock.advance(TICK * way);
            again(clock, way, runs);
        };
        match way {
            0 => _ = local_timer().add(Duration::ZERO, callback),
            1 => _ = local_timer().add_local(Duration::ZERO, callback),
            _ => _ = local_timer().add_at(local_timer().now() - TICK, callback),
        }
    }
    for way in 0..3 {
        on_a_core(|clock| {
            clock.advance(TICK * 5);
            let runs = Rc::default();
            again(clock.clone(), way, Rc::clone(&runs));
            for run in 1..50 {
                let turn = local_timer().turn();
                assert_eq!((turn.fired, turn.live, runs.get()), (1, 1, run));
                assert_eq!(local_timer().time_until_next(), Some(Duration::ZERO));
            }
        });
    }
    let clock = ManualClock::new();
    let mut shard: Shard<u32> = shard(&clock);
    shard.add(Duration::ZERO, 0);
    for pass in 0..50 {
        shard.turn();
        let again = shard.next_expired().expect("one is due").payload;
        shard.add(Duration::ZERO, again + 1);
        assert!(again == pass && shard.next_expired().is_none());
    }
}

/// 3a06d042 (and Seastar 544a990f): cancelling all left out those that had been taken out of the wheel in order to
/// run.
#[test]
fn bug_23_cancelling_all_missed_those_about_to_run() {
    for cancel in CANCELS {
        for timers in [1, 2, 50] {
            on_a_core(|clock| {
                let drops = add_a_batch_whose_first_cancels_the_rest(timers, cancel);
                assert_eq!(
                    (turn_after(clock, 1).fired, drops.count(), local_timer().len()),
                    (1, timers, 0)
                );
            });
        }
    }
    // Others of the same tick that only their own core can name, or that run again and again.
    on_a_core(|clock| {
        let (runs, run) = counter();
        let private: Vec<_> = (0..10).map(|_| local_timer().add_local(TICK * 2, never)).collect();
        let periodic: Vec<_> =
            (0..10).map(|_| local_timer().add_periodic(TICK * 2, never)).collect();
        local_timer().add(TICK, move || {
            run();
            assert!(private.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
            assert!(periodic.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
        });
        // Both ticks are due in this turn.
        assert_eq!((turn_after(clock, 10).fired, runs.get(), local_timer().len()), (1, 1, 0));
    });
}

/// b5759618, 6ea3ec05: within one pass, entries were moved down by one "now" and fired by another. Here the clock
/// goes on, and at times back, while a pass hands out its timers; a pass keeps to the time that it began with.
#[test]
fn bug_24_one_pass_used_two_different_nows() {
    seeded(0..operations(30).min(300), |random| {
        let clock = ManualClock::new();
        let (mut shard, mut live) = (shard(&clock), BTreeMap::new());
        let ticks = |clock: &ManualClock| clock.elapsed().as_nanos() / TICK.as_nanos();
        for id in 0..300_u32 {
            let delay = u32::try_from(any_magnitude(random) >> 42).expect("22 bits");
            shard.add(TICK * delay, id);
            live.insert(id, u128::from(delay));
        }
        while !live.is_empty() {
            clock.advance(shard.time_until_next().expect("some are live") + TICK * random.u32(..3));
            let (now, mut latest) = (ticks(&clock), 0);
            shard.turn();
            while let Some(id) = shard.next_expired().map(|expired| expired.payload) {
                let deadline = live.remove(&id).expect("it fires once");
                assert!(
                    latest <= deadline && deadline <= now,
                    "due at {deadline}, after {latest}, in a pass at {now}"
                );
                latest = deadline;
                clock.advance(TICK * random.u32(..5_000));
                if random.u32(..8) == 0 {
                    clock.set(clock.elapsed() / 2);
                }
            }
            assert!(
                live.values().all(|&deadline| deadline > now),
                "left behind by a pass at {now}"
            );
            clock.set(clock.elapsed().max(TICK * u32::try_from(now).expect("22 bits and a few")));
        }
        assert!(expired(&mut shard).is_empty());
    });
}
