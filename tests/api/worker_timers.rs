//! Timers on worker wheels: added, moved and dropped on any thread, and fired by the driver.

use std::{
    future,
    sync::{Arc, Mutex, OnceLock},
    task::{Context, Poll},
    thread,
    time::Duration,
};

use corewheel::{
    AddErrorReason, Cancel, Config, Counts, ManualClock, ShardRef, TimerHandle, TimerStatus,
    future::{TimeoutError, Timers, TimersDriver, sleep},
    local_timer,
};

use crate::support::{
    Counter, HOUR, Log, OnDrop, Poller, TICK, assert_ends_soon, on_a_thread, poll_with, waker,
    waker_whose_clones_panic_in_drop,
};

const SHUT_DOWN: Poll<Result<(), AddErrorReason>> = Poll::Ready(Err(AddErrorReason::ShutDown));

/// Creates `wheels` worker wheels in virtual time. The counter counts calls of the wake hooks.
fn start_wheels(wheels: usize) -> (ManualClock, Timers, TimersDriver, Counter) {
    let (clock, wakes) = (ManualClock::new(), Counter::default());
    let config = |_| Config::new().clock(&clock).wake_hook(wakes.callback());
    let (timers, driver) = Timers::per_worker_with(wheels, config).expect("valid");
    (clock, timers, driver, wakes)
}

fn advance_and_turn(clock: &ManualClock, driver: &mut TimersDriver, ticks: u32) {
    clock.advance(TICK * ticks);
    driver.turn();
}

fn wheel_with_limit_one() -> (Timers, TimersDriver) {
    let clock = ManualClock::new();
    Timers::per_worker_with(1, |_| Config::new().clock(&clock).limit(1)).expect("valid")
}

fn counting_callback(runs: &Counter, drops: &Counter) -> impl Fn() + Send + use<> {
    let (run, captured) = (runs.callback(), drops.on_drop());
    move || {
        let _captured = &captured;
        run();
    }
}

/// Publishes and returns the counts of all wheels.
fn published_counts(timers: &Timers, driver: &mut TimersDriver) -> Vec<Counts> {
    driver.turn();
    driver.sleep_with(|_| ());
    timers.shards().iter().map(|shard: &ShardRef| shard.metrics().counts).collect()
}

#[test]
fn counts_of_a_sleeping_drivers_wheels_are_current() {
    let (_clock, timers, mut driver, _) = start_wheels(2);
    let counts = || {
        timers.shards().iter().fold((0, 0, 0), |(live, cancelled, pending), shard| {
            let counts = shard.metrics().counts;
            (live + counts.live, cancelled + counts.cancelled, pending + shard.pending())
        })
    };
    let poller = Poller::new();
    driver.turn();
    driver.sleep_with(|_| {
        let sleeps: Vec<_> = (0..100).map(|_| poller.poll_pending(timers.sleep(HOUR))).collect();
        assert_eq!(counts(), (100, 0, 100));
        drop(sleeps);
        assert_eq!(counts(), (0, 100, 0));
    });
}

#[test]
fn only_an_earlier_deadline_wakes_the_driver() {
    let (_clock, timers, mut driver, wakes) = start_wheels(1);
    let poller = Poller::new();
    let mut first = driver.sleep_with(|timeout| {
        assert_eq!(timeout, None);
        let first = poller.poll_pending(timers.sleep(TICK * 10));
        assert_eq!(wakes.get(), 1, "the driver sleeps without a timeout");
        first
    });
    let mut later = driver.sleep_with(|timeout| {
        assert_eq!(timeout, Some(TICK * 10));
        let later = poller.poll_pending(timers.sleep(TICK * 10));
        assert_eq!(wakes.get(), 1, "the deadline is not earlier");
        later
    });
    driver.sleep_with(|_| {
        later.reset_after(TICK * 20);
        drop(poller.poll_pending(timers.sleep(TICK * 30)));
        assert_eq!(wakes.get(), 1, "no deadline is earlier");
        first.reset_after(TICK * 5);
        assert_eq!(wakes.get(), 2);
    });
    driver.sleep_with(|timeout| assert_eq!(timeout, Some(TICK * 5)));
    // The driver is awake, so the reset calls no wake hook.
    first.reset_after(TICK);
    assert_eq!(wakes.get(), 2);
    driver.sleep_with(|timeout| assert_eq!(timeout, Some(TICK)));
}

