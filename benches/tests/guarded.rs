//! Timeouts around what tasks do: each contender's are gone when they are dropped, before they are
//! measured.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

use corewheel::future::{self, Timers};
use corewheel_bench::plan::{Job, Peer, Scale, Workload};
use corewheel_bench::workloads::guarded::{
    self, Operation, Stage, drive_corewheel, on_two_cores, on_workers,
};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

const JOB: Job =
    Job { peer: Peer::TokioSleep, workload: Workload::Async, n: 60, scale: Scale::Tiny };

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

/// Returns how many of 60 dropped timeouts are left.
fn left(stage: Stage<'_>) -> f64 {
    let samples = guarded::run(JOB, stage);
    samples.iter().find(|sample| sample.workload == "async-left").expect("a figure").value
}

fn leaves_nothing(stage: Stage<'_>) {
    // A thread that has to look may have to wait for its core.
    assert!((0..20).any(|_| left(stage) < 1.0), "what was dropped goes");
}

#[test]
fn dropped_timeouts_go() {
    let timers = Timers::start(1).expect("a thread");
    let guard = move |limit, operation| timers.timeout(limit, operation);
    leaves_nothing(&on_workers(two_workers(), guard));
    leaves_nothing(&on_workers(two_workers(), tokio::time::timeout));
    leaves_nothing(&on_workers(two_workers(), pingora_timeout::timeout));
    leaves_nothing(&on_two_cores(future::timeout, drive_corewheel::<false>));
    leaves_nothing(&on_two_cores(future::timeout, drive_corewheel::<true>));
    leaves_nothing(&on_two_cores(tokio::time::timeout, || ()));
}

static LEAKED: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

async fn leaky(_: Duration, mut operation: Operation) -> Result<(), Infallible> {
    poll_fn(|cx| {
        let polled = Pin::new(&mut operation).poll(cx);
        if polled.is_pending() {
            LEAKED.lock().push(cx.waker().clone());
        }
        polled
    })
    .await;
    Ok(())
}

#[test]
fn what_is_left_is_counted() {
    for stage in [&on_workers(two_workers(), leaky) as Stage<'_>, &on_two_cores(leaky, || ())] {
        assert_eq!(left(stage).to_bits(), 60f64.to_bits());
    }
}
