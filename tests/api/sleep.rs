//! Sleeping as long as one may and never longer (P9): how long that is, and what ends an announced sleep.
#![allow(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{Cancel, Config, ManualClock, Shard, TimerHandle, local_timer};

use crate::common::{TICK, in_virtual_time, on_a_thread, operations};

/// Cancelled timers that wake a sleeping owner (P8).
const DEBT: usize = 1024;

const HOUR: Duration = Duration::from_secs(3_600);

fn never() {
    unreachable!("this callback must not run");
}

/// How often the wake hook was called.
#[derive(Clone, Default)]
struct Wakes(Arc<AtomicUsize>);

impl Wakes {
    /// Since the last time it was asked.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

/// As `in_virtual_time`, with a wake hook that counts.
fn counting_wakes<R: Send>(test: impl FnOnce(&ManualClock, &Wakes) -> R + Send) -> R {
    let (clock, wakes) = (ManualClock::new(), Wakes::default());
    let hook = wakes.clone();
    let config = Config::new()
        .tick(TICK)
        .clock(&clock)
        .on_wake(move || _ = hook.0.fetch_add(1, Ordering::SeqCst));
    on_a_thread(|| {
        config.install().expect("a fresh thread");
        test(&clock, &wakes)
    })
}

fn cancel_elsewhere(handles: &[TimerHandle]) {
    assert!(on_a_thread(|| handles.iter().all(|handle| handle.cancel() == Cancel::Cancelled)));
}

// ---- how long

#[test]
fn a_timer_with_nothing_pending_sleeps_until_it_is_woken() {
    in_virtual_time(|clock| {
        let asleep = || {
            let timer = local_timer();
            assert_eq!((timer.next_deadline(), timer.time_until_next()), (None, None));
            assert_eq!(timer.prepare_sleep().timeout(), None);
        };
        asleep();
        local_timer().add(TICK, || {});
        clock.advance(TICK);
        local_timer().turn();
        asleep();
        assert_eq!(local_timer().add(TICK, never).cancel(), Cancel::Cancelled);
        asleep();
        let shard = Shard::<()>::new();
        assert_eq!(
            (shard.next_deadline(), shard.time_until_next(), shard.prepare_sleep().timeout()),
            (None, None, None)
        );
    });
}

#[test]
fn the_next_deadline_is_that_of_the_earliest_timer_rounded_up_to_a_tick() {
    in_virtual_time(|clock| {
        clock.advance(TICK * 3 + TICK / 4);
        let begun = clock.now();
        let late = local_timer().add(TICK * 60_000, never);
        assert_eq!(local_timer().time_until_next(), Some(TICK * 60_000 + TICK * 3 / 4));
        local_timer().add(TICK * 5, || {});
        for elapsed in [Duration::ZERO, TICK, TICK * 5] {
            clock.set(TICK * 3 + TICK / 4 + elapsed);
            let left = TICK * 5 + TICK * 3 / 4 - elapsed;
            assert_eq!(local_timer().next_deadline(), Some(begun + TICK * 5 + TICK * 3 / 4));
            assert_eq!(local_timer().time_until_next(), Some(left));
            assert_eq!(local_timer().prepare_sleep().timeout(), Some(left));
        }
        // It has come, and it stays until a turn has dealt with it: asking changes nothing.
        clock.advance(TICK * 10);
        for _ in 0..3 {
            assert_eq!(local_timer().time_until_next(), Some(Duration::ZERO));
            assert_eq!(local_timer().next_deadline(), Some(begun + TICK * 5 + TICK * 3 / 4));
        }
        assert_eq!(local_timer().turn().fired, 1);
        assert_eq!(late.cancel(), Cancel::Cancelled);
        assert_eq!(local_timer().next_deadline(), None);
    });
}

#[test]
fn a_sleep_as_long_as_allowed_and_not_a_nanosecond_less_finds_the_timer_due() {
    in_virtual_time(|clock| {
        clock.advance(TICK / 3);
        for delay in [Duration::ZERO, Duration::from_nanos(1), TICK, TICK * 7 / 2, TICK * 65_535] {
            local_timer().add(delay, || {});
            let timeout = local_timer().prepare_sleep().timeout().expect("a timer is pending");
            clock.advance(timeout - Duration::from_nanos(1));
            assert_eq!(local_timer().turn().fired, 0, "{delay:?}");
            clock.advance(Duration::from_nanos(1));
            assert_eq!(local_timer().turn().fired, 1, "{delay:?}");
        }
    });
}

/// How often a loop wakes that sleeps as long as it may, until its only timer has fired.
fn wakes_until_fired(clock: &ManualClock, delay: Duration) -> usize {
    let (handle, begun) = (local_timer().add(delay, || {}), clock.now());
    for wakes in 1.. {
        let timeout = local_timer().prepare_sleep().timeout().expect("a timer is pending");
        clock.advance(timeout);
        if local_timer().turn().fired == 1 {
            assert!(clock.now() - begun >= delay && clock.now() - begun < delay + TICK);
            return wakes;
        }
        assert!(handle.is_pending() && wakes < 1_000);
    }
    unreachable!()
}

#[test]
fn an_idle_thread_with_one_timer_far_ahead_wakes_a_handful_of_times() {
    in_virtual_time(|clock| {
        for phase in [Duration::ZERO, TICK / 2, TICK * 65_535, TICK * 12_345_678] {
            clock.advance(phase);
            local_timer().turn();
            assert_eq!(wakes_until_fired(clock, TICK * 60_000), 1);
            for delay in [HOUR, HOUR * 24, HOUR * 24 * 30, HOUR * 24 * 365, HOUR * 24 * 36_500] {
                let wakes = wakes_until_fired(clock, delay);
                assert!(wakes <= 4, "{delay:?}: {wakes} wakes");
            }
        }
    });
}

/// A timer that moves away costs at most one wake-up for nothing per slot that it has moved away from: not one per move.
#[test]
fn a_timer_that_is_always_moved_ahead_does_not_wake_the_loop_again_and_again() {
    in_virtual_time(|clock| {
        let idle = local_timer().add(TICK * 30, || {});
        let mut wakes = 0;
        for _ in 0..1_000 {
            // A packet in every tick.
            clock.advance(TICK);
            assert_eq!(local_timer().turn().fired, 0);
            assert!(idle.reset(TICK * 30));
            let timeout = local_timer().prepare_sleep().timeout().expect("a timer is pending");
            wakes += usize::from(timeout <= TICK);
        }
        assert!(wakes <= 1_000 / 29, "{wakes} wake-ups for nothing");
        clock.advance(TICK * 29);
        assert_eq!(local_timer().turn().fired, 0);
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 1);
    });
}

