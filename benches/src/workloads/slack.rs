//! Inexact timeouts: a loop whose timers have slack, and a loop that spreads its timers.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::Instant;

use fastrand::Rng;

use super::{SEED, quantile, run_in_settings};
use crate::measure::Sample;
use crate::plan::Job;
use crate::timers::{Payload, ReportsDeadline, Window, payload};

const DELAYS: RangeInclusive<u64> = 1000..=120_000;
/// The measured virtual time, after a warm-up of the same length.
const MEASURED_SECONDS: u64 = 120;

const SPREAD_DELAY: u64 = 1000;
const SPREAD_RANGES: [(&str, u64); 5] =
    [("0", 0), ("10ms", 10), ("100ms", 100), ("1s", 1000), ("10s", 10_000)];

/// Maps the delay of a timer to its slack, in ticks.
type Slack = fn(u64) -> u64;

const SLACKS: [(&str, Slack); 6] = [
    ("0", |_| 0),
    ("1%", |delay| delay / 100),
    ("5%", |delay| delay * 5 / 100),
    ("10%", |delay| delay * 10 / 100),
    ("25%", |delay| delay * 25 / 100),
    ("1s", |_| 1000),
];

struct SimulatedLoop<T> {
    timers: T,
    slack: Slack,
    fired: Vec<Payload>,
    rng: Rng,
    now: u64,
    wake_ups: u64,
    fired_count: u64,
}

impl<T: ReportsDeadline> SimulatedLoop<T> {
    fn new(n: usize, slack: Slack) -> Self {
        let (timers, fired, rng) = (T::new(), Vec::with_capacity(n), Rng::with_seed(SEED));
        let mut simulated_loop =
            Self { timers, slack, fired, rng, now: 0, wake_ups: 0, fired_count: 0 };
        (0..n).for_each(|id| simulated_loop.add(payload(id)));
        simulated_loop
    }

    fn add(&mut self, payload: Payload) {
        let delay = self.rng.u64(DELAYS);
        let window = Window::Slack((self.slack)(delay));
        black_box(self.timers.add_in_window(self.now + delay, window, payload));
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + seconds * 1000;
        while let Some(next) = self.timers.next_deadline().filter(|&next| next < end) {
            self.now = next;
            self.wake_ups += 1;
            let fired = &mut self.fired;
            self.timers.advance(next, |payload| fired.push(payload));
            self.fired_count += self.fired.len() as u64;
            while let Some(payload) = self.fired.pop() {
                self.add(payload);
            }
        }
        self.now = end;
    }
}

/// Measures a loop that sleeps until the next deadline, and adds each fired timer again.
pub fn within<T: ReportsDeadline>(job: Job) -> Vec<Sample> {
    run_in_settings(&SLACKS, |slack| {
        let mut simulated_loop = SimulatedLoop::<T>::new(job.n, slack);
        simulated_loop.run(MEASURED_SECONDS);
        (simulated_loop.wake_ups, simulated_loop.fired_count) = (0, 0);
        let before = simulated_loop.timers.relinked();
        let started = Instant::now();
        simulated_loop.run(MEASURED_SECONDS);
        let nanos = started.elapsed().as_nanos() as f64;
        let relinked =
            simulated_loop.timers.relinked().zip(before).map(|(after, before)| after - before);
        let fired_count = simulated_loop.fired_count as f64;
        let wake_ups = simulated_loop.wake_ups as f64 / MEASURED_SECONDS as f64;
        let mut samples = vec![job.sample("wake-ups", "per second", wake_ups)];
        let per_timer = relinked.map(|relinked| relinked as f64 / fired_count);
        samples.extend(per_timer.map(|value| job.sample("relinked", "entries", value)));
        samples.push(job.sample("timer", "ns", nanos / fired_count));
        samples
    })
}

/// Measures the timers per tick, without empty ticks, and the longest turn.
pub fn spread<T: ReportsDeadline>(job: Job) -> Vec<Sample> {
    run_in_settings(&SPREAD_RANGES, |range| spread_over_range::<T>(job, range))
}

fn spread_over_range<T: ReportsDeadline>(job: Job, range: u64) -> Vec<Sample> {
    let n = job.n;
    fastrand::seed(SEED);
    let mut timers = T::new();
    for id in 0..n {
        black_box(timers.add_in_window(SPREAD_DELAY, Window::Spread(range), payload(id)));
    }
    // Touches the memory of `fired` in advance, so that the timed turns do not include its page
    // faults.
    let mut fired: Vec<Payload> = vec![payload(0); n];
    fired.clear();
    let (mut per_tick, mut longest_turn_us, mut now) = (Vec::new(), 0.0_f64, 0);
    while fired.len() < n {
        now += 1;
        let before = fired.len();
        let started = Instant::now();
        timers.advance(now, |payload| fired.push(payload));
        longest_turn_us = longest_turn_us.max(started.elapsed().as_nanos() as f64 / 1e3);
        per_tick.push((fired.len() - before) as f64);
    }
    per_tick.retain(|&fired| fired > 0.0);
    per_tick.sort_by(f64::total_cmp);
    vec![
        job.sample("most", "timers", quantile(&per_tick, 1.0)),
        job.sample("p99", "timers", quantile(&per_tick, 0.99)),
        job.sample("turn-max", "us", longest_turn_us),
    ]
}
