//! Wake-ups of a sleeping owner. After a lost wake-up the owner sleeps forever, which loom reports
//! as a deadlock.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use corewheel::{Cancel, Config, ManualClock, PreparedSleep, Shard, TimerHandle, local_timer};
use loom::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use loom_tests::{
    TICK, config, explore, explore_with_preemptions, fall_asleep, install_core_with,
    install_waking_core, join_unparkers, race, shard, shared_clones, spawn_unparker,
    turn_after_a_tick, turn_and_expire, turn_and_log_expiries, turn_and_log_runs,
    without_exploring,
};

/// The number of queued cancels that wake the owner. It is 1,024 in production.
const WAKE_AT_QUEUED_MESSAGES: usize = 2;

/// Returns a configuration whose wake hook unparks this thread.
fn waking_config(clock: &ManualClock) -> Config {
    let owner = thread::current();
    config(clock).wake_hook(move || owner.unpark())
}

/// Returns a configuration with a wake hook, and a flag. If `hook_must_block` returns true, the
/// hook blocks its caller until the owner sets the flag.
fn with_blocking_hook(
    config: Config,
    hook_must_block: impl Fn() -> bool + Send + Sync + 'static,
) -> (Config, Arc<AtomicUsize>) {
    let (owner, [is_awake, awake]) = (thread::current(), shared_clones(AtomicUsize::new(0)));
    let config = config.wake_hook(move || {
        let must_block = hook_must_block();
        while must_block && awake.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        owner.unpark();
    });
    (config, is_awake)
}

fn waking_shard<T>() -> (Shard<T>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(waking_config(&clock)).unwrap(), clock)
}

/// Returns a shard whose owner is woken by a backlog of cancels, but not by a single cancel.
fn shard_woken_by_backlog() -> (Shard<()>, ManualClock) {
    let clock = ManualClock::new();
    (Shard::with_config(waking_config(&clock).drop_cancelled_within(Duration::MAX)).unwrap(), clock)
}

fn assert_empty(shard: &mut Shard<()>) {
    assert!(turn_and_expire(shard).is_empty() && shard.is_empty(), "the owner missed a cancel");
}

/// Parks. If the timeout is zero, yields instead, because a waking thread may hold the default
/// hook's lock.
fn fall_asleep_or_yield(sleep: PreparedSleep<'_>) {
    if sleep.timeout().is_some_and(|timeout| timeout.is_zero()) {
        thread::yield_now();
    }
    fall_asleep(sleep);
}

#[test]
fn a_remote_cancel_ends_a_long_sleep() {
    explore(50, || {
        let (mut shard, _clock) = waking_shard();
        let payload = Arc::new(());
        let handle = shard.add(TICK * 1000, Arc::clone(&payload));
        let canceller = spawn_unparker(move || handle.cancel());
        fall_asleep(shard.prepare_sleep());
        assert!(turn_and_expire(&mut shard).is_empty() && shard.is_empty());
        assert_eq!((canceller.join(), Arc::strong_count(&payload)), (Cancel::Cancelled, 1));
    });
}

/// The reset to a later deadline need not wake the owner. If the reset's message is still queued,
/// the cancel sends no message, but must wake the owner.
#[test]
fn a_cancel_behind_a_queued_reset_ends_a_long_sleep() {
    explore(22_500, || {
        let (mut shard, _clock) = waking_shard();
        let handle = shard.add(TICK * 1000, ());
        let resetter = spawn_unparker(move || handle.reset(TICK * 2000));
        let canceller = spawn_unparker(move || handle.cancel() == Cancel::Cancelled);
        while !shard.is_empty() {
            fall_asleep(shard.prepare_sleep());
            assert!(turn_and_expire(&mut shard).is_empty());
        }
        let [_, is_cancelled] = join_unparkers([resetter, canceller]);
        assert!(is_cancelled);
    });
}

