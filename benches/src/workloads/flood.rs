//! Punctuality under a flood of cancels, by the machine's clock. One core has timers that are due
//! over some seconds, and very many others that are not. Half-way, another core cancels all of
//! those as fast as it can. How late does the first core fire?
//!
//! Its loop sleeps until the next timer is due. What takes in all that was cancelled at once may be busy with that
//! while timers come due; where it can be bounded, it is measured bounded too.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use tokio::{
    runtime::Runtime,
    task::{unconstrained, yield_now},
    time::sleep,
};

use super::{
    SEED,
    late::{self, LEAD, Size, delays, sleeping_tasks},
    quantiles,
};
use crate::{
    across::{BATCH, Remote, Sleeping},
    cores,
    measure::Sample,
    peers::{self, Place},
    plan::Job,
    timers::Payload,
};

/// Entries, and cancelled timers, of a turn that is bounded.
const BUDGET: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub due: Size,
    pub pending: usize,
    /// Whether another core cancels them.
    pub is_flooded: bool,
    /// How many of the cancels a turn consumes at most, where it can be bounded.
    pub budget: usize,
}

/// Alone, with a flood, and with a flood of which a turn consumes a bounded part.
const SETTINGS: [(&str, bool, usize); 3] =
    [("alone", false, usize::MAX), ("flooded", true, usize::MAX), ("bounded", true, BUDGET)];

/// How late each timer fired, in microseconds; and the time from the first cancel until the owner had
/// taken in the last, if there was a flood.
type Outcome = (Vec<f64>, Option<Duration>);

/// Delays of the timers that do not fire.
fn pending(load: Load) -> impl Iterator<Item = Duration> {
    let mut rng = Rng::with_seed(SEED);
    (0..load.pending).map(move |_| Duration::from_millis(rng.u64(30_000..=60_000)))
}

/// When the flood begins, counted from when all timers have been added.
fn flood_delay(load: Load) -> Duration {
    LEAD + load.due.span / 2
}

/// The owner on the first core, the flood from the second.
pub fn on_two_cores<O: Sleeping>(load: Load) -> Outcome {
    let (to_other, of_owner) = mpsc::channel();
    let own = move || {
        let (mut owner, remote) = O::new(load.pending + load.due.timers);
        let start = Instant::now();
        // A payload says when it is due.
        let due = |delay| [(start.elapsed() + delay).as_nanos() as u64; 3];
        let handles: Vec<_> = pending(load).map(|delay| owner.add(delay, due(delay))).collect();
        delays(load.due).for_each(|delay| _ = owner.add(delay, due(delay)));
        to_other.send((remote, handles)).expect("the other core waits");
        let wanted = if load.is_flooded { load.pending } else { 0 };
        let (mut log, mut collected, mut flood_ended) = (Vec::new(), 0, None);
        while collected < wanted || log.len() < load.due.timers {
            owner.sleep();
            let fired =
                |[due, ..]: Payload| log.push(late::lateness(start + Duration::from_nanos(due)));
            collected += owner.turn(load.budget, fired).collected;
            if flood_ended.is_none() && collected == load.pending {
                flood_ended = Some(Instant::now());
            }
        }
        (log, flood_ended)
    };
    let flood = move || {
        let (mut remote, handles): (O::Remote, Vec<O::Handle>) =
            of_owner.recv().expect("the owner sends");
        thread::sleep(flood_delay(load));
        let started = Instant::now();
        load.is_flooded.then(|| {
            let cancel = |handle| usize::from(remote.cancel(handle));
            let cancelled: usize = handles.into_iter().map(cancel).sum();
            assert_eq!(cancelled, load.pending, "each was live");
            started
        })
    };
    let ((lateness, ended), started) = cores::on_two(own, flood);
    (lateness, started.zip(ended).map(|(started, ended)| ended - started))
}

/// How late the timers were in each setting, and how long a flood took.
pub fn run(job: Job, can_be_bounded: bool, outcome: impl Fn(Load) -> Outcome) -> Vec<Sample> {
    let (timers, span) = job.scale.pick((10_000, 3000), (2000, 1000), (200, 100));
    let due = Size { timers, span: Duration::from_millis(span) };
    let settings = &SETTINGS[..2 + usize::from(can_be_bounded)];
    let in_setting = |&(setting, is_flooded, budget)| {
        let load = Load { due, pending: job.n, is_flooded, budget };
        let (mut lateness, flood) = outcome(load);
        assert_eq!(lateness.len(), due.timers, "each timer fires once");
        let mut samples = quantiles(job, "us", &mut lateness);
        assert!(lateness[0] >= 0.0, "none is early");
        samples.extend(flood.map(|took| job.sample("took", "ms", took.as_secs_f64() * 1e3)));
        samples.into_iter().map(move |sample| sample.at(setting))
    };
    settings.iter().flat_map(in_setting).collect()
}

/// The flood in a tokio runtime with two workers. Each due timer has a task. One task drops the
/// others, and yields after each batch, as a task should.
pub fn tokio(load: Load, runtime: &Runtime) -> Outcome {
    runtime.block_on(async {
        let registered = tokio::spawn(unconstrained(async move { register(load) }));
        let places = registered.await.expect("a task that does not panic");
        let tasks = sleeping_tasks(load.due);
        let flood = tokio::spawn(unconstrained(drop_all(load, places)));
        let lateness = tasks.join_all().await;
        let (places, took) = flood.await.expect("a task that does not panic");
        drop(places);
        (lateness, took)
    })
}

/// Those that do not fire, each polled once.
fn register(load: Load) -> Vec<Place> {
    pending(load).map(|delay| peers::put(&mut Vec::new(), sleep(delay))).collect()
}

/// Drops them where they are; the places go when all is over.
async fn drop_all(load: Load, mut places: Vec<Place>) -> (Vec<Place>, Option<Duration>) {
    sleep(flood_delay(load)).await;
    if !load.is_flooded {
        return (places, None);
    }
    let started = Instant::now();
    for batch in places.chunks_mut(BATCH) {
        for place in batch {
            assert!(peers::empty(place), "it was live");
        }
        yield_now().await;
    }
    (places, Some(started.elapsed()))
}
