//! A smol executor with a driver among its tasks: on time, beside other tasks, and woken from other threads.

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{io, time::Duration};

use corewheel::{Config, ConfigError, future::sleep, local_timer};
use runtime::on_a_thread;
use smol::LocalExecutor;

/// Runs a future as `corewheel_smol::run` does.
fn run<F: Future>(future: F) -> F::Output {
    corewheel_smol::run(&LocalExecutor::new(), future).expect("a runtime")
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
fn a_thread_that_has_a_timer_already_gets_an_error() {
    on_a_thread(|| {
        local_timer().add(Duration::ZERO, || ());
        let refused =
            corewheel_smol::run(&LocalExecutor::new(), async {}).expect_err("it has a timer");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let reason = refused.get_ref().and_then(|error| error.downcast_ref::<ConfigError>());
        assert_eq!(reason, Some(&ConfigError::AlreadyRunning));
    });
}

/// The user spawns the driver, with another tick.
#[test]
fn an_executor_of_the_users_drives_the_timer() {
    on_a_thread(|| {
        let tasks = LocalExecutor::new();
        let driver = corewheel_smol::drive(Config::new().tick(Duration::from_micros(100)));
        tasks.spawn(driver.expect("a fresh thread")).detach();
        smol::block_on(tasks.run(sleep(Duration::from_millis(3))));
    });
}
