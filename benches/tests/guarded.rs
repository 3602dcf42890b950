//! Timeouts around what tasks do: each contender's are gone when they are dropped, before they are
//! measured.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use corewheel_bench::{
    plan::{Job, Peer, Scale, Workload},
    timeouts::{Here, LocalTimeouts, Operation, Pingora, There, Timeouts, Tokio},
    workloads::guarded::{self, Stage, TwoCores, Workers},
};
use tokio::runtime::{Builder, Runtime};

const JOB: Job =
    Job { peer: Peer::TokioSleep, workload: Workload::Async, n: 60, scale: Scale::Tiny };

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

/// Returns how many of 60 dropped timeouts are left.
fn left(stage: &dyn Stage) -> f64 {
    let samples = guarded::run(JOB, stage);
    samples.iter().find(|sample| sample.workload == "async-left").expect("a figure").value
}

fn leaves_nothing(stage: &dyn Stage) {
    // A thread that has to look may have to wait for its core.
    assert!((0..20).any(|_| left(stage) < 1.0), "what was dropped goes");
}

#[test]
fn dropped_timeouts_go() {
    leaves_nothing(&Workers::new(two_workers(), There::on_threads(1)));
    leaves_nothing(&Workers::new(two_workers(), Tokio));
    leaves_nothing(&Workers::new(two_workers(), Pingora));
    leaves_nothing(&TwoCores(Here::<false>));
    leaves_nothing(&TwoCores(Here::<true>));
    leaves_nothing(&TwoCores(Tokio));
}

/// Keeps every waker.
#[derive(Clone, Copy, Debug)]
struct Leaky;

struct Leak(Operation);

static LEAKED: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

impl Future for Leak {
    type Output = Result<(), Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.0).poll(cx).map(Ok);
        if polled.is_pending() {
            LEAKED.lock().unwrap_or_else(PoisonError::into_inner).push(cx.waker().clone());
        }
        polled
    }
}

impl Timeouts for Leaky {
    type Elapsed = Infallible;
    type Guarded = Leak;

    fn guard(&self, _: Duration, operation: Operation) -> Leak {
        Leak(operation)
    }
}

impl LocalTimeouts for Leaky {}

#[test]
fn what_is_left_is_counted() {
    for stage in [&Workers::new(two_workers(), Leaky) as &dyn Stage, &TwoCores(Leaky)] {
        assert_eq!(left(stage).to_bits(), 60f64.to_bits());
    }
}

#[test]
fn an_operation_is_ready_after_as_many_polls_as_it_yields() {
    let context = &mut Context::from_waker(Waker::noop());
    for yields in 0..4 {
        let mut operation = Operation::Yields(yields);
        for _ in 0..yields {
            assert!(Pin::new(&mut operation).poll(context).is_pending());
        }
        assert!(Pin::new(&mut operation).poll(context).is_ready());
    }
    assert!(Pin::new(&mut Operation::Never).poll(context).is_pending());
}
