//! Sleeps until the next deadline (P9): their timeouts, and the requests that end them.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use corewheel::{Cancel, Config, Cores, ManualClock, ShardRef, local_timer};
use mio::{Events, Poll, Token, Waker};

use crate::{
    support::{
        ADD_CALLS, Counter, HOUR, Lockstep, TICK, TOO_LONG, WAKE_AT_QUEUED_MESSAGES,
        cancel_all_remotely, configured_shard, in_checked_virtual_time, leak_hidden, must_not_run,
        on_a_thread, on_configured_thread, scaled, spawn_repeating_owner, turn_after,
        turn_and_expire, with_counted_wakes,
    },
    wake_ups,
};

fn timeout() -> Option<Duration> {
    local_timer().prepare_sleep().timeout()
}

/// Each slot that the timer has left causes at most one wake-up without a due timer.
#[test]
fn a_timer_reset_every_tick_causes_few_idle_wake_ups() {
    in_checked_virtual_time(|clock| {
        let idle = local_timer().add(TICK * 30, || {});
        let mut wakes = 0;
        for _ in 0..1_000 {
            assert_eq!(turn_after(clock, 1).fired, 0);
            assert!(idle.reset(TICK * 30));
            wakes += usize::from(timeout().expect("a timer is pending") <= TICK);
        }
        assert!(wakes <= 1_000 / 29, "{wakes} idle wake-ups");
        assert_eq!((turn_after(clock, 29).fired, turn_after(clock, 1).fired), (0, 1));
    });
}

#[test]
fn an_earlier_add_during_a_sleep_calls_the_wake_hook() {
    for (name, add) in ADD_CALLS {
        let add = |delay| add(delay, Box::new(must_not_run));
        with_counted_wakes(|_, wakes, _| {
            let sleep = local_timer().prepare_sleep();
            assert_eq!((sleep.timeout(), wakes.take()), (None, 0));
            add(TICK * 100);
            assert_eq!(wakes.take(), 1, "{name}");
            add(TICK * 99);
            assert_eq!(wakes.take(), 0, "{name}: already woken");
            drop(sleep);
            let sleep = local_timer().prepare_sleep();
            assert_eq!(sleep.timeout(), Some(TICK * 99));
            [TICK * 100, TICK * 99, TICK * 197 / 2].into_iter().for_each(add);
            assert_eq!(wakes.take(), 0, "{name}: due in the tick that ends the sleep, or later");
            add(TICK * 98);
            assert_eq!(wakes.take(), 1, "{name}");
            drop(sleep);
            add(TICK);
            assert_eq!(wakes.take(), 0, "{name}: the sleep has ended");
        });
    }
}

// ---- wake hooks

/// Starts cores that have announced a sleep. Each core's wake hook counts its calls, and calls
/// `on_wake` with all shards and the core's index.
fn sleeping_cores_with_hooks(
    count: usize,
    calls: &Counter,
    on_wake: fn(&[ShardRef], usize),
) -> (Lockstep<()>, Arc<Mutex<Vec<ShardRef>>>) {
    let shards = Arc::new(Mutex::new(Vec::new()));
    let cores = Lockstep::start_with(count, |own, config| {
        let (all_shards, count_call) = (Arc::clone(&shards), calls.callback());
        config.wake_hook(move || {
            count_call();
            let all_shards: Vec<ShardRef> = all_shards.lock().expect("sound").clone();
            on_wake(&all_shards, own);
        })
    });
    shards.lock().expect("sound").extend(cores.shards.iter().cloned());
    (0..count).for_each(|core| cores.run_on(core, |()| leak_hidden(local_timer().prepare_sleep())));
    (cores, shards)
}

