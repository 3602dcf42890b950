//! A smol executor that drives its thread's wheel.

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use corewheel::{Config, future::sleep};
use runtime::{Task, on_a_thread};
use smol::LocalExecutor;

#[test]
fn the_runtime_drives_the_wheel() {
    thread_local! {
        static TASKS: &'static LocalExecutor<'static> = Box::leak(Box::new(LocalExecutor::new()));
    }
    let run = |task: Task<'_>| {
        corewheel_smol::run(TASKS.with(|tasks| *tasks), task);
        true
    };
    runtime::assert_drives_the_wheel(run, |task| TASKS.with(|tasks| tasks.spawn(task).detach()));
}

#[test]
fn unfinished_tasks_continue_in_the_next_run() {
    on_a_thread(|| {
        let tasks = LocalExecutor::new();
        let spawn = async { [tasks.spawn(sleep(Duration::from_millis(5)))] };
        let [task] = corewheel_smol::run(&tasks, spawn);
        corewheel_smol::run(&tasks, task);
    });
}

#[test]
fn drive_works_in_an_existing_executor() {
    on_a_thread(|| {
        let tasks = LocalExecutor::new();
        Config::new().tick(Duration::from_micros(100)).install().expect("a fresh thread");
        tasks.spawn(corewheel_smol::drive()).detach();
        smol::block_on(tasks.run(sleep(Duration::from_millis(3))));
    });
}

#[test]
fn a_future_that_panics_leaves_no_driver() {
    on_a_thread(|| {
        let tasks = LocalExecutor::new();
        let panics =
            || corewheel_smol::run(&tasks, async { panic!("the future, as it should here") });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        let waits = || smol::block_on(smol::future::poll_once(sleep(Duration::from_secs(1))));
        assert!(catch_unwind(waits).is_err(), "a driver is left");
    });
}
