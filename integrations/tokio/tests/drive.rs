//! A task of a current-thread runtime that drives its thread's wheel with tokio's own sleep.

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{thread, time::Duration};

use corewheel::{future::drive, local_timer};
use runtime::{Task, on_a_thread};
use tokio::{runtime::Builder, task::LocalSet};

/// Runs `task` in a runtime with a driver task.
fn run<F: Future>(task: F) -> F::Output {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(drive(tokio::time::sleep));
        task.await
    })
}

#[test]
fn drive_works_with_the_sleep_of_tokio() {
    let run = |task: Task<'_>| {
        run(task);
        true
    };
    runtime::drives_the_wheel(run, |task| drop(tokio::task::spawn_local(task)));
}

#[test]
fn an_earlier_remote_timer_wakes_the_driver() {
    on_a_thread(|| {
        run(async {
            local_timer().add(Duration::from_secs(3_600), || unreachable!("in an hour"));
            tokio::time::sleep(Duration::from_millis(5)).await;
            let (sender, fired) = tokio::sync::oneshot::channel();
            let shard = local_timer().shard_ref();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(5));
                shard.add(Duration::from_millis(5), move || _ = sender.send(()));
            });
            let limit = Duration::from_secs(20);
            tokio::time::timeout(limit, fired).await.expect("a wake-up").expect("the timer fires");
        });
    });
}
