//! How each peer runs each workload.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use corewheel::future;
use tokio::runtime::{Builder, Runtime};
use tokio::task::unconstrained;

use crate::across::{
    Channel, EnteredRuntimeOwner, FloorOwner, Local, LocalShard, Locked, Owner, ParkingLot,
    Requests, Sleeping, Std, TokioTaskOwner,
};
use crate::cores;
use crate::measure::{self, Sample};
use crate::peers::{
    BTree, CorewheelLocal, CorewheelShard, CorewheelWheel, DelayQueuePeer, Floor, HashWheel, Heap4,
    LazyBinaryHeap, Linked64, RealTime, Single65536, TokioSleep,
};
use crate::plan::{Job, Peer, Workload as W};
use crate::schemes::{
    Countdown, Kafka, Linux, Netty, OrderedList, RoundsWheel, SchemeTimers, SortedSlots,
};
use crate::timers::{InRealTime, ReportsDeadline, TimerSet};
use crate::workloads::guarded::{self, on_two_cores, on_workers};
use crate::workloads::{
    asked, contended, late, memory, operations, packets, pause, purgatory, scaling, scheme, slack,
    waking, xcancel,
};

pub type Run = fn(Job) -> Vec<Sample>;

/// Returns the function that runs a workload for a peer, if there is one on this machine.
pub fn run(peer: Peer, workload: W) -> Option<Run> {
    let is_built = peer != Peer::TokioAlt || cfg!(tokio_unstable);
    let has_cores = !workload.needs_two_cores() || cores::ALL_CORES.len() >= 2;
    let (_, _, run) = RUN_FUNCTIONS.iter().find(|(of, workloads, _)| {
        *of == peer && workloads.iter().any(|group| group.contains(&workload))
    })?;
    (is_built && has_cores).then_some(*run)
}

const OPERATIONS: &[W] = &[W::Churn, W::Churn30, W::Reset];
const BULK: &[W] = &[W::Drain, W::Memory, W::MemoryChurn];
const FIRING: &[W] = &[W::Steady, W::IdleHour];
const PAUSES: &[W] = &[W::Pause, W::PauseAllDue, W::PauseAfterReset, W::PauseAfterSleep];
const SLEEPING: &[W] = &[W::Within, W::PauseHeartbeat];
const XCANCEL: &[W] = &[W::Xcancel, W::XcancelBoth];
const ASYNC: &[W] = &[W::Async, W::AsyncReady, W::AsyncLate];

const SCHEME: &[&[W]] = &[&[W::Scheme]];
const PURGATORY: &[&[W]] = &[&[W::Purgatory]];
const ONE_CORE: &[&[W]] = &[OPERATIONS, BULK, FIRING, &[W::Idle]];
const ONE_CORE_AND_PAUSES: &[&[W]] = &[OPERATIONS, BULK, FIRING, &[W::Idle], PAUSES];
const ONE_CORE_PAUSES_AND_SLEEPING: &[&[W]] =
    &[OPERATIONS, BULK, FIRING, &[W::Idle, W::Spread], PAUSES, SLEEPING];
const COREWHEEL: &[&[W]] = &[&[W::Scaling, W::Idle], OPERATIONS, BULK, FIRING, PAUSES, SLEEPING];
const TWO_CORES: &[&[W]] = &[XCANCEL, &[W::XcancelLock, W::Flood, W::Asked]];
const TOKIO_THREADS: &[&[W]] = &[OPERATIONS, XCANCEL, ASYNC, &[W::Call, W::Late, W::Flood]];

