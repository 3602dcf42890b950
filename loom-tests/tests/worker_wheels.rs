//! Wheels that threads claim: each timer ends once and wakes its task once, whichever threads add,
//! cancel and turn, and no wake-up of the watcher is lost.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::{sync::Arc, task::Poll, time::Duration};

use corewheel::{
    AddErrorReason, ManualClock,
    future::{Remote, Sleep, Timers, Watcher},
};
use loom::thread;
use loom_tests::{TICK, Task, asks, config, elsewhere, explore, race, stage, wait_for};

/// Returns one wheel in virtual time, its watcher and its clock. The watcher is this thread.
fn wheel() -> (ManualClock, Timers, Watcher) {
    let clock = ManualClock::new();
    let this = thread::current();
    let configured = |_| {
        let this = this.clone();
        config(&clock).on_wake(move || this.unpark())
    };
    let (timers, watcher) = Timers::per_worker_with(1, configured).unwrap();
    (clock, timers, watcher)
}

/// Turns the wheel, and asserts that no timer, message or waker is left.
fn assert_over(timers: &Timers, watcher: &mut Watcher, tasks: &[&Arc<Task>]) {
    watcher.turn();
    let counts = timers.shards()[0].metrics().counts;
    assert_eq!((counts.held, counts.queued, counts.panicked), (0, 0, 0), "{counts:?}");
    for task in tasks {
        assert_eq!(Arc::strong_count(task), 1);
    }
}

/// Parks if the timeout allows it. Virtual time does not advance, so only a wake ends a sleep
/// without a limit. A short sleep, after another thread has claimed the wheel, is a yield.
fn fall_asleep(watcher: &mut Watcher) {
    watcher.sleep_with(|timeout| match timeout {
        Some(short) if short < TICK => thread::yield_now(),
        _ => thread::park(),
    });
}

/// Two threads add and cancel at the same time; then the wheel has both timers, or none.
#[test]
fn threads_that_add_and_cancel_at_the_same_time() {
    explore(230, || {
        let (clock, timers, mut watcher) = wheel();
        let tasks = [Task::new(), Task::new()];
        let (other, poller) = (timers.clone(), Arc::clone(&tasks[0]));
        let polling = race(move || {
            let (mut stays, mut goes) = (other.sleep(TICK), other.sleep(TICK));
            assert!(poller.poll(&mut stays).is_pending() && poller.poll(&mut goes).is_pending());
            drop(goes);
            stays
        });
        let (mut stays, mut goes) = (timers.sleep(TICK), timers.sleep(TICK));
        assert!(tasks[1].poll(&mut stays).is_pending() && tasks[1].poll(&mut goes).is_pending());
        drop(goes);
        let mut others = polling.join().unwrap();
        watcher.turn();
        assert_eq!(tasks.each_ref().map(|task| task.woken()), [0, 0]);
        clock.advance(TICK);
        watcher.turn();
        assert_eq!(tasks.each_ref().map(|task| task.woken()), [1, 1]);
        assert!(tasks[0].poll(&mut others).is_ready() && tasks[1].poll(&mut stays).is_ready());
        assert_over(&timers, &mut watcher, &[&tasks[0], &tasks[1]]);
    });
}

/// A first poll while time passes and the watcher turns: a task with a pending sleep is woken.
#[test]
fn no_wake_is_lost_by_an_add_during_a_turn() {
    explore(90, || {
        let (clock, timers, mut watcher) = wheel();
        let (task, mut sleep) = (Task::new(), timers.sleep(TICK));
        let poller = Arc::clone(&task);
        let polling = race(move || (poller.poll(&mut sleep), sleep));
        clock.advance(TICK);
        watcher.turn();
        let (polled, mut sleep) = polling.join().unwrap();
        watcher.turn();
        assert_eq!(task.woken(), usize::from(polled.is_pending()));
        assert!(task.poll(&mut sleep).is_ready());
        assert_over(&timers, &mut watcher, &[&task]);
    });
}

/// Returns a sleep of one tick that the task has polled.
fn polled(timers: &Timers, task: &Arc<Task>) -> Sleep<Remote> {
    stage(|| {
        let (mut sleep, task) = (timers.sleep(TICK), Arc::clone(task));
        elsewhere(move || {
            assert!(task.poll(&mut sleep).is_pending());
            sleep
        })
    })
}

/// A drop is a cancel: it wins, or the task is woken. The waker is dropped in either case.
#[test]
fn a_cancel_during_a_turn_wins_or_the_task_is_woken() {
    explore(90, || {
        let (clock, timers, mut watcher) = wheel();
        let task = Task::new();
        let sleep = polled(&timers, &task);
        clock.advance(TICK);
        let dropping = race(move || drop(sleep));
        watcher.turn();
        dropping.join().unwrap();
        let woken = task.woken();
        assert!(woken <= 1);
        watcher.turn();
        assert_eq!(task.woken(), woken, "the sleep was dropped before");
        assert_over(&timers, &mut watcher, &[&task]);
    });
}