// ---- what ends an announced sleep

#[test]
fn an_earlier_timer_added_before_the_sleep_calls_the_wake_hook() {
    type Add = fn(Duration);
    let adds: [Add; 5] = [
        |delay| _ = local_timer().add(delay, never),
        |delay| _ = local_timer().add_at(local_timer().now() + delay, never),
        |delay| _ = local_timer().try_add(delay, never).expect("a live thread"),
        |delay| _ = local_timer().add_local(delay, never),
        |delay| _ = local_timer().add_periodic(delay, never),
    ];
    for add in adds {
        counting_wakes(|_, wakes| {
            // Nothing was pending: it would sleep for ever.
            let sleep = local_timer().prepare_sleep();
            assert_eq!((sleep.timeout(), wakes.take()), (None, 0));
            add(TICK * 100);
            assert_eq!(wakes.take(), 1);
            // It is awake already.
            add(TICK * 99);
            assert_eq!(wakes.take(), 0);
            drop(sleep);
            let sleep = local_timer().prepare_sleep();
            assert_eq!(sleep.timeout(), Some(TICK * 99));
            add(TICK * 100);
            add(TICK * 99);
            assert_eq!(wakes.take(), 0, "it wakes in time by itself");
            add(TICK * 98);
            assert_eq!(wakes.take(), 1);
            drop(sleep);
            add(TICK);
            assert_eq!(wakes.take(), 0, "nobody sleeps");
        });
    }
}

