//! Lateness of timers over some seconds in real time. In a flood, another core cancels many pending
//! timers half-way through the run.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use corewheel::local_timer;
use fastrand::Rng;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, unconstrained, yield_now};
use tokio::time::sleep;
use tokio_util::time::DelayQueue;

use super::{SEED, quantiles, run_in_settings};
use crate::across::{BATCH, Remote, Sleeping};
use crate::cores;
use crate::measure::{Sample, process_cpu_nanos};
use crate::peers::{self, LocalClock, RealTime, SleepBox};
use crate::plan::{Job, Workload as W};
use crate::timers::Payload;

/// The shortest delay, long enough to add all timers.
const DELAY_MIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub struct LoadSize {
    pub timers: usize,
    /// The time over which the deadlines are spread.
    pub span: Duration,
}

/// Returns the lateness of a timer that fires now, in microseconds; negative if it is early.
pub(super) fn lateness(deadline: Instant) -> f64 {
    let now = Instant::now();
    let late = now.saturating_duration_since(deadline).as_nanos() as f64;
    let early = deadline.saturating_duration_since(now).as_nanos() as f64;
    (late - early) / 1e3
}

/// Returns the delays of all timers, the same for all peers.
pub(super) fn delays(size: LoadSize) -> impl Iterator<Item = Duration> {
    let mut rng = Rng::with_seed(SEED);
    (0..size.timers).map(move |_| DELAY_MIN + size.span.mul_f64(rng.f64()))
}

/// Reports quantiles of the lateness that `measure_lateness` returns, the number of early timers,
/// and the CPU time of the process during the call.
pub fn run(job: Job, measure_lateness: impl FnOnce(LoadSize) -> Vec<f64>) -> Vec<Sample> {
    let span = match job.workload {
        W::AsyncLate => job.scale.pick(3000, 300, 100),
        _ => job.scale.pick(5000, 2000, 100),
    };
    let size = LoadSize { timers: job.n, span: Duration::from_millis(span) };
    let cpu_before = process_cpu_nanos();
    let mut lateness = measure_lateness(size);
    let cpu = (process_cpu_nanos() - cpu_before) / 1e9;
    assert_eq!(lateness.len(), size.timers, "each timer fires once");
    let early = lateness.iter().filter(|&&lateness| lateness < 0.0).count();
    let mut samples = quantiles(job, "us", &mut lateness);
    samples.push(job.sample("early", "timers", early as f64));
    samples.push(job.sample("cpu", "CPU s", cpu));
    samples
}

pub fn corewheel_local<const FAST: bool>(job: Job) -> Vec<Sample> {
    RealTime::<FAST>::install();
    run(job, |size| {
        let latenesses = Rc::new(RefCell::new(Vec::new()));
        for delay in delays(size) {
            let (latenesses, deadline) = (Rc::clone(&latenesses), Instant::now() + delay);
            local_timer().add(delay, move || latenesses.borrow_mut().push(lateness(deadline)));
        }
        while !local_timer().is_empty() {
            local_timer().prepare_sleep().park();
            local_timer().turn();
        }
        latenesses.take()
    })
}

pub fn btree(size: LoadSize) -> Vec<f64> {
    let mut latenesses = Vec::new();
    let mut timers: BTreeSet<(Instant, usize)> =
        delays(size).enumerate().map(|(id, delay)| (Instant::now() + delay, id)).collect();
    while let Some(&(deadline, _)) = timers.first() {
        let now = Instant::now();
        if deadline > now {
            thread::park_timeout(deadline - now);
        } else {
            timers.pop_first();
            latenesses.push(lateness(deadline));
        }
    }
    latenesses
}

pub fn tokio_sleep(size: LoadSize, runtime: &Runtime) -> Vec<f64> {
    runtime.block_on(async { sleeping_tasks(size).join_all().await })
}

fn sleeping_tasks(size: LoadSize) -> JoinSet<f64> {
    let task = |delay| {
        let deadline = Instant::now() + delay;
        let sleep = sleep(delay);
        async move {
            sleep.await;
            lateness(deadline)
        }
    };
    delays(size).map(task).collect()
}

pub fn delay_queue(size: LoadSize, runtime: &Runtime) -> Vec<f64> {
    runtime.block_on(async {
        let (mut latenesses, mut queue) = (Vec::new(), DelayQueue::new());
        for delay in delays(size) {
            let deadline = Instant::now() + delay;
            queue.insert(deadline, delay);
        }
        while let Some(expired) = poll_fn(|context| queue.poll_expired(context)).await {
            latenesses.push(lateness(expired.into_inner()));
        }
        latenesses
    })
}

#[derive(Clone, Copy, Debug)]
pub struct FloodLoad {
    due_load: LoadSize,
    pending: usize,
    /// True if another core cancels the pending timers.
    is_flooded: bool,
    /// The budget of a turn, for peers that have one.
    budget: usize,
}