/// Another task polls while the timer fires: one of the two is woken, and the last if it waits.
#[test]
fn a_waker_that_changes_during_a_turn_is_woken_once() {
    explore(270, || {
        let (clock, timers, mut watcher) = wheel();
        let [first, last] = [Task::new(), Task::new()];
        let mut sleep = polled(&timers, &first);
        clock.advance(TICK);
        let poller = Arc::clone(&last);
        let polling = race(move || (poller.poll(&mut sleep), sleep));
        watcher.turn();
        let (polled, mut sleep) = polling.join().unwrap();
        watcher.turn();
        match polled {
            Poll::Ready(()) => assert!(first.woken() <= 1 && last.woken() == 0),
            Poll::Pending => assert_eq!((first.woken(), last.woken()), (0, 1)),
        }
        assert!(last.poll(&mut sleep).is_ready());
        assert_over(&timers, &mut watcher, &[&first, &last]);
    });
}

/// The sleep is moved to a later deadline while it fires. The task may have a spurious wake, and is
/// woken in time.
#[test]
fn a_reset_during_a_turn_holds() {
    explore(900, || {
        let (clock, timers, mut watcher) = wheel();
        let task = Task::new();
        let mut sleep = polled(&timers, &task);
        clock.advance(TICK);
        let poller = Arc::clone(&task);
        let moving = race(move || {
            sleep.reset_after(TICK);
            assert!(poller.poll(&mut sleep).is_pending(), "early");
            sleep
        });
        watcher.turn();
        let mut sleep = moving.join().unwrap();
        watcher.turn();
        let spurious = task.woken();
        assert!(spurious <= 1 && task.poll(&mut sleep).is_pending());
        clock.advance(TICK);
        watcher.turn();
        assert_eq!(task.woken(), spurious + 1);
        assert!(task.poll(&mut sleep).is_ready());
        assert_over(&timers, &mut watcher, &[&task]);
    });
}

/// An add wakes a watcher that sleeps for ever. Loom reports a deadlock if it does not.
#[test]
fn an_add_is_never_slept_through() {
    explore(130, || {
        let (clock, timers, mut watcher) = wheel();
        let task = Task::new();
        let (poller, mut sleep) = (Arc::clone(&task), timers.sleep(TICK));
        let adder = asks(move || {
            assert!(poller.poll(&mut sleep).is_pending());
            sleep
        });
        let mut announced = None;
        while announced != Some(TICK) {
            announced = watcher.sleep_with(|timeout| {
                match timeout {
                    None => thread::park(),
                    Some(timeout) if timeout < TICK => thread::yield_now(),
                    Some(_) => (),
                }
                timeout
            });
            watcher.turn();
        }
        let mut sleep = adder.answer();
        clock.advance(TICK);
        watcher.turn();
        assert_eq!((task.woken(), task.poll(&mut sleep)), (1, Poll::Ready(())));
    });
}

/// A sleep is moved to an earlier deadline while the watcher falls asleep until the later one.
#[test]
fn a_reset_to_earlier_is_never_slept_through() {
    explore(130, || {
        let (_clock, timers, mut watcher) = wheel();
        let task = Task::new();
        let mut sleep = stage(|| {
            let (mut sleep, task) = (timers.sleep(TICK * 3), Arc::clone(&task));
            elsewhere(move || {
                assert!(task.poll(&mut sleep).is_pending());
                sleep
            })
        });
        let mover = asks(move || {
            sleep.reset_after(TICK);
            sleep
        });
        let mut announced = None;
        while announced != Some(TICK) {
            announced = watcher.sleep_with(|timeout| {
                match timeout {
                    Some(TICK) => (),
                    Some(timeout) if timeout < TICK => thread::yield_now(),
                    _ => thread::park(),
                }
                timeout
            });
            watcher.turn();
        }
        drop(mover.answer());
    });
}

/// The last future goes while the watcher falls asleep.
#[test]
fn the_end_of_the_timers_is_never_slept_through() {
    explore(90, || {
        let (_clock, timers, mut watcher) = wheel();
        let dropping = asks(move || drop(timers));
        while !watcher.is_over() {
            watcher.turn();
            fall_asleep(&mut watcher);
        }
        dropping.answer();
    });
}

/// The watcher ends while a future begins to wait. The future is woken with an error.
#[test]
fn no_future_hangs_when_the_watcher_ends() {
    explore(280, || {
        let (_clock, timers, watcher) = wheel();
        let mut sleep = timers.sleep(Duration::from_secs(1));
        let sleeping = race(move || wait_for(&mut sleep));
        drop(watcher);
        assert_eq!(sleeping.join().unwrap(), Err(AddErrorReason::ShutDown));
    });
}