#[test]
fn a_backlog_of_two_cancellers_wakes_the_owner() {
    explore(3_900, || {
        let (mut shard, _clock) = shard_woken_by_backlog();
        let cancellers = [(); WAKE_AT_QUEUED_MESSAGES].map(|()| {
            let handle = shard.add(TICK * 1000, ());
            spawn_unparker(move || handle.cancel())
        });
        fall_asleep(shard.prepare_sleep());
        assert_empty(&mut shard);
        assert_eq!(join_unparkers(cancellers), [Cancel::Cancelled; WAKE_AT_QUEUED_MESSAGES]);
    });
}

#[test]
fn an_add_by_the_owner_ends_its_announced_sleep() {
    explore(140, || {
        let (clock, _core) = install_waking_core();
        let far = [(); WAKE_AT_QUEUED_MESSAGES - 1].map(|()| local_timer().add(TICK * 1000, || ()));
        let canceller = spawn_unparker(move || far.map(TimerHandle::cancel));
        let sleep = local_timer().prepare_sleep();
        local_timer().add(TICK, || ());
        fall_asleep(sleep);
        assert_eq!(turn_after_a_tick(&clock), 1);
        assert_eq!(canceller.join(), [Cancel::Cancelled; WAKE_AT_QUEUED_MESSAGES - 1]);
    });
}

/// A loop that keeps its announcement in one variable makes the new announcement before it drops
/// the old one.
#[test]
fn dropping_an_old_announcement_keeps_the_new_one() {
    explore(250, || {
        let (mut shard, _clock) = shard_woken_by_backlog();
        let handles = [(); WAKE_AT_QUEUED_MESSAGES].map(|()| shard.add(TICK * 1000, ()));
        let canceller = spawn_unparker(move || handles.map(TimerHandle::cancel));
        let first = shard.prepare_sleep();
        let second = shard.prepare_sleep();
        drop(first);
        fall_asleep(second);
        assert_empty(&mut shard);
        assert_eq!(canceller.join(), [Cancel::Cancelled; WAKE_AT_QUEUED_MESSAGES]);
    });
}

#[test]
fn a_remote_add_wakes_the_owner() {
    explore(90, || {
        let (clock, core) = install_waking_core();
        let adder = spawn_unparker(move || core.add(TICK, || ()));
        fall_asleep(local_timer().prepare_sleep());
        local_timer().turn();
        assert_eq!(local_timer().len(), 1, "the owner missed the add");
        assert_eq!(turn_and_log_runs(&clock, 2), [1]);
        assert_eq!(adder.join().cancel(), Cancel::Ended);
    });
}

/// Like a hook that wakes a poll, this hook does not unpark the owner.
#[test]
fn a_remote_add_ends_a_park_without_help_of_the_hook() {
    explore(3_300, || {
        let (clock, core) = install_core_with(|config| config.wake_hook(|| ()));
        let adder = spawn_unparker(move || core.add(TICK, || ()));
        while local_timer().is_empty() {
            local_timer().prepare_sleep().park();
            local_timer().turn();
        }
        assert_eq!(turn_and_log_runs(&clock, 2), [1]);
        assert_eq!(adder.join().cancel(), Cancel::Ended);
    });
}

/// No thread waits for the lock of `Hooks::thread_to_unpark`. The lock may be held by a thread that
/// is still ending an earlier sleep.
#[test]
fn the_default_hook_misses_no_reset_of_two_threads() {
    explore(42_000, || {
        let (mut shard, _clock) = shard();
        // The resetters use existing timers, so they contend only for the mailbox and the lock.
        let timers = without_exploring(|| [(); 2].map(|()| shard.add(TICK * 1_000, ())));
        let resetters = timers.map(|timer| spawn_unparker(move || timer.reset(Duration::ZERO)));
        let mut fired = 0;
        while fired < 2 {
            fall_asleep_or_yield(shard.prepare_sleep());
            fired += turn_and_expire(&mut shard).len();
        }
        assert_eq!(join_unparkers(resetters), [true; 2]);
    });
}

