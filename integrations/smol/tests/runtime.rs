//! A smol executor with a driver among its tasks: on time, beside other tasks, and woken from other
//! threads.

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::time::Duration;

use corewheel::{Config, future::sleep, local_timer};
use runtime::on_a_thread;
use smol::LocalExecutor;

/// Runs a future as `corewheel_smol::run` does.
fn run<F: Future>(future: F) -> F::Output {
    corewheel_smol::run(&LocalExecutor::new(), future)
}

#[test]
fn the_runtime_drives_the_timer() {
    runtime::drives_the_timer(|task| {
        run(task);
        true
    });
}

#[test]
fn a_second_runtime_of_the_thread_goes_on_with_its_timers() {
    on_a_thread(|| {
        let timer = run(async { local_timer().add(Duration::from_millis(10), || ()) });
        run(async {
            while timer.is_pending() {
                sleep(Duration::from_millis(1)).await;
            }
        });
        assert_eq!(local_timer().counts().added, local_timer().counts().fired);
    });
}

#[test]
fn a_thread_that_has_a_timer_keeps_it() {
    on_a_thread(|| {
        let timer = local_timer().add(Duration::from_millis(3), || ());
        run(async {
            while timer.is_pending() {
                sleep(Duration::from_millis(1)).await;
            }
        });
    });
}

/// The user spawns the driver, with another tick.
#[test]
fn an_executor_of_the_users_drives_the_timer() {
    on_a_thread(|| {
        let tasks = LocalExecutor::new();
        Config::new().tick(Duration::from_micros(100)).install().expect("a fresh thread");
        tasks.spawn(corewheel_smol::drive()).detach();
        smol::block_on(tasks.run(sleep(Duration::from_millis(3))));
    });
}
