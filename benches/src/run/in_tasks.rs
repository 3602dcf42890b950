//! Runs of tasks that wrap operations in timeouts.

use std::time::Duration;

use super::two_cores::runtime;
use crate::{
    measure::Sample,
    plan::{Job, Pass, Peer},
    timeouts::{Here, Pingora, There, Tokio},
    workloads::{
        guarded::{self, Size, Stage, TwoCores, Workers},
        late,
    },
};

pub(super) fn run(job: Job) -> Vec<Sample> {
    let runtime = || runtime(job.peer);
    match job.peer {
        Peer::CorewheelTimers => on(job, &Workers::new(runtime(), There::on_threads(2))),
        Peer::PingoraTimeout => on(job, &Workers::new(runtime(), Pingora)),
        Peer::TokioThreads | Peer::TokioAlt => on(job, &Workers::new(runtime(), Tokio)),
        Peer::CorewheelLocal => on(job, &TwoCores(Here::<false>)),
        Peer::CorewheelLocalFast => on(job, &TwoCores(Here::<true>)),
        Peer::TokioSleep => on(job, &TwoCores(Tokio)),
        _ => unreachable!("it has no futures"),
    }
}

fn on(Job { pass, n, quick, .. }: Job, stage: &dyn Stage) -> Vec<Sample> {
    let name = &pass.name();
    if pass == Pass::AsyncLate {
        let span = Duration::from_millis(if quick { 300 } else { 3000 });
        return guarded::late(name, late::Size { timers: n, span }, stage);
    }
    let yields = u32::from(pass == Pass::Async);
    let (operations, stretches) = if quick { (100, 3) } else { (500, 10) };
    guarded::run(name, Size { tasks: n, operations, yields, stretches }, stage)
}
