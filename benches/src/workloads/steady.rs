//! Heartbeats: each timer, when it fires, is added again 1 to 1000 ticks ahead.

use std::hint::black_box;

use fastrand::Rng;

use super::SEED;
use crate::{
    measure::{Effort, Load, Sample, ns_per_operation},
    timers::{Payload, Timers, payload},
};

const REACH: u64 = 1000;
/// So that a batch is long beside a reading of the clock.
const TICKS: u32 = 50;

/// Timers that re-add themselves. The handles are nobody's.
#[derive(Debug)]
pub struct Steady<T: Timers> {
    timers: T,
    fired: Vec<Payload>,
    rng: Rng,
    now: u64,
}

impl<T: Timers> Steady<T> {
    /// `n` of them.
    pub fn new(n: usize) -> Self {
        let (mut timers, mut rng) = (T::new(), Rng::with_seed(SEED));
        for id in 0..n {
            black_box(timers.add(rng.u64(1..=REACH), payload(id)));
        }
        Self { timers, fired: Vec::with_capacity(n), rng, now: 0 }
    }

    /// A tick passes; how many fired and were added.
    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        let fired = &mut self.fired;
        self.timers.advance(self.now, |payload| fired.push(payload));
        let operations = self.fired.len() as u64;
        for payload in self.fired.drain(..) {
            black_box(self.timers.add(self.now + self.rng.u64(1..=REACH), payload));
        }
        operations
    }
}

impl<T: Timers> Load for Steady<T> {
    fn batch(&mut self) -> u64 {
        (0..TICKS).map(|_| self.tick()).sum()
    }
}

/// ns per timer fired and added. The warm-up is two rounds of all timers.
pub fn run<T: Timers>(workload: &str, n: usize, effort: Effort) -> Vec<Sample> {
    let mut steady = Steady::<T>::new(n);
    vec![Sample::nanos(workload, n, ns_per_operation(&mut steady, 2 * n as u64, effort))]
}
