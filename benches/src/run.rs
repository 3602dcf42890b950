//! One run, in the process that was started for it.

use crate::{
    measure::{Effort, Sample},
    peers::{
        BTree, CorewheelLocal, CorewheelShard, CorewheelWheel, Floor, Heap4, LazyBinaryHeap, Linked64, Single65536,
    },
    plan::{Job, Pass, Peer},
    timers::Timers,
    workloads::{churn, churn::Delay, drain, idle, reset, steady},
};

/// Does what the job says.
pub fn run(job: Job) -> Vec<Sample> {
    match job.peer {
        Peer::CorewheelWheel => run_virtual::<CorewheelWheel>(job),
        Peer::CorewheelShard => run_virtual::<CorewheelShard>(job),
        Peer::CorewheelLocal => run_virtual::<CorewheelLocal>(job),
        Peer::Floor => run_virtual::<Floor<false>>(job),
        Peer::FloorCas => run_virtual::<Floor<true>>(job),
        Peer::Linked64 => run_virtual::<Linked64>(job),
        Peer::Single65536 => run_virtual::<Single65536>(job),
        Peer::Heap4 => run_virtual::<Heap4>(job),
        Peer::BinaryHeap => run_virtual::<LazyBinaryHeap>(job),
        Peer::BTree => run_virtual::<BTree>(job),
        _ => Vec::new(),
    }
}

fn run_virtual<T: Timers>(job: Job) -> Vec<Sample> {
    let Job { peer, pass, n, quick } = job;
    let effort = if quick { Effort::QUICK } else { Effort::NORMAL };
    let workload = &pass.name();
    match pass {
        Pass::Churn => churn::run::<T>(workload, n, Delay::MIXED, effort),
        Pass::ChurnLongest => churn::longest::<T>(workload, n, effort),
        Pass::Churn30 => churn::run::<T>(workload, n, Delay::TIMEOUT, effort),
        Pass::Drain if matches!(peer, Peer::Floor | Peer::FloorCas) => drain::run_fill::<T>(n, effort),
        Pass::Drain => drain::run::<T>(n, effort),
        Pass::Reset => reset::run::<T>(workload, n, effort),
        Pass::Steady => steady::run::<T>(workload, n, effort),
        Pass::Idle => idle::run::<T>(workload, n, effort),
        Pass::IdleHour => idle::run_hours::<T>(workload, effort),
    }
}