const RUN_FUNCTIONS: &[(Peer, &[&[W]], Run)] = &[
    (Peer::CorewheelWheel, COREWHEEL, one_core_and_sleeping::<CorewheelWheel>),
    (Peer::CorewheelShard, COREWHEEL, one_core_and_sleeping::<CorewheelShard>),
    (Peer::CorewheelLocal, COREWHEEL, one_core_and_sleeping::<CorewheelLocal>),
    (Peer::CorewheelShard, &[&[W::Spread]], one_core_and_sleeping::<CorewheelShard>),
    (Peer::CorewheelLocal, &[&[W::Spread]], one_core_and_sleeping::<CorewheelLocal>),
    (Peer::Floor, &[OPERATIONS, BULK], one_core::<Floor<false>>),
    (Peer::FloorCas, &[OPERATIONS, BULK], one_core::<Floor<true>>),
    (Peer::Linked64, ONE_CORE_PAUSES_AND_SLEEPING, one_core_and_sleeping::<Linked64>),
    (Peer::Linked64, &[&[W::Scaling]], one_core_and_sleeping::<Linked64>),
    (Peer::Single65536, &[OPERATIONS, BULK, FIRING], one_core::<Single65536>),
    (Peer::Heap4, ONE_CORE, one_core::<Heap4>),
    (Peer::BinaryHeap, ONE_CORE_AND_PAUSES, one_core::<LazyBinaryHeap>),
    (Peer::BTree, ONE_CORE_PAUSES_AND_SLEEPING, one_core_and_sleeping::<BTree>),
    (Peer::HierarchicalHashWheel, ONE_CORE, one_core::<HashWheel>),
    (Peer::DelayQueue, ONE_CORE_AND_PAUSES, one_core::<DelayQueuePeer>),
    (Peer::TokioSleep, ONE_CORE, one_core::<TokioSleep>),
    (Peer::TokioThreads, TOKIO_THREADS, tokio_threads),
    (Peer::TokioAlt, TOKIO_THREADS, tokio_threads),
    (Peer::CorewheelLocal, &[&[W::Call]], one_core::<CorewheelLocal<RealTime<false>>>),
    (Peer::CorewheelLocalFast, &[&[W::Call]], one_core::<CorewheelLocal<RealTime<true>>>),
    (Peer::Linked64, &[&[W::Call]], one_core::<InRealTime<Linked64>>),
    (Peer::Heap4, &[&[W::Call]], one_core::<InRealTime<Heap4>>),
    (Peer::BinaryHeap, &[&[W::Call]], one_core::<InRealTime<LazyBinaryHeap>>),
    (Peer::DelayQueue, &[&[W::Call]], in_task::<DelayQueuePeer<false>>),
    (Peer::TokioSleep, &[&[W::Call]], in_task::<TokioSleep<false>>),
    (Peer::CorewheelLocal, &[&[W::Late]], late::corewheel_local::<false>),
    (Peer::CorewheelLocalFast, &[&[W::Late]], late::corewheel_local::<true>),
    (Peer::BTree, &[&[W::Late]], |job| late::run(job, late::btree)),
    (Peer::DelayQueue, &[&[W::Late]], |job| {
        late::run(job, |size| late::delay_queue(size, &runtime(job, 1)))
    }),
    (Peer::TokioSleep, &[&[W::Late]], late_tokio),
    (Peer::CorewheelLocal, PURGATORY, purgatory::run::<purgatory::Corewheel>),
    (Peer::Linked64, PURGATORY, purgatory::run::<purgatory::Locked<Linked64, Std>>),
    (Peer::BTree, PURGATORY, purgatory::run::<purgatory::Locked<BTree, Std>>),
    (Peer::MutexLinked64, PURGATORY, purgatory::run::<purgatory::Locked<Linked64, ParkingLot>>),
    (Peer::CorewheelLocal, TWO_CORES, two_cores::<Local<false>>),
    (Peer::MutexStd, TWO_CORES, two_cores::<Locked<CorewheelWheel, Std>>),
    (Peer::MutexParkingLot, TWO_CORES, two_cores::<Locked<CorewheelWheel, ParkingLot>>),
    (Peer::MutexLinked64, TWO_CORES, two_cores::<Locked<Linked64, ParkingLot>>),
    (Peer::MutexHeap4, &[XCANCEL], xcancel::<Locked<Heap4, ParkingLot>>),
    (Peer::MutexHeap4, &[&[W::XcancelLock]], contended::run::<Locked<Heap4, ParkingLot>>),
    (Peer::MutexHeap4, &[&[W::Asked]], asked::run::<Locked<Heap4, ParkingLot>>),
    (Peer::Channel, TWO_CORES, two_cores::<Channel<CorewheelWheel>>),
    (Peer::CorewheelLocalFast, &[XCANCEL, &[W::Asked]], two_cores::<Local<true>>),
    (Peer::CorewheelShard, &[XCANCEL], xcancel::<LocalShard>),
    (Peer::CorewheelShard, &[&[W::XcancelLock]], contended::run::<LocalShard>),
    (Peer::Floor, &[XCANCEL], xcancel::<FloorOwner>),
    (Peer::TokioSleep, &[&[W::Asked]], asked::run::<EnteredRuntimeOwner>),
    (Peer::CorewheelLocal, &[&[W::Waking]], waking::run_add_and_closure),
    (Peer::TokioNotify, &[&[W::Waking]], |job| waking::run(job, waking::tokio_notify)),
    (Peer::EventFd, &[&[W::Waking]], |job| waking::run(job, waking::event_fd)),
    (Peer::Futex, &[&[W::Waking]], |job| waking::run(job, waking::futex)),
    (Peer::CorewheelLocal, &[ASYNC], corewheel_tasks::<false>),
    (Peer::CorewheelLocalFast, &[ASYNC], corewheel_tasks::<true>),
    (Peer::TokioSleep, &[ASYNC], |job| {
        guarded::run(job, &on_two_cores(tokio::time::timeout, || ()))
    }),
    (Peer::CorewheelTimers, &[ASYNC], |job| on_timers(job, future::Timers::start(2))),
    (Peer::CorewheelPerWorker, &[ASYNC], |job| on_timers(job, future::Timers::per_worker())),
    (Peer::PingoraTimeout, &[ASYNC], |job| {
        guarded::run(job, &on_workers(runtime(job, 2), pingora_timeout::timeout))
    }),
    (Peer::CorewheelLocal, &[&[W::Packets]], packets::in_loop::<Local<false>>),
    (Peer::CorewheelShard, &[&[W::Packets]], packets::in_loop::<LocalShard>),
    (Peer::Linked64, &[&[W::Packets]], packets::in_loop::<Channel<Linked64>>),
    (Peer::MutexLinked64, &[&[W::Packets]], packets::in_loop::<Locked<Linked64, ParkingLot>>),
    (Peer::CorewheelSleep, &[&[W::Packets]], packets::corewheel_sleep),
    (Peer::TokioSleep, &[&[W::Packets]], packets::tokio_sleep),
    (Peer::MonoioSleep, &[&[W::Packets]], packets::monoio_sleep),
    (Peer::Countdown, SCHEME, scheme::run::<SchemeTimers<Countdown>>),
    (Peer::OrderedList, SCHEME, scheme::run::<SchemeTimers<OrderedList>>),
    (Peer::BTree, SCHEME, scheme::run::<BTree>),
    (Peer::Heap4, SCHEME, scheme::run::<Heap4>),
    (Peer::Single65536, SCHEME, scheme::run::<Single65536>),
    (Peer::SortedSlots, SCHEME, scheme::run::<SchemeTimers<SortedSlots>>),
    (Peer::RoundsWheel, SCHEME, scheme::run::<SchemeTimers<RoundsWheel>>),
    (Peer::Linked64, SCHEME, scheme::run::<Linked64>),
    (Peer::Netty, SCHEME, scheme::run::<SchemeTimers<Netty>>),
    (Peer::Netty1ms, SCHEME, scheme::run::<SchemeTimers<Netty<1>>>),
    (Peer::Kafka, SCHEME, scheme::run::<SchemeTimers<Kafka>>),
    (Peer::Linux, SCHEME, scheme::run::<SchemeTimers<Linux>>),
];

