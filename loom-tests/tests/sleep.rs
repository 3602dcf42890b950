//! Sleeping: no interleaving loses a wake-up. A lost one would leave the owner asleep for ever,
//! which loom reports as a deadlock.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use corewheel::{
    Cancel, Config, ManualClock, PreparedSleep, Shard, ShardRef, TimerHandle, local_timer,
};
use loom::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use loom_tests::{
    TICK, answers, asks, config, core_with, expired, expiries, explore, explore_within, runs,
    shard, shared, stage, turn_after_a_tick,
};

/// Under loom a backlog of two cancelled timers wakes; in production the backlog is 1,024.
const DEBT: usize = 2;

/// Returns a configuration whose wake hook unparks this loom thread.
fn waking(clock: &ManualClock) -> Config {
    let owner = thread::current();
    config(clock).on_wake(move || owner.unpark())
}

/// Returns a configuration whose wake hook holds up some callers until the owner is awake, and the
/// flag that the owner sets then.
fn holding_up(
    config: Config,
    is_held_up: impl Fn() -> bool + Send + Sync + 'static,
) -> (Config, Arc<AtomicUsize>) {
    let (owner, [is_awake, awake]) = (thread::current(), shared(AtomicUsize::new(0)));
    let config = config.on_wake(move || {
        let is_held_up = is_held_up();
        while is_held_up && awake.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        owner.unpark();
    });
    (config, is_awake)
}

fn waking_core() -> (ManualClock, ShardRef) {
    let owner = thread::current();
    core_with(|config| config.on_wake(move || owner.unpark()))
}

fn waking_shard<T>() -> (Shard<T>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(waking(&clock)).unwrap(), clock)
}

/// Creates a shard whose owner is woken only by a backlog of cancelled timers.
fn shard_that_sleeps_over_payloads() -> (Shard<()>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(waking(&clock).drop_within(Duration::MAX)).unwrap(), clock)
}

/// Asserts that the owner finds the cancels that woke it.
fn assert_empty(shard: &mut Shard<()>) {
    assert!(expired(shard).is_empty() && shard.is_empty(), "what woke the owner is there");
}

/// Parks if the timeout allows it. Virtual time does not advance, so only a wake ends the sleep.
fn fall_asleep(sleep: PreparedSleep<'_>) {
    if sleep.timeout().is_none_or(|timeout| !timeout.is_zero()) {
        thread::park();
    }
    drop(sleep);
}

/// Parks if the timeout allows it. Otherwise a waker has the lock of the default wake-up: yields to
/// that thread.
fn fall_asleep_or_yield(sleep: PreparedSleep<'_>) {
    if sleep.timeout().is_some_and(|timeout| timeout.is_zero()) {
        thread::yield_now();
    }
    fall_asleep(sleep);
}

#[test]
fn a_debt_from_another_core_is_never_slept_through() {
    explore(100, || sleep_over_a_debt(Shard::prepare_sleep));
}

/// Announces a sleep while another thread cancels as many timers as wake the owner.
fn sleep_over_a_debt(announce: fn(&Shard<()>) -> PreparedSleep<'_>) {
    let (mut shard, _clock) = shard_that_sleeps_over_payloads();
    let handles = [(); DEBT].map(|()| shard.add(TICK * 1000, ()));
    let canceller = asks(move || handles.map(TimerHandle::cancel));
    fall_asleep(announce(&shard));
    assert_empty(&mut shard);
    assert_eq!(canceller.answer(), [Cancel::Cancelled; DEBT]);
}

/// A long sleep ends with the first cancel, and none begins after it.
#[test]
fn a_payload_is_never_slept_over_for_long() {
    explore(50, || {
        let (mut shard, _clock) = waking_shard();
        let payload = Arc::new(());
        let handle = shard.add(TICK * 1000, Arc::clone(&payload));
        let canceller = asks(move || handle.cancel());
        fall_asleep(shard.prepare_sleep());
        assert!(expired(&mut shard).is_empty() && shard.is_empty());
        assert_eq!((canceller.answer(), Arc::strong_count(&payload)), (Cancel::Cancelled, 1));
    });
}

/// The mover has queued the timer's only message, which is not urgent and wakes no owner.
#[test]
fn a_payload_behind_the_message_of_another_is_never_slept_over_for_long() {
    explore(22_500, || {
        let (mut shard, _clock) = waking_shard();
        let handle = shard.add(TICK * 1000, ());
        let mover = asks(move || handle.reset(TICK * 2000));
        let canceller = asks(move || handle.cancel() == Cancel::Cancelled);
        // It wakes up for the payload, or the payload was there before it slept.
        while !shard.is_empty() {
            fall_asleep(shard.prepare_sleep());
            assert!(expired(&mut shard).is_empty());
        }
        let [_, is_cancelled] = answers([mover, canceller]);
        assert!(is_cancelled);
    });
}

