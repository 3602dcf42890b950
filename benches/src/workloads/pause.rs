//! How long a single turn takes, with a million timers, and how many entries it touches.

use std::time::Instant;

use fastrand::Rng;

use super::{SEED, quantile};
use crate::{
    measure::{Clock, Sample},
    timers::{Payload, Timers, payload},
};

const SPAN: u64 = 120_000;
const SLEEP: u64 = 10_000;
const MINUTE: u64 = 60_000;
/// Entries that a turn may touch, where there is a budget.
const BUDGET: usize = 64;

/// The preparation before the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Timers uniform over the next 120 s. Each that fires is added anew, 120 s ahead.
    Plain,
    /// All timers due in one tick; turns have a budget and go on until all have fired.
    AllDue,
    /// `Plain` after every deadline was moved a minute ahead.
    AfterReset,
    /// `Plain` after the loop slept for 10 s; turns have a budget.
    AfterSleep,
}

impl Variant {
    fn budget(self) -> usize {
        match self {
            Self::AllDue | Self::AfterSleep => BUDGET,
            Self::Plain | Self::AfterReset => usize::MAX,
        }
    }
}

struct Pause<T: Timers> {
    timers: T,
    fired: Vec<Payload>,
    now: u64,
    budget: usize,
    /// How long the turns took, as the caller sees it; and the longest by the time that the thread ran.
    nanos: Vec<f64>,
    cpu_nanos_max: f64,
    touched_max: Option<u64>,
}

impl<T: Timers> Pause<T> {
    fn new(variant: Variant, n: usize) -> Self {
        let (mut timers, mut rng) = (T::new(), Rng::with_seed(SEED));
        let mut deadline = || if variant == Variant::AllDue { 2 } else { rng.u64(1..=SPAN) };
        let deadlines: Vec<u64> = (0..n).map(|_| deadline()).collect();
        let mut handles: Vec<T::Handle> = deadlines
            .iter()
            .enumerate()
            .map(|(id, &deadline)| timers.add(deadline, payload(id)))
            .collect();
        if variant == Variant::AfterReset {
            for (handle, deadline) in handles.iter_mut().zip(&deadlines) {
                timers.reset(handle, deadline + MINUTE);
            }
        }
        // Allocated and touched up front, because the caller's memory is not the peer's pause.
        let mut fired = vec![payload(0); n];
        fired.clear();
        Self {
            timers,
            fired,
            now: 0,
            budget: variant.budget(),
            nanos: Vec::new(),
            cpu_nanos_max: 0.0,
            touched_max: None,
        }
    }

    /// One turn, `ticks` after the last; how many fired.
    fn turn(&mut self, ticks: u64) -> usize {
        self.now += ticks;
        let fired = &mut self.fired;
        let touched = self.timers.touched();
        let cpu_started = Clock::Cpu.read();
        let started = Instant::now();
        self.timers.advance_within(self.now, self.budget, |payload| fired.push(payload));
        self.nanos.push(started.elapsed().as_nanos() as f64);
        let cpu_nanos = Clock::Cpu.read().saturating_sub(cpu_started).as_nanos() as f64;
        self.cpu_nanos_max = self.cpu_nanos_max.max(cpu_nanos);
        let touched_now = self.timers.touched().zip(touched).map(|(after, before)| after - before);
        self.touched_max = self.touched_max.max(touched_now);
        self.fired.len()
    }

    fn add_anew(&mut self) {
        for payload in self.fired.drain(..) {
            self.timers.add(self.now + SPAN, payload);
        }
    }

    fn samples(mut self, name: &str, n: usize) -> Vec<Sample> {
        let mut samples = super::quantiles(name, n, "ns", &mut self.nanos);
        samples[0].curve = curve(&self.nanos);
        samples.push(Sample::nanos(&format!("{name}-max-cpu"), n, self.cpu_nanos_max));
        if let Some(touched) = self.touched_max {
            samples.push(Sample::new(format!("{name}-touched"), n, "entries", touched as f64));
        }
        samples
    }
}

/// The distribution as "one turn in `x` takes longer than `y`": 1, 2, 5, 10, 20, 50...
fn curve(sorted: &[f64]) -> Vec<(f64, f64)> {
    let decades = (0..).map(|exponent| 10f64.powi(exponent));
    let steps = decades.flat_map(|decade| [decade, 2.0 * decade, 5.0 * decade]);
    let mut curve: Vec<(f64, f64)> = steps
        .take_while(|&one_in| one_in <= sorted.len() as f64)
        .map(|one_in| (one_in, quantile(sorted, 1.0 - 1.0 / one_in)))
        .collect();
    curve.push((sorted.len() as f64, quantile(sorted, 1.0)));
    curve
}

/// The distribution of the length of a turn, one reading of the clock included. The longest turn by
/// CPU time, which leaves out the machine's other work, includes a system call.
pub fn run<T: Timers>(name: &str, variant: Variant, n: usize, turns: usize) -> Vec<Sample> {
    let mut pause = Pause::<T>::new(variant, n);
    if variant == Variant::AllDue {
        let mut fired = pause.turn(1);
        while fired < n {
            fired = pause.turn(1);
        }
        return pause.samples(name, n);
    }
    pause.turn(if variant == Variant::AfterSleep { SLEEP } else { 1 });
    for _ in 0..turns {
        pause.add_anew();
        pause.turn(1);
    }
    pause.samples(name, n)
}