/// A hook that panics has woken nobody: the sleep goes on, or the one that it has announced itself.
#[test]
fn an_own_wake_up_that_failed_is_made_up_for() {
    for announces in [false, true] {
        let (clock, wakes, fails) = (ManualClock::new(), Wakes::default(), AtomicBool::new(true));
        let calls = wakes.clone();
        let hook = move || {
            calls.0.fetch_add(1, Ordering::SeqCst);
            if fails.swap(false, Ordering::SeqCst) {
                if announces {
                    mem::forget(local_timer().prepare_sleep());
                }
                panic!("as planned");
            }
        };
        let config = Config::new().tick(TICK).clock(&clock).on_wake(hook).on_panic(|_| ());
        on_a_thread(|| {
            config.install().expect("a fresh thread");
            local_timer().add(TICK * 100, never);
            let sleep = local_timer().prepare_sleep();
            for (ticks, calls) in
                [(50, 1), (60, usize::from(!announces)), (40, usize::from(announces)), (30, 0)]
            {
                local_timer().add(TICK * ticks, never);
                assert_eq!(wakes.take(), calls, "a timer in {ticks} ticks");
            }
            drop(sleep);
        });
    }
}

#[test]
fn an_earlier_reset_before_the_sleep_calls_the_wake_hook() {
    counting_wakes(|_, wakes| {
        let timer = local_timer().add(TICK * 100, never);
        let private = local_timer().add_local(TICK * 200, never);
        let sleep = local_timer().prepare_sleep();
        assert!(timer.reset(TICK * 300) && private.reset(TICK * 150));
        assert_eq!(wakes.take(), 0, "it wakes in time by itself");
        assert!(private.reset(TICK * 50));
        assert_eq!(wakes.take(), 1);
        drop(sleep);
        let sleep = local_timer().prepare_sleep();
        assert_eq!(sleep.timeout(), Some(TICK * 50));
        assert!(timer.reset(TICK * 40));
        assert_eq!(wakes.take(), 1);
        drop(sleep);
        assert!(timer.reset(TICK));
        assert_eq!(wakes.take(), 0, "nobody sleeps");
    });
}

#[test]
fn a_turn_and_a_later_sleep_know_nothing_of_an_earlier_announcement() {
    counting_wakes(|clock, wakes| {
        drop(local_timer().prepare_sleep());
        local_timer().add(TICK * 5, || {});
        let sleep = local_timer().prepare_sleep();
        drop(sleep);
        clock.advance(TICK * 5);
        assert_eq!(local_timer().turn().fired, 1);
        local_timer().add(TICK, || {});
        assert_eq!(wakes.take(), 0);
        let sleep = local_timer().prepare_sleep();
        local_timer().add(Duration::ZERO, || {});
        assert_eq!(wakes.take(), 1);
        drop(sleep);
    });
}

#[test]
fn a_debt_of_cancelled_timers_wakes_a_sleeping_owner_once() {
    counting_wakes(|_, wakes| {
        let handles: Vec<_> = (0..2 * DEBT).map(|_| local_timer().add(HOUR, never)).collect();
        let sleep = local_timer().prepare_sleep();
        cancel_elsewhere(&handles[..DEBT - 1]);
        assert_eq!(wakes.take(), 0, "a few can wait");
        cancel_elsewhere(&handles[DEBT - 1..2 * DEBT - 1]);
        assert_eq!(wakes.take(), 1);
        drop(sleep);
        cancel_elsewhere(&handles[2 * DEBT - 1..]);
        assert_eq!(wakes.take(), 0, "nobody sleeps");
        assert_eq!(local_timer().counts().held, 2 * DEBT as u64);
        let turns = [(); 2].map(|()| local_timer().turn());
        assert_eq!(turns.map(|turn| (turn.collected, turn.behind)), [(DEBT, true), (DEBT, false)]);
    });
}

