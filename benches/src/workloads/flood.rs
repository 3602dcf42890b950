//! Punctuality under a flood of cancels: one core has timers that are due over some seconds by the machine's clock,
//! and very many others that are not; half-way, another core cancels all of those as fast as it can. How late does
//! the first core fire?
//!
//! Its loop sleeps until the next timer is due. What takes in all that was cancelled at once may be busy with that
//! while timers come due; where it can be bounded, it is measured bounded too.

mod owners;
mod tokio_tasks;

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;

pub use self::{
    owners::{Channel, Corewheel, Locked, Ticking},
    tokio_tasks::tokio,
};
use super::{
    SEED,
    late::{LEAD, Size, delays},
    pause::quantile,
};
use crate::{cores, measure::Sample};

/// Entries, and cancelled timers, of a turn that is bounded.
const BUDGET: usize = 256;

/// What happens beside the timers that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Nothing.
    Alone,
    /// The flood, all of which a turn takes in.
    Flooded,
    /// The flood, of which a turn takes in a bounded part.
    Bounded,
}

impl Setting {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Flooded => "flooded",
            Self::Bounded => "bounded",
        }
    }

    fn budget(self) -> usize {
        if self == Self::Bounded { BUDGET } else { usize::MAX }
    }

    fn is_flooded(self) -> bool {
        self != Self::Alone
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The timers that are due.
    pub due: Size,
    /// Those that are not, and that are cancelled in a flood.
    pub pending: usize,
    /// Which.
    pub setting: Setting,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// How late each timer fired, in microseconds.
    pub lateness: Vec<f64>,
    /// From the first cancel until the owner had taken in the last, if there was a flood.
    pub flood: Option<Duration>,
}

/// Timers by the machine's clock, of a thread that sleeps until the next is due.
pub trait Owner {
    /// Names a timer on the other core.
    type Handle: Send;
    /// What the other core cancels by.
    type Other: Send;

    /// Without timers.
    fn new() -> Self;

    /// For the other core.
    fn other(&self) -> Self::Other;

    /// Adds a timer, and notes how late it is when it fires.
    fn add(&mut self, delay: Duration) -> Self::Handle;

    /// Cancels a timer, on the other core; false if it is told that it had ended.
    fn cancel(other: &Self::Other, handle: Self::Handle) -> bool;

    /// Fires what is due and takes in what was cancelled, at most so many of each, where it can be bounded.
    fn turn(&mut self, budget: usize);

    /// Sleeps until the next turn is wanted.
    fn sleep(&self);

    /// Timers that have not ended.
    fn live(&self) -> usize;

    /// Timers that have fired.
    fn fired(&self) -> usize;

    /// What was noted.
    fn into_lateness(self) -> Vec<f64>;
}

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
pub fn on_two_cores<O: Owner>(load: Load) -> Outcome {
    let (to_other, of_owner) = mpsc::channel();
    let own = move || {
        let mut owner = O::new();
        let handles: Vec<O::Handle> = pending(load).map(|delay| owner.add(delay)).collect();
        delays(load.due).for_each(|delay| _ = owner.add(delay));
        to_other.send((owner.other(), handles)).expect("the other core waits");
        let left = if load.setting.is_flooded() { 0 } else { load.pending };
        let mut flood_ended = None;
        while owner.live() > left {
            owner.sleep();
            owner.turn(load.setting.budget());
            if flood_ended.is_none() && owner.live() + owner.fired() == load.due.timers {
                flood_ended = Some(Instant::now());
            }
        }
        (owner.into_lateness(), flood_ended)
    };
    let flood = move || {
        let (other, handles) = of_owner.recv().expect("the owner sends");
        thread::sleep(flood_delay(load));
        let started = Instant::now();
        load.setting.is_flooded().then(|| {
            let cancelled = handles
                .into_iter()
                .filter_map(|handle| O::cancel(&other, handle).then_some(()))
                .count();
            assert_eq!(cancelled, load.pending, "each was live");
            started
        })
    };
    let ((lateness, ended), started) = cores::on_two(own, flood);
    Outcome { lateness, flood: started.zip(ended).map(|(started, ended)| ended - started) }
}

/// Runs it in these settings.
pub fn run(
    name: &str,
    load: Load,
    settings: &[Setting],
    outcome: impl Fn(Load) -> Outcome,
) -> Vec<Sample> {
    let in_setting = |&setting| {
        samples(name, load.pending, setting, outcome(Load { setting, ..load }), load.due.timers)
    };
    settings.iter().flat_map(in_setting).collect()
}

fn samples(name: &str, n: usize, setting: Setting, outcome: Outcome, due: usize) -> Vec<Sample> {
    let Outcome { mut lateness, flood } = outcome;
    assert_eq!(lateness.len(), due, "each timer fires once");
    lateness.sort_by(f64::total_cmp);
    assert!(lateness[0] >= 0.0, "none is early");
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
    let late = quantiles.map(|(label, share)| {
        Sample::new(format!("{name}-{label}"), n, "us", quantile(&lateness, share))
    });
    let took =
        flood.map(|took| Sample::new(format!("{name}-took"), n, "ms", took.as_secs_f64() * 1e3));
    late.into_iter().chain(took).map(|sample| sample.at(setting.name())).collect()
}
