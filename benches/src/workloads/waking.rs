//! From a call on one core that wakes a sleeping thread of another core to the moment at which that
//! thread has done what it was woken for.

use std::{
    fs::File,
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use corewheel::ShardRef;
use rustix::event::{EventfdFlags, eventfd};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
};

use super::quantiles;
use crate::{
    across::{Local, Owner, Requests, Sleeping, note, noted},
    cores,
    measure::{Sample, median},
    plan::Job,
    timers::{not_due, payload},
};

/// From the announcement of a sleep to the call; long enough to fall asleep.
const PAUSE: Duration = Duration::from_micros(200);

/// A thread that sleeps until it is woken.
pub trait Sleeper: Sized {
    /// Wakes it from another thread.
    type Waker: Send;

    /// Creates both, on the thread that is to sleep.
    fn new() -> (Self, Self::Waker);

    /// Wakes the thread.
    fn wake(waker: &mut Self::Waker);

    /// Sleeps until a wake; not at all if there was one since the last sleep.
    fn sleep(&mut self);
}

/// `corewheel-local`, woken by a closure to run, or, with `ADD`, by a timer that is due at once.
pub struct Corewheel<const ADD: bool>(Local<false>);

impl<const ADD: bool> Sleeper for Corewheel<ADD> {
    type Waker = ShardRef;

    fn new() -> (Self, ShardRef) {
        let (mut local, remote) = Local::new(1);
        local.add(Duration::from_hours(1), payload(0));
        (Self(local), remote)
    }

    fn wake(remote: &mut ShardRef) {
        if ADD {
            ShardRef::add(remote, Duration::ZERO, || note(payload(1)));
        } else {
            Requests::run(remote, payload(1));
        }
    }

    fn sleep(&mut self) {
        let before = noted();
        while noted() == before {
            self.0.sleep();
            self.0.turn(usize::MAX, not_due);
        }
    }
}

/// `futex`: the standard library's `park`, and a flag.
pub struct Futex(Arc<AtomicBool>);

impl Sleeper for Futex {
    type Waker = (Arc<AtomicBool>, Thread);

    fn new() -> (Self, Self::Waker) {
        let flag = Arc::new(AtomicBool::new(false));
        (Self(Arc::clone(&flag)), (flag, thread::current()))
    }

    fn wake((flag, thread): &mut Self::Waker) {
        // Release: the sleeper sees the work before the call (pairs with the Acquire in `sleep`).
        flag.store(true, Ordering::Release);
        thread.unpark();
    }

    fn sleep(&mut self) {
        // Acquire: the work of the waker (pairs with the Release in `wake`).
        while !self.0.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// `eventfd`.
pub struct EventFd(Arc<File>);

impl Sleeper for EventFd {
    type Waker = Arc<File>;

    fn new() -> (Self, Arc<File>) {
        let file = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let file: Arc<File> = Arc::new(file.into());
        (Self(Arc::clone(&file)), file)
    }

    fn wake(file: &mut Arc<File>) {
        file.as_ref().write_all(&1_u64.to_ne_bytes()).expect("room in the counter");
    }

    fn sleep(&mut self) {
        self.0.as_ref().read_exact(&mut [0; 8]).expect("a counter");
    }
}

/// `tokio-notify`: `Notify`, for the main task of a current-thread runtime with its poll of events.
pub struct TokioNotify {
    runtime: Runtime,
    notify: Arc<Notify>,
}

impl Sleeper for TokioNotify {
    type Waker = Arc<Notify>;

    fn new() -> (Self, Arc<Notify>) {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let notify = Arc::new(Notify::new());
        (Self { runtime, notify: Arc::clone(&notify) }, notify)
    }

    fn wake(notify: &mut Arc<Notify>) {
        notify.notify_one();
    }

    fn sleep(&mut self) {
        self.runtime.block_on(self.notify.notified());
    }
}

/// Microseconds from the call to the moment at which the thread is awake, and nanoseconds of the
/// call.
pub fn run<S: Sleeper>(job: Job) -> Vec<Sample> {
    let rounds = job.scale.pick(4000, 500, 20);
    let (sleeps, called, start) = (&AtomicUsize::new(0), &AtomicU64::new(0), Instant::now());
    let nanos = move || start.elapsed().as_nanos() as u64;
    let (sender, receiver) = mpsc::channel();
    let asleep = move || {
        let (mut sleeper, waker) = S::new();
        sender.send(waker).expect("it is waited for");
        let sleep = |round| {
            // Release and Acquire, here and below: a round reads the time of its call.
            sleeps.store(round, Ordering::Release);
            sleeper.sleep();
            (nanos() - called.load(Ordering::Acquire)) as f64 / 1e3
        };
        (1..=rounds).map(sleep).collect::<Vec<f64>>()
    };
    let awake = move || {
        let mut waker = receiver.recv().expect("the sleeper has begun");
        let wake = |round| {
            cores::spin_until(|| sleeps.load(Ordering::Acquire) == round);
            let announced = Instant::now();
            cores::spin_until(|| announced.elapsed() >= PAUSE);
            let before = nanos();
            called.store(before, Ordering::Release);
            S::wake(&mut waker);
            (nanos() - before) as f64
        };
        (1..=rounds).map(wake).collect()
    };
    let (mut latencies, calls) = cores::on_two(asleep, awake);
    let mut samples = quantiles(job, "us", &mut latencies);
    samples.push(job.sample("call", "ns", median(calls)));
    samples
}

/// corewheel's thread, woken by a closure and by a timer.
pub fn run_twice(job: Job) -> Vec<Sample> {
    let mut by_timer = run::<Corewheel<true>>(job);
    for sample in &mut by_timer {
        sample.workload.insert_str("waking".len(), "-add");
    }
    [run::<Corewheel<false>>(job), by_timer].concat()
}
