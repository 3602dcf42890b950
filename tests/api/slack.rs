//! `add_within` and `add_spread` in virtual time: never before the delay, never after the slack
//! (P1); slack shares wake-ups, and spread timers fire apart (P9).

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use corewheel::{Counts, ManualClock, Shard, TimerHandle, local_timer};

use crate::{
    common::{TICK, TICK_NANOS, any_magnitude, in_virtual_time, nanos, operations, seeded},
    support::{HOUR, Log, expired, manual_shard},
};

/// A shard or the thread's timer.
trait Timers {
    /// Adds an ordinary timer, or one with the given slack or range.
    fn add(&mut self, kind: Kind, delay: Duration, id: usize) -> TimerHandle;
    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool;
    /// Turns and returns what fired.
    fn turn(&mut self) -> Vec<usize>;
    fn time_until_next(&self) -> Option<Duration>;
    fn counts(&self) -> Counts;
}

#[derive(Clone, Copy)]
enum Kind {
    Exact,
    Within(Duration),
    Spread(Duration),
}
use Kind::{Exact, Spread, Within};

impl Timers for Shard<usize> {
    fn add(&mut self, kind: Kind, delay: Duration, id: usize) -> TimerHandle {
        match kind {
            Exact => Shard::add(self, delay, id),
            Within(slack) => self.add_within(delay, slack, id),
            Spread(range) => self.add_spread(delay, range, id),
        }
    }

    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool {
        Shard::reset(self, handle, delay)
    }

    fn turn(&mut self) -> Vec<usize> {
        expired(self)
    }

    fn time_until_next(&self) -> Option<Duration> {
        Shard::time_until_next(self)
    }

    fn counts(&self) -> Counts {
        Shard::counts(self)
    }
}

/// Callbacks of the thread's timer, which write their number.
impl Timers for Log<usize> {
    fn add(&mut self, kind: Kind, delay: Duration, id: usize) -> TimerHandle {
        match kind {
            Exact => local_timer().add(delay, self.writes(id)),
            Within(slack) => local_timer().add_within(delay, slack, self.writes(id)),
            Spread(range) => local_timer().add_spread(delay, range, self.writes(id)),
        }
    }

    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool {
        handle.reset(delay)
    }

    fn turn(&mut self) -> Vec<usize> {
        local_timer().turn();
        self.take()
    }

    fn time_until_next(&self) -> Option<Duration> {
        local_timer().time_until_next()
    }

    fn counts(&self) -> Counts {
        local_timer().counts()
    }
}

fn for_both(test: impl Fn(&mut dyn Timers, &ManualClock, fastrand::Rng) + Sync, seed: u64) {
    let random = || fastrand::Rng::with_seed(seed);
    let (mut shard, clock) = manual_shard();
    test(&mut shard, &clock, random());
    in_virtual_time(|clock| test(&mut Log::new(), clock, random()));
}