#[test]
fn a_wake_hook_that_adds_is_not_called_recursively() {
    let calls = Counter::default();
    let add_to_all: fn(&[ShardRef], usize) =
        |all_shards, _| all_shards.iter().for_each(|shard| _ = shard.add(TICK, || {}));
    let (cores, shards) = sleeping_cores_with_hooks(2, &calls, add_to_all);
    cores.shards[1].add(TICK, || {});
    assert_eq!(calls.get(), 2, "one call per hook");
    cores.clock.advance(TICK * 2);
    let fired = [1, 0].map(|core| cores.turn(core).fired);
    assert_eq!(fired, [3, 2], "one per hook, and one from this thread");
    // Breaks the reference cycle between the shards and their hooks.
    shards.lock().expect("sound").clear();
}

#[test]
fn hooks_that_wake_in_a_circle_nest_at_most_32_deep() {
    for (count, expected_calls) in [(4, 4), (30, 30), (100, 32)] {
        let calls = Counter::default();
        let (cores, shards) = sleeping_cores_with_hooks(count, &calls, |all_shards, own| {
            all_shards[(own + 1) % all_shards.len()].run(|| ());
        });
        cores.shards[0].run(|| ());
        assert_eq!(calls.get(), expected_calls, "of {count}");
        shards.lock().expect("sound").clear();
    }
}

// ---- backlogs (P8)

#[test]
fn a_backlog_of_cancelled_timers_wakes_a_sleeping_owner_once() {
    with_drop_cancelled_within(Duration::MAX, |_, wakes| {
        let handles: Vec<_> = (0..2 * WAKE_AT_QUEUED_MESSAGES)
            .map(|_| local_timer().add(HOUR, must_not_run))
            .collect();
        let sleep = local_timer().prepare_sleep();
        cancel_all_remotely(&handles[..WAKE_AT_QUEUED_MESSAGES - 1]);
        assert_eq!(wakes.take(), 0, "one message too few");
        cancel_all_remotely(&handles[WAKE_AT_QUEUED_MESSAGES - 1..2 * WAKE_AT_QUEUED_MESSAGES - 1]);
        assert_eq!(wakes.take(), 1);
        drop(sleep);
        cancel_all_remotely(&handles[2 * WAKE_AT_QUEUED_MESSAGES - 1..]);
        assert_eq!(wakes.take(), 0, "the sleep has ended");
        assert_eq!(local_timer().counts().uncollected, 2 * WAKE_AT_QUEUED_MESSAGES as u64);
        for behind in [true, false] {
            assert_eq!(timeout(), Some(Duration::ZERO), "a turn must precede the next sleep");
            let turn = local_timer().turn();
            assert_eq!((turn.collected, turn.behind), (WAKE_AT_QUEUED_MESSAGES, behind));
        }
        assert_eq!(timeout(), None);
    });
}

fn with_drop_cancelled_within(time: Duration, test: impl FnOnce(&ManualClock, &Counter) + Send) {
    let wakes = Counter::default();
    on_configured_thread(
        Config::new().wake_hook(wakes.callback()).drop_cancelled_within(time),
        |clock| {
            test(clock, &wakes);
        },
    );
}