/// Runs a workload whose timers are not shared by threads.
fn one_core<T: TimerSet>(job: Job) -> Vec<Sample> {
    match job.workload {
        W::Drain => operations::drain::<T>(job),
        W::Pause | W::PauseAllDue | W::PauseAfterReset | W::PauseAfterSleep => pause::run::<T>(job),
        W::Memory | W::MemoryChurn => memory::run::<T>(job),
        W::Scaling => scaling::run::<T>(job),
        _ => measure::expect_ready(operations::run::<T>(job)),
    }
}

fn one_core_and_sleeping<T: ReportsDeadline>(job: Job) -> Vec<Sample> {
    match job.workload {
        W::Within => slack::within::<T>(job),
        W::Spread => slack::spread::<T>(job),
        W::PauseHeartbeat => pause::run_beside_each_heartbeat::<T>(job),
        _ => one_core::<T>(job),
    }
}

fn in_task<T: TimerSet<Handle: Send> + Send + 'static>(job: Job) -> Vec<Sample> {
    // Unconstrained: otherwise tokio's budget would let only 128 polls between two yields register
    // a timer.
    let load = unconstrained(operations::run::<T>(job));
    runtime(job, 1).block_on(async { tokio::spawn(load).await.expect("the run does not panic") })
}

fn late_tokio(job: Job) -> Vec<Sample> {
    late::run(job, |size| late::tokio_sleep(size, &runtime(job, 1)))
}

