//! Tasks that wrap one short operation after the other in a timeout of 30 s. What a timeout costs is the time that the
//! threads of the process ran for it, whichever they were, less what they ran for the same tasks without timeouts, in
//! turns with them.

mod errand;
mod stage;

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use self::errand::Dropped;
pub use self::{
    errand::Errand,
    stage::{Stage, TwoCores, Workers},
};
use super::late::{self, Log};
use crate::measure::{Sample, cpu_nanos, median};

/// After the tasks of a stretch: what they have left to other threads belongs to it.
const SETTLE: Duration = Duration::from_millis(25);

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Tasks.
    pub tasks: usize,
    /// Operations of a task in a stretch.
    pub operations: u32,
    /// Polls at which an operation is not ready.
    pub yields: u32,
    /// As many are timed, after one for the warm-up.
    pub stretches: usize,
}

/// For an operation, as medians of the stretches: the time that all threads ran, that without timeouts, and the
/// difference; operations a second. And what is left of as many timeouts as there are tasks.
pub fn run(name: &str, size: Size, stage: &dyn Stage) -> Vec<Sample> {
    let (mut own, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..=size.stretches {
        floor.push(Stretch::of(size, |errands| stage.run_floor(errands)));
        own.push(Stretch::of(size, |errands| stage.run(errands)));
    }
    let (own, floor) = (&own[1..], &floor[1..]);
    let cpu = |stretches: &[Stretch]| median(stretches.iter().map(|stretch| stretch.cpu).collect());
    let timeout = own.iter().zip(floor).map(|(own, floor)| own.cpu - floor.cpu);
    let sample = |what: &str, unit: &str, value| {
        Sample::new(format!("{name}-{what}"), size.tasks, unit, value)
    };
    vec![
        sample("timeout", "ns", median(timeout.collect())),
        sample("cpu", "ns", cpu(own)),
        sample("floor", "ns", cpu(floor)),
        sample("rate", "k/s", median(own.iter().map(|stretch| stretch.rate).collect())),
        sample("left", "timeouts", left(size.tasks, stage) as f64),
    ]
}

/// Per operation.
struct Stretch {
    /// Nanoseconds.
    cpu: f64,
    /// Thousands a second.
    rate: f64,
}

impl Stretch {
    fn of(size: Size, run: impl FnOnce(Vec<Errand>)) -> Self {
        let Size { tasks, operations, yields, .. } = size;
        let (all, errands) = (
            tasks as f64 * f64::from(operations),
            vec![Errand::Work { operations, yields }; tasks],
        );
        let (cpu, began) = (cpu_nanos(), Instant::now());
        run(errands);
        let took = began.elapsed();
        thread::sleep(SETTLE);
        Self { cpu: (cpu_nanos() - cpu) / all, rate: all / took.as_secs_f64() / 1e3 }
    }
}

/// One look on each core, where the cores have their own tasks.
fn left(timeouts: usize, stage: &dyn Stage) -> usize {
    let dropped = Dropped::new(timeouts);
    let mut errands = vec![Errand::Drop(Arc::clone(&dropped)); timeouts];
    errands.insert(0, Errand::Look(Arc::clone(&dropped)));
    errands.push(Errand::Look(Arc::clone(&dropped)));
    stage.run(errands);
    dropped.left()
}

/// Tasks whose timeouts do end.
pub fn late(name: &str, size: late::Size, stage: &dyn Stage) -> Vec<Sample> {
    late::run(name, size, |size| {
        let log = Arc::new(Mutex::new(Log::default()));
        stage.run(late::delays(size).map(|delay| Errand::Late(delay, Arc::clone(&log))).collect());
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut log.lateness)
    })
}
