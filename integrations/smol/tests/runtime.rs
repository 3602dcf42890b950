//! A smol executor with a driver among its tasks: it is on time, also runs other tasks, and is
//! woken by other threads.

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::time::Duration;

use corewheel::{Config, future::sleep};
use runtime::on_a_thread;
use smol::LocalExecutor;

#[test]
fn the_runtime_drives_the_timer() {
    runtime::drives_the_timer(|task| {
        corewheel_smol::run(&LocalExecutor::new(), task);
        true
    });
}

/// The test spawns the driver itself, and uses another tick.
#[test]
fn an_executor_of_the_users_drives_the_timer() {
    on_a_thread(|| {
        let tasks = LocalExecutor::new();
        Config::new().tick(Duration::from_micros(100)).install().expect("a fresh thread");
        tasks.spawn(corewheel_smol::drive()).detach();
        smol::block_on(tasks.run(sleep(Duration::from_millis(3))));
    });
}