#[test]
fn drop_cancelled_within_bounds_the_life_of_a_payload() {
    const LIMIT: Duration = Duration::from_millis(100);
    const MINUTE: Duration = Duration::from_secs(60);
    with_drop_cancelled_within(LIMIT, |clock, wakes| {
        let drops = Counter::default();
        let timers: Vec<_> = (0..9).map(|_| local_timer().add(MINUTE, drops.callback())).collect();
        let turn = || assert_eq!(local_timer().turn().fired, 0);
        turn();
        // The first cancel ends the long sleep.
        let sleep = local_timer().prepare_sleep();
        assert_eq!(sleep.timeout(), Some(MINUTE));
        cancel_all_remotely(&timers[..1]);
        assert_eq!(wakes.take(), 1);
        cancel_all_remotely(&timers[1..2]);
        assert_eq!((wakes.take(), drops.other_refs()), (0, 9), "the owner is already woken");
        drop(sleep);
        turn();
        assert_eq!(drops.other_refs(), 7);
        // The next sleeps are short, so no cancel ends them.
        for at in 2..4 {
            let sleep = local_timer().prepare_sleep();
            assert_eq!(sleep.timeout(), Some(LIMIT));
            cancel_all_remotely(&timers[at..=at]);
            assert_eq!(wakes.take(), 0);
            clock.advance(LIMIT);
            drop(sleep);
            turn();
            assert_eq!(drops.other_refs(), 8 - at);
        }
        // After a time without cancels, sleeps are long again.
        assert_eq!(timeout(), Some(LIMIT));
        clock.advance(LIMIT);
        turn();
        assert_eq!(timeout(), Some(MINUTE - 3 * LIMIT));
        // A cancel before the announcement prevents the sleep.
        cancel_all_remotely(&timers[4..5]);
        assert_eq!((timeout(), wakes.take()), (Some(Duration::ZERO), 0));
        turn();
        assert_eq!((drops.other_refs(), timeout()), (4, Some(LIMIT)));
    });
    // The sum of the present time and `LIMIT` exceeds the range of the clock.
    with_drop_cancelled_within(LIMIT, |clock, wakes| {
        clock.advance(Duration::from_nanos(u64::MAX - 10));
        assert_eq!(local_timer().turn().fired, 0);
        let sleep = local_timer().prepare_sleep();
        cancel_all_remotely(&[local_timer().add(HOUR, || ())]);
        assert_eq!((sleep.timeout(), wakes.take()), (None, 1));
    });
    // `drop_cancelled_within` also limits the sleeps of a `Shard`.
    let wakes = Counter::default();
    let config = Config::new().wake_hook(wakes.callback()).drop_cancelled_within(LIMIT);
    let (mut shard, _) = configured_shard(config);
    let timer = shard.add(HOUR, Arc::new(()));
    shard.turn();
    assert!(shard.next_expired().is_none());
    let sleep = shard.prepare_sleep();
    cancel_all_remotely(&[timer]);
    assert_eq!(wakes.take(), 1);
    drop(sleep);
    assert!(turn_and_expire(&mut shard).is_empty());
    assert_eq!(shard.prepare_sleep().timeout(), Some(LIMIT));
}

#[test]
fn a_turn_at_the_end_of_a_short_sleep_is_not_overdue() {
    const LIMIT: Duration = Duration::from_millis(100);
    with_drop_cancelled_within(LIMIT, |clock, _| {
        let handles = [(); 2].map(|()| local_timer().add(HOUR, must_not_run));
        turn_after(clock, 1);
        cancel_all_remotely(&handles[..1]);
        turn_after(clock, 1);
        assert_eq!(timeout(), Some(LIMIT));
        clock.advance(LIMIT);
        local_timer().turn();
        clock.advance(LIMIT);
        assert_eq!(local_timer().metrics().expect("a wheel").overdue, Duration::ZERO);
    });
}

#[test]
fn a_sleeping_owner_is_woken_by_1024_queued_resets() {
    with_counted_wakes(|_, wakes, shard| {
        local_timer().add(HOUR, must_not_run);
        let first = local_timer().add(TICK, must_not_run);
        let cancelled = wakes.wakes_during_sleep(|| assert_eq!(first.cancel(), Cancel::Cancelled));
        assert_eq!(cancelled, 0, "a cancel does not end a short sleep");
        let _ = local_timer().turn();
        let mut handles = Vec::new();
        let adds = || {
            handles.extend((1..WAKE_AT_QUEUED_MESSAGES).map(|_| shard.add(HOUR * 2, must_not_run)));
        };
        assert_eq!(wakes.wakes_during_sleep(adds), 0);
        let _ = local_timer().turn();
        // Resets each timer twice. The second reset sends no message.
        let reset_twice = || {
            let delays = [HOUR * 3; 2];
            assert!(handles.iter().all(|it| delays.iter().all(|&delay| it.reset(delay))));
        };
        assert_eq!(wakes.wakes_during_sleep(reset_twice), 0);
        let _ = local_timer().turn();
        handles.push(on_a_thread(|| shard.add(HOUR * 2, must_not_run)));
        let _ = local_timer().turn();
        let resets = || handles.iter().for_each(|handle| assert!(handle.reset(HOUR * 4)));
        assert_eq!(wakes.wakes_during_sleep(resets), 1);
    });
}

