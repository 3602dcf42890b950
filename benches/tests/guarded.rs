//! Tests of the workloads in `guarded`.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

use corewheel::future::{self, Timers};
use corewheel_bench::plan::{Job, Peer, Scale, Workload};
use corewheel_bench::workloads::guarded::{
    self, Operation, RunTasks, on_two_cores, on_workers, spawn_corewheel_driver,
};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

const JOB: Job =
    Job { peer: Peer::TokioSleep, workload: Workload::Async, n: 60, scale: Scale::Tiny };

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

fn measure_still_registered(run_tasks: RunTasks<'_>) -> f64 {
    let samples = guarded::run(JOB, run_tasks);
    samples.iter().find(|sample| sample.workload == "async-left").expect("a figure").value
}

fn unregisters_dropped_timeouts(run_tasks: RunTasks<'_>) {
    // Tries again, because a timer thread may not get a core in time.
    assert!(
        (0..20).any(|_| measure_still_registered(run_tasks) < 1.0),
        "dropped timeouts stay registered"
    );
}

#[test]
fn dropped_timeouts_are_unregistered() {
    let timers = Timers::start(1).expect("a thread");
    let guard = move |limit, operation| timers.timeout(limit, operation);
    unregisters_dropped_timeouts(&on_workers(two_workers(), guard));
    unregisters_dropped_timeouts(&on_workers(two_workers(), tokio::time::timeout));
    unregisters_dropped_timeouts(&on_workers(two_workers(), pingora_timeout::timeout));
    unregisters_dropped_timeouts(&on_two_cores(future::timeout, spawn_corewheel_driver::<false>));
    unregisters_dropped_timeouts(&on_two_cores(future::timeout, spawn_corewheel_driver::<true>));
    unregisters_dropped_timeouts(&on_two_cores(tokio::time::timeout, || ()));
}

static LEAKED_WAKERS: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

async fn leak_waker(_: Duration, mut operation: Operation) -> Result<(), Infallible> {
    poll_fn(|cx| {
        let polled = Pin::new(&mut operation).poll(cx);
        if polled.is_pending() {
            LEAKED_WAKERS.lock().push(cx.waker().clone());
        }
        polled
    })
    .await;
    Ok(())
}

#[test]
fn leaked_timeouts_are_counted() {
    for run_tasks in
        [&on_workers(two_workers(), leak_waker) as RunTasks<'_>, &on_two_cores(leak_waker, || ())]
    {
        assert_eq!(measure_still_registered(run_tasks).to_bits(), 60f64.to_bits());
    }
}
