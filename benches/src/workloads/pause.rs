//! How long a single turn takes, with a million timers, and how many entries it touches.

use std::time::Instant;

use fastrand::Rng;

use super::{SEED, in_settings, quantile};
use crate::{
    measure::{Clock, Sample},
    plan::{Job, Workload as W},
    timers::{Payload, Timers, Waking, payload},
};

const SPAN: u64 = 120_000;
const SLEEP: u64 = 10_000;
const MINUTE: u64 = 60_000;
/// Entries that a turn may touch, where there is a budget.
const BUDGET: usize = 64;

/// The delay of the timers beside a heartbeat, and the time within which they are added.
const TEN_MINUTES: u64 = 600_000;
const BURST: usize = 1_500;
/// The heartbeats, in ticks.
const HEARTBEATS: [(&str, Option<u64>); 4] =
    [("none", None), ("50ms", Some(50)), ("250ms", Some(250)), ("1s", Some(1000))];

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

/// The cost of one turn.
#[derive(Clone, Copy)]
struct Turn {
    /// As the caller sees it, and by the time that the thread ran.
    nanos: f64,
    cpu_nanos: f64,
    fired: usize,
    touched: Option<u64>,
}

impl<T: Timers> Pause<T> {
    fn empty(n: usize, budget: usize) -> Self {
        // Allocated and touched up front, because the caller's memory is not the peer's pause.
        let mut fired = vec![payload(0); n];
        fired.clear();
        let (timers, nanos) = (T::new(), Vec::new());
        Self { timers, fired, now: 0, budget, nanos, cpu_nanos_max: 0.0, touched_max: None }
    }

    fn new(workload: W, n: usize) -> Self {
        let has_budget = matches!(workload, W::PauseAllDue | W::PauseAfterSleep);
        let budget = if has_budget { BUDGET } else { usize::MAX };
        let (mut pause, mut rng) = (Self::empty(n, budget), Rng::with_seed(SEED));
        let mut deadline = || if workload == W::PauseAllDue { 2 } else { rng.u64(1..=SPAN) };
        let deadlines: Vec<u64> = (0..n).map(|_| deadline()).collect();
        let mut handles: Vec<T::Handle> = deadlines
            .iter()
            .enumerate()
            .map(|(id, &deadline)| pause.timers.add(deadline, payload(id)))
            .collect();
        if workload == W::PauseAfterReset {
            for (handle, deadline) in handles.iter_mut().zip(&deadlines) {
                pause.timers.reset(handle, deadline + MINUTE);
            }
        }
        pause
    }

    /// One turn, `ticks` after the last; how many have fired.
    fn turn(&mut self, ticks: u64) -> usize {
        let turn = self.turn_at(self.now + ticks);
        self.nanos.push(turn.nanos);
        self.cpu_nanos_max = self.cpu_nanos_max.max(turn.cpu_nanos);
        self.touched_max = self.touched_max.max(turn.touched);
        self.fired.len()
    }

    fn turn_at(&mut self, now: u64) -> Turn {
        self.now = now;
        let (before, fired) = (self.fired.len(), &mut self.fired);
        let touched = self.timers.touched();
        let cpu_started = Clock::Cpu.read();
        let started = Instant::now();
        self.timers.advance_within(self.now, self.budget, |payload| fired.push(payload));
        let nanos = started.elapsed().as_nanos() as f64;
        let cpu_nanos = Clock::Cpu.read().saturating_sub(cpu_started).as_nanos() as f64;
        let touched = self.timers.touched().zip(touched).map(|(after, before)| after - before);
        Turn { nanos, cpu_nanos, fired: self.fired.len() - before, touched }
    }

    fn add_anew(&mut self) {
        for payload in self.fired.drain(..) {
            self.timers.add(self.now + SPAN, payload);
        }
    }

    fn samples(mut self, job: Job) -> Vec<Sample> {
        let mut samples = super::quantiles(job, "ns", &mut self.nanos);
        samples[0].curve = curve(&self.nanos);
        samples.push(job.sample("max-cpu", "ns", self.cpu_nanos_max));
        let touched = self.touched_max;
        samples.extend(touched.map(|touched| job.sample("touched", "entries", touched as f64)));
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
/// CPU time, which leaves out the machine's other work, includes a system call. A timer that fires
/// is added anew, 120 s ahead, except in `pause-all-due`.
pub fn run<T: Timers>(job: Job) -> Vec<Sample> {
    let Job { workload, n, scale, .. } = job;
    let mut pause = Pause::<T>::new(workload, n);
    if workload == W::PauseAllDue {
        while pause.turn(1) < n {}
        return pause.samples(job);
    }
    pause.turn(if workload == W::PauseAfterSleep { SLEEP } else { 1 });
    for _ in 0..scale.pick(120_000, 70_000, 1000) {
        pause.add_anew();
        pause.turn(1);
    }
    pause.samples(job)
}

/// Timers of ten minutes that are added within 1.5 s, and a heartbeat or none. The loop turns only
/// when the peer says so. For each heartbeat: the longest turn that fires nothing, and the most
/// entries that a turn moves beyond those it fires.
pub fn heartbeats<T: Waking>(job: Job) -> Vec<Sample> {
    in_settings(&HEARTBEATS, |period| beside_heartbeat::<T>(job, period))
}

fn beside_heartbeat<T: Waking>(job: Job, period: Option<u64>) -> Vec<Sample> {
    let n = job.n;
    let mut pause = Pause::<T>::empty(n + 1, usize::MAX);
    let (mut nanos, mut cpu_nanos, mut moved, mut ended) = (0.0_f64, 0.0_f64, None, 0);
    let beat = [u64::MAX; 3];
    if let Some(period) = period {
        pause.timers.add(period, beat);
    }
    let mut turn = |pause: &mut Pause<T>, now| {
        let turn = pause.turn_at(now);
        if turn.fired == 0 {
            nanos = nanos.max(turn.nanos);
            cpu_nanos = cpu_nanos.max(turn.cpu_nanos);
        }
        moved = moved.max(turn.touched.map(|touched| touched - turn.fired as u64));
        let beats = pause.fired.contains(&beat);
        pause.fired.clear();
        if let Some(period) = period.filter(|_| beats) {
            pause.timers.add(now + period, beat);
        }
        ended += turn.fired - usize::from(beats);
        ended < n
    };
    for tick in 0..BURST {
        turn(&mut pause, tick as u64 + 1);
        for id in n * tick / BURST..n * (tick + 1) / BURST {
            pause.timers.add(pause.now + TEN_MINUTES, payload(id));
        }
    }
    while let Some(next) = pause.timers.next_deadline() {
        if !turn(&mut pause, next) {
            break;
        }
    }
    assert_eq!(ended, n, "each timer fires once");
    let mut samples =
        vec![job.sample("longest", "ns", nanos), job.sample("longest-cpu", "ns", cpu_nanos)];
    samples.extend(moved.map(|moved| job.sample("moved", "entries", moved as f64)));
    samples
}
