//! Slack and spread in virtual time: never before the delay, never after the slack (P1); slack
//! shares wake-ups, and spread timers fire apart (P9).

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use corewheel::{ManualClock, Shard, When};

use crate::{
    common::{TICK, TICK_NANOS, any_magnitude, nanos, operations, seeded},
    support::{HOUR, expired, manual_shard},
};

type Timers = Shard<usize>;

/// The tick that the clock shows.
fn tick(clock: &ManualClock) -> u64 {
    nanos(clock.elapsed()) / TICK_NANOS
}

/// Sleeps until no timer is left. Returns the number of wakes, and the tick in which each fired.
fn sleep_and_turn(timers: &mut Timers, clock: &ManualClock) -> (usize, HashMap<usize, u64>) {
    let (mut wakes, mut fired) = (0, HashMap::new());
    while let Some(sleep) = timers.time_until_next() {
        clock.advance(sleep);
        wakes += 1;
        for id in expired(timers) {
            assert_eq!(fired.insert(id, tick(clock)), None, "{id} fires once");
        }
    }
    (wakes, fired)
}

/// From less than a tick to some months.
fn any_duration(random: &mut fastrand::Rng) -> Duration {
    Duration::from_nanos(any_magnitude(random) >> 10)
}

/// The first and the last tick that P1 allows.
fn window(due: Duration, slack: Duration) -> (u64, u64) {
    let first = nanos(due).div_ceil(TICK_NANOS);
    (first, first.max(nanos(due + slack) / TICK_NANOS))
}

#[test]
fn it_fires_within_the_slack_and_not_before() {
    seeded(0..operations(20), |random| {
        let (mut timers, clock) = manual_shard();
        let add = |id| {
            clock.advance(Duration::from_nanos(random.u64(..3 * TICK_NANOS)));
            // Without delay and slack, the deadline rounds down.
            let delay = any_duration(random).max(Duration::from_nanos(1));
            let slack = any_duration(random);
            timers.add(When::after(delay).slack(slack), id);
            window(clock.elapsed() + delay, slack)
        };
        let windows: Vec<_> = (0..200).map(add).collect();
        // Some may be due already.
        let now = tick(&clock);
        let (_, fired) = sleep_and_turn(&mut timers, &clock);
        for (id, (first, last)) in windows.into_iter().enumerate() {
            assert!((first..=last.max(now)).contains(&fired[&id]), "{} {first} {last}", fired[&id]);
        }
    });
}

#[test]
fn it_is_never_late_for_a_loop_that_always_turns() {
    let ((mut timers, clock), mut random) = (manual_shard(), fastrand::Rng::with_seed(1));
    let mut windows = BTreeMap::new();
    for id in 0..usize::try_from(operations(20_000)).expect("few") {
        clock.advance(Duration::from_nanos(random.u64(..TICK_NANOS)));
        let delay = Duration::from_nanos(random.u64(..3 * TICK_NANOS));
        let slack = Duration::from_nanos(random.u64(..5 * TICK_NANOS));
        timers.add(When::after(delay).slack(slack), id);
        windows.insert(id, window(clock.elapsed() + delay, slack));
        let now = tick(&clock);
        for id in expired(&mut timers) {
            let (first, last) = windows.remove(&id).expect("it fires once");
            assert!((first..=last).contains(&now), "{now} is not in {first}..={last}");
        }
        assert!(windows.values().all(|&(_, last)| last > now), "none is overdue");
    }
}

#[test]
fn timers_with_slack_share_their_wake_ups() {
    let ((mut timers, clock), mut random) = (manual_shard(), fastrand::Rng::with_seed(1));
    let mut wakes_of = |slack| {
        for id in 0..1_000 {
            let delay = Duration::from_micros(random.u64(60_000_000..61_000_000));
            timers.add(When::after(delay).slack(slack), id);
        }
        let (wakes, fired) = sleep_and_turn(&mut timers, &clock);
        assert_eq!(fired.len(), 1_000);
        wakes
    };
    let (without, with) = (wakes_of(Duration::ZERO), wakes_of(Duration::from_millis(512)));
    // The windows lie within 1,512 ms, and any 512 ms have a multiple of 512 ticks.
    assert!(without > 500 && with <= 3, "{with} wakes, and {without} without slack");
}