#[test]
fn an_owner_in_debt_does_not_sleep_before_it_has_turned() {
    counting_wakes(|_, _| {
        let handles: Vec<_> = (0..DEBT).map(|_| local_timer().add(TICK * 100, never)).collect();
        cancel_elsewhere(&handles[1..]);
        assert_eq!(local_timer().prepare_sleep().timeout(), Some(TICK * 100));
        cancel_elsewhere(&handles[..1]);
        assert_eq!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO));
        assert_eq!(local_timer().turn().collected, DEBT);
        assert_eq!(local_timer().prepare_sleep().timeout(), None);
    });
}

#[test]
fn a_debt_wakes_the_owner_of_a_shard_too() {
    let wakes = Wakes::default();
    let hook = wakes.clone();
    let config = Config::new().on_wake(move || _ = hook.0.fetch_add(1, Ordering::SeqCst));
    let mut shard = Shard::with_config(config).expect("valid");
    let handles: Vec<_> = (0..DEBT).map(|_| shard.add(HOUR, ())).collect();
    let sleep = shard.prepare_sleep();
    cancel_elsewhere(&handles);
    assert_eq!(wakes.take(), 1);
    drop(sleep);
    assert!(!shard.is_empty());
    shard.turn();
    assert!(shard.next_expired().is_none() && shard.is_empty());
}

// ---- real sleeps

/// Longer than any test may take, shorter than a hang: a wake-up that was lost shows as a sleep of this length.
const TOO_LONG: Duration = Duration::from_secs(20);

/// Whether the thread was woken, or need not sleep; it may also have woken for nothing.
fn sleeps_until_woken() -> bool {
    let sleep = local_timer().prepare_sleep();
    let timeout = sleep.timeout().unwrap_or(TOO_LONG).min(TOO_LONG);
    let begun = Instant::now();
    thread::park_timeout(timeout);
    begun.elapsed() < TOO_LONG
}