/// Two threads together make up the backlog. The one that completes it wakes.
#[test]
fn a_debt_of_two_threads_is_never_slept_through() {
    explore(3_900, || {
        let (mut shard, _clock) = shard_that_sleeps_over_payloads();
        let cancellers = [(); DEBT].map(|()| {
            let handle = shard.add(TICK * 1000, ());
            asks(move || handle.cancel())
        });
        fall_asleep(shard.prepare_sleep());
        assert_empty(&mut shard);
        assert_eq!(answers(cancellers), [Cancel::Cancelled; DEBT]);
    });
}

/// An add between the announcement and the sleep ends the sleep, while another thread makes a
/// low-priority request.
#[test]
fn an_add_from_an_announced_sleep_is_never_slept_through() {
    explore(140, || {
        let (clock, _core) = waking_core();
        let far = [(); DEBT - 1].map(|()| local_timer().add(TICK * 1000, || ()));
        let canceller = asks(move || far.map(TimerHandle::cancel));
        let sleep = local_timer().prepare_sleep();
        local_timer().add(TICK, || ());
        fall_asleep(sleep);
        assert_eq!(turn_after_a_tick(&clock), 1);
        assert_eq!(canceller.answer(), [Cancel::Cancelled; DEBT - 1]);
    });
}

/// A loop assigns each announcement over the last one. The end of the old announcement leaves the
/// new one in force.
#[test]
fn an_announcement_that_replaces_another_is_never_slept_through() {
    explore(250, || {
        sleep_over_a_debt(|shard| {
            let first = shard.prepare_sleep();
            let second = shard.prepare_sleep();
            drop(first);
            second
        });
    });
}

#[test]
fn an_add_from_elsewhere_is_never_slept_through() {
    explore(90, || {
        let (clock, core) = waking_core();
        let adder = asks(move || core.add(TICK, || ()));
        fall_asleep(local_timer().prepare_sleep());
        local_timer().turn();
        assert_eq!(local_timer().len(), 1, "what woke the owner is there when it looks");
        assert_eq!(runs(&clock, 2), [1]);
        assert_eq!(adder.answer().cancel(), Cancel::Ended);
    });
}

/// Without a hook, the thread that has announced the sleep is unparked. The two wakers and the
/// owner contend for its lock, and none of them waits. One of the wakers may belong to the sleep
/// before.
#[test]
fn the_default_wake_up_is_never_slept_through() {
    explore(42_000, || {
        let (mut shard, _clock) = shard();
        // The timers exist, so the threads contend at the mailbox and the lock only.
        let timers = stage(|| [(); 2].map(|()| shard.add(TICK * 1_000, ())));
        let movers = timers.map(|timer| asks(move || timer.reset(Duration::ZERO)));
        let mut fired = 0;
        while fired < 2 {
            fall_asleep_or_yield(shard.prepare_sleep());
            fired += expired(&mut shard).len();
        }
        assert_eq!(answers(movers), [true; 2]);
    });
}

/// A shard may move to another thread between two sleeps. That thread is woken, even while a waker
/// of the sleep before has not yet unparked the first one.
#[test]
fn the_default_wake_up_finds_the_thread_that_sleeps() {
    explore_within(1, 3_000, || {
        // The continuing thread exists from the beginning: loom does not try earlier steps for a
        // thread that begins later.
        let before = thread::spawn(|| {
            let (mut shard, clock) = shard();
            let timers = stage(|| [(); 2].map(|()| shard.add(TICK * 1_000, ())));
            let sleep = shard.prepare_sleep();
            let movers = timers.map(|timer| asks(move || timer.reset(Duration::ZERO)));
            drop(sleep);
            (shard, clock, movers)
        });
        let (mut shard, _clock, movers) = before.join().unwrap();
        let mut fired = 0;
        while fired < 2 {
            fired += expired(&mut shard).len();
            if fired < 2 {
                fall_asleep_or_yield(shard.prepare_sleep());
            }
        }
        assert_eq!(answers(movers), [true; 2]);
    });
}

/// The first add may wait until the owner's own timer is due, the second one may not.
#[test]
fn an_add_before_the_end_of_the_sleep_is_never_slept_through() {
    explore(740, || {
        let (clock, core) = waking_core();
        local_timer().add(TICK * 3, || ());
        let adder = asks(move || [5, 2].map(|ticks| core.add(TICK * ticks, || ())));
        while local_timer().time_until_next() > Some(TICK * 2) {
            fall_asleep(local_timer().prepare_sleep());
            local_timer().turn();
        }
        adder.answer();
        assert_eq!(runs(&clock, 5), [2, 3, 5]);
    });
}

