//! A task of a current-thread runtime that drives its thread's wheel with tokio's own sleep.

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use corewheel::future::drive;
use runtime::Task;
use tokio::{runtime::Builder, task::LocalSet};

#[test]
fn drive_works_with_the_sleep_of_tokio() {
    let run = |task: Task<'_>| {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(drive(tokio::time::sleep));
            task.await;
        });
        true
    };
    runtime::drives_the_wheel(run, |task| drop(tokio::task::spawn_local(task)));
}
