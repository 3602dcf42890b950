//! A current-thread runtime that drives its thread's timer: on time, beside other tasks, and woken from other threads.
#![cfg(any(target_os = "linux", target_os = "android"))]

#[path = "../../../tests/common/wake_ups.rs"]
mod wake_ups;

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use corewheel::{Clock, Config, ManualClock, local_timer};
use tokio::{
    sync::{Notify, oneshot},
    task,
};

fn on_a_thread(test: impl FnOnce() + Send + 'static) {
    thread::spawn(test).join().expect("no panic");
}

/// A task that sleeps by this thread's timer.
async fn sleep(delay: Duration) {
    let rung = Rc::new(Notify::new());
    let bell = Rc::clone(&rung);
    local_timer().add(delay, move || bell.notify_one());
    rung.notified().await;
}

#[test]
fn timers_fire_in_order_and_never_early() {
    on_a_thread(|| {
        let order = corewheel_tokio::run(async {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [30, 10, 0, 20].map(Duration::from_millis).into_iter().collect();
            let tasks = tasks.into_iter().map(|delay| {
                let order = Rc::clone(&order);
                task::spawn_local(async move {
                    let begun = Instant::now();
                    sleep(delay).await;
                    assert!(begun.elapsed() >= delay, "early");
                    order.borrow_mut().push(delay.as_millis());
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.expect("no panic");
            }
            order.take()
        });
        assert_eq!(order.expect("a runtime"), [0, 10, 20, 30]);
    });
}

#[test]
fn more_than_a_turn_takes_fires_all_the_same() {
    on_a_thread(|| {
        corewheel_tokio::run(async {
            let fired = Rc::new(Cell::new(0));
            for _ in 0..10_000 {
                let fired = Rc::clone(&fired);
                local_timer().add(Duration::from_millis(5), move || fired.set(fired.get() + 1));
            }
            while fired.get() < 10_000 {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .expect("a runtime");
    });
}

#[test]
fn the_runtime_is_woken_from_other_threads() {
    let (sender, shard) = mpsc::channel();
    let (end, over) = oneshot::channel();
    let thread = thread::spawn(move || {
        sender.send(local_timer().shard_ref()).expect("it is waited for");
        corewheel_tokio::run(over).expect("a runtime").expect("it is ended");
    });
    let shard = shard.recv().expect("it has a timer");
    wake_ups::none_is_lost(&shard, 1, 2_000);
    end.send(()).expect("it is waited for");
    thread.join().expect("no panic");
}

#[test]
fn a_panic_in_a_callback_harms_nobody() {
    on_a_thread(|| {
        corewheel_tokio::run(async {
            local_timer().add(Duration::ZERO, || panic!("a callback panics, as it should here"));
            sleep(Duration::from_millis(5)).await;
            assert_eq!(local_timer().counts().panicked, 1);
        })
        .expect("a runtime");
    });
}

#[test]
fn other_clocks_of_the_machine_work_and_virtual_time_is_refused() {
    for clock in [Clock::fast(), Clock::boot_time()] {
        on_a_thread(|| {
            Config::new().clock(clock).install().expect("a fresh thread");
            corewheel_tokio::run(sleep(Duration::from_millis(3))).expect("a runtime");
        });
    }
    on_a_thread(|| {
        Config::new().clock(ManualClock::new()).install().expect("a fresh thread");
        let refused =
            corewheel_tokio::run(async {}).expect_err("the kernel does not know that time");
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    });
}

#[test]
fn a_second_runtime_of_the_thread_goes_on_with_its_timers() {
    on_a_thread(|| {
        let rung = Rc::new(Notify::new());
        let bell = Rc::clone(&rung);
        corewheel_tokio::run(async {
            local_timer().add(Duration::from_millis(10), move || bell.notify_one())
        })
        .expect("a runtime");
        corewheel_tokio::run(rung.notified()).expect("another one");
    });
}

/// It is refused, and leaves the first one alone.
#[test]
fn a_second_driver_harms_nobody() {
    on_a_thread(|| {
        let slept = corewheel_tokio::run(async {
            assert!(corewheel_tokio::spawn_local().is_err(), "tokio has the descriptor already");
            corewheel::future::sleep(Duration::from_millis(5)).await;
        });
        slept.expect("a runtime");
    });
}
