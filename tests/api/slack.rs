//! `add_within` and `add_spread` in virtual time: never before the delay, never after the slack (P1), wake-ups shared where
//! the caller allowed it and timers apart where the caller asked for it (P9).

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
    time::Duration,
};

use corewheel::{Config, Counts, ManualClock, Shard, TimerHandle, local_timer};

use crate::common::{TICK, any_magnitude, in_virtual_time, operations, seeded};

/// A shard or the thread's timer.
trait Timers {
    fn add(&mut self, delay: Duration, id: usize) -> TimerHandle;
    fn add_within(&mut self, delay: Duration, slack: Duration, id: usize) -> TimerHandle;
    fn add_spread(&mut self, delay: Duration, range: Duration, id: usize) -> TimerHandle;
    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool;
    /// What fired.
    fn turn(&mut self) -> Vec<usize>;
    fn time_until_next(&self) -> Option<Duration>;
    fn counts(&self) -> Counts;
}

impl Timers for Shard<usize> {
    fn add(&mut self, delay: Duration, id: usize) -> TimerHandle {
        Shard::add(self, delay, id)
    }

    fn add_within(&mut self, delay: Duration, slack: Duration, id: usize) -> TimerHandle {
        Shard::add_within(self, delay, slack, id)
    }

    fn add_spread(&mut self, delay: Duration, range: Duration, id: usize) -> TimerHandle {
        Shard::add_spread(self, delay, range, id)
    }

    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool {
        Shard::reset(self, handle, delay)
    }

    fn turn(&mut self) -> Vec<usize> {
        Shard::turn(self);
        std::iter::from_fn(|| self.next_expired()).map(|expired| expired.payload).collect()
    }

    fn time_until_next(&self) -> Option<Duration> {
        Shard::time_until_next(self)
    }

    fn counts(&self) -> Counts {
        Shard::counts(self)
    }
}

/// The thread's timer, whose callbacks write down that they ran.
#[derive(Default)]
struct Callbacks(Rc<RefCell<Vec<usize>>>);

impl Callbacks {
    fn run(&self, id: usize) -> impl FnOnce() + use<> {
        let ran = Rc::clone(&self.0);
        move || ran.borrow_mut().push(id)
    }
}

impl Timers for Callbacks {
    fn add(&mut self, delay: Duration, id: usize) -> TimerHandle {
        local_timer().add(delay, self.run(id))
    }

    fn add_within(&mut self, delay: Duration, slack: Duration, id: usize) -> TimerHandle {
        local_timer().add_within(delay, slack, self.run(id))
    }

    fn add_spread(&mut self, delay: Duration, range: Duration, id: usize) -> TimerHandle {
        local_timer().add_spread(delay, range, self.run(id))
    }

    fn reset(&mut self, handle: TimerHandle, delay: Duration) -> bool {
        handle.reset(delay)
    }

    fn turn(&mut self) -> Vec<usize> {
        local_timer().turn();
        self.0.take()
    }

    fn time_until_next(&self) -> Option<Duration> {
        local_timer().time_until_next()
    }

    fn counts(&self) -> Counts {
        local_timer().counts()
    }
}

fn for_both(test: impl Fn(&mut dyn Timers, &ManualClock) + Sync) {
    let clock = ManualClock::new();
    test(&mut Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid"), &clock);
    in_virtual_time(|clock| test(&mut Callbacks::default(), clock));
}

/// Sleeps as long as it may until nothing is left: how often it woke, and at which tick each fired.
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

const TICK_NANOS: u64 = 1_000_000;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("less than 584 years")
}

/// From less than a tick to some months.
fn any_duration(random: &mut fastrand::Rng) -> Duration {
    Duration::from_nanos(any_magnitude(random) >> 10)
}

/// The ticks of a moment and of another one that is so much later, as P1 counts them.
fn window(from: Duration, slack: Duration) -> (u64, u64) {
    let first = nanos(from).div_ceil(TICK_NANOS);
    (first, first.max(nanos(from + slack) / TICK_NANOS))
}

