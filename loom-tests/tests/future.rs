//! Sleeps that any thread polls, moves and drops while another one fires them. The waker of the
//! last poll is woken once.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::{sync::Arc, task::Poll};

use corewheel::{
    AddErrorReason, ManualClock, ShardRef,
    future::{Remote, Sleep, Timers},
    local_timer,
};
use loom_tests::{TICK, Task, assert_all_ended, elsewhere, explore, local, race, stage, wait_for};

/// Returns this thread's clock, and a sleep of `ticks` ticks on its wheel.
fn sleep(ticks: u32) -> (ManualClock, Sleep<Remote>) {
    let clock = local();
    let sleep = on(&local_timer().shard_ref()).sleep(TICK * ticks);
    (clock, sleep)
}

fn on(shard: &ShardRef) -> Timers {
    Timers::new(std::slice::from_ref(shard))
}

/// Returns this thread's clock and an admitted sleep that the task has polled on another thread.
fn polled(task: &Arc<Task>, ticks: u32) -> (ManualClock, Sleep<Remote>) {
    stage(|| {
        let (clock, mut sleep) = sleep(ticks);
        let task = Arc::clone(task);
        let sleep = elsewhere(move || {
            assert!(task.poll(&mut sleep).is_pending());
            sleep
        });
        local_timer().turn();
        assert_eq!(local_timer().len(), 1);
        (clock, sleep)
    })
}

/// Asserts that no timers, messages or wakers are left.
fn assert_over(tasks: &[&Arc<Task>]) {
    let counts = local_timer().counts();
    assert_all_ended(&counts, counts.added);
    for task in tasks {
        assert_eq!(Arc::strong_count(task), 1);
    }
}

/// A first poll while time passes and the owner turns: a task with a pending sleep is woken.
#[test]
fn no_wake_is_lost_by_a_first_poll() {
    explore(67, || {
        let (clock, mut sleep) = sleep(1);
        let task = Task::new();
        let poller = Arc::clone(&task);
        let polling = race(move || (poller.poll(&mut sleep), sleep));
        clock.advance(TICK);
        local_timer().turn();
        let (polled, mut sleep) = polling.join().unwrap();
        local_timer().turn();
        assert_eq!(task.woken(), usize::from(polled.is_pending()));
        assert!(task.poll(&mut sleep).is_ready());
        assert_over(&[&task]);
    });
}

/// Another task polls while the timer fires: one of the two is woken. If the other one's poll is
/// pending, it is the other one.
#[test]
fn the_waker_of_the_last_poll_is_woken() {
    explore(120, || {
        let [first, last] = [Task::new(), Task::new()];
        let (clock, mut sleep) = polled(&first, 1);
        clock.advance(TICK);
        let poller = Arc::clone(&last);
        let polling = race(move || (poller.poll(&mut sleep), sleep));
        local_timer().turn();
        let (polled, mut sleep) = polling.join().unwrap();
        local_timer().turn();
        match polled {
            Poll::Ready(()) => assert!(first.woken() <= 1 && last.woken() == 0),
            Poll::Pending => assert_eq!((first.woken(), last.woken()), (0, 1)),
        }
        assert!(last.poll(&mut sleep).is_ready());
        assert_over(&[&first, &last]);
    });
}

/// Another task polls while time passes. The poll may be pending even if the first task has just
/// been woken, since a thread may see that wake before it sees the new time. Then it is woken
/// itself.
#[test]
fn a_waker_that_changes_while_time_passes_is_woken_once() {
    explore(170, || {
        let [first, last] = [Task::new(), Task::new()];
        let (clock, mut sleep) = polled(&first, 1);
        let poller = Arc::clone(&last);
        let polling = race(move || (poller.poll(&mut sleep), sleep));
        clock.advance(TICK);
        local_timer().turn();
        let (polled, mut sleep) = polling.join().unwrap();
        local_timer().turn();
        assert_eq!(last.woken(), usize::from(polled.is_pending()));
        assert!(first.woken() <= 1);
        assert!(last.poll(&mut sleep).is_ready());
        assert_over(&[&first, &last]);
    });
}