/// The name of each setting, whether it has a flood, and the budget of a turn.
const SETTINGS: [(&str, (bool, usize)); 3] =
    [("alone", (false, usize::MAX)), ("flooded", (true, usize::MAX)), ("bounded", (true, 256))];

/// The lateness of each timer in microseconds, and the duration of a flood.
type Outcome = (Vec<f64>, Option<Duration>);

impl FloodLoad {
    fn pending(self) -> impl Iterator<Item = Duration> {
        let mut rng = Rng::with_seed(SEED);
        (0..self.pending).map(move |_| Duration::from_millis(rng.u64(30_000..=60_000)))
    }

    /// Returns the time from the adds to the beginning of the flood.
    fn delay(self) -> Duration {
        DELAY_MIN + self.due_load.span / 2
    }
}

pub fn cancel_flood_on_two_cores<O: Sleeping>(load: FloodLoad) -> Outcome {
    let (to_other, from_owner) = mpsc::channel();
    let own = move || {
        let (mut owner, remote) = O::new(load.pending + load.due_load.timers);
        let start = Instant::now();
        // The payload is the deadline.
        let deadline_payload = |delay| [(start.elapsed() + delay).as_nanos() as u64; 3];
        let handles: Vec<_> =
            load.pending().map(|delay| owner.add(delay, deadline_payload(delay))).collect();
        delays(load.due_load).for_each(|delay| _ = owner.add(delay, deadline_payload(delay)));
        to_other.send((remote, handles)).expect("the other core waits");
        let cancels_to_collect = if load.is_flooded { load.pending } else { 0 };
        let (mut latenesses, mut collected, mut flood_ended) = (Vec::new(), 0, None);
        while collected < cancels_to_collect || latenesses.len() < load.due_load.timers {
            owner.sleep();
            let on_fire = |[deadline, ..]: Payload| {
                latenesses.push(lateness(start + Duration::from_nanos(deadline)));
            };
            collected += owner.turn(load.budget, on_fire).collected;
            if flood_ended.is_none() && collected == load.pending {
                flood_ended = Some(Instant::now());
            }
        }
        (latenesses, flood_ended)
    };
    let flood = move || {
        let (mut remote, handles): (O::Remote, Vec<O::Handle>) =
            from_owner.recv().expect("the owner sends");
        thread::sleep(load.delay());
        let started = Instant::now();
        load.is_flooded.then(|| {
            let cancel = |handle| usize::from(remote.cancel(handle));
            let cancelled: usize = handles.into_iter().map(cancel).sum();
            assert_eq!(cancelled, load.pending, "each timer was live");
            started
        })
    };
    let ((lateness, flood_end), started) = cores::run_on_two(own, flood);
    (lateness, started.zip(flood_end).map(|(started, flood_end)| flood_end - started))
}

pub fn flood(
    job: Job,
    has_budget: bool,
    run_load: impl Fn(FloodLoad) -> Outcome + Sync,
) -> Vec<Sample> {
    let (timers, span) = job.scale.pick((10_000, 3000), (2000, 1000), (200, 100));
    let due_load = LoadSize { timers, span: Duration::from_millis(span) };
    run_in_settings(&SETTINGS[..2 + usize::from(has_budget)], |(is_flooded, budget)| {
        let load = FloodLoad { due_load, pending: job.n, is_flooded, budget };
        let (mut lateness, flood) = run_load(load);
        assert_eq!(lateness.len(), due_load.timers, "each timer fires once");
        let mut samples = quantiles(job, "us", &mut lateness);
        assert!(lateness[0] >= 0.0, "no timer is early");
        samples
            .extend(flood.map(|flood_duration| {
                job.sample("took", "ms", flood_duration.as_secs_f64() * 1e3)
            }));
        samples
    })
}

pub fn flood_tokio(load: FloodLoad, runtime: &Runtime) -> Outcome {
    runtime.block_on(async {
        let register = |delay| peers::register_sleep(&mut Vec::new(), sleep(delay));
        let registered = async move { load.pending().map(register).collect() };
        let boxes = tokio::spawn(unconstrained(registered)).await.expect("the task does not panic");
        let tasks = sleeping_tasks(load.due_load);
        let flood = tokio::spawn(unconstrained(drop_all(load, boxes)));
        let lateness = tasks.join_all().await;
        let (boxes, flood_duration) = flood.await.expect("the task does not panic");
        drop(boxes);
        (lateness, flood_duration)
    })
}

/// Drops the sleeps. Returns their boxes, to be freed after the run, and the time of the drops.
async fn drop_all(load: FloodLoad, mut boxes: Vec<SleepBox>) -> (Vec<SleepBox>, Option<Duration>) {
    sleep(load.delay()).await;
    if !load.is_flooded {
        return (boxes, None);
    }
    let started = Instant::now();
    for batch in boxes.chunks_mut(BATCH) {
        for boxed in batch {
            assert!(peers::drop_sleep(boxed), "the timer was live");
        }
        yield_now().await;
    }
    (boxes, Some(started.elapsed()))
}
