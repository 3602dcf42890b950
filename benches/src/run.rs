//! How each peer does each workload, in the process that was started for it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use corewheel::Clock;
use tokio::{
    runtime::{Builder, Runtime},
    task::unconstrained,
};

use crate::{
    across::{
        Channel, Entered, FloorOwner, Local, LocalShard, Locked, Owner, ParkingLot, Requests,
        Sleeping, Std, TokioDrop,
    },
    alloc, cores,
    delayed::{self, Delayed},
    mailboxes::{self, Mailbox},
    measure::{self, Effort, Sample},
    peers::{
        BTree, CorewheelLocal, CorewheelLocalRealTime, CorewheelShard, CorewheelWheel,
        DelayQueuePeer, DelayQueueRealTime, Floor, HashWheel, Heap4, LazyBinaryHeap, Linked64,
        Single65536, TokioSleep, TokioSleepRealTime,
    },
    plan::{Job, Named, Peer, Workload as W},
    timeouts::{Here, Pingora, There, Tokio},
    timers::{Timers, Waking},
    workloads::{
        self, contended, drain, flood,
        guarded::{self, Stage, TwoCores, Workers},
        in_thread, late, mailbox, memory,
        operations::{self, Churn, Delay, Reset, Steady},
        pause, purgatory, scaling, slack,
        waking::{self, Corewheel, EventFd, Futex, Sleeper, TokioNotify},
        xcancel::{self, Direction},
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
const MAILBOX: &[&[W]] = &[&[W::Mailbox]];
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
    (Peer::TokioThreads, &[OPERATIONS], in_task::<TokioSleepRealTime>),
    (Peer::TokioAlt, &[OPERATIONS], in_task::<TokioSleepRealTime>),
    (Peer::CorewheelLocal, CALL, one_core::<CorewheelLocalRealTime<false>>),
    (Peer::CorewheelLocalFast, CALL, one_core::<CorewheelLocalRealTime<true>>),
    (Peer::DelayQueue, CALL, in_task::<DelayQueueRealTime>),
    (Peer::TokioSleep, CALL, in_task::<TokioSleepRealTime>),
    (Peer::TokioThreads, CALL, in_task::<TokioSleepRealTime>),
    (Peer::TokioAlt, CALL, in_task::<TokioSleepRealTime>),
    (Peer::CorewheelLocal, LATE_BY_TICK, |job| late_local(job, Clock::monotonic())),
    (Peer::CorewheelLocalFast, LATE_BY_TICK, |job| late_local(job, Clock::fast())),
    (Peer::BTree, LATE, |job| late_by(job, late::btree)),
    (Peer::DelayQueue, LATE, |job| late_by(job, |size| late::delay_queue(size, &runtime(job, 1)))),
    (Peer::TokioSleep, LATE, late_tokio),
    (Peer::TokioThreads, LATE, late_tokio),
    (Peer::TokioAlt, LATE, late_tokio),
    (Peer::CorewheelShard, &[&[W::IdleWakeUps]], |job| late::idle_wake_ups(&job.workload.name())),
    (Peer::CorewheelWheel, WITHIN, slack::<CorewheelWheel>),
    (Peer::CorewheelShard, SLACK, slack::<CorewheelShard>),
    (Peer::CorewheelLocal, SLACK, slack::<CorewheelLocal>),
    (Peer::Linked64, SLACK, slack::<Linked64>),
    (Peer::BTree, SLACK, slack::<BTree>),
    (Peer::CorewheelLocal, PURGATORY, delayed::<delayed::Corewheel>),
    (Peer::Linked64, PURGATORY, delayed::<delayed::Locked<Linked64, Std>>),
    (Peer::BTree, PURGATORY, delayed::<delayed::Locked<BTree, Std>>),
    (Peer::MutexLinked64, PURGATORY, delayed::<delayed::Locked<Linked64, ParkingLot>>),
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
    (Peer::CorewheelLocal, LOCK, xcancel_lock::<Local<false>>),
    (Peer::CorewheelShard, LOCK, xcancel_lock::<LocalShard>),
    (Peer::MutexStd, LOCK, xcancel_lock::<Locked<CorewheelWheel, Std>>),
    (Peer::MutexParkingLot, LOCK, xcancel_lock::<Locked<CorewheelWheel, ParkingLot>>),
    (Peer::MutexLinked64, LOCK, xcancel_lock::<Locked<Linked64, ParkingLot>>),
    (Peer::MutexHeap4, LOCK, xcancel_lock::<Locked<Heap4, ParkingLot>>),
    (Peer::Channel, LOCK, xcancel_lock::<Channel<CorewheelWheel>>),
    (Peer::CorewheelLocal, FLOOD, flood::<Local<false>, true>),
    (Peer::MutexStd, FLOOD, flood::<Locked<CorewheelWheel, Std>, false>),
    (Peer::MutexParkingLot, FLOOD, flood::<Locked<CorewheelWheel, ParkingLot>, false>),
    (Peer::MutexLinked64, FLOOD, flood::<Locked<Linked64, ParkingLot>, false>),
    (Peer::Channel, FLOOD, flood::<Channel<CorewheelWheel>, true>),
    (Peer::TokioThreads, FLOOD, flood_tokio),
    (Peer::TokioAlt, FLOOD, flood_tokio),
    (Peer::CorewheelLocal, ASKED, asked::<Local<false>>),
    (Peer::CorewheelLocalFast, ASKED, asked::<Local<true>>),
    (Peer::MutexStd, ASKED, asked::<Locked<CorewheelWheel, Std>>),
    (Peer::MutexParkingLot, ASKED, asked::<Locked<CorewheelWheel, ParkingLot>>),
    (Peer::MutexLinked64, ASKED, asked::<Locked<Linked64, ParkingLot>>),
    (Peer::MutexHeap4, ASKED, asked::<Locked<Heap4, ParkingLot>>),
    (Peer::Channel, ASKED, asked::<Channel<CorewheelWheel>>),
    (Peer::TokioSleep, ASKED, asked::<Entered>),
    (Peer::CorewheelLocal, WAKING, waking_twice),
    (Peer::TokioNotify, WAKING, waking::<TokioNotify>),
    (Peer::EventFd, WAKING, waking::<EventFd>),
    (Peer::Futex, WAKING, waking::<Futex>),
    (Peer::Stack, MAILBOX, mailbox::<mailboxes::Chains>),
    (Peer::StackChain, MAILBOX, mailbox::<mailboxes::Chain<false>>),
    (Peer::StackSingle, MAILBOX, mailbox::<mailboxes::Chain<true>>),
    (Peer::SwapQueue, MAILBOX, mailbox::<mailboxes::SwapQueue>),
    (Peer::SegQueue, MAILBOX, mailbox::<mailboxes::Seg>),
    (Peer::ArrayQueue, MAILBOX, mailbox::<mailboxes::Array>),
    (Peer::StdMpsc, MAILBOX, mailbox::<mailboxes::Channel>),
    (Peer::Ring, MAILBOX, mailbox::<mailboxes::Ring>),
    (Peer::CorewheelLocal, ASYNC, |job| tasks(job, &TwoCores(Here::<false>))),
    (Peer::CorewheelLocalFast, ASYNC, |job| tasks(job, &TwoCores(Here::<true>))),
    (Peer::TokioSleep, ASYNC, |job| tasks(job, &TwoCores(Tokio))),
    (Peer::CorewheelTimers, ASYNC, |job| {
        tasks(job, &Workers::new(runtime(job, 2), There::on_threads(2)))
    }),
    (Peer::CorewheelPerWorker, ASYNC, |job| {
        tasks(job, &Workers::new(runtime(job, 2), There::per_worker()))
    }),
    (Peer::TokioThreads, ASYNC, |job| tasks(job, &Workers::new(runtime(job, 2), Tokio))),
    (Peer::TokioAlt, ASYNC, |job| tasks(job, &Workers::new(runtime(job, 2), Tokio))),
    (Peer::PingoraTimeout, ASYNC, |job| tasks(job, &Workers::new(runtime(job, 2), Pingora))),
];

/// On the thread itself; in virtual time, or by a clock that the peer reads.
fn one_core<T: Timers>(job: Job) -> Vec<Sample> {
    let Job { peer, workload, n, scale } = job;
    let (effort, name) = (effort(job), &workload.name());
    let nanos = |nanos| vec![Sample::nanos(name, n, nanos)];
    match workload {
        W::Drain if matches!(peer, Peer::Floor | Peer::FloorCas) => drain::run_fill::<T>(n, effort),
        W::Drain => drain::run::<T>(n, effort),
        W::Steady => nanos(operations::steady::<T>(n, effort)),
        W::Pause | W::PauseAllDue | W::PauseAfterReset | W::PauseAfterSleep => {
            pause::run::<T>(workload, n, scale.pick(120_000, 70_000, 1000))
        }
        W::Idle => nanos(operations::idle::<T>(n, effort)),
        W::IdleHour => nanos(operations::idle_hours::<T>(effort)),
        W::Memory => {
            alloc::start_counting();
            memory::run::<T>(n)
        }
        W::MemoryChurn => {
            alloc::start_counting();
            // The hash wheel keeps what was cancelled, and would want gigabytes.
            let most = if peer == Peer::HierarchicalHashWheel { 10_000_000 } else { 100_000_000 };
            let pairs = scale.pick(most, 10_000_000, 10_000);
            memory::run_churn::<T>(n, pairs, Duration::from_millis(scale.pick(30_000, 2000, 20)))
        }
        W::MemoryAllocations => allocations::<T>(peer, n, effort),
        W::Scaling => scaling::run::<T>(name, n, scale.pick(8, 2, 1), effort),
        _ => measure::run(operations::<T>(job)),
    }
}

/// Operations on a number of timers that stays the same.
async fn operations<T: Timers>(job: Job) -> Vec<Sample> {
    let Job { workload, n, .. } = job;
    let (effort, name) = (effort(job), &workload.name());
    let nanos = match workload {
        W::Churn => operations::churn::<T>(n, Delay::MIXED, effort).await,
        W::Churn30 | W::Call => operations::churn::<T>(n, Delay::TIMEOUT, effort).await,
        W::Reset => operations::reset::<T>(n, effort).await,
        W::ChurnLongest => {
            let [wall, cpu] = operations::churn_longest::<T>(n, effort).await;
            return vec![
                Sample::nanos(name, n, wall),
                Sample::nanos(&format!("{name}-cpu"), n, cpu),
            ];
        }
        _ => unreachable!("{name} has a run of its own"),
    };
    vec![Sample::nanos(name, n, nanos)]
}

/// Each load has its own thread, because some peers are thread-local.
fn allocations<T: Timers>(peer: Peer, n: usize, effort: Effort) -> Vec<Sample> {
    alloc::start_counting();
    let churn = || {
        memory::allocations("allocations-churn", n, &mut Churn::<T>::new(n, Delay::MIXED), effort)
    };
    let reset = || memory::allocations("allocations-reset", n, &mut Reset::<T>::new(n), effort);
    let steady = || memory::allocations("allocations-steady", n, &mut Steady::<T>::new(n), effort);
    let mut samples = vec![in_thread(churn), in_thread(reset), in_thread(steady)];
    if peer == Peer::CorewheelLocal {
        let churn = || Churn::<CorewheelLocalRealTime<false>>::new(n, Delay::TIMEOUT);
        samples
            .push(in_thread(|| memory::allocations("allocations-call", n, &mut churn(), effort)));
    }
    samples
}

/// In a task of a tokio runtime, by the machine's clock.
fn in_task<T: Timers + Send + 'static>(job: Job) -> Vec<Sample>
where
    T::Handle: Send,
{
    // Unconstrained: else every poll of a timer after the task's 128th would be put off, and
    // register nothing.
    let load = unconstrained(operations::<T>(job));
    runtime(job, 1).block_on(async { tokio::spawn(load).await.expect("a run that does not panic") })
}

fn late_by(job: Job, lateness: impl FnOnce(late::Size) -> Vec<f64>) -> Vec<Sample> {
    let span = Duration::from_millis(job.scale.pick(5000, 2000, 100));
    late::run(&job.workload.name(), late::Size { timers: job.n, span }, lateness)
}

fn late_local(job: Job, clock: Clock) -> Vec<Sample> {
    let tick = Duration::from_micros(if job.workload == W::Late50us { 50 } else { 1000 });
    late_by(job, |size| late::corewheel_local(size, tick, clock))
}

fn late_tokio(job: Job) -> Vec<Sample> {
    late_by(job, |size| late::tokio_sleep(size, &runtime(job, 1)))
}

/// A loop that sleeps until a timer is due.
fn slack<T: Waking>(Job { workload, n, .. }: Job) -> Vec<Sample> {
    let name = &workload.name();
    match workload {
        W::Within => slack::within::<T>(name, n),
        W::Spread => slack::spread::<T>(name, n),
        _ => pause::heartbeats::<T>(name, n),
    }
}

fn delayed<D: Delayed>(job: Job) -> Vec<Sample> {
    purgatory::run::<D>(&job.workload.name(), job.n, effort(job))
}

fn xcancel<T: Owner>(job: Job) -> Vec<Sample> {
    xcancel_by(job, xcancel::on_threads::<T>)
}

fn xcancel_tokio(job: Job) -> Vec<Sample> {
    xcancel_by(job, |direction, size| {
        xcancel::in_tasks::<TokioDrop>(direction, size, &runtime(job, 2))
    })
}

/// Timers that another core cancels, and how far apart the cores were before and after.
fn xcancel_by(
    Job { workload, n, scale, .. }: Job,
    exchange: impl FnOnce(Direction, xcancel::Size) -> Vec<[xcancel::Stretch; 2]>,
) -> Vec<Sample> {
    let (handed, stretches) = scale.pick((1 << 15, 64), (1 << 14, 10), (1 << 10, 2));
    let size = xcancel::Size { live: n, handed, stretches };
    let one_way = workload == W::Xcancel;
    let direction = if one_way { Direction::OneWay } else { Direction::BothWays };
    let (name, before) = (&workload.name(), cores::line_nanos());
    let mut samples = xcancel::samples(name, direction, size, &exchange(direction, size));
    let line = f64::midpoint(before, cores::line_nanos());
    samples.push(Sample::new(format!("{name}-line"), n, "ns there and back", line));
    samples
}

/// Calls of cancel that meet others.
fn xcancel_lock<O: Owner<Remote: Clone>>(Job { workload, n, scale, .. }: Job) -> Vec<Sample> {
    contended::run::<O>(&workload.name(), n, scale.pick(40, 5, 1))
}

/// A sleeping thread that another one wakes.
fn waking<S: Sleeper>(job: Job) -> Vec<Sample> {
    waking::run::<S>(&job.workload.name(), job.scale.pick(4000, 500, 20))
}

/// By a closure, and by a timer.
fn waking_twice(job: Job) -> Vec<Sample> {
    let by_timer = waking::run::<Corewheel<true>>("waking-add", job.scale.pick(4000, 500, 20));
    [waking::<Corewheel<false>>(job), by_timer].concat()
}

fn flood<O: Sleeping, const BOUNDED: bool>(job: Job) -> Vec<Sample> {
    flood_by(job, BOUNDED, flood::on_two_cores::<O>)
}

fn flood_tokio(job: Job) -> Vec<Sample> {
    flood_by(job, false, |load| flood::tokio(load, &runtime(job, 2)))
}

/// Lateness while another core cancels.
fn flood_by(
    Job { workload, n, scale, .. }: Job,
    can_be_bounded: bool,
    outcome: impl Fn(flood::Load) -> flood::Outcome,
) -> Vec<Sample> {
    let (timers, span) = scale.pick((10_000, 3000), (2000, 1000), (200, 100));
    let due = late::Size { timers, span: Duration::from_millis(span) };
    flood::run(&workload.name(), due, n, can_be_bounded, outcome)
}

/// Requests of another core.
fn asked<O: Owner<Remote: Requests>>(Job { workload, n, scale, .. }: Job) -> Vec<Sample> {
    let rounds = if n < 1000 { 4000 } else { 400 };
    workloads::asked::run::<O>(&workload.name(), n, scale.pick(rounds, rounds / 4, 8))
}

/// Messages to another core.
fn mailbox<M: Mailbox>(Job { workload, n, scale, .. }: Job) -> Vec<Sample> {
    mailbox::run::<M>(&workload.name(), n, scale.pick(1 << 22, 1 << 18, 1 << 13))
}

/// Tasks that wrap operations in timeouts.
fn tasks(Job { workload, n, scale, .. }: Job, stage: &dyn Stage) -> Vec<Sample> {
    let name = &workload.name();
    if workload == W::AsyncLate {
        let span = Duration::from_millis(scale.pick(3000, 300, 100));
        return guarded::late(name, late::Size { timers: n, span }, stage);
    }
    let yields = u32::from(workload == W::Async);
    let (operations, stretches) = scale.pick((500, 10), (100, 3), (5, 1));
    guarded::run(name, guarded::Size { tasks: n, operations, yields, stretches }, stage)
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

fn effort(job: Job) -> Effort {
    job.scale.pick(Effort::NORMAL, Effort::QUICK, Effort::TINY)
}
