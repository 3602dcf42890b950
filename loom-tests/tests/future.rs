//! Sleeps that one thread polls, resets or drops while another one fires them, on a thread's own
//! wheel or on a worker wheel of `Timers::per_worker_with`.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use corewheel::{
    AddErrorReason, Cancel, ManualClock,
    future::{SharedWheel, Sleep, Timers, TimersDriver},
    local_timer,
};
use loom::thread;
use loom_tests::{
    TICK, Task, assert_all_ended, config, explore, install_wheel, on_another_thread,
    poll_until_ready, race, shared_clones, spawn_unparker, without_exploring,
};

/// A wheel that this thread turns.
struct TestWheel {
    clock: ManualClock,
    timers: Timers,
    /// None for this thread's own wheel.
    driver: Option<TimersDriver>,
}

type MakeWheel = fn() -> TestWheel;

impl TestWheel {
    fn own() -> Self {
        let clock = install_wheel();
        Self { clock, timers: Timers::new(&[local_timer().shard_ref()]), driver: None }
    }

    fn of_workers() -> Self {
        let (clock, timers, driver) = worker_wheel();
        Self { clock, timers, driver: Some(driver) }
    }

    fn turn(&mut self) {
        match &mut self.driver {
            Some(driver) => driver.turn(),
            None => _ = local_timer().turn(),
        }
    }

    fn turn_in_a_tick(&mut self) {
        self.clock.advance(TICK);
        self.turn();
    }

    /// Returns an admitted sleep of one tick that the task has polled on another thread.
    fn polled_sleep(&mut self, task: &Arc<Task>) -> Sleep<SharedWheel> {
        without_exploring(|| {
            let (mut sleep, task) = (self.timers.sleep(TICK), Arc::clone(task));
            let sleep = on_another_thread(move || {
                assert!(task.poll(&mut sleep).is_pending());
                sleep
            });
            self.turn();
            sleep
        })
    }

    /// Turns, and asserts that no timers, messages or wakers remain.
    fn turn_and_assert_nothing_remains(mut self, tasks: &[&Arc<Task>]) {
        self.turn();
        let counts = self.timers.shards()[0].metrics().counts;
        assert_eq!((counts.uncollected, counts.queued, counts.panicked), (0, 0, 0), "{counts:?}");
        if self.driver.is_none() {
            let counts = local_timer().counts();
            assert_all_ended(&counts, counts.added);
        }
        for task in tasks {
            assert_eq!(Arc::strong_count(task), 1);
        }
    }
}

/// Returns the constructors of two wheels, a thread's own wheel and a worker wheel. Each comes with
/// its floor, the minimum number of interleavings.
fn both_wheels(floors: [usize; 2]) -> impl Iterator<Item = (usize, MakeWheel)> {
    floors.into_iter().zip([TestWheel::own as MakeWheel, TestWheel::of_workers])
}

/// Returns the clock, timers and driver of one worker wheel, whose wake hook unparks this thread.
fn worker_wheel() -> (ManualClock, Timers, TimersDriver) {
    let clock = ManualClock::new();
    let owner_thread = thread::current();
    let make_config = |_| {
        let owner_thread = owner_thread.clone();
        config(&clock).wake_hook(move || owner_thread.unpark())
    };
    let (timers, driver) = Timers::per_worker_with(1, make_config).unwrap();
    (clock, timers, driver)
}

