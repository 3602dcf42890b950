//! How each peer does each workload, in the process that was started for it.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use corewheel::{Clock, future};
use tokio::{
    runtime::{Builder, Runtime},
    task::unconstrained,
};

use crate::{
    across::{
        Channel, Entered, FloorOwner, Local, LocalShard, Locked, Owner, ParkingLot, Sleeping, Std,
        TokioDrop,
    },
    cores, delayed,
    measure::{self, Sample},
    peers::{
        BTree, CorewheelLocal, CorewheelShard, CorewheelWheel, DelayQueuePeer, Floor, HashWheel,
        Heap4, LazyBinaryHeap, Linked64, MachineTime, RealTime, Single65536, TokioSleep,
    },
    plan::{Job, Peer, Workload as W},
    timers::{Timers, Waking},
    workloads::{
        asked, contended, drain, flood,
        guarded::{self, on_two_cores, on_workers},
        late, memory, operations, packets, pause, purgatory, scaling, slack, waking, xcancel,
    },
};

/// Does a job of a peer.
pub type Run = fn(Job) -> Vec<Sample>;

/// Finds how a peer does a workload, if it takes part.
pub fn run(peer: Peer, workload: W) -> Option<Run> {
    let is_built = peer != Peer::TokioAlt || cfg!(tokio_unstable);
    let has_cores = !workload.needs_two_cores() || cores::count() >= 2;
    let (_, _, run) = RUNS.iter().find(|(of, workloads, _)| {
        *of == peer && workloads.iter().any(|group| group.contains(&workload))
    })?;
    (is_built && has_cores).then_some(*run)
}

const OPERATIONS: &[W] = &[W::Churn, W::ChurnLongest, W::Churn30, W::Reset];
const BULK: &[W] = &[W::Drain, W::Memory, W::MemoryChurn];
const FIRING: &[W] = &[W::Steady, W::IdleHour];
const FAR: &[W] = &[W::Idle];
const PAUSES: &[W] = &[W::Pause, W::PauseAllDue, W::PauseAfterReset, W::PauseAfterSleep];
const MOST: &[&[W]] = &[OPERATIONS, BULK, FIRING, FAR];
const PAUSED: &[&[W]] = &[OPERATIONS, BULK, FIRING, FAR, PAUSES];
const SCALED: &[&[W]] = &[OPERATIONS, BULK, FIRING, FAR, PAUSES, &[W::Scaling]];
const COREWHEEL: &[&[W]] =
    &[OPERATIONS, BULK, FIRING, FAR, PAUSES, &[W::Scaling, W::MemoryAllocations]];
const CALL: &[&[W]] = &[&[W::Call]];
const LATE: &[&[W]] = &[&[W::Late]];
const LATE_BY_TICK: &[&[W]] = &[&[W::Late, W::Late50us]];
const WITHIN: &[&[W]] = &[&[W::Within, W::PauseHeartbeat]];
const SLACK: &[&[W]] = &[&[W::Within, W::Spread, W::PauseHeartbeat]];
const WAKING: &[&[W]] = &[&[W::Waking]];
const PURGATORY: &[&[W]] = &[&[W::Purgatory]];
const XCANCEL: &[&[W]] = &[&[W::Xcancel, W::XcancelBoth]];
const LOCK: &[&[W]] = &[&[W::XcancelLock]];
const FLOOD: &[&[W]] = &[&[W::Flood]];
const ASKED: &[&[W]] = &[&[W::Asked]];
const PACKETS: &[&[W]] = &[&[W::Packets]];
const ASYNC: &[&[W]] = &[&[W::Async, W::AsyncReady, W::AsyncLate]];

