//! Runs on two cores, each with a thread that is pinned to it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};

use super::{build, effort};
use crate::{
    cores,
    crossing::{
        Channel, Crossing, FloorEnd, Local, LocalShard, Locked, ParkingLot, Std, TokioDrop,
    },
    mailboxes::{self, Array, Chain, Chains, Ring, Seg, SwapQueue},
    measure::Sample,
    peers::{CorewheelLocal, CorewheelShard, CorewheelWheel, Linked64},
    plan::{Job, Pass, Peer},
    workloads::{
        flood::{self, Corewheel, Load, Owner, Setting},
        late, mailbox, scaling,
        xcancel::{self, Direction, Size},
    },
};

/// Timers that another core cancels, and how far apart the cores were meanwhile.
pub(super) fn xcancel(job: Job) -> Vec<Sample> {
    let before = cores::line_nanos();
    let mut samples = cancel(job);
    let line = f64::midpoint(before, cores::line_nanos());
    samples.push(Sample::new(
        format!("{}-line", job.pass.name()),
        job.n,
        "ns there and back",
        line,
    ));
    samples
}

fn cancel(job: Job) -> Vec<Sample> {
    match job.peer {
        Peer::CorewheelLocal => cancel_on_threads::<Local<false>>(job),
        Peer::CorewheelLocalFast => cancel_on_threads::<Local<true>>(job),
        Peer::CorewheelShard => cancel_on_threads::<LocalShard>(job),
        Peer::Floor => cancel_on_threads::<FloorEnd>(job),
        Peer::MutexStd => cancel_on_threads::<Locked<CorewheelWheel, Std>>(job),
        Peer::MutexParkingLot => cancel_on_threads::<Locked<CorewheelWheel, ParkingLot>>(job),
        Peer::MutexLinked64 => cancel_on_threads::<Locked<Linked64, ParkingLot>>(job),
        Peer::Channel => cancel_on_threads::<Channel<CorewheelWheel>>(job),
        Peer::TokioThreads | Peer::TokioAlt => {
            let (direction, size) = exchange(job);
            let stretches = xcancel::in_tasks::<TokioDrop>(direction, size, &runtime(job.peer));
            xcancel::samples(&job.pass.name(), direction, size, &stretches)
        }
        _ => unreachable!("it is for other passes"),
    }
}

fn cancel_on_threads<T: Crossing>(job: Job) -> Vec<Sample> {
    let (direction, size) = exchange(job);
    xcancel::samples(&job.pass.name(), direction, size, &xcancel::on_threads::<T>(direction, size))
}

fn exchange(Job { pass, n, quick, .. }: Job) -> (Direction, Size) {
    let direction = if pass == Pass::Xcancel { Direction::OneWay } else { Direction::BothWays };
    let (handed, stretches) = if quick { (1 << 14, 10) } else { (1 << 15, 64) };
    (direction, Size { live: n, handed, stretches })
}

/// Lateness while another core cancels.
pub(super) fn flood(job: Job) -> Vec<Sample> {
    match job.peer {
        Peer::CorewheelLocal => flood_on_threads::<Corewheel>(job, &BOUNDED),
        Peer::MutexStd => flood_on_threads::<flood::Locked<CorewheelWheel, Std>>(job, &UNBOUNDED),
        Peer::MutexParkingLot => {
            flood_on_threads::<flood::Locked<CorewheelWheel, ParkingLot>>(job, &UNBOUNDED)
        }
        Peer::MutexLinked64 => {
            flood_on_threads::<flood::Locked<Linked64, ParkingLot>>(job, &UNBOUNDED)
        }
        Peer::Channel => flood_on_threads::<flood::Channel<CorewheelWheel>>(job, &BOUNDED),
        Peer::TokioThreads | Peer::TokioAlt => {
            let outcome = |load| flood::tokio(load, &runtime(job.peer));
            flood::run(&job.pass.name(), flood_load(job), &UNBOUNDED, outcome)
        }
        _ => unreachable!("it has refused"),
    }
}

const BOUNDED: [Setting; 3] = [Setting::Alone, Setting::Flooded, Setting::Bounded];
const UNBOUNDED: [Setting; 2] = [Setting::Alone, Setting::Flooded];

fn flood_on_threads<O: Owner>(job: Job, settings: &[Setting]) -> Vec<Sample> {
    flood::run(&job.pass.name(), flood_load(job), settings, flood::on_two_cores::<O>)
}

fn flood_load(Job { n, quick, .. }: Job) -> Load {
    let due = if quick { 2000 } else { 10_000 };
    let span = Duration::from_secs(if quick { 1 } else { 3 });
    Load { due: late::Size { timers: due, span }, pending: n, setting: Setting::Alone }
}

/// Messages to another core.
pub(super) fn mailbox(Job { peer, pass, n, quick }: Job) -> Vec<Sample> {
    let run = match peer {
        Peer::Stack => mailbox::run::<Chains>,
        Peer::StackChain => mailbox::run::<Chain<false>>,
        Peer::StackSingle => mailbox::run::<Chain<true>>,
        Peer::SwapQueue => mailbox::run::<SwapQueue>,
        Peer::SegQueue => mailbox::run::<Seg>,
        Peer::ArrayQueue => mailbox::run::<Array>,
        Peer::StdMpsc => mailbox::run::<mailboxes::Channel>,
        Peer::Ring => mailbox::run::<Ring>,
        _ => unreachable!("it is no mailbox"),
    };
    run(&pass.name(), n, if quick { 1 << 18 } else { 1 << 22 })
}

/// Two cores that have nothing to do with each other.
pub(super) fn scaling(Job { peer, pass, n, quick }: Job) -> Vec<Sample> {
    let run = match peer {
        Peer::CorewheelWheel => scaling::run::<CorewheelWheel>,
        Peer::CorewheelShard => scaling::run::<CorewheelShard>,
        Peer::CorewheelLocal => scaling::run::<CorewheelLocal>,
        Peer::Linked64 => scaling::run::<Linked64>,
        _ => unreachable!("it has refused"),
    };
    run(&pass.name(), n, if quick { 2 } else { 8 }, effort(quick))
}

/// With two workers, each pinned to a core.
pub(super) fn runtime(peer: Peer) -> Runtime {
    let started = AtomicUsize::new(0);
    // Relaxed: a number for each.
    let pin = move || cores::pin(started.fetch_add(1, Ordering::Relaxed));
    build(Builder::new_multi_thread().worker_threads(2).on_thread_start(pin), peer)
}
