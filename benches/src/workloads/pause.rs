//! The time of a single turn with many timers, and the entries that it touches.

use std::time::Instant;

use fastrand::Rng;

use super::{SEED, quantile, run_in_settings};
use crate::measure::{self, ClockId, Sample};
use crate::plan::{Job, Workload as W};
use crate::timers::{Payload, ReportsDeadline, TimerSet, payload};

const DELAY_MAX: u64 = 120_000;
const SLEEP_TICKS: u64 = 10_000;
const MINUTE: u64 = 60_000;
/// Maximum number of entries that a turn with a budget touches.
const BUDGET: usize = 64;

/// The delay of the timers in `run_beside_each_heartbeat`.
const TEN_MINUTES: u64 = 600_000;
/// The number of ticks in which `run_beside_each_heartbeat` adds the timers.
const BURST: usize = 1_500;
const HEARTBEAT_PERIODS: [(&str, Option<u64>); 4] =
    [("none", None), ("50ms", Some(50)), ("250ms", Some(250)), ("1s", Some(1000))];

struct Pause<T: TimerSet> {
    timers: T,
    fired: Vec<Payload>,
    now: u64,
    budget: usize,
    turns: Vec<Turn>,
}

struct Turn {
    /// The elapsed time of the turn.
    nanos: f64,
    /// The CPU time of the thread during the turn.
    cpu_nanos: f64,
    fired: usize,
    relinked: Option<u64>,
}

impl<T: TimerSet> Pause<T> {
    fn without_timers(n: usize, budget: usize) -> Self {
        // Touches the memory of `fired` in advance, so that the timed turns do not include its page
        // faults.
        let mut fired = vec![payload(0); n];
        fired.clear();
        Self { timers: T::new(), fired, now: 0, budget, turns: Vec::new() }
    }

    fn new(workload: W, n: usize) -> Self {
        let limits_budget = matches!(workload, W::PauseAllDue | W::PauseAfterSleep);
        let budget = if limits_budget { BUDGET } else { usize::MAX };
        let (mut pause, mut rng) = (Self::without_timers(n, budget), Rng::with_seed(SEED));
        let mut deadline = || if workload == W::PauseAllDue { 2 } else { rng.u64(1..=DELAY_MAX) };
        let deadlines: Vec<u64> = (0..n).map(|_| deadline()).collect();
        let timers = deadlines.iter().enumerate();
        let add = |(id, &deadline)| pause.timers.add(deadline, payload(id));
        let mut handles: Vec<T::Handle> = timers.map(add).collect();
        if workload == W::PauseAfterReset {
            for (handle, deadline) in handles.iter_mut().zip(&deadlines) {
                pause.timers.reset(handle, deadline + MINUTE);
            }
        }
        pause
    }

    /// Runs one turn; returns the number of fired timers.
    fn turn(&mut self, now: u64) -> usize {
        self.now = now;
        let (before, fired) = (self.fired.len(), &mut self.fired);
        let relinked = self.timers.relinked();
        let cpu_started = measure::read_clock(ClockId::ThreadCPUTime);
        let started = Instant::now();
        self.timers.advance_within(now, self.budget, |payload| fired.push(payload));
        let nanos = started.elapsed().as_nanos() as f64;
        let cpu_nanos = measure::read_clock(ClockId::ThreadCPUTime)
            .saturating_sub(cpu_started)
            .as_nanos() as f64;
        let relinked = self.timers.relinked().zip(relinked).map(|(after, before)| after - before);
        let fired = self.fired.len() - before;
        self.turns.push(Turn { nanos, cpu_nanos, fired, relinked });
        fired
    }

    fn samples(self, job: Job) -> Vec<Sample> {
        let mut nanos: Vec<f64> = self.turns.iter().map(|turn| turn.nanos).collect();
        let cpu_nanos = self.turns.iter().map(|turn| turn.cpu_nanos).fold(0.0, f64::max);
        let handled =
            self.turns.iter().filter_map(|turn| Some(turn.relinked? + turn.fired as u64)).max();
        let mut samples = super::quantiles(job, "ns", &mut nanos);
        if job.workload == W::Pause {
            samples[0].curve = curve(&nanos);
        }
        samples.push(job.sample("max-cpu", "ns", cpu_nanos));
        samples.extend(handled.map(|handled| job.sample("handled", "entries", handled as f64)));
        samples
    }
}

/// Returns pairs `(x, y)`: at least one turn in `x` turns takes `y` or longer.
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

/// Measures the time of each turn, including one clock reading. A timer that fires is added again
/// for 120 s, except in `pause-all-due`.
pub fn run<T: TimerSet>(job: Job) -> Vec<Sample> {
    let Job { workload, n, scale, .. } = job;
    let mut pause = Pause::<T>::new(workload, n);
    if workload == W::PauseAllDue {
        while pause.fired.len() < n {
            pause.turn(pause.now + 1);
        }
        return pause.samples(job);
    }
    pause.turn(if workload == W::PauseAfterSleep { SLEEP_TICKS } else { 1 });
    for _ in 0..scale.pick(120_000, 70_000, 1000) {
        for payload in pause.fired.drain(..) {
            pause.timers.add(pause.now + DELAY_MAX, payload);
        }
        pause.turn(pause.now + 1);
    }
    pause.samples(job)
}

/// Adds timers of ten minutes within 1.5 s, with or without a heartbeat. After the adds, runs turns
/// only at the next deadlines that the peer reports.
pub fn run_beside_each_heartbeat<T: ReportsDeadline>(job: Job) -> Vec<Sample> {
    run_in_settings(&HEARTBEAT_PERIODS, |period| run_beside_heartbeat::<T>(job, period))
}

fn run_beside_heartbeat<T: ReportsDeadline>(job: Job, period: Option<u64>) -> Vec<Sample> {
    let n = job.n;
    let mut pause = Pause::<T>::without_timers(n + 1, usize::MAX);
    let (heartbeat_payload, mut fired_count) = ([u64::MAX; 3], 0);
    if let Some(period) = period {
        pause.timers.add(period, heartbeat_payload);
    }
    let mut turn = |pause: &mut Pause<T>, now| {
        let fired = pause.turn(now);
        let has_beaten = pause.fired.contains(&heartbeat_payload);
        pause.fired.clear();
        if let Some(period) = period.filter(|_| has_beaten) {
            pause.timers.add(now + period, heartbeat_payload);
        }
        fired_count += fired - usize::from(has_beaten);
        fired_count < n
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
    assert_eq!(fired_count, n, "each timer fires once");
    let longest = |nanos: fn(&Turn) -> f64| {
        pause.turns.iter().filter(|turn| turn.fired == 0).map(nanos).fold(0.0, f64::max)
    };
    let relinked = pause.turns.iter().filter_map(|turn| turn.relinked).max();
    let mut samples = vec![
        job.sample("longest", "ns", longest(|turn| turn.nanos)),
        job.sample("longest-cpu", "ns", longest(|turn| turn.cpu_nanos)),
    ];
    samples.extend(relinked.map(|relinked| job.sample("relinked", "entries", relinked as f64)));
    samples
}