// ---- threads that sleep

#[test]
fn a_park_with_a_zero_timeout_keeps_the_unpark_token() {
    on_a_thread(|| {
        local_timer().add(Duration::ZERO, || {});
        thread::current().unpark();
        local_timer().prepare_sleep().park();
        let start = Instant::now();
        thread::park_timeout(TOO_LONG);
        assert!(start.elapsed() < TOO_LONG, "the unpark token was consumed");
    });
}

#[test]
fn a_park_ends_at_a_wake_up_although_a_hook_wakes_only_a_poll() {
    let wakes = Counter::default();
    let (config, on_wake) = (Config::new(), wakes.callback());
    let cores =
        Cores::builder().threads(1).config(move |_| config.clone().wake_hook(on_wake.clone()));
    let cores = cores.start(|core| core.run_timers()).expect("started");
    let (sender, receiver) = mpsc::channel();
    while wakes.get() < 3 {
        thread::sleep(TICK * 5); // lets the owner fall asleep
        let sender = sender.clone();
        cores.shards()[0].add(TICK * 10, move || sender.send(()).expect("the test waits"));
        assert_eq!(receiver.recv_timeout(TOO_LONG), Ok(()), "the timer has not fired");
    }
    cores.stop();
    thread::spawn(move || {
        drop(cores.join());
        sender.send(())
    });
    assert_eq!(receiver.recv_timeout(TOO_LONG), Ok(()), "the thread has not stopped");
}

#[test]
fn an_add_after_prepare_sleep_unparks_its_own_thread() {
    on_a_thread(|| {
        local_timer().add(HOUR, must_not_run);
        let sleep = local_timer().prepare_sleep();
        local_timer().add(Duration::from_millis(2), || {});
        let start = Instant::now();
        thread::park_timeout(sleep.timeout().expect("a timer is pending").min(TOO_LONG));
        assert!(start.elapsed() < TOO_LONG);
    });
}

/// A configuration, and a function that sleeps until its wake hook or the timeout ends the sleep.
type Sleeper = (Config, Box<dyn FnMut(Option<Duration>) + Send>);

fn parking_sleeper() -> Sleeper {
    (Config::new(), Box::new(|timeout| timeout.map_or_else(thread::park, thread::park_timeout)))
}

fn polling_sleeper() -> Sleeper {
    let (mut poll, mut events) = (Poll::new().expect("a poll"), Events::with_capacity(8));
    let waker = Waker::new(poll.registry(), Token(7)).expect("a waker");
    let sleep = move |timeout| {
        if let Err(error) = poll.poll(&mut events, timeout) {
            assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
        }
    };
    (Config::new().wake_hook(move || waker.wake().expect("woken")), Box::new(sleep))
}

#[test]
fn no_wake_up_is_lost() {
    for sleeper in [parking_sleeper, polling_sleeper] {
        for (requesters, budget, rounds) in [(1, usize::MAX, 2_000), (3, 2, 1_000)] {
            let (config, mut sleep) = sleeper();
            let (shard, end) =
                spawn_repeating_owner(config.tick(Duration::from_micros(20)), move || {
                    local_timer().add(HOUR, must_not_run);
                    move || {
                        local_timer().sleep_with(&mut sleep);
                        let _ = local_timer().turn_within(budget);
                    }
                });
            wake_ups::assert_no_wake_up_is_lost(&shard, requesters, scaled(rounds).min(5 * rounds));
            end();
        }
    }
}