#[test]
fn unelapsed_timeouts_wake_the_driver_once_per_duration() {
    let (clock, timers, mut driver, wakes) = start_wheels(1);
    let poller = Poller::new();
    for round in 1..=3 {
        for _ in 0..1_000 {
            // Each turn finds the wheel empty, because the sleep was dropped.
            driver.turn();
            driver.sleep_with(|_| drop(poller.poll_pending(timers.sleep(TICK * 1_000))));
            clock.advance(TICK);
        }
        assert_eq!(wakes.get(), round);
    }
}

#[test]
fn a_failed_wake_hook_is_retried_at_the_next_add() {
    let (clock, calls) = (ManualClock::new(), Counter::default());
    let config = |_| {
        let calls = calls.clone();
        let fails_once = move || assert!(calls.increment() > 1, "as planned");
        Config::new().clock(&clock).wake_hook(fails_once)
    };
    let (timers, mut driver) = Timers::per_worker_with(1, config).expect("valid");
    let poller = Poller::new();
    driver.sleep_with(|_| {
        let _sleeps = [(); 3].map(|()| poller.poll_pending(timers.sleep(TICK)));
        assert_eq!(calls.get(), 2);
    });
}

/// A timer that a waker adds fires in a later turn.
#[test]
fn a_waker_may_use_its_wheel() {
    let (clock, timers, mut driver, _) = start_wheels(1);
    let poller = Arc::new(Poller::new());
    let (mut sleep, kept) =
        (timers.sleep(TICK), Mutex::new(Some(poller.poll_pending(timers.sleep(HOUR)))));
    let (added, polls) = (Log::new(), Arc::clone(&poller));
    let adds = added.clone();
    let uses_the_wheel = waker(move || {
        drop(kept.lock().unwrap().take());
        assert_eq!(polls.clones(), 0, "the wheel was claimed while the waker ran");
        adds.write(polls.poll_pending(timers.sleep(TICK)));
    });
    assert!(poll_with(&uses_the_wheel, &mut sleep).is_pending());
    advance_and_turn(&clock, &mut driver, 1);
    assert_eq!(poller.wake_count(), 0, "the added timer is not due");
    advance_and_turn(&clock, &mut driver, 1);
    assert_eq!((poller.wake_count(), added.take().len()), (1, 1));
}

#[test]
fn the_drop_of_a_waker_may_use_its_wheel() {
    let (_clock, timers, _driver, _) = start_wheels(1);
    let poller = Poller::new();
    let (mut sleep, other) =
        (timers.sleep(HOUR), Mutex::new(Some(poller.poll_pending(timers.sleep(HOUR)))));
    let dropped = OnDrop(move || {
        drop(other.lock().unwrap().take());
        assert_eq!(poller.clones(), 0, "the wheel was claimed while the waker was dropped");
    });
    assert!(poll_with(&waker(move || _ = &dropped), &mut sleep).is_pending());
    drop(sleep);
    assert_eq!(timers.shards()[0].metrics().counts.panicked, 0);
}

/// A cancel drops the waker without waking its task. But this drop drains another wheel, which
/// wakes that wheel's tasks.
#[test]
fn the_drop_of_a_waker_may_end_another_wheel() {
    on_a_thread(|| {
        local_timer().register_driver();
        let (_clock, timers, _driver, _) = start_wheels(1);
        let poller = Poller::new();
        let (mut drained, mut ended) =
            (sleep(HOUR), Timers::new(&[local_timer().shard_ref()]).sleep(HOUR));
        assert!(poller.poll(&mut drained).is_pending() && poller.poll(&mut ended).is_pending());
        let mut cancelled = timers.sleep(HOUR);
        let dropped = OnDrop(|| drop(local_timer().drain()));
        assert!(poll_with(&waker(move || _ = &dropped), &mut cancelled).is_pending());
        drop(cancelled);
        assert_eq!(poller.wake_count(), 2);
    });
}

#[test]
fn panics_of_wakers_are_contained() {
    let (clock, timers, mut driver, _) = start_wheels(1);
    let poller = Poller::new();
    let sleep_with_bad_waker = |delay| {
        let mut sleep = timers.sleep(delay);
        let dropped = OnDrop(|| assert!(thread::panicking(), "as planned"));
        let panics = waker(move || {
            let _captured = &dropped;
            panic!("as planned");
        });
        assert!(poll_with(&panics, &mut sleep).is_pending());
        sleep
    };
    let (_fires, dropped) = (sleep_with_bad_waker(TICK), sleep_with_bad_waker(HOUR));
    let other_sleeps = [(); 40].map(|()| poller.poll_pending(timers.sleep(TICK)));
    drop(dropped);
    advance_and_turn(&clock, &mut driver, 1);
    assert_eq!(poller.wake_count(), other_sleeps.len());
    assert_eq!(published_counts(&timers, &mut driver)[0].panicked, 2);
}