/// Who takes part in what, and how.
const RUNS: &[(Peer, &[&[W]], Run)] = &[
    (Peer::CorewheelWheel, COREWHEEL, one_core::<CorewheelWheel>),
    (Peer::CorewheelShard, COREWHEEL, one_core::<CorewheelShard>),
    (Peer::CorewheelLocal, COREWHEEL, one_core::<CorewheelLocal>),
    (Peer::Floor, &[OPERATIONS, BULK], one_core::<Floor<false>>),
    (Peer::FloorCas, &[OPERATIONS, BULK], one_core::<Floor<true>>),
    (Peer::Linked64, SCALED, one_core::<Linked64>),
    (Peer::Single65536, &[OPERATIONS, BULK, FIRING], one_core::<Single65536>),
    (Peer::Heap4, MOST, one_core::<Heap4>),
    (Peer::BinaryHeap, PAUSED, one_core::<LazyBinaryHeap>),
    (Peer::BTree, PAUSED, one_core::<BTree>),
    (Peer::HierarchicalHashWheel, MOST, one_core::<HashWheel>),
    (Peer::DelayQueue, PAUSED, one_core::<DelayQueuePeer>),
    (Peer::TokioSleep, MOST, one_core::<TokioSleep>),
    (Peer::TokioThreads, &[OPERATIONS], in_task::<TokioSleep<MachineTime>>),
    (Peer::TokioAlt, &[OPERATIONS], in_task::<TokioSleep<MachineTime>>),
    (Peer::CorewheelLocal, CALL, one_core::<CorewheelLocal<RealTime<false>>>),
    (Peer::CorewheelLocalFast, CALL, one_core::<CorewheelLocal<RealTime<true>>>),
    (Peer::DelayQueue, CALL, in_task::<DelayQueuePeer<MachineTime>>),
    (Peer::TokioSleep, CALL, in_task::<TokioSleep<MachineTime>>),
    (Peer::TokioThreads, CALL, in_task::<TokioSleep<MachineTime>>),
    (Peer::TokioAlt, CALL, in_task::<TokioSleep<MachineTime>>),
    (Peer::CorewheelLocal, LATE_BY_TICK, |job| late::corewheel_local(job, Clock::monotonic())),
    (Peer::CorewheelLocalFast, LATE_BY_TICK, |job| late::corewheel_local(job, Clock::fast())),
    (Peer::BTree, LATE, |job| late::run(job, late::btree)),
    (Peer::DelayQueue, LATE, |job| {
        late::run(job, |size| late::delay_queue(size, &runtime(job, 1)))
    }),
    (Peer::TokioSleep, LATE, late_tokio),
    (Peer::TokioThreads, LATE, late_tokio),
    (Peer::TokioAlt, LATE, late_tokio),
    (Peer::CorewheelShard, &[&[W::IdleWakeUps]], late::idle_wake_ups),
    (Peer::CorewheelWheel, WITHIN, slack::<CorewheelWheel>),
    (Peer::CorewheelShard, SLACK, slack::<CorewheelShard>),
    (Peer::CorewheelLocal, SLACK, slack::<CorewheelLocal>),
    (Peer::Linked64, SLACK, slack::<Linked64>),
    (Peer::BTree, SLACK, slack::<BTree>),
    (Peer::CorewheelLocal, PURGATORY, purgatory::run::<delayed::Corewheel>),
    (Peer::Linked64, PURGATORY, purgatory::run::<delayed::Locked<Linked64, Std>>),
    (Peer::BTree, PURGATORY, purgatory::run::<delayed::Locked<BTree, Std>>),
    (Peer::MutexLinked64, PURGATORY, purgatory::run::<delayed::Locked<Linked64, ParkingLot>>),
    (Peer::CorewheelLocal, XCANCEL, xcancel::<Local<false>>),
    (Peer::CorewheelLocalFast, XCANCEL, xcancel::<Local<true>>),
    (Peer::CorewheelShard, XCANCEL, xcancel::<LocalShard>),
    (Peer::Floor, XCANCEL, xcancel::<FloorOwner>),
    (Peer::MutexStd, XCANCEL, xcancel::<Locked<CorewheelWheel, Std>>),
    (Peer::MutexParkingLot, XCANCEL, xcancel::<Locked<CorewheelWheel, ParkingLot>>),
    (Peer::MutexLinked64, XCANCEL, xcancel::<Locked<Linked64, ParkingLot>>),
    (Peer::Channel, XCANCEL, xcancel::<Channel<CorewheelWheel>>),
    (Peer::TokioThreads, XCANCEL, xcancel_tokio),
    (Peer::TokioAlt, XCANCEL, xcancel_tokio),
    (Peer::MutexHeap4, XCANCEL, xcancel::<Locked<Heap4, ParkingLot>>),
    (Peer::CorewheelLocal, LOCK, contended::run::<Local<false>>),
    (Peer::CorewheelShard, LOCK, contended::run::<LocalShard>),
    (Peer::MutexStd, LOCK, contended::run::<Locked<CorewheelWheel, Std>>),
    (Peer::MutexParkingLot, LOCK, contended::run::<Locked<CorewheelWheel, ParkingLot>>),
    (Peer::MutexLinked64, LOCK, contended::run::<Locked<Linked64, ParkingLot>>),
    (Peer::MutexHeap4, LOCK, contended::run::<Locked<Heap4, ParkingLot>>),
    (Peer::Channel, LOCK, contended::run::<Channel<CorewheelWheel>>),
    (Peer::CorewheelLocal, FLOOD, flood::<Local<false>, true>),
    (Peer::MutexStd, FLOOD, flood::<Locked<CorewheelWheel, Std>, false>),
    (Peer::MutexParkingLot, FLOOD, flood::<Locked<CorewheelWheel, ParkingLot>, false>),
    (Peer::MutexLinked64, FLOOD, flood::<Locked<Linked64, ParkingLot>, false>),
    (Peer::Channel, FLOOD, flood::<Channel<CorewheelWheel>, true>),
    (Peer::TokioThreads, FLOOD, flood_tokio),
    (Peer::TokioAlt, FLOOD, flood_tokio),
    (Peer::CorewheelLocal, ASKED, asked::run::<Local<false>>),
    (Peer::CorewheelLocalFast, ASKED, asked::run::<Local<true>>),
    (Peer::MutexStd, ASKED, asked::run::<Locked<CorewheelWheel, Std>>),
    (Peer::MutexParkingLot, ASKED, asked::run::<Locked<CorewheelWheel, ParkingLot>>),
    (Peer::MutexLinked64, ASKED, asked::run::<Locked<Linked64, ParkingLot>>),
    (Peer::MutexHeap4, ASKED, asked::run::<Locked<Heap4, ParkingLot>>),
    (Peer::Channel, ASKED, asked::run::<Channel<CorewheelWheel>>),
    (Peer::TokioSleep, ASKED, asked::run::<Entered>),
    (Peer::CorewheelLocal, WAKING, waking::run_twice),
    (Peer::TokioNotify, WAKING, |job| waking::run(job, waking::tokio_notify)),
    (Peer::EventFd, WAKING, |job| waking::run(job, waking::event_fd)),
    (Peer::Futex, WAKING, |job| waking::run(job, waking::futex)),
    (Peer::CorewheelLocal, ASYNC, corewheel_tasks::<false>),
    (Peer::CorewheelLocalFast, ASYNC, corewheel_tasks::<true>),
    (Peer::TokioSleep, ASYNC, |job| guarded::run(job, &on_two_cores(tokio::time::timeout, || ()))),
    (Peer::CorewheelTimers, ASYNC, |job| on_timers(job, future::Timers::start(2))),
    (Peer::CorewheelPerWorker, ASYNC, |job| on_timers(job, future::Timers::per_worker())),
    (Peer::TokioThreads, ASYNC, tokio_tasks),
    (Peer::TokioAlt, ASYNC, tokio_tasks),
    (Peer::PingoraTimeout, ASYNC, |job| {
        guarded::run(job, &on_workers(runtime(job, 2), pingora_timeout::timeout))
    }),
    (Peer::CorewheelLocal, PACKETS, packets::in_loop::<Local<false>>),
    (Peer::CorewheelShard, PACKETS, packets::in_loop::<LocalShard>),
    (Peer::MutexLinked64, PACKETS, packets::in_loop::<Locked<Linked64, ParkingLot>>),
    (Peer::CorewheelSleep, PACKETS, packets::corewheel_sleep),
    (Peer::TokioSleep, PACKETS, packets::tokio_sleep),
    (Peer::MonoioSleep, PACKETS, packets::monoio_sleep),
];

