//! Timeouts that need not be exact: what a loop saves when timers may wait for one another.
//!
//! The timers re-add themselves when they fire. The loop sleeps until there is something to do.

use std::{hint::black_box, ops::RangeInclusive, time::Instant};

use fastrand::Rng;

use super::SEED;
use crate::{
    measure::Sample,
    timers::{Payload, Waking, payload},
};

/// 1 to 120 s.
const DELAYS: RangeInclusive<u64> = 1000..=120_000;
/// How long the loop is watched, after it has run for as long.
const SECONDS: u64 = 120;

/// How much later than its deadline a timer may fire.
#[derive(Clone, Copy, Debug)]
enum Slack {
    Percent(u64),
    Ticks(u64),
}

/// Parts of the delay, and one that is the same for all.
const SLACKS: [(&str, Slack); 6] = [
    ("0", Slack::Percent(0)),
    ("1%", Slack::Percent(1)),
    ("5%", Slack::Percent(5)),
    ("10%", Slack::Percent(10)),
    ("25%", Slack::Percent(25)),
    ("1s", Slack::Ticks(1000)),
];

impl Slack {
    fn of(self, delay: u64) -> u64 {
        match self {
            Self::Percent(percent) => delay * percent / 100,
            Self::Ticks(ticks) => ticks,
        }
    }
}

/// A loop, its timers, and what became of them.
struct Sleeper<T> {
    timers: T,
    slack: Slack,
    fired: Vec<Payload>,
    rng: Rng,
    now: u64,
    wake_ups: u64,
    ended: u64,
}

impl<T: Waking> Sleeper<T> {
    fn new(n: usize, slack: Slack) -> Self {
        let (timers, fired, rng) = (T::new(), Vec::with_capacity(n), Rng::with_seed(SEED));
        let mut sleeper = Self { timers, slack, fired, rng, now: 0, wake_ups: 0, ended: 0 };
        (0..n).for_each(|id| sleeper.add(payload(id)));
        sleeper
    }

    fn add(&mut self, payload: Payload) {
        let delay = self.rng.u64(DELAYS);
        black_box(self.timers.add_within(self.now + delay, self.slack.of(delay), payload));
    }

    /// Sleeps and wakes up for so long.
    fn run(&mut self, seconds: u64) {
        let end = self.now + seconds * 1000;
        while let Some(next) = self.timers.next_deadline().filter(|&next| next < end) {
            self.wake_up(next);
        }
        self.now = end;
    }

    fn wake_up(&mut self, now: u64) {
        self.now = now;
        self.wake_ups += 1;
        let fired = &mut self.fired;
        self.timers.advance(now, |payload| fired.push(payload));
        self.ended += self.fired.len() as u64;
        while let Some(payload) = self.fired.pop() {
            self.add(payload);
        }
    }
}

/// For each slack: wake-ups per second, entries touched per timer, ns per timer fired and added.
pub fn run<T: Waking>(name: &str, n: usize) -> Vec<Sample> {
    let all = SLACKS.map(|(setting, slack)| {
        // Some peers are the thread's.
        super::in_thread(|| with_slack::<T>(name, n, slack))
            .map(|sample| sample.map(|sample| sample.at(setting)))
    });
    all.into_iter().flatten().flatten().collect()
}

fn with_slack<T: Waking>(name: &str, n: usize, slack: Slack) -> [Option<Sample>; 3] {
    let mut sleeper = Sleeper::<T>::new(n, slack);
    sleeper.run(SECONDS);
    (sleeper.wake_ups, sleeper.ended) = (0, 0);
    let touched = sleeper.timers.touched();
    let started = Instant::now();
    sleeper.run(SECONDS);
    let nanos = started.elapsed().as_nanos() as f64;
    let touched = sleeper.timers.touched().zip(touched).map(|(after, before)| after - before);
    let ended = sleeper.ended as f64;
    let wake_ups = sleeper.wake_ups as f64 / SECONDS as f64;
    [
        Some(Sample::new(format!("{name}-wake-ups"), n, "per second", wake_ups)),
        touched.map(|touched| {
            Sample::new(format!("{name}-touched"), n, "entries", touched as f64 / ended)
        }),
        Some(Sample::nanos(&format!("{name}-timer"), n, nanos / ended)),
    ]
}
