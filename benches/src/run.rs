//! One run, in the process that was started for it.

mod asking;
mod in_tasks;
mod two_cores;

use std::time::Duration;

use corewheel::Clock;
use tokio::{
    runtime::{Builder, Runtime},
    task::unconstrained,
};

use crate::{
    alloc,
    delayed::{Corewheel, Locked},
    measure::{self, Effort, Sample, ns_per_operation_in_task, settled},
    peers::{
        BTree, CorewheelLocal, CorewheelLocalRealTime, CorewheelShard, CorewheelWheel,
        DelayQueuePeer, DelayQueueRealTime, Floor, HashWheel, Heap4, LazyBinaryHeap, Linked64,
        Single65536, TokioSleep, TokioSleepRealTime,
    },
    plan::{Job, Pass, Peer},
    timers::{Timers, Waking},
    workloads::{
        drain, in_thread, late, memory,
        operations::{self, Churn, Delay, Longest, Reset, Steady},
        pause::{self, Variant},
        purgatory, waking,
    },
};

/// Does what the job says.
pub fn run(job: Job) -> Vec<Sample> {
    if matches!(job.pass, Pass::Memory | Pass::MemoryChurn | Pass::Allocations) {
        alloc::start_counting();
    }
    match (job.peer, job.pass) {
        (_, Pass::Xcancel | Pass::XcancelBoth) => two_cores::xcancel(job),
        (_, Pass::Asked) => asking::asked(job),
        (_, Pass::Flood) => two_cores::flood(job),
        (_, Pass::Async | Pass::AsyncReady | Pass::AsyncLate) => in_tasks::run(job),
        (_, Pass::Mailbox) => two_cores::mailbox(job),
        (_, Pass::Scaling) => two_cores::scaling(job),
        (_, Pass::Late | Pass::LateFine | Pass::IdleWakeUps) => run_late(job),
        (_, Pass::Within | Pass::Spread) => run_waking(job),
        (_, Pass::Purgatory) => run_delayed(job),
        (Peer::CorewheelLocal, Pass::Call) => run_virtual::<CorewheelLocalRealTime<false>>(job),
        (Peer::CorewheelLocalFast, _) => run_virtual::<CorewheelLocalRealTime<true>>(job),
        (Peer::DelayQueue, Pass::Call) => run_in_task::<DelayQueueRealTime>(job),
        (Peer::TokioSleep, Pass::Call) | (Peer::TokioThreads | Peer::TokioAlt, _) => {
            run_in_task::<TokioSleepRealTime>(job)
        }
        (Peer::CorewheelWheel, _) => run_virtual::<CorewheelWheel>(job),
        (Peer::CorewheelShard, _) => run_virtual::<CorewheelShard>(job),
        (Peer::CorewheelLocal, _) => run_virtual::<CorewheelLocal>(job),
        (Peer::Floor, _) => run_virtual::<Floor<false>>(job),
        (Peer::FloorCas, _) => run_virtual::<Floor<true>>(job),
        (Peer::Linked64, _) => run_virtual::<Linked64>(job),
        (Peer::Single65536, _) => run_virtual::<Single65536>(job),
        (Peer::Heap4, _) => run_virtual::<Heap4>(job),
        (Peer::BinaryHeap, _) => run_virtual::<LazyBinaryHeap>(job),
        (Peer::BTree, _) => run_virtual::<BTree>(job),
        (Peer::HierarchicalHashWheel, _) => run_virtual::<HashWheel>(job),
        (Peer::DelayQueue, _) => run_virtual::<DelayQueuePeer>(job),
        (Peer::TokioSleep, _) => run_virtual::<TokioSleep>(job),
        _ => unreachable!("it is for two cores"),
    }
}

/// On the thread itself; in virtual time, or by a clock that the peer reads.
fn run_virtual<T: Timers>(job: Job) -> Vec<Sample> {
    let Job { peer, pass, n, quick } = job;
    let (effort, name) = (effort(quick), &pass.name());
    let pause = |variant| pause::run::<T>(name, variant, n, if quick { 70_000 } else { 120_000 });
    match pass {
        Pass::Churn => operations::churn::<T>(name, n, Delay::MIXED, effort),
        Pass::ChurnLongest => operations::churn_longest::<T>(name, n, effort),
        Pass::Churn30 | Pass::Call => operations::churn::<T>(name, n, Delay::TIMEOUT, effort),
        Pass::Drain if matches!(peer, Peer::Floor | Peer::FloorCas) => {
            drain::run_fill::<T>(n, effort)
        }
        Pass::Drain => drain::run::<T>(n, effort),
        Pass::Reset => operations::reset::<T>(name, n, effort),
        Pass::Steady => operations::steady::<T>(name, n, effort),
        Pass::Pause => pause(Variant::Plain),
        Pass::PauseAllDue => pause(Variant::AllDue),
        Pass::PauseAfterReset => pause(Variant::AfterReset),
        Pass::PauseAfterSleep => pause(Variant::AfterSleep),
        Pass::Purgatory => unreachable!("it is about more than timers"),
        Pass::Idle => operations::idle::<T>(name, n, effort),
        Pass::IdleHour => operations::idle_hours::<T>(name, effort),
        Pass::Memory => memory::run::<T>(n),
        Pass::MemoryChurn if quick => memory::run_churn::<T>(n, 10_000_000, Duration::from_secs(2)),
        // It keeps what was cancelled, and would want gigabytes.
        Pass::MemoryChurn if peer == Peer::HierarchicalHashWheel => {
            memory::run_churn::<T>(n, 10_000_000, Duration::from_secs(30))
        }
        Pass::MemoryChurn => memory::run_churn::<T>(n, 100_000_000, Duration::from_secs(30)),
        Pass::Allocations => allocations::<T>(peer, n, effort),
        _ => unreachable!("no load on `Timers`"),
    }
}

