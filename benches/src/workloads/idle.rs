//! Ticks in which nothing is due.

use std::hint::black_box;

use fastrand::Rng;

use super::SEED;
use crate::{
    measure::{Effort, Load, Sample, Timing, ns_per_operation},
    timers::{Timers, payload},
};

const HOUR: u64 = 3_600_000;
const MINUTE: u64 = 60_000;
const TICKS: u64 = 1000;

/// Timers that are due in an hour, or none.
#[derive(Debug)]
pub struct Idle<T: Timers> {
    timers: T,
    now: u64,
    step: u64,
}

impl<T: Timers> Load for Idle<T> {
    fn batch(&mut self) -> u64 {
        for _ in 0..TICKS {
            self.now += self.step;
            self.timers
                .advance(black_box(self.now), |payload| unreachable!("{payload:?} is not due"));
        }
        TICKS
    }
}

/// ns per tick, one at a time, with `n` timers due in the minute that begins in an hour.
pub fn run<T: Timers>(workload: &str, n: usize, effort: Effort) -> Vec<Sample> {
    let (mut timers, mut rng) = (T::new(), Rng::with_seed(SEED));
    for id in 0..n {
        black_box(timers.add(HOUR + rng.u64(..MINUTE), payload(id)));
    }
    let mut idle = Idle { timers, now: 0, step: 1 };
    idle.batch();
    let mut timing = Timing::start(effort.timed / 2);
    while timing.goes_on() && idle.now < HOUR - 2 * TICKS {
        timing.count(idle.batch());
    }
    vec![Sample::nanos(workload, n, timing.ns_per_operation())]
}

/// ns per hour at once, with nothing pending.
pub fn run_hours<T: Timers>(workload: &str, effort: Effort) -> Vec<Sample> {
    let mut idle = Idle { timers: T::new(), now: 0, step: HOUR };
    vec![Sample::nanos(workload, 0, ns_per_operation(&mut idle, TICKS, effort))]
}
