//! A monoio runtime that drives its thread's wheel.
#![cfg(unix)]

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{cell::Cell, rc::Rc, thread, time::Duration};

use corewheel::{Config, ManualClock, future::sleep, local_timer};
use runtime::{Task, on_a_thread};

#[test]
fn the_runtime_drives_the_wheel() {
    let run = |task: Task<'_>| {
        corewheel_monoio::run(task).expect("a runtime");
        true
    };
    runtime::assert_drives_the_wheel(run, |task| drop(monoio::spawn(task)));
}

#[test]
fn timers_in_virtual_time_fire_without_a_descriptor() {
    on_a_thread(|| {
        let clock = ManualClock::new();
        Config::new().clock(&clock).install().expect("a fresh thread");
        let run = corewheel_monoio::run(async move {
            let sleeps = monoio::spawn(sleep(Duration::from_millis(5)));
            monoio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(Duration::from_millis(5));
            sleeps.await;
        });
        run.expect("a runtime");
    });
}

/// Runs the test in runtimes with the legacy driver and with `io_uring`, beside a task that drives
/// the wheel.
fn drive_in_each_runtime(test: fn() -> Task<'static>) {
    use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};
    let driven = move || async move {
        Config::new().tick(Duration::from_micros(100)).install().expect("a fresh thread");
        monoio::spawn(corewheel_monoio::drive());
        test().await;
    };
    on_a_thread(move || {
        let runtime = RuntimeBuilder::<LegacyDriver>::new().enable_timer().build();
        runtime.expect("a runtime").block_on(driven());
    });
    on_a_thread(move || match RuntimeBuilder::<IoUringDriver>::new().enable_timer().build() {
        Ok(mut runtime) => runtime.block_on(driven()),
        Err(refused) => println!("SKIPPED: the kernel refuses io_uring: {refused}"),
    });
}

#[test]
fn drive_works_in_legacy_and_io_uring_runtimes() {
    drive_in_each_runtime(|| Box::pin(sleep(Duration::from_millis(3))));
}

#[test]
fn other_tasks_run_between_turns() {
    const TIMERS: usize = 10_000;
    drive_in_each_runtime(|| {
        Box::pin(async {
            let fired = Rc::new(Cell::new(0));
            let seen = Rc::clone(&fired);
            // The earliest timer wakes this task, which then runs between two turns.
            let woken = monoio::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                seen.get()
            });
            monoio::spawn(async {}).await;
            for _ in 0..TIMERS {
                let fired = Rc::clone(&fired);
                local_timer().add(Duration::from_millis(2), move || fired.set(fired.get() + 1));
            }
            thread::sleep(Duration::from_millis(5));
            assert!(woken.await < TIMERS, "all timers fired before the task ran");
        })
    });
}