/// Sleeps until no timer is left. Returns the number of wakes, and the tick in which each fired.
fn sleep_and_turn(timers: &mut dyn Timers, clock: &ManualClock) -> (usize, HashMap<usize, u64>) {
    let (mut wakes, mut fired) = (0, HashMap::new());
    while let Some(sleep) = timers.time_until_next() {
        clock.advance(sleep);
        wakes += 1;
        let tick = nanos(clock.elapsed()) / TICK_NANOS;
        for id in timers.turn() {
            assert_eq!(fired.insert(id, tick), None, "{id} fires once");
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
    let test = |timers: &mut dyn Timers, clock: &ManualClock, mut random: fastrand::Rng| {
        let add = |id| {
            clock.advance(Duration::from_nanos(random.u64(..3 * TICK_NANOS)));
            let (delay, slack) = (any_duration(&mut random), any_duration(&mut random));
            timers.add(Within(slack), delay, id);
            window(clock.elapsed() + delay, slack)
        };
        let windows: Vec<_> = (0..200).map(add).collect();
        // Some may be due already.
        let now = nanos(clock.elapsed()) / TICK_NANOS;
        let (_, fired) = sleep_and_turn(timers, clock);
        for (id, (first, last)) in windows.into_iter().enumerate() {
            assert!((first..=last.max(now)).contains(&fired[&id]), "{} {first} {last}", fired[&id]);
        }
    };
    seeded(0..operations(20), |random| for_both(test, random.u64(..)));
}

#[test]
fn it_is_never_late_for_a_loop_that_always_turns() {
    let test = |timers: &mut dyn Timers, clock: &ManualClock, mut random: fastrand::Rng| {
        let mut windows = BTreeMap::new();
        for id in 0..usize::try_from(operations(20_000)).expect("few") {
            clock.advance(Duration::from_nanos(random.u64(..TICK_NANOS)));
            let delay = Duration::from_nanos(random.u64(..3 * TICK_NANOS));
            let slack = Duration::from_nanos(random.u64(..5 * TICK_NANOS));
            timers.add(Within(slack), delay, id);
            windows.insert(id, window(clock.elapsed() + delay, slack));
            let tick = nanos(clock.elapsed()) / TICK_NANOS;
            for id in timers.turn() {
                let (first, last) = windows.remove(&id).expect("it fires once");
                assert!((first..=last).contains(&tick), "{tick} is not in {first}..={last}");
            }
            assert!(windows.values().all(|&(_, last)| last > tick), "none is overdue");
        }
    };
    for_both(test, 1);
}

#[test]
fn timers_with_slack_share_their_wake_ups() {
    let test = |timers: &mut dyn Timers, clock: &ManualClock, mut random: fastrand::Rng| {
        let mut wakes_of = |kind| {
            for id in 0..1_000 {
                let delay = Duration::from_micros(random.u64(60_000_000..61_000_000));
                timers.add(kind, delay, id);
            }
            let (wakes, fired) = sleep_and_turn(timers, clock);
            assert_eq!(fired.len(), 1_000);
            wakes
        };
        let (without, with) = (wakes_of(Exact), wakes_of(Within(Duration::from_millis(512))));
        // The windows lie within 1,512 ms, and any 512 ms have a multiple of 512 ticks.
        assert!(without > 500 && with <= 3, "{with} wakes, and {without} without slack");
    };
    for_both(test, 1);
}

#[test]
fn a_timer_far_ahead_is_linked_where_it_fires() {
    let test = |timers: &mut dyn Timers, clock: &ManualClock, mut random: fastrand::Rng| {
        let before = timers.counts().touched;
        for id in 0..1_000 {
            let delay = Duration::from_millis(random.u64(600_000..700_000));
            timers.add(Within(Duration::from_secs(10)), delay, id);
        }
        let (wakes, fired) = sleep_and_turn(timers, clock);
        assert_eq!(fired.len(), 1_000);
        assert!(wakes <= 14, "{wakes} wakes in 110 s, of which 8,192 ticks are one");
        assert_eq!(timers.counts().touched - before, 2_000, "each is linked and fired once");
    };
    for_both(test, 1);
}

#[test]
fn a_reset_makes_it_exact() {
    let test = |timers: &mut dyn Timers, clock: &ManualClock, mut random: fastrand::Rng| {
        for ticks in [1, 500, 100_000, 500_000] {
            let (delay, slack) = (any_duration(&mut random), Duration::from_secs(1_000));
            let within = timers.add(Within(slack), delay, 0);
            let spread = timers.add(Spread(slack), delay, 1);
            let due = window(clock.elapsed() + TICK * ticks, Duration::ZERO).0;
            assert!(timers.reset(within, TICK * ticks) && timers.reset(spread, TICK * ticks));
            let (_, fired) = sleep_and_turn(timers, clock);
            assert_eq!((fired[&0], fired[&1]), (due, due));
        }
    };
    for_both(test, 1);
}

#[test]
fn without_slack_it_is_an_ordinary_timer() {
    let test = |timers: &mut dyn Timers, clock: &ManualClock, mut random: fastrand::Rng| {
        clock.advance(Duration::from_nanos(random.u64(..10 * TICK_NANOS)));
        timers.turn();
        let delay = if random.bool() { Duration::ZERO } else { any_duration(&mut random) };
        // Less than the time to the next tick is none.
        let due = nanos(clock.elapsed() + delay);
        let less = Duration::from_nanos(due.next_multiple_of(TICK_NANOS) - due + TICK_NANOS - 1);
        let kinds = [Exact, Within(Duration::ZERO), Spread(Duration::ZERO), Within(less)];
        for (id, kind) in kinds.into_iter().enumerate() {
            timers.add(kind, delay, id);
        }
        let (_, fired) = sleep_and_turn(timers, clock);
        assert!((1..4).all(|id| fired[&id] == fired[&0]), "{fired:?}");
    };
    seeded(0..operations(50), |random| for_both(test, random.u64(..)));
}

/// No tick gets more than its share plus two, however many other timers come between them.
#[test]
fn spread_timers_are_apart() {
    let test = |timers: &mut dyn Timers, clock: &ManualClock, _| {
        for (count, others) in
            [10, 1_000].map(|count| [0, 1, 2, 20, 54, 143].map(|n| (count, n))).concat()
        {
            for id in 0..count {
                timers.add(Spread(TICK * 1_000), Duration::from_secs(2), id);
                (0..others).for_each(|_| _ = timers.add(Exact, Duration::ZERO, usize::MAX));
                timers.turn();
            }
            let start = nanos(clock.elapsed()) / TICK_NANOS + 2_000;
            let (_, fired) = sleep_and_turn(timers, clock);
            let mut by_tick = [0; 1_001];
            fired
                .values()
                .for_each(|&tick| by_tick[usize::try_from(tick - start).expect("few")] += 1);
            let most = by_tick.iter().max().copied();
            assert!(
                most <= Some(count.div_ceil(1_000) + 2),
                "{most:?} of {count}, {others} between"
            );
            let tenths = by_tick.chunks(100).map(|tenth| tenth.iter().sum::<usize>());
            let most = tenths.max();
            assert!(most <= Some(count / 10 + 4), "{most:?} of {count}, {others} between");
        }
    };
    for_both(test, 1);
}

#[test]
fn the_longest_durations_are_accepted() {
    let test = |timers: &mut dyn Timers, clock: &ManualClock, _| {
        let (second, max) = (Duration::from_secs(1), Duration::MAX);
        let mut handles = Vec::new();
        for kind in [Within, Spread] {
            for (delay, slack) in [(max, max), (second, max), (max, second)] {
                handles.push(timers.add(kind(slack), delay, handles.len()));
            }
        }
        clock.advance(TICK * 999);
        assert!(timers.turn().is_empty(), "none is early");
        clock.advance(HOUR);
        assert!(timers.turn().is_empty(), "each has 584 years");
        assert!(handles.iter().all(|&handle| timers.reset(handle, TICK)));
        clock.advance(TICK);
        assert_eq!(timers.turn().len(), handles.len());
    };
    for_both(test, 1);
}