#[test]
fn it_fires_within_the_slack_and_not_before() {
    seeded(0..operations(20), |random| {
        let seed = random.u64(..);
        for_both(|timers, clock| {
            let mut random = fastrand::Rng::with_seed(seed);
            let add = |id| {
                clock.advance(Duration::from_nanos(random.u64(..3 * TICK_NANOS)));
                let (delay, slack) = (any_duration(&mut random), any_duration(&mut random));
                timers.add_within(delay, slack, id);
                window(clock.elapsed() + delay, slack)
            };
            let windows: Vec<_> = (0..200).map(add).collect();
            // Some may be due already: nobody has turned meanwhile.
            let now = nanos(clock.elapsed()) / TICK_NANOS;
            let (_, fired) = sleep_and_turn(timers, clock);
            for (id, (first, last)) in windows.into_iter().enumerate() {
                let tick = fired[&id];
                assert!(
                    (first..=last.max(now)).contains(&tick),
                    "{tick} is not in {first}..={last}"
                );
            }
        });
    });
}

#[test]
fn it_is_not_after_the_slack_if_somebody_always_turns() {
    for_both(|timers, clock| {
        let mut random = fastrand::Rng::with_seed(1);
        let mut windows = BTreeMap::new();
        for id in 0..usize::try_from(operations(20_000)).expect("few") {
            clock.advance(Duration::from_nanos(random.u64(..TICK_NANOS)));
            let delay = Duration::from_nanos(random.u64(..3 * TICK_NANOS));
            let slack = Duration::from_nanos(random.u64(..5 * TICK_NANOS));
            timers.add_within(delay, slack, id);
            windows.insert(id, window(clock.elapsed() + delay, slack));
            let tick = nanos(clock.elapsed()) / TICK_NANOS;
            for id in timers.turn() {
                let (first, last) = windows.remove(&id).expect("it fires once");
                assert!((first..=last).contains(&tick), "{tick} is not in {first}..={last}");
            }
            // Those that could wait no longer have not waited.
            assert!(windows.values().all(|&(_, last)| last > tick));
        }
    });
}

#[test]
fn those_with_slack_share_their_wake_ups() {
    for_both(|timers, clock| {
        let mut random = fastrand::Rng::with_seed(1);
        let delay =
            |random: &mut fastrand::Rng| Duration::from_micros(random.u64(60_000_000..61_000_000));
        (0..1_000).for_each(|id| _ = timers.add(delay(&mut random), id));
        let (without, _) = sleep_and_turn(timers, clock);
        (0..1_000).for_each(|id| {
            _ = timers.add_within(delay(&mut random), Duration::from_millis(512), id)
        });
        let (with, fired) = sleep_and_turn(timers, clock);
        assert_eq!(fired.len(), 1_000);
        // They lie within 1 512 ms, and any 512 ms have a multiple of 512 ticks.
        assert!(without > 500 && with <= 3, "{with} wake-ups, and {without} without slack");
    });
}

#[test]
fn one_that_is_far_away_goes_to_its_place_at_once() {
    for_both(|timers, clock| {
        let mut random = fastrand::Rng::with_seed(1);
        let before = timers.counts().touched;
        for id in 0..1_000 {
            let delay = Duration::from_millis(random.u64(600_000..700_000));
            timers.add_within(delay, Duration::from_secs(10), id);
        }
        let (wakes, fired) = sleep_and_turn(timers, clock);
        assert_eq!(fired.len(), 1_000);
        assert!(wakes <= 14, "{wakes} wake-ups in 110 s, of which 8 192 ticks are one");
        assert_eq!(
            timers.counts().touched - before,
            2_000,
            "each is put there and fires from there"
        );
    });
}