/// On the thread itself; in virtual time, or by a clock that the peer reads.
fn one_core<T: Timers>(job: Job) -> Vec<Sample> {
    match job.workload {
        W::Drain => drain::run::<T>(job),
        W::Pause | W::PauseAllDue | W::PauseAfterReset | W::PauseAfterSleep => pause::run::<T>(job),
        W::Memory | W::MemoryChurn | W::MemoryAllocations => memory::run::<T>(job),
        W::Scaling => scaling::run::<T>(job),
        _ => measure::run(operations::run::<T>(job)),
    }
}

/// In a task of a tokio runtime, by the machine's clock.
fn in_task<T: Timers + Send + 'static>(job: Job) -> Vec<Sample>
where
    T::Handle: Send,
{
    // Unconstrained: else every poll of a timer after the task's 128th would be put off, and
    // register nothing.
    let load = unconstrained(operations::run::<T>(job));
    runtime(job, 1).block_on(async { tokio::spawn(load).await.expect("a run that does not panic") })
}

fn late_tokio(job: Job) -> Vec<Sample> {
    late::run(job, |size| late::tokio_sleep(size, &runtime(job, 1)))
}

/// A loop that sleeps until a timer is due.
fn slack<T: Waking>(job: Job) -> Vec<Sample> {
    match job.workload {
        W::Within => slack::within::<T>(job),
        W::Spread => slack::spread::<T>(job),
        _ => pause::heartbeats::<T>(job),
    }
}