/// The waker changes on another thread before the owner has admitted the timer.
#[test]
fn a_waker_that_changes_before_the_timer_arrives_is_woken_once() {
    explore(200, || {
        let [first, last] = [Task::new(), Task::new()];
        let (clock, mut sleep) = sleep(1);
        let pollers = [&first, &last].map(Arc::clone);
        let polling = race(move || {
            assert!(pollers.iter().all(|poller| poller.poll(&mut sleep).is_pending()));
            sleep
        });
        local_timer().turn();
        let mut sleep = polling.join().unwrap();
        clock.advance(TICK);
        local_timer().turn();
        assert_eq!((first.woken(), last.woken()), (0, 1));
        assert!(last.poll(&mut sleep).is_ready());
        local_timer().turn();
        assert_over(&[&first, &last]);
    });
}

/// A drop on another thread is a cancel: it wins, or the task is woken.
#[test]
fn a_sleep_that_is_dropped_while_it_fires_wakes_once_or_not_at_all() {
    explore(70, || {
        let task = Task::new();
        let (clock, sleep) = polled(&task, 1);
        clock.advance(TICK);
        let dropping = race(move || drop(sleep));
        let fired = local_timer().turn().fired;
        dropping.join().unwrap();
        local_timer().turn();
        assert_eq!(task.woken(), fired);
        assert_over(&[&task]);
    });
}

/// A drop on another thread before the owner has admitted the timer.
#[test]
fn a_sleep_that_is_dropped_before_it_arrives_leaves_nothing_behind() {
    explore(370, || {
        let (clock, mut sleep) = sleep(1);
        let task = Task::new();
        let poller = Arc::clone(&task);
        let dropping = race(move || {
            let is_pending = poller.poll(&mut sleep).is_pending();
            drop(sleep);
            is_pending
        });
        clock.advance(TICK);
        local_timer().turn();
        let is_pending = dropping.join().unwrap();
        local_timer().turn();
        assert!(task.woken() <= usize::from(is_pending));
        assert_over(&[&task]);
    });
}

/// The sleep is moved to a later deadline from another thread while it fires. The task may have a
/// spurious wake, and it is woken in time.
#[test]
fn a_sleep_that_is_moved_while_it_fires_ends_by_its_new_deadline() {
    explore(650, || {
        let task = Task::new();
        let (clock, mut sleep) = polled(&task, 1);
        clock.advance(TICK);
        let poller = Arc::clone(&task);
        let moving = race(move || {
            sleep.reset_after(TICK);
            assert!(poller.poll(&mut sleep).is_pending(), "early");
            sleep
        });
        local_timer().turn();
        let mut sleep = moving.join().unwrap();
        local_timer().turn();
        let for_nothing = task.woken();
        assert!(for_nothing <= 1 && task.poll(&mut sleep).is_pending());
        clock.advance(TICK);
        local_timer().turn();
        assert_eq!(task.woken(), for_nothing + 1);
        assert!(task.poll(&mut sleep).is_ready());
        assert_over(&[&task]);
    });
}

/// The owner's thread ends while another one begins to wait there. That one is woken with an error.
#[test]
fn nothing_hangs_when_the_owner_ends() {
    explore(800, || {
        let owner = race(|| {
            let (_clock, mut sleep) = sleep(1);
            race(move || wait_for(&mut sleep))
        });
        let sleeping = owner.join().unwrap();
        assert_eq!(sleeping.join().unwrap(), Err(AddErrorReason::ShutDown));
    });
}

/// The owner's thread ends while another one waits there and changes its waker.
#[test]
fn a_waker_that_changes_while_the_owner_ends_is_woken() {
    explore(5_400, || {
        let owner = race(|| {
            let (_clock, mut sleep) = polled(&Task::new(), 1);
            race(move || wait_for(&mut sleep))
        });
        let sleeping = owner.join().unwrap();
        assert_eq!(sleeping.join().unwrap(), Err(AddErrorReason::ShutDown));
    });
}

/// The owner may fire the sleep before it ends. Both tasks are woken and get an answer.
#[test]
fn the_last_turn_wakes_or_the_end_does() {
    explore(3_100, || {
        let owner = race(|| {
            let (clock, mut sleep) = sleep(1);
            let sleeping = race(move || wait_for(&mut sleep));
            clock.advance(TICK);
            (local_timer().turn().fired, sleeping)
        });
        let (fired, sleeping) = owner.join().unwrap();
        let told = sleeping.join().unwrap();
        assert!(
            told == Ok(()) || (told, fired) == (Err(AddErrorReason::ShutDown), 0),
            "{told:?}, {fired} fired"
        );
    });
}