#[test]
fn a_reset_makes_it_exact() {
    for_both(|timers, clock| {
        let mut random = fastrand::Rng::with_seed(1);
        for ticks in [1_u32, 500, 100_000, 500_000] {
            let (delay, slack) = (any_duration(&mut random), Duration::from_secs(1_000));
            let within = timers.add_within(delay, slack, 1);
            let spread = timers.add_spread(delay, slack, 2);
            let due = clock.elapsed() + TICK * ticks;
            assert!(timers.reset(within, TICK * ticks));
            assert!(timers.reset(spread, TICK * ticks));
            let (_, fired) = sleep_and_turn(timers, clock);
            assert_eq!(
                (fired[&1], fired[&2]),
                (window(due, Duration::ZERO).0, window(due, Duration::ZERO).0)
            );
        }
    });
}

#[test]
fn without_slack_it_is_an_ordinary_timer() {
    seeded(0..operations(50), |random| {
        let seed = random.u64(..);
        for_both(|timers, clock| {
            let mut random = fastrand::Rng::with_seed(seed);
            clock.advance(Duration::from_nanos(random.u64(..10 * TICK_NANOS)));
            timers.turn();
            let delay = if random.bool() { Duration::ZERO } else { any_duration(&mut random) };
            timers.add(delay, 0);
            timers.add_within(delay, Duration::ZERO, 1);
            timers.add_spread(delay, Duration::ZERO, 2);
            // Less than there is to the next tick is none.
            let due = nanos(clock.elapsed() + delay);
            let less = due.next_multiple_of(TICK_NANOS) - due + TICK_NANOS - 1;
            timers.add_within(delay, Duration::from_nanos(less), 3);
            let (_, fired) = sleep_and_turn(timers, clock);
            assert!((1..4).all(|id| fired[&id] == fired[&0]), "{fired:?}");
        });
    });
}

/// However many come, and however many others come between them: no tick gets more than its share, and two.
#[test]
fn spread_timers_are_apart() {
    for_both(|timers, clock| {
        for count in [10, 1_000] {
            for others in [0, 1, 2, 20, 54, 143] {
                for id in 0..count {
                    timers.add_spread(Duration::from_secs(2), TICK * 1_000, id);
                    (0..others).for_each(|_| _ = timers.add(Duration::ZERO, usize::MAX));
                    timers.turn();
                }
                let start = nanos(clock.elapsed()) / TICK_NANOS + 2_000;
                let (_, fired) = sleep_and_turn(timers, clock);
                let mut at: HashMap<u64, usize> = HashMap::new();
                for &tick in fired.values() {
                    *at.entry(tick).or_default() += 1;
                }
                assert!(
                    at.keys().all(|tick| (start..=start + 1_000).contains(tick)),
                    "within the range"
                );
                let most = at.values().max().expect("some fired");
                assert!(
                    *most <= count.div_ceil(1_000) + 2,
                    "{most} in one tick of {count}, with {others} between"
                );
                let fullest = (0..10).map(|tenth| {
                    let part = start + tenth * 100..start + tenth * 100 + 100;
                    fired.values().filter(|tick| part.contains(tick)).count()
                });
                let most = fullest.max().expect("ten of them");
                assert!(
                    most <= count / 10 + 4,
                    "{most} in a tenth of the range of {count}, with {others} between"
                );
            }
        }
    });
}

#[test]
fn the_longest_durations_are_accepted_everywhere() {
    for_both(|timers, clock| {
        let second = Duration::from_secs(1);
        let handles = [
            timers.add_within(Duration::MAX, Duration::MAX, 0),
            timers.add_within(second, Duration::MAX, 1),
            timers.add_within(Duration::MAX, second, 2),
            timers.add_spread(Duration::MAX, Duration::MAX, 3),
            timers.add_spread(second, Duration::MAX, 4),
            timers.add_spread(Duration::MAX, second, 5),
        ];
        clock.advance(TICK * 999);
        assert!(timers.turn().is_empty(), "none is early");
        clock.advance(Duration::from_secs(3_600));
        assert!(timers.turn().is_empty(), "each has 584 years");
        assert!(handles.into_iter().all(|handle| timers.reset(handle, TICK)));
        clock.advance(TICK);
        assert_eq!(timers.turn().len(), handles.len());
    });
}