#[test]
fn a_sleep_pending_after_its_first_poll_is_woken() {
    for (floor, make_wheel) in both_wheels([67, 90]) {
        explore(floor, move || {
            let mut wheel = make_wheel();
            let (task, mut sleep) = (Task::new(), wheel.timers.sleep(TICK));
            let poller = Arc::clone(&task);
            let polling_thread = race(move || (poller.poll(&mut sleep), sleep));
            wheel.turn_in_a_tick();
            let (polled, mut sleep) = polling_thread.join().unwrap();
            wheel.turn();
            assert_eq!(task.wake_count(), usize::from(polled.is_pending()));
            assert!(task.poll(&mut sleep).is_ready());
            wheel.turn_and_assert_nothing_remains(&[&task]);
        });
    }
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    for (floor, make_wheel) in both_wheels([120, 200]) {
        explore(floor, move || {
            let mut wheel = make_wheel();
            let [first, last] = [Task::new(), Task::new()];
            let mut sleep = wheel.polled_sleep(&first);
            wheel.clock.advance(TICK);
            let poller = Arc::clone(&last);
            let polling_thread = race(move || (poller.poll(&mut sleep), sleep));
            wheel.turn();
            let (polled, mut sleep) = polling_thread.join().unwrap();
            wheel.turn();
            match polled {
                Poll::Ready(()) => assert!(first.wake_count() <= 1 && last.wake_count() == 0),
                Poll::Pending => assert_eq!((first.wake_count(), last.wake_count()), (0, 1)),
            }
            assert!(last.poll(&mut sleep).is_ready());
            wheel.turn_and_assert_nothing_remains(&[&first, &last]);
        });
    }
}

/// Even after the first task is woken, the last poll may be pending, because the polling thread may
/// still read the old time.
#[test]
fn a_pending_poll_while_time_advances_is_woken_once() {
    explore(130, || {
        let (mut wheel, [first, last]) = (TestWheel::own(), [Task::new(), Task::new()]);
        let mut sleep = wheel.polled_sleep(&first);
        let poller = Arc::clone(&last);
        let polling_thread = race(move || (poller.poll(&mut sleep), sleep));
        wheel.turn_in_a_tick();
        let (polled, mut sleep) = polling_thread.join().unwrap();
        wheel.turn();
        assert_eq!(last.wake_count(), usize::from(polled.is_pending()));
        assert!(first.wake_count() <= 1);
        assert!(last.poll(&mut sleep).is_ready());
        wheel.turn_and_assert_nothing_remains(&[&first, &last]);
    });
}

#[test]
fn only_the_last_waker_before_admission_is_woken() {
    explore(200, || {
        let (mut wheel, [first, last]) = (TestWheel::own(), [Task::new(), Task::new()]);
        let mut sleep = wheel.timers.sleep(TICK);
        let pollers = [&first, &last].map(Arc::clone);
        let polling_thread = race(move || {
            assert!(pollers.iter().all(|poller| poller.poll(&mut sleep).is_pending()));
            sleep
        });
        wheel.turn();
        let mut sleep = polling_thread.join().unwrap();
        wheel.turn_in_a_tick();
        assert_eq!((first.wake_count(), last.wake_count()), (0, 1));
        assert!(last.poll(&mut sleep).is_ready());
        wheel.turn_and_assert_nothing_remains(&[&first, &last]);
    });
}

#[test]
fn a_sleep_dropped_while_it_fires_wakes_at_most_once() {
    for (floor, make_wheel) in both_wheels([70, 70]) {
        explore(floor, move || {
            let mut wheel = make_wheel();
            let task = Task::new();
            let sleep = wheel.polled_sleep(&task);
            wheel.clock.advance(TICK);
            let dropping_thread = race(move || drop(sleep));
            wheel.turn();
            dropping_thread.join().unwrap();
            let woken = task.wake_count();
            assert!(woken <= 1);
            wheel.turn();
            assert_eq!(task.wake_count(), woken, "a wake after the drop");
            wheel.turn_and_assert_nothing_remains(&[&task]);
        });
    }
}

#[test]
fn a_sleep_dropped_around_its_admission_is_freed() {
    explore(370, || {
        let mut wheel = TestWheel::own();
        let (task, mut sleep) = (Task::new(), wheel.timers.sleep(TICK));
        let poller = Arc::clone(&task);
        let dropping_thread = race(move || {
            let is_pending = poller.poll(&mut sleep).is_pending();
            drop(sleep);
            is_pending
        });
        wheel.turn_in_a_tick();
        let is_pending = dropping_thread.join().unwrap();
        wheel.turn();
        assert!(task.wake_count() <= usize::from(is_pending));
        wheel.turn_and_assert_nothing_remains(&[&task]);
    });
}