/// The sleep lasts until the timer's own deadline. The first reset only postpones that.
#[test]
fn a_reset_before_the_end_of_the_sleep_is_never_slept_through() {
    explore(800, || {
        let (mut shard, clock) = waking_shard();
        let handle = shard.add(TICK * 3, ());
        let mover = asks(move || [5, 2].map(|ticks| handle.reset(TICK * ticks)));
        while shard.time_until_next() > Some(TICK * 2) {
            fall_asleep(shard.prepare_sleep());
            assert!(expired(&mut shard).is_empty());
        }
        assert_eq!(mover.answer(), [true; 2]);
        assert_eq!(expiries(&mut shard, &clock, 5), [2]);
    });
}

/// A node is in the mailbox once. A second mover relies on a message that another thread may not
/// have pushed yet, and that thread would not have woken the owner for its own deadline.
#[test]
fn a_reset_behind_the_message_of_another_is_never_slept_through() {
    explore(6_000, || {
        let clock = ManualClock::new();
        let owner = thread::current();
        let [wakes, counted] = shared(AtomicUsize::new(0));
        let [woken, rescuer] = [(); 2].map(|()| owner.clone());
        let config = config(&clock).on_wake(move || {
            counted.fetch_add(1, Ordering::AcqRel);
            woken.unpark();
        });
        let mut shard = Shard::with_config(config).unwrap();
        shard.add(TICK * 3, 1);
        let handle = shard.add(TICK * 9, 2);
        let movers = asks(move || {
            let other = thread::spawn(move || handle.reset(TICK * 2));
            assert!(handle.reset(TICK * 5) && other.join().unwrap());
            // If the later one counts, no wake is required. So the rescuer wakes the owner, which
            // then reads which one counted.
            rescuer.unpark();
        });
        let sleep = shard.prepare_sleep();
        let sleeps = sleep.timeout() != Some(Duration::ZERO);
        fall_asleep(sleep);
        let end_woken_sleep = wakes.fetch_add(0, Ordering::AcqRel) > 0;
        assert!(expired(&mut shard).is_empty());
        if sleeps && !end_woken_sleep {
            assert_eq!(shard.time_until_next(), Some(TICK * 3), "it sleeps until the third tick");
        }
        movers.answer();
        let fired = expiries(&mut shard, &clock, 5);
        assert!(fired == [2, 3] || fired == [3, 5], "{fired:?}");
    });
}

/// Two threads reset timers of a sleeping owner, whose wake hook is one of `config`.
fn woken_by_two(config: Config, is_awake: &AtomicUsize) {
    let mut shard = Shard::with_config(config).unwrap();
    let timers = stage(|| [(); 2].map(|()| shard.add(TICK * 1_000, ())));
    let movers = timers.map(|timer| asks(move || timer.reset(TICK)));
    fall_asleep(shard.prepare_sleep());
    is_awake.store(1, Ordering::Release);
    assert_eq!(answers(movers), [true; 2]);
}

/// No thread relies on another thread's wake-up, which may fail.
#[test]
fn a_wake_up_that_fails_is_nobodys_but_its_askers() {
    explore(9_500, || {
        let (calls, owner) = (AtomicUsize::new(0), thread::current());
        let config = config(&ManualClock::new()).on_wake(move || {
            if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                // It is not printed each time.
                std::panic::resume_unwind(Box::new("as planned"));
            }
            owner.unpark();
        });
        woken_by_two(config, &AtomicUsize::new(0));
    });
}

/// No thread relies on a waker that is delayed until another thread has woken the owner.
#[test]
fn a_waker_that_is_held_up_holds_up_nobody_else() {
    explore(17_000, || {
        let calls = AtomicUsize::new(0);
        let is_first = move || calls.fetch_add(1, Ordering::Relaxed) == 0;
        let (config, is_awake) = holding_up(config(&ManualClock::new()), is_first);
        woken_by_two(config, &is_awake);
    });
}

/// The delayed waker has no message in the mailbox: its add was refused, and it requests room.
#[test]
fn a_waker_for_room_that_is_held_up_holds_up_nobody_else() {
    explore(26_000, || {
        let [refused, held_up] = shared(Mutex::new(None));
        let is_refused = move || *held_up.lock().unwrap() == Some(thread::current().id());
        let (config, is_awake) = holding_up(config(&ManualClock::new()).limit(2), is_refused);
        config.install().unwrap();
        let (local, core) = (local_timer(), local_timer().shard_ref());
        let moved = stage(|| local.add(TICK * 1_000, || ()));
        // Publishes that there is room for one.
        let _ = local.time_until_next();
        let adder = asks(move || {
            let first = core.try_add(TICK * 2_000, || ());
            *refused.lock().unwrap() = Some(thread::current().id());
            first.is_ok() && core.try_add(TICK, || ()).is_err()
        });
        let mover = asks(move || moved.reset(TICK));
        fall_asleep(local.prepare_sleep());
        is_awake.store(1, Ordering::Release);
        assert_eq!(answers([adder, mover]), [true; 2]);
    });
}
