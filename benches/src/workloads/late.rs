//! Punctuality by the machine's clock: timers over some seconds, on a thread that sleeps in between.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    future::poll_fn,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use corewheel::{Clock, Config, ManualClock, Shard, local_timer};
use fastrand::Rng;
use tokio::{runtime::Runtime, task::JoinSet};
use tokio_util::time::DelayQueue;

use super::SEED;
use crate::{
    measure::{Sample, cpu_nanos},
    plan::{Job, Workload as W},
};

pub(super) const LEAD: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub timers: usize,
    /// The time they are spread over.
    pub span: Duration,
}

/// Returns how many microseconds late a timer fires now; negative if it is early.
pub(super) fn lateness(due: Instant) -> f64 {
    let now = Instant::now();
    let late = now.saturating_duration_since(due).as_nanos() as f64;
    let early = due.saturating_duration_since(now).as_nanos() as f64;
    (late - early) / 1e3
}

/// Delays of all timers, the same for all peers. None is due before all have been added.
pub(super) fn delays(size: Size) -> impl Iterator<Item = Duration> {
    let mut rng = Rng::with_seed(SEED);
    (0..size.timers).map(move |_| LEAD + size.span.mul_f64(rng.f64()))
}

/// Runs one of the loops below, or of another workload, and says how late it was.
pub fn run(job: Job, fire: impl FnOnce(Size) -> Vec<f64>) -> Vec<Sample> {
    let span = match job.workload {
        W::AsyncLate => job.scale.pick(3000, 300, 100),
        _ => job.scale.pick(5000, 2000, 100),
    };
    let size = Size { timers: job.n, span: Duration::from_millis(span) };
    let cpu_before = cpu_nanos();
    let mut lateness = fire(size);
    let cpu = (cpu_nanos() - cpu_before) / 1e9;
    assert_eq!(lateness.len(), size.timers, "each timer fires once");
    let early = lateness.iter().filter(|&&lateness| lateness < 0.0).count();
    let mut samples = super::quantiles(job, "us", &mut lateness);
    samples.push(job.sample("early", "timers", early as f64));
    samples.push(job.sample("cpu", "CPU s", cpu));
    samples
}

/// corewheel's `local_timer()`, parked between turns.
pub fn corewheel_local(job: Job, clock: Clock) -> Vec<Sample> {
    let tick = Duration::from_micros(if job.workload == W::Late50us { 50 } else { 1000 });
    run(job, |size| parked_between_turns(size, tick, clock))
}

fn parked_between_turns(size: Size, tick: Duration, clock: Clock) -> Vec<f64> {
    Config::new().tick(tick).clock(clock).install().expect("a new thread");
    let log = Rc::new(RefCell::new(Vec::new()));
    for delay in delays(size) {
        let (log, due) = (Rc::clone(&log), Instant::now() + delay);
        local_timer().add(delay, move || log.borrow_mut().push(lateness(due)));
    }
    while !local_timer().is_empty() {
        local_timer().sleep_with(|timeout| timeout.map_or_else(thread::park, thread::park_timeout));
        local_timer().turn();
    }
    log.take()
}

/// A B-tree by deadline, to the nanosecond, on a thread that parks until the first is due.
pub fn btree(size: Size) -> Vec<f64> {
    let mut log = Vec::new();
    let mut timers: BTreeSet<(Instant, usize)> =
        delays(size).enumerate().map(|(id, delay)| (Instant::now() + delay, id)).collect();
    while let Some(&(due, _)) = timers.first() {
        let now = Instant::now();
        if due > now {
            thread::park_timeout(due - now);
        } else {
            timers.pop_first();
            log.push(lateness(due));
        }
    }
    log
}

pub fn tokio_sleep(size: Size, runtime: &Runtime) -> Vec<f64> {
    runtime.block_on(async { sleeping_tasks(size).join_all().await })
}

/// Tasks that say how late they were woken.
pub(super) fn sleeping_tasks(size: Size) -> JoinSet<f64> {
    let task = |delay| {
        let due = Instant::now() + delay;
        let sleep = tokio::time::sleep(delay);
        async move {
            sleep.await;
            lateness(due)
        }
    };
    delays(size).map(task).collect()
}

/// tokio-util's `DelayQueue`, one task that waits for the next.
pub fn delay_queue(size: Size, runtime: &Runtime) -> Vec<f64> {
    runtime.block_on(async {
        let (mut log, mut queue) = (Vec::new(), DelayQueue::new());
        for delay in delays(size) {
            let due = Instant::now() + delay;
            queue.insert(due, delay);
        }
        while let Some(expired) = poll_fn(|context| queue.poll_expired(context)).await {
            log.push(lateness(expired.into_inner()));
        }
        log
    })
}

/// How often an idle shard wants to be turned until its only timer, an hour away, has fired.
pub fn idle_wake_ups(job: Job) -> Vec<Sample> {
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().clock(&clock)).expect("there are few shards");
    shard.add(Duration::from_hours(1), ());
    let mut turns = 0;
    while let Some(wait) = shard.time_until_next() {
        clock.advance(wait);
        shard.turn();
        while shard.next_expired().is_some() {}
        turns += 1;
    }
    vec![job.sample("", "turns", f64::from(turns))]
}
