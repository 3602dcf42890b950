//! The time from a call that wakes a thread of another core until that thread has done its work.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use corewheel::ShardRef;
use rustix::event::{EventfdFlags, eventfd};
use tokio::runtime::Builder;
use tokio::sync::Notify;

use super::quantiles;
use crate::across::{Local, Owner, Requests, Sleeping, count_run, counted_runs};
use crate::cores;
use crate::measure::{Sample, median};
use crate::plan::Job;
use crate::timers::{panic_not_due, payload};

/// The time from the announcement of a sleep to the waking call, long enough to fall asleep.
const WAIT_BEFORE_WAKING: Duration = Duration::from_micros(200);

/// Returns two functions for corewheel's owner: one sleeps until a wake-up, and the other wakes the
/// owner. The waker submits a closure or, with `ADD`, adds a timer that is due at once. A wake-up
/// before the sleep is not lost.
fn corewheel<const ADD: bool>() -> (impl FnMut(), impl FnMut() + Send) {
    let (mut local, mut remote) = Local::<false>::new(1);
    local.add(Duration::from_hours(1), payload(0));
    let sleep = move || {
        let before = counted_runs();
        while counted_runs() == before {
            local.sleep();
            local.turn(usize::MAX, panic_not_due);
        }
    };
    let wake = move || {
        if ADD {
            ShardRef::add(&remote, Duration::ZERO, || count_run(payload(1)));
        } else {
            Requests::run(&mut remote, payload(1));
        }
    };
    (sleep, wake)
}

/// The peer `futex`: the standard library's `park`, and a flag.
pub fn futex() -> (impl FnMut(), impl FnMut() + Send) {
    let (flag, thread) = (Arc::new(AtomicBool::new(false)), thread::current());
    let is_woken = Arc::clone(&flag);
    let sleep = move || {
        // Acquire: sees the work of the waker; pairs with the Release below.
        while !is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    };
    let wake = move || {
        // Release: publishes the work before the call; pairs with the Acquire above.
        flag.store(true, Ordering::Release);
        thread.unpark();
    };
    (sleep, wake)
}

pub fn event_fd() -> (impl FnMut(), impl FnMut() + Send) {
    let counter: File = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor").into();
    let (mut reader, mut writer) = (counter.try_clone().expect("a descriptor"), counter);
    let sleep = move || reader.read_exact(&mut [0; 8]).expect("a counter");
    let wake = move || writer.write_all(&1_u64.to_ne_bytes()).expect("room in the counter");
    (sleep, wake)
}

/// The peer `tokio-notify`: `Notify`, awaited by the main task of a current-thread runtime.
pub fn tokio_notify() -> (impl FnMut(), impl FnMut() + Send) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let notify = Arc::new(Notify::new());
    let notified = Arc::clone(&notify);
    (move || runtime.block_on(notified.notified()), move || notify.notify_one())
}

/// Measures the microseconds until the thread is awake, and the nanoseconds of the call.
pub fn run<S: FnMut(), W: FnMut() + Send>(job: Job, new: fn() -> (S, W)) -> Vec<Sample> {
    let rounds = job.scale.pick(4000, 500, 20);
    let (sleeping_round, call_nanos, start) =
        (&AtomicUsize::new(0), &AtomicU64::new(0), Instant::now());
    let now_nanos = move || start.elapsed().as_nanos() as u64;
    let (sender, receiver) = mpsc::channel();
    let run_sleeper = move || {
        let (mut sleep, wake) = new();
        sender.send(wake).expect("the waker thread waits");
        let latency = |round| {
            // Release and Acquire, here and below, so that no round reads the time of another
            // round's call.
            sleeping_round.store(round, Ordering::Release);
            sleep();
            (now_nanos() - call_nanos.load(Ordering::Acquire)) as f64 / 1e3
        };
        (1..=rounds).map(latency).collect::<Vec<f64>>()
    };
    let run_waker = move || {
        let mut wake = receiver.recv().expect("the sleeper has begun");
        let call = |round| {
            cores::spin_until(|| sleeping_round.load(Ordering::Acquire) == round);
            let sleep_start = Instant::now();
            cores::spin_until(|| sleep_start.elapsed() >= WAIT_BEFORE_WAKING);
            let before = now_nanos();
            call_nanos.store(before, Ordering::Release);
            wake();
            (now_nanos() - before) as f64
        };
        (1..=rounds).map(call).collect()
    };
    let (mut latencies, calls) = cores::run_on_two(run_sleeper, run_waker);
    let mut samples = quantiles(job, "us", &mut latencies);
    samples.push(job.sample("call", "ns", median(calls)));
    samples
}

pub fn run_add_and_closure(job: Job) -> Vec<Sample> {
    let mut by_timer = run(job, corewheel::<true>);
    for sample in &mut by_timer {
        sample.workload.insert_str("waking".len(), "-add");
    }
    [run(job, corewheel::<false>), by_timer].concat()
}