/// The wheel of the `Timers` reports the panic, not a wheel of the thread that polls.
#[test]
fn a_panicking_drop_of_a_refused_waker_is_reported_by_its_wheel() {
    let waker = waker_whose_clones_panic_in_drop();
    let reports = Counter::default();
    let config = |_| {
        let report = reports.callback();
        Config::new().limit(0).panic_hook(move |_| report())
    };
    let (timers, _driver) = Timers::per_worker_with(1, config).expect("valid");
    let mut refused = timers.sleep(HOUR);
    let full = Poll::Ready(Err(AddErrorReason::Full));
    assert_eq!(refused.poll_elapsed(&mut Context::from_waker(&waker)), full);
    assert_eq!((reports.get(), timers.shards()[0].metrics().counts.panicked), (1, 1));
}

#[test]
fn a_full_wheel_collects_cancelled_timers() {
    let (timers, mut driver) = wheel_with_limit_one();
    let callback = timers.shards()[0].add(HOUR, || ());
    driver.turn();
    assert!(callback.cancel().is_cancelled());
    drop(Poller::new().poll_pending(timers.sleep(HOUR)));
}

/// A sleep counts against the limit at once, before the driver turns.
#[test]
fn a_limit_applies_to_sleeps_and_remote_callbacks_together() {
    let (timers, _driver) = wheel_with_limit_one();
    let poller = Poller::new();
    let sleep = poller.poll_pending(timers.sleep(HOUR));
    let wheel = &timers.shards()[0];
    let Err(refused) = wheel.try_add(HOUR, || ()) else { panic!("the sleep fills the wheel") };
    assert_eq!(refused.reason(), AddErrorReason::Full);
    let mut refused = timers.timeout(HOUR, future::pending::<()>());
    let full = TimeoutError::NoTimer(AddErrorReason::Full);
    assert_eq!(poller.poll(&mut refused), Poll::Ready(Err(full)));
    drop(sleep);
    assert!(wheel.try_add(HOUR, || ()).is_ok());
}

#[test]
fn remote_and_admitted_timers_fire_in_tick_order() {
    let (clock, timers, mut driver, _) = start_wheels(1);
    let log = Log::new();
    let mut add = |ticks: u32, is_admitted: bool| {
        timers.shards()[0].add(TICK * ticks, log.writer(ticks));
        if is_admitted {
            driver.turn();
        }
    };
    add(3, true);
    add(1, true);
    add(2, false);
    advance_and_turn(&clock, &mut driver, 3);
    assert_eq!(log.take(), [1, 2, 3]);
}

#[test]
fn a_timer_ends_after_its_callback() {
    let (clock, timers, mut driver, _) = start_wheels(1);
    let handles = Arc::new(OnceLock::<[TimerHandle; 2]>::new());
    let seen = Log::new();
    let added = [0, 1].map(|own| {
        let (handles, seen) = (Arc::clone(&handles), seen.clone());
        timers.shards()[0].add(TICK, move || {
            seen.write((own, handles.get().unwrap().map(TimerHandle::status)));
        })
    });
    handles.set(added).unwrap();
    driver.turn();
    advance_and_turn(&clock, &mut driver, 1);
    let (first, last) = match seen.take()[..] {
        [(0, first), (1, last)] => (first, last),
        [(1, [other, own]), (0, [last, first])] => ([own, other], [first, last]),
        ref seen => panic!("{seen:?}"),
    };
    let statuses_during_first = [TimerStatus::Running, TimerStatus::Pending];
    let statuses_during_last = [TimerStatus::Ended, TimerStatus::Running];
    assert_eq!((first, last), (statuses_during_first, statuses_during_last));
}

#[test]
fn a_periodic_callback_runs_until_it_is_cancelled() {
    let (clock, timers, mut driver, _) = start_wheels(1);
    let (runs, dropped) = (Counter::default(), Counter::default());
    let beat = timers.shards()[0].add_periodic(TICK * 2, counting_callback(&runs, &dropped));
    driver.turn();
    for tick in 1..=10 {
        advance_and_turn(&clock, &mut driver, 1);
        assert_eq!((runs.get(), dropped.get()), (tick / 2, 0));
    }
    assert!(beat.cancel().is_cancelled());
    advance_and_turn(&clock, &mut driver, 2);
    assert_eq!((runs.get(), dropped.get()), (5, 1));
    let counts = published_counts(&timers, &mut driver)[0];
    assert_eq!((counts.live, counts.panicked), (0, 0));
}