/// By default the owner is unparked, and no interleaving of its falling asleep with the cancels loses that.
#[test]
fn a_debt_wakes_a_sleeping_thread_and_the_wake_up_is_never_lost() {
    on_a_thread(|| {
        let (sender, received) = mpsc::channel::<Vec<TimerHandle>>();
        let canceller = thread::spawn(move || {
            for handles in received {
                assert!(handles.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
            }
        });
        for _ in 0..operations(100) {
            let handles: Vec<_> = (0..DEBT).map(|_| local_timer().add(HOUR, never)).collect();
            sender.send(handles).expect("the canceller listens");
            let begun = Instant::now();
            while local_timer().counts().held < DEBT as u64 {
                assert!(
                    sleeps_until_woken(),
                    "slept with a debt of {}",
                    local_timer().counts().held
                );
                assert!(begun.elapsed() < TOO_LONG, "no debt was ever seen");
            }
            assert_eq!(local_timer().turn().collected, DEBT);
        }
        drop(sender);
        canceller.join().expect("no panic");
    });
}

/// A loop of nothing but timers turns a handful of times, though a thread may wake for no reason.
#[test]
fn a_thread_that_parks_sleeps() {
    on_a_thread(|| {
        local_timer().add(Duration::from_millis(50), || {});
        let mut turns = 0;
        while !local_timer().is_empty() {
            local_timer().prepare_sleep().park();
            let _ = local_timer().turn();
            turns += 1;
        }
        assert!(turns < 20, "{turns} turns");
    });
}

#[test]
fn a_timer_added_just_before_the_sleep_ends_it_by_the_default_hook() {
    on_a_thread(|| {
        local_timer().add(HOUR, never);
        let sleep = local_timer().prepare_sleep();
        // As in a loop that asks for its sleep first and serves one more request.
        local_timer().add(Duration::from_millis(2), || {});
        let begun = Instant::now();
        thread::park_timeout(sleep.timeout().expect("a timer is pending").min(TOO_LONG));
        drop(sleep);
        assert!(begun.elapsed() < TOO_LONG);
    });
}

#[test]
fn a_thread_that_sleeps_as_long_as_it_may_fires_in_time() {
    on_a_thread(|| {
        let begun = Instant::now();
        let delay = Duration::from_millis(20);
        local_timer().add(delay, || {});
        let mut turns = 0;
        while !local_timer().is_empty() {
            assert!(sleeps_until_woken());
            local_timer().turn();
            turns += 1;
        }
        assert!(begun.elapsed() >= delay && begun.elapsed() < TOO_LONG);
        assert!(turns < 50, "{turns} wake-ups for one timer");
    });
}

// ---- what once went wrong

/// A loop may assign each announcement over the last one, which ends the last one after the new one has begun.
#[test]
fn an_announcement_that_replaces_another_stays_in_force() {
    counting_wakes(|_, wakes| {
        let handles: Vec<_> = (0..DEBT).map(|_| local_timer().add(HOUR, never)).collect();
        let mut sleep = local_timer().prepare_sleep();
        assert!(sleep.timeout() > Some(TICK));
        sleep = local_timer().prepare_sleep();
        local_timer().add(TICK, || {});
        assert_eq!(wakes.take(), 1, "an earlier timer ends it");
        assert!(sleep.timeout() > Some(TICK));
        sleep = local_timer().prepare_sleep();
        cancel_elsewhere(&handles);
        assert_eq!(wakes.take(), 1, "and so does a debt");
        drop(sleep);
    });
}

#[test]
fn a_turn_under_an_announced_sleep_does_not_end_it() {
    counting_wakes(|clock, wakes| {
        local_timer().add_periodic(TICK * 10, || {});
        clock.advance(TICK * 10);
        let sleep = local_timer().prepare_sleep();
        assert_eq!(local_timer().turn().fired, 1);
        wakes.take();
        local_timer().add(TICK, || {});
        assert_eq!(wakes.take(), 0, "the announcement was for at once");
        drop(sleep);
        let sleep = local_timer().prepare_sleep();
        let _ = local_timer().turn();
        local_timer().add(TICK, || {});
        assert_eq!(wakes.take(), 0, "the same tick as the one that is slept for");
        drop(sleep);
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 2);
        let sleep = local_timer().prepare_sleep();
        let _ = local_timer().turn();
        local_timer().add(TICK, || {});
        assert_eq!(wakes.take(), 1);
        drop(sleep);
    });
}

#[test]
fn a_timer_of_the_tick_that_is_slept_for_wakes_nobody() {
    counting_wakes(|_, wakes| {
        local_timer().add(TICK * 5, || {});
        let sleep = local_timer().prepare_sleep();
        local_timer().add(TICK * 9 / 2, || {});
        assert_eq!(wakes.take(), 0);
        drop(sleep);
    });
}

/// The default hook unparks whoever announced the sleep, not who made the shard.
#[test]
fn a_shard_that_moved_wakes_the_thread_it_sleeps_on() {
    let mut shard = Shard::new();
    let handles: Vec<_> = (0..DEBT).map(|_| shard.add(HOUR, ())).collect();
    let (announce, announced) = mpsc::channel();
    let sleeper = thread::spawn(move || {
        let begun = Instant::now();
        let sleep = shard.prepare_sleep();
        announce.send(()).expect("the test listens");
        thread::park_timeout(
            sleep.timeout().expect("timers are pending").min(Duration::from_secs(20)),
        );
        drop(sleep);
        (begun.elapsed(), shard.counts().held)
    });
    announced.recv().expect("the sleeper announces");
    cancel_elsewhere(&handles);
    let (slept, held) = sleeper.join().expect("the sleeper ends");
    assert!(slept < Duration::from_secs(20), "nobody woke it");
    assert_eq!(held, DEBT as u64);
}
