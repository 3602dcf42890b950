//! Sleeping: no interleaving loses a wake-up. A lost one would leave the owner asleep for ever, which loom reports as a
//! deadlock.
#![cfg(all(loom, not(crossbeam_loom)))]

use corewheel::{Cancel, Config, ManualClock, PreparedSleep, Shard, local_timer};
use loom::thread;
use loom_tests::{TICK, config, expired, explore};

/// Under loom two cancelled timers are a debt that wakes (in production 1 024 are).
const DEBT: usize = 2;

/// A configuration whose wake hook unparks this thread of loom's.
fn waking(clock: &ManualClock) -> Config {
    let owner = thread::current();
    config(clock).on_wake(move || owner.unpark())
}

/// Sleeps if it may. Virtual time stands still meanwhile: only a wake ends the sleep.
fn fall_asleep(sleep: PreparedSleep<'_>) {
    if sleep.timeout().is_none_or(|timeout| !timeout.is_zero()) {
        thread::park();
    }
    drop(sleep);
}

#[test]
fn a_debt_from_another_core_is_never_slept_through() {
    explore("a_debt_from_another_core_is_never_slept_through", 14, || {
        let clock = ManualClock::new();
        let config = waking(&clock);
        let mut shard = Shard::with_config(config).unwrap();
        let handles = [(); DEBT].map(|()| shard.add(TICK * 1000, ()));
        let canceller = thread::spawn(move || handles.map(corewheel::TimerHandle::cancel));
        fall_asleep(shard.prepare_sleep());
        assert!(expired(&mut shard).is_empty());
        assert!(shard.is_empty(), "what woke the owner is there when it looks");
        assert_eq!(canceller.join().unwrap(), [Cancel::Cancelled; DEBT]);
    });
}

/// Two threads together make up the debt: whichever completes it wakes.
#[test]
fn a_debt_of_two_threads_is_never_slept_through() {
    explore("a_debt_of_two_threads_is_never_slept_through", 500, || {
        let clock = ManualClock::new();
        let config = waking(&clock);
        let mut shard = Shard::with_config(config).unwrap();
        let cancellers = [(); DEBT].map(|()| {
            let handle = shard.add(TICK * 1000, ());
            thread::spawn(move || handle.cancel())
        });
        fall_asleep(shard.prepare_sleep());
        assert!(expired(&mut shard).is_empty());
        assert!(shard.is_empty(), "what woke the owner is there when it looks");
        for canceller in cancellers {
            assert_eq!(canceller.join().unwrap(), Cancel::Cancelled);
        }
    });
}

/// An add between the announcement and the sleep ends the sleep, while another thread asks for something that can wait.
#[test]
fn an_add_from_an_announced_sleep_is_never_slept_through() {
    explore("an_add_from_an_announced_sleep_is_never_slept_through", 9, || {
        let clock = ManualClock::new();
        let config = waking(&clock);
        config.install().unwrap();
        let far = [(); DEBT - 1].map(|()| local_timer().add(TICK * 1000, || ()));
        let canceller = thread::spawn(move || far.map(corewheel::TimerHandle::cancel));
        let sleep = local_timer().prepare_sleep();
        local_timer().add(TICK, || ());
        fall_asleep(sleep);
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 1);
        assert_eq!(canceller.join().unwrap(), [Cancel::Cancelled; DEBT - 1]);
    });
}

/// A loop that assigns each announcement over the last one: the end of the old one leaves the new one in force.
#[test]
fn an_announcement_that_replaces_another_is_never_slept_through() {
    explore("an_announcement_that_replaces_another_is_never_slept_through", 50, || {
        let clock = ManualClock::new();
        let mut shard = Shard::with_config(waking(&clock)).unwrap();
        let handles = [(); DEBT].map(|()| shard.add(TICK * 1000, ()));
        let canceller = thread::spawn(move || handles.map(corewheel::TimerHandle::cancel));
        let first = shard.prepare_sleep();
        let second = shard.prepare_sleep();
        drop(first);
        fall_asleep(second);
        assert!(expired(&mut shard).is_empty());
        assert!(shard.is_empty(), "what woke the owner is there when it looks");
        assert_eq!(canceller.join().unwrap(), [Cancel::Cancelled; DEBT]);
    });
}
