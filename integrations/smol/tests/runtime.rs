//! A smol executor that drives its thread's wheel.

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use corewheel::{Config, future::sleep};
use runtime::on_a_thread;
use smol::LocalExecutor;

#[test]
fn the_runtime_drives_the_wheel() {
    runtime::drives_the_wheel(|task| {
        corewheel_smol::run(&LocalExecutor::new(), task);
        true
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