/// A resetter may end the old thread's sleep before the shard moves, and unpark the old thread
/// after the move.
#[test]
fn the_default_hook_wakes_the_new_thread_of_a_moved_shard() {
    explore_with_preemptions(1, 3_000, || {
        // The first owner is a spawned thread, and the second is the main thread. When loom
        // backtracks to a point before a thread's spawn, it cannot run that thread there. So with
        // few preemptions, it would miss some orders of a second spawned owner's steps.
        let before = thread::spawn(|| {
            let (mut shard, clock) = shard();
            let timers = without_exploring(|| [(); 2].map(|()| shard.add(TICK * 1_000, ())));
            let sleep = shard.prepare_sleep();
            let resetters = timers.map(|timer| spawn_unparker(move || timer.reset(Duration::ZERO)));
            drop(sleep);
            (shard, clock, resetters)
        });
        let (mut shard, _clock, resetters) = before.join().unwrap();
        let mut fired = 0;
        while fired < 2 {
            fired += turn_and_expire(&mut shard).len();
            if fired < 2 {
                fall_asleep_or_yield(shard.prepare_sleep());
            }
        }
        assert_eq!(join_unparkers(resetters), [true; 2]);
    });
}

/// The first remote add is due after the owner's own timer, and the second before it. Only the
/// second must wake the owner.
#[test]
fn an_add_due_before_the_sleep_ends_wakes_the_owner() {
    explore(740, || {
        let (clock, core) = install_waking_core();
        local_timer().add(TICK * 3, || ());
        let adder = spawn_unparker(move || [5, 2].map(|ticks| core.add(TICK * ticks, || ())));
        while local_timer().time_until_next() > Some(TICK * 2) {
            fall_asleep(local_timer().prepare_sleep());
            local_timer().turn();
        }
        adder.join();
        assert_eq!(turn_and_log_runs(&clock, 5), [2, 3, 5]);
    });
}

/// The timer is due at tick 3, and only the second reset is to an earlier tick.
#[test]
fn a_reset_due_before_the_sleep_ends_wakes_the_owner() {
    explore(800, || {
        let (mut shard, clock) = waking_shard();
        let handle = shard.add(TICK * 3, ());
        let resetter = spawn_unparker(move || [5, 2].map(|ticks| handle.reset(TICK * ticks)));
        while shard.time_until_next() > Some(TICK * 2) {
            fall_asleep(shard.prepare_sleep());
            assert!(turn_and_expire(&mut shard).is_empty());
        }
        assert_eq!(resetter.join(), [true; 2]);
        assert_eq!(turn_and_log_expiries(&mut shard, &clock, 5), [2]);
    });
}

/// One thread resets the timer to tick 5, and another to tick 2. The second thread may rely on the
/// first thread's message, which may not be pushed yet. A reset to tick 5 need not wake the owner,
/// which has a timer at tick 3.
#[test]
fn a_reset_behind_a_queued_reset_wakes_the_owner() {
    explore(6_000, || {
        let clock = ManualClock::new();
        let owner = thread::current();
        let [wakes, counted] = shared_clones(AtomicUsize::new(0));
        let [woken, fallback] = [(); 2].map(|()| owner.clone());
        let config = config(&clock).wake_hook(move || {
            counted.fetch_add(1, Ordering::AcqRel);
            woken.unpark();
        });
        let mut shard = Shard::with_config(config).unwrap();
        shard.add(TICK * 3, 1);
        let handle = shard.add(TICK * 9, 2);
        let resetters = spawn_unparker(move || {
            let other = thread::spawn(move || handle.reset(TICK * 2));
            assert!(handle.reset(TICK * 5) && other.join().unwrap());
            // If the reset to tick 5 wins, no wake-up is needed, so the model itself unparks the
            // owner.
            fallback.unpark();
        });
        let sleep = shard.prepare_sleep();
        let sleeps = sleep.timeout() != Some(Duration::ZERO);
        fall_asleep(sleep);
        let was_woken = wakes.fetch_add(0, Ordering::AcqRel) > 0;
        assert!(turn_and_expire(&mut shard).is_empty());
        if sleeps && !was_woken {
            assert_eq!(shard.time_until_next(), Some(TICK * 3), "no wake-up for tick 2");
        }
        resetters.join();
        let fired = turn_and_log_expiries(&mut shard, &clock, 5);
        assert!(fired == [2, 3] || fired == [3, 5], "{fired:?}");
    });
}