#[test]
fn a_timer_far_ahead_is_linked_where_it_fires() {
    let ((mut timers, clock), mut random) = (manual_shard(), fastrand::Rng::with_seed(1));
    for id in 0..1_000 {
        let delay = Duration::from_millis(random.u64(600_000..700_000));
        timers.add(When::after(delay).slack(Duration::from_secs(10)), id);
    }
    let (wakes, fired) = sleep_and_turn(&mut timers, &clock);
    assert_eq!(fired.len(), 1_000);
    assert!(wakes <= 14, "{wakes} wakes in 110 s, of which 8,192 ticks are one");
    assert_eq!(timers.counts().touched, 2_000, "each is linked once and fired once");
}

#[test]
fn a_reset_makes_it_exact() {
    let ((mut timers, clock), mut random) = (manual_shard(), fastrand::Rng::with_seed(1));
    for ticks in [1, 500, 100_000, 500_000] {
        let (delay, slack) = (any_duration(&mut random), Duration::from_secs(1_000));
        let within = timers.add(When::after(delay).slack(slack), 0);
        let spread = timers.add(When::after(delay).spread(slack), 1);
        let due = window(clock.elapsed() + TICK * ticks, Duration::ZERO).0;
        assert!(timers.reset(within, TICK * ticks) && timers.reset(spread, TICK * ticks));
        let (_, fired) = sleep_and_turn(&mut timers, &clock);
        assert_eq!((fired[&0], fired[&1]), (due, due));
    }
}

#[test]
fn without_slack_it_is_an_ordinary_timer() {
    seeded(0..operations(50), |random| {
        let (mut timers, clock) = manual_shard();
        clock.advance(Duration::from_nanos(random.u64(..10 * TICK_NANOS)));
        timers.turn();
        // Without a delay `add` rounds down.
        let delay = any_duration(random).max(Duration::from_nanos(1));
        timers.add(delay, 0);
        timers.add(When::after(delay).slack(Duration::ZERO), 1);
        timers.add(When::after(delay).spread(Duration::ZERO), 2);
        // Less than the time to the next tick is none.
        let due = nanos(clock.elapsed() + delay);
        let less = due.next_multiple_of(TICK_NANOS) - due + TICK_NANOS - 1;
        timers.add(When::after(delay).slack(Duration::from_nanos(less)), 3);
        let (_, fired) = sleep_and_turn(&mut timers, &clock);
        assert!((1..4).all(|id| fired[&id] == fired[&0]), "{fired:?}");
    });
}

/// No tick gets more than its share plus two, however many other timers come between them.
#[test]
fn spread_timers_are_apart() {
    let (mut timers, clock) = manual_shard();
    for count in [10, 1_000] {
        for others in [0, 1, 2, 20, 54, 143] {
            for id in 0..count {
                timers.add(When::after(Duration::from_secs(2)).spread(TICK * 1_000), id);
                (0..others).for_each(|_| _ = timers.add(Duration::ZERO, usize::MAX));
                expired(&mut timers);
            }
            let start = tick(&clock) + 2_000;
            let (_, fired) = sleep_and_turn(&mut timers, &clock);
            let mut by_tick = [0; 1_001];
            for &tick in fired.values() {
                by_tick[usize::try_from(tick - start).expect("few")] += 1;
            }
            let most = by_tick.iter().max().copied();
            assert!(most <= Some(count.div_ceil(1_000) + 2), "{most:?} of {count} and {others}");
            let most = by_tick.chunks(100).map(|tenth| tenth.iter().sum::<usize>()).max();
            assert!(most <= Some(count / 10 + 4), "{most:?} of {count} and {others}");
        }
    }
}

#[test]
fn the_longest_durations_are_accepted() {
    let (mut timers, clock) = manual_shard();
    let (second, max) = (Duration::from_secs(1), Duration::MAX);
    let mut handles = Vec::new();
    for (delay, slack) in [(max, max), (second, max), (max, second)] {
        handles.push(timers.add(When::after(delay).slack(slack), 0));
        handles.push(timers.add(When::after(delay).spread(slack), 0));
    }
    clock.advance(TICK * 999);
    assert_eq!(expired(&mut timers), [], "none is early");
    clock.advance(HOUR);
    assert_eq!(expired(&mut timers), [], "each has 584 years");
    assert!(handles.iter().all(|&handle| timers.reset(handle, TICK)));
    clock.advance(TICK);
    assert_eq!(expired(&mut timers), [0; 6]);
}