#[test]
fn a_sleep_reset_while_it_fires_ends_at_the_new_deadline() {
    for (floor, make_wheel) in both_wheels([360, 840]) {
        explore(floor, move || {
            let mut wheel = make_wheel();
            let task = Task::new();
            let mut sleep = wheel.polled_sleep(&task);
            wheel.clock.advance(TICK);
            let poller = Arc::clone(&task);
            let resetting_thread = race(move || {
                sleep.reset_after(TICK);
                assert!(poller.poll(&mut sleep).is_pending(), "ready too early");
                sleep
            });
            wheel.turn();
            let mut sleep = resetting_thread.join().unwrap();
            wheel.turn();
            let spurious_wakes = task.wake_count();
            assert!(spurious_wakes <= 1 && task.poll(&mut sleep).is_pending());
            wheel.turn_in_a_tick();
            assert_eq!(task.wake_count(), spurious_wakes + 1);
            assert!(task.poll(&mut sleep).is_ready());
            wheel.turn_and_assert_nothing_remains(&[&task]);
        });
    }
}

#[test]
fn concurrent_sleeps_are_woken_and_dropped_ones_are_not() {
    explore(230, || {
        let (mut wheel, tasks) = (TestWheel::of_workers(), [Task::new(), Task::new()]);
        let poll = |timers: &Timers, task: &Arc<Task>| {
            let (mut kept_sleep, mut dropped_sleep) = (timers.sleep(TICK), timers.sleep(TICK));
            assert!(
                task.poll(&mut kept_sleep).is_pending()
                    && task.poll(&mut dropped_sleep).is_pending()
            );
            drop(dropped_sleep);
            kept_sleep
        };
        let (other, poller) = (wheel.timers.clone(), Arc::clone(&tasks[0]));
        let polling_thread = race(move || poll(&other, &poller));
        let mut kept_sleep = poll(&wheel.timers, &tasks[1]);
        let mut other_threads_sleep = polling_thread.join().unwrap();
        wheel.turn();
        assert_eq!(tasks.each_ref().map(|task| task.wake_count()), [0, 0]);
        wheel.turn_in_a_tick();
        assert_eq!(tasks.each_ref().map(|task| task.wake_count()), [1, 1]);
        assert!(
            tasks[0].poll(&mut other_threads_sleep).is_ready()
                && tasks[1].poll(&mut kept_sleep).is_ready()
        );
        wheel.turn_and_assert_nothing_remains(&[&tasks[0], &tasks[1]]);
    });
}

// ---- the driver's sleep

/// Turns and sleeps until the driver announces a sleep of one tick. If the timeout is longer, parks
/// until a wake-up. If it is shorter, yields, because another thread may have claimed the wheel.
fn sleep_until_a_tick_is_announced(driver: &mut TimersDriver) {
    let mut announced_timeout = None;
    while announced_timeout != Some(TICK) {
        announced_timeout = driver.sleep_with(|timeout| {
            match timeout {
                Some(TICK) => (),
                Some(timeout) if timeout < TICK => thread::yield_now(),
                _ => thread::park(),
            }
            timeout
        });
        driver.turn();
    }
}

