//! A glommio executor that drives its thread's timer: on time, beside other tasks, and woken from
//! other threads.
#![cfg(target_os = "linux")]

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::time::Duration;

use corewheel::{future::sleep, local_timer};
use runtime::on_a_thread;

/// Runs a future as `corewheel_glommio::run` does. `None` if the kernel refuses `io_uring`.
fn run<F: Future>(future: F) -> Option<F::Output> {
    match corewheel_glommio::run(future) {
        Ok(output) => Some(output),
        Err(refused) if corewheel_glommio::is_refusal(&refused) => {
            println!("SKIPPED: the kernel refuses io_uring: {refused}");
            None
        }
        Err(error) => panic!("no runtime: {error}"),
    }
}

#[test]
fn the_runtime_drives_the_timer() {
    runtime::drives_the_timer(|task| run(task).is_some());
}

#[test]
fn a_second_runtime_of_the_thread_goes_on_with_its_timers() {
    on_a_thread(|| {
        let added = run(async { local_timer().add(Duration::from_millis(10), || ()) });
        let Some(timer) = added else { return };
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
