//! Slack shares wake-ups, and spread timers fire apart (P9), in virtual time. That none fires before
//! its delay or after its slack (P1) is a part of the simulator's model.

use std::{collections::HashMap, time::Duration};

use corewheel::{ManualClock, Shard, When};

use crate::support::{HOUR, TICK, TICK_NANOS, expired, manual_shard, nanos};

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

/// Slack that ends after the end of time reaches up to it.
#[test]
fn the_longest_slack_is_accepted() {
    let (mut timers, clock) = manual_shard();
    let timer = timers.add(When::after(Duration::from_secs(1)).slack(Duration::MAX), 0);
    clock.advance(HOUR);
    assert_eq!(expired(&mut timers), [], "it has 584 years");
    assert_eq!(timers.cancel(timer), Some(0));
}