fn tokio_threads(job: Job) -> Vec<Sample> {
    match job.workload {
        W::Late => late_tokio(job),
        W::Xcancel | W::XcancelBoth => {
            xcancel::run(job, |job| xcancel::in_tasks::<TokioTaskOwner>(job, &runtime(job, 2)))
        }
        W::Flood => late::flood(job, false, |load| late::flood_tokio(load, &runtime(job, 2))),
        W::Async | W::AsyncReady | W::AsyncLate => {
            guarded::run(job, &on_workers(runtime(job, 2), tokio::time::timeout))
        }
        _ => in_task::<TokioSleep<false>>(job),
    }
}

fn xcancel<O: Owner>(job: Job) -> Vec<Sample> {
    xcancel::run(job, xcancel::on_threads::<O>)
}

fn two_cores<O: Owner<Remote: Requests + Clone> + Sleeping>(job: Job) -> Vec<Sample> {
    match job.workload {
        W::XcancelLock => contended::run::<O>(job),
        W::Flood => late::flood(job, O::HAS_BUDGET, late::cancel_flood_on_two_cores::<O>),
        W::Asked => asked::run::<O>(job),
        _ => xcancel::<O>(job),
    }
}

fn corewheel_tasks<const FAST: bool>(job: Job) -> Vec<Sample> {
    guarded::run(job, &on_two_cores(future::timeout, guarded::spawn_corewheel_driver::<FAST>))
}

fn on_timers(job: Job, timers: io::Result<future::Timers>) -> Vec<Sample> {
    let timers = timers.expect("threads can be started");
    let with_timeout = move |limit, operation| timers.timeout(limit, operation);
    guarded::run(job, &on_workers(runtime(job, 2), with_timeout))
}

/// Builds the runtime of a peer. If there are several workers, pins each one to a core.
fn runtime(job: Job, workers: usize) -> Runtime {
    let is_single_threaded = matches!(job.peer, Peer::TokioSleep | Peer::DelayQueue);
    let mut builder = if is_single_threaded {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    if !is_single_threaded {
        builder.worker_threads(workers);
    }
    if workers > 1 {
        let started = AtomicUsize::new(0);
        // Relaxed: the workers only need distinct numbers.
        builder.on_thread_start(move || cores::pin(started.fetch_add(1, Ordering::Relaxed)));
    }
    builder.enable_time();
    #[cfg(tokio_unstable)]
    if job.peer == Peer::TokioAlt {
        builder.enable_alt_timer();
    }
    builder.build().expect("a runtime")
}