#[test]
fn a_periodic_callback_may_cancel_itself_and_panic() {
    let (clock, timers, mut driver, _) = start_wheels(1);
    let (beat, dropped) = (Arc::new(OnceLock::<TimerHandle>::new()), Counter::default());
    let (own, dropped_with) = (Arc::clone(&beat), dropped.on_drop());
    let added = timers.shards()[0].add_periodic(TICK, move || {
        let _kept = &dropped_with;
        assert_eq!(own.get().map(|own| own.cancel()), Some(Cancel::Running));
        panic!("as planned");
    });
    beat.set(added).unwrap();
    driver.turn();
    advance_and_turn(&clock, &mut driver, 3);
    let counts = published_counts(&timers, &mut driver)[0];
    assert_eq!((dropped.get(), counts.live, counts.panicked), (1, 0, 1));
}

#[test]
fn a_wheel_without_turns_is_reported_as_overdue() {
    const LATE: Duration = Duration::from_secs(2);
    let (clock, timers, mut driver, _) = start_wheels(1);
    let poller = Poller::new();
    let seen = || timers.shards()[0].metrics();
    let _first = poller.poll_pending(timers.sleep(TICK));
    clock.advance(TICK + LATE);
    assert_eq!((seen().overdue, seen().counts.live), (LATE, 1));
    let _next = poller.poll_pending(timers.sleep(TICK));
    assert!(seen().overdue >= LATE);
    driver.turn();
    driver.sleep_with(|_| ());
    assert_eq!((seen().overdue, poller.wake_count()), (Duration::ZERO, 1));
}

// ---- the end of the driver

#[test]
fn dropping_the_driver_drops_callbacks_without_running_them() {
    let (_clock, timers, mut driver, _) = start_wheels(1);
    let (runs, dropped) = (Counter::default(), Counter::default());
    for is_admitted in [true, false] {
        timers.shards()[0].add(TICK, counting_callback(&runs, &dropped));
        timers.shards()[0].add_periodic(TICK, counting_callback(&runs, &dropped));
        if is_admitted {
            driver.turn();
        }
    }
    drop(driver);
    assert_eq!((runs.get(), dropped.get()), (0, 4));
    assert_eq!(timers.shards()[0].metrics().counts.panicked, 0);
}

#[test]
fn panics_of_destructors_at_the_end_of_the_driver_are_contained() {
    let (_clock, timers, driver, _) = start_wheels(1);
    let dropped = Counter::default();
    for _ in 0..3 {
        let captured = (dropped.on_drop(), OnDrop(|| panic!("as planned")));
        timers.shards()[0].add(TICK, move || drop(captured));
    }
    drop(driver);
    assert_eq!((dropped.get(), timers.shards()[0].metrics().counts.panicked), (3, 3));
}

#[test]
fn dropping_the_driver_wakes_futures_with_an_error() {
    let (_clock, timers, driver, _) = start_wheels(2);
    let poller = Poller::new();
    let mut sleep = poller.poll_pending(timers.sleep(HOUR));
    drop(driver);
    assert_eq!(poller.wake_count(), 1);
    assert_eq!(sleep.poll_elapsed(&mut poller.context()), SHUT_DOWN);
    assert_eq!(timers.sleep(HOUR).poll_elapsed(&mut poller.context()), SHUT_DOWN);
    assert_eq!(poller.clones(), 0);
}

#[test]
fn the_driver_runs_until_the_last_future_is_dropped() {
    let (timers, driver) = Timers::per_worker_with(2, |_| Config::new()).expect("valid");
    let poller = Poller::new();
    let sleep = poller.poll_pending(timers.sleep(HOUR));
    let running = thread::spawn(move || driver.run());
    drop(timers);
    thread::sleep(Duration::from_millis(5));
    assert!(!running.is_finished());
    drop(sleep);
    assert_ends_soon(|| running.join().expect("no panic"));
}

#[test]
fn there_is_at_least_one_wheel() {
    let (timers, _driver) = Timers::per_worker_with(0, |_| Config::new()).expect("valid");
    assert_eq!(timers.shards().len(), 1);
}

#[test]
fn the_wheels_of_per_worker_have_names() {
    let timers = Timers::per_worker().expect("a thread can be started");
    for (index, shard) in timers.shards().iter().enumerate() {
        assert_eq!(shard.metrics().name, format!("worker {index}"));
    }
}