fn xcancel<T: Owner>(job: Job) -> Vec<Sample> {
    xcancel::run(job, xcancel::on_threads::<T>)
}

fn xcancel_tokio(job: Job) -> Vec<Sample> {
    xcancel::run(job, |both, size| xcancel::in_tasks::<TokioDrop>(both, size, &runtime(job, 2)))
}

fn flood<O: Sleeping, const BOUNDED: bool>(job: Job) -> Vec<Sample> {
    flood::run(job, BOUNDED, flood::on_two_cores::<O>)
}

fn flood_tokio(job: Job) -> Vec<Sample> {
    flood::run(job, false, |load| flood::tokio(load, &runtime(job, 2)))
}

/// Timeouts on the wheel of each of two threads.
fn corewheel_tasks<const FAST: bool>(job: Job) -> Vec<Sample> {
    guarded::run(job, &on_two_cores(future::timeout, guarded::drive_corewheel::<FAST>))
}

/// Timeouts on threads beside the runtime, or on a wheel for each core. They live as long as the
/// process.
fn on_timers(job: Job, timers: io::Result<future::Timers>) -> Vec<Sample> {
    let timers = timers.expect("threads can be started");
    let guard = move |limit, operation| timers.timeout(limit, operation);
    guarded::run(job, &on_workers(runtime(job, 2), guard))
}

fn tokio_tasks(job: Job) -> Vec<Sample> {
    guarded::run(job, &on_workers(runtime(job, 2), tokio::time::timeout))
}

/// Builds the runtime of a peer. Each of two workers is pinned to a core.
fn runtime(job: Job, workers: usize) -> Runtime {
    let single = matches!(job.peer, Peer::TokioSleep | Peer::DelayQueue);
    let mut builder =
        if single { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if !single {
        builder.worker_threads(workers);
    }
    if workers > 1 {
        let started = AtomicUsize::new(0);
        // Relaxed: a number for each.
        builder.on_thread_start(move || cores::pin(started.fetch_add(1, Ordering::Relaxed)));
    }
    builder.enable_time();
    #[cfg(tokio_unstable)]
    if job.peer == Peer::TokioAlt {
        builder.enable_alt_timer();
    }
    builder.build().expect("a runtime")
}