#[test]
fn no_periodic_run_begins_after_its_cancel() {
    explore(1_200, || {
        let (clock, timers, mut driver) = worker_wheel();
        let [runs, counted] = shared_clones(AtomicUsize::new(0));
        let handle = without_exploring(|| {
            let count = move || _ = counted.fetch_add(1, Ordering::Relaxed);
            let handle = timers.shards()[0].add_periodic(TICK, count);
            driver.turn();
            handle
        });
        clock.advance(TICK);
        let task = Task::new();
        let mut sleep = timers.sleep(TICK);
        let worker_thread = race(move || {
            let polled = task.poll(&mut sleep);
            (polled, handle.cancel(), sleep)
        });
        driver.turn();
        let (polled, answer, sleep) = worker_thread.join().unwrap();
        assert!(polled.is_pending());
        drop(sleep);
        assert_ne!(answer, Cancel::Ended);
        let runs_before = runs.load(Ordering::Relaxed);
        assert!(runs_before <= 1);
        clock.advance(TICK);
        driver.turn();
        assert_eq!((runs.load(Ordering::Relaxed), handle.cancel()), (runs_before, Cancel::Ended));
    });
}

#[test]
fn an_add_wakes_the_driver() {
    explore(130, || {
        let (clock, timers, mut driver) = worker_wheel();
        let task = Task::new();
        let (poller, mut sleep) = (Arc::clone(&task), timers.sleep(TICK));
        let adder = spawn_unparker(move || {
            assert!(poller.poll(&mut sleep).is_pending());
            sleep
        });
        sleep_until_a_tick_is_announced(&mut driver);
        let mut sleep = adder.join();
        clock.advance(TICK);
        driver.turn();
        assert_eq!((task.wake_count(), task.poll(&mut sleep)), (1, Poll::Ready(())));
    });
}

#[test]
fn a_reset_to_earlier_wakes_the_driver() {
    explore(130, || {
        let (_clock, timers, mut driver) = worker_wheel();
        let mut sleep = without_exploring(|| {
            let mut sleep = timers.sleep(TICK * 3);
            on_another_thread(move || {
                assert!(Task::new().poll(&mut sleep).is_pending());
                sleep
            })
        });
        let resetter = spawn_unparker(move || {
            sleep.reset_after(TICK);
            sleep
        });
        sleep_until_a_tick_is_announced(&mut driver);
        drop(resetter.join());
    });
}

#[test]
fn dropping_the_timers_wakes_the_driver() {
    explore(90, || {
        let (_clock, timers, mut driver) = worker_wheel();
        let dropping_thread = spawn_unparker(move || drop(timers));
        while !driver.is_stopping() {
            driver.turn();
            driver.sleep_with(|timeout| match timeout {
                Some(short) if short < TICK => thread::yield_now(),
                _ => thread::park(),
            });
        }
        dropping_thread.join();
    });
}

// ---- the end

#[test]
fn no_future_hangs_when_the_driver_ends() {
    explore(270, || {
        let (_clock, timers, driver) = worker_wheel();
        let mut sleep = timers.sleep(Duration::from_secs(1));
        let sleeping_thread = race(move || poll_until_ready(&mut sleep));
        drop(driver);
        assert_eq!(sleeping_thread.join().unwrap(), Err(AddErrorReason::ShutDown));
    });
}

#[test]
fn a_waker_set_while_the_owner_ends_is_woken() {
    explore(5_600, || {
        let owner = race(|| {
            let mut sleep = TestWheel::own().polled_sleep(&Task::new());
            race(move || poll_until_ready(&mut sleep))
        });
        let sleeping_thread = owner.join().unwrap();
        assert_eq!(sleeping_thread.join().unwrap(), Err(AddErrorReason::ShutDown));
    });
}

#[test]
fn the_last_turn_or_the_owners_end_wakes_a_sleep() {
    explore(4_300, || {
        let owner = race(|| {
            let wheel = TestWheel::own();
            let mut sleep = wheel.timers.sleep(TICK);
            let sleeping_thread = race(move || poll_until_ready(&mut sleep));
            wheel.clock.advance(TICK);
            (local_timer().turn().fired, sleeping_thread)
        });
        let (fired, sleeping_thread) = owner.join().unwrap();
        let result = sleeping_thread.join().unwrap();
        let shut_down = (Err(AddErrorReason::ShutDown), 0);
        assert!(result == Ok(()) || (result, fired) == shut_down, "{result:?}, {fired} fired");
    });
}