/// The dropped driver finds the add in the mailbox, or the adder finds that no loop drives the
/// wheel.
#[test]
fn a_remote_add_during_the_end_of_driving_is_overdue() {
    explore(28, || {
        // In models, only a shard with a name publishes counts.
        let (clock, core, driver) = without_exploring(|| {
            let clock = ManualClock::new();
            config(&clock).name("named").install().unwrap();
            let driver = corewheel::future::drive(|_| std::future::pending::<()>());
            local_timer().turn();
            (clock, local_timer().shard_ref(), driver)
        });
        let adder = race(move || core.add(TICK, || ()));
        drop(driver);
        adder.join().unwrap();
        clock.advance(TICK * 2);
        assert!(local_timer().metrics().unwrap().overdue >= TICK);
    });
}

fn reset_from_two_threads(config: Config, is_awake: &AtomicUsize) {
    let mut shard = Shard::with_config(config).unwrap();
    let timers = without_exploring(|| [(); 2].map(|()| shard.add(TICK * 1_000, ())));
    let resetters = timers.map(|timer| spawn_unparker(move || timer.reset(TICK)));
    fall_asleep(shard.prepare_sleep());
    is_awake.store(1, Ordering::Release);
    assert_eq!(join_unparkers(resetters), [true; 2]);
}

#[test]
fn a_panicking_hook_does_not_suppress_another_wake_up() {
    explore(8_000, || {
        let (calls, owner) = (AtomicUsize::new(0), thread::current());
        let config = config(&ManualClock::new()).wake_hook(move || {
            if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                // `panic!` would print a message in each execution.
                std::panic::resume_unwind(Box::new("as planned"));
            }
            owner.unpark();
        });
        reset_from_two_threads(config, &AtomicUsize::new(0));
    });
}

#[test]
fn a_stalled_hook_does_not_suppress_another_wake_up() {
    explore(17_000, || {
        let calls = AtomicUsize::new(0);
        let is_first = move || calls.fetch_add(1, Ordering::Relaxed) == 0;
        let (config, is_awake) = with_blocking_hook(config(&ManualClock::new()), is_first);
        reset_from_two_threads(config, &is_awake);
    });
}

/// A refused add pushes no message, but wakes the owner to make room. While this call of the wake
/// hook stalls, a reset must wake the owner.
#[test]
fn a_stalled_hook_of_a_refused_add_suppresses_no_wake_up() {
    explore(20_000, || {
        let [refused, refused_for_hook] = shared_clones(Mutex::new(None));
        let is_refused = move || *refused_for_hook.lock().unwrap() == Some(thread::current().id());
        let (config, is_awake) =
            with_blocking_hook(config(&ManualClock::new()).limit(2), is_refused);
        config.install().unwrap();
        let (local, core) = (local_timer(), local_timer().shard_ref());
        let timer = without_exploring(|| local.add(TICK * 1_000, || ()));
        // Publishes the number of live timers, which remote adds compare with the limit.
        let _ = local.time_until_next();
        let adder = spawn_unparker(move || {
            let first = core.try_add(TICK * 2_000, || ());
            *refused.lock().unwrap() = Some(thread::current().id());
            first.is_ok() && core.try_add(TICK, || ()).is_err()
        });
        let resetter = spawn_unparker(move || timer.reset(TICK));
        fall_asleep(local.prepare_sleep());
        is_awake.store(1, Ordering::Release);
        assert_eq!(join_unparkers([adder, resetter]), [true; 2]);
    });
}