fn run_waking(job: Job) -> Vec<Sample> {
    match job.peer {
        Peer::CorewheelWheel => run_loop::<CorewheelWheel>(job),
        Peer::CorewheelShard => run_loop::<CorewheelShard>(job),
        Peer::CorewheelLocal => run_loop::<CorewheelLocal>(job),
        Peer::Linked64 => run_loop::<Linked64>(job),
        Peer::BTree => run_loop::<BTree>(job),
        _ => unreachable!("it has refused"),
    }
}

/// Delayed operations, on timers of the peer.
fn run_delayed(Job { peer, pass, n, quick }: Job) -> Vec<Sample> {
    let (effort, name) = (effort(quick), &pass.name());
    match peer {
        Peer::CorewheelLocal => purgatory::run::<Corewheel>(name, n, effort),
        Peer::Linked64 => purgatory::run::<Locked<Linked64>>(name, n, effort),
        Peer::BTree => purgatory::run::<Locked<BTree>>(name, n, effort),
        _ => unreachable!("it has refused"),
    }
}

/// A loop that sleeps until the peer has something to do.
fn run_loop<T: Waking>(job: Job) -> Vec<Sample> {
    let name = &job.pass.name();
    if job.pass == Pass::Within {
        waking::within::<T>(name, job.n)
    } else {
        waking::spread::<T>(name, job.n)
    }
}

/// In a task of a tokio runtime, by the machine's clock.
fn run_in_task<T: Timers + Send + 'static>(job: Job) -> Vec<Sample>
where
    T::Handle: Send,
{
    // Unconstrained: else every poll of a timer after the task's 128th would be put off, and register nothing.
    let load = unconstrained(load_in_task::<T>(job));
    runtime(job.peer)
        .block_on(async { tokio::spawn(load).await.expect("a run that does not panic") })
}

async fn load_in_task<T: Timers>(job: Job) -> Vec<Sample> {
    let Job { pass, n, quick, .. } = job;
    let (effort, name) = (effort(quick), pass.name());
    let nanos = match pass {
        Pass::Reset => ns_per_operation_in_task(&mut Reset::<T>::new(n), settled(n), effort).await,
        Pass::ChurnLongest => {
            let mut churn = Churn::<T>::new(n, Delay::MIXED);
            ns_per_operation_in_task(
                &mut churn,
                settled(n),
                Effort { timed: Duration::ZERO, ..effort },
            )
            .await;
            let mut wall = Longest::of(churn, measure::Clock::Wall);
            ns_per_operation_in_task(&mut wall, 0, effort).await;
            let wall_sample = wall.sample(&name);
            let mut cpu = wall.by(measure::Clock::Cpu);
            ns_per_operation_in_task(&mut cpu, 0, effort).await;
            return vec![wall_sample, cpu.sample(&name)];
        }
        _ => {
            let delay = if pass == Pass::Churn { Delay::MIXED } else { Delay::TIMEOUT };
            ns_per_operation_in_task(&mut Churn::<T>::new(n, delay), settled(n), effort).await
        }
    };
    vec![Sample::nanos(&name, n, nanos)]
}

/// Each load in a thread of its own: some peers are the thread's.
fn allocations<T: Timers>(peer: Peer, n: usize, effort: Effort) -> Vec<Sample> {
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

fn run_late(job: Job) -> Vec<Sample> {
    let Job { peer, pass, n, quick } = job;
    let size = late::Size { timers: n, span: Duration::from_secs(if quick { 2 } else { 5 }) };
    let name = &pass.name();
    let clock = if peer == Peer::CorewheelLocalFast { Clock::fast() } else { Clock::monotonic() };
    let local = |tick| late::run(name, size, |size| late::corewheel_local(size, tick, clock));
    match (peer, pass) {
        (_, Pass::IdleWakeUps) => late::idle_wake_ups(name),
        (_, Pass::LateFine) => local(Duration::from_micros(50)),
        (Peer::CorewheelLocal | Peer::CorewheelLocalFast, _) => local(Duration::from_millis(1)),
        (Peer::BTree, _) => late::run(name, size, late::btree),
        (Peer::DelayQueue, _) => {
            late::run(name, size, |size| late::delay_queue(size, &runtime(peer)))
        }
        _ => late::run(name, size, |size| late::tokio_sleep(size, &runtime(peer))),
    }
}

/// The runtime of a peer that lives in one.
fn runtime(peer: Peer) -> Runtime {
    match peer {
        Peer::TokioThreads | Peer::TokioAlt => {
            build(Builder::new_multi_thread().worker_threads(1), peer)
        }
        _ => build(&mut Builder::new_current_thread(), peer),
    }
}

fn build(builder: &mut Builder, peer: Peer) -> Runtime {
    builder.enable_time();
    #[cfg(tokio_unstable)]
    if peer == Peer::TokioAlt {
        builder.enable_alt_timer();
    }
    builder.build().expect("a runtime")
}

fn effort(quick: bool) -> Effort {
    if quick { Effort::QUICK } else { Effort::NORMAL }
}
