//! Packets on idle connections: a random timer moves to a full timeout from now. Time moves on by one tick every thousand
//! resets.

use fastrand::Rng;

use super::{OPERATIONS_PER_TICK, SEED, TIMEOUT};
use crate::{
    measure::{Effort, Load, Sample, ns_per_operation, settled},
    timers::{Payload, Timers, connection, payload},
};

/// A constant number of live timers, moved one by one. The few that fire on the way are added anew.
#[derive(Debug)]
pub struct Reset<T: Timers> {
    timers: T,
    handles: Vec<T::Handle>,
    fired: Vec<Payload>,
    rng: Rng,
    now: u64,
}

impl<T: Timers> Reset<T> {
    /// `n` live timers over the next timeout.
    pub fn new(n: usize) -> Self {
        let (mut timers, mut rng) = (T::new(), Rng::with_seed(SEED));
        let handles = (0..n).map(|id| timers.add(rng.u64(1..=TIMEOUT), payload(id))).collect();
        Self { timers, handles, fired: Vec::with_capacity(n), rng, now: 0 }
    }

    /// Moves a random timer.
    pub fn reset(&mut self) {
        let id = self.rng.usize(..self.handles.len());
        self.timers.reset(&mut self.handles[id], self.now + TIMEOUT);
    }

    /// A tick passes.
    pub fn tick(&mut self) {
        self.now += 1;
        let fired = &mut self.fired;
        self.timers.advance(self.now, |payload| fired.push(payload));
        while let Some(payload) = self.fired.pop() {
            self.handles[connection(payload)] = self.timers.add(self.now + TIMEOUT, payload);
        }
    }
}

impl<T: Timers> Load for Reset<T> {
    fn batch(&mut self) -> u64 {
        for _ in 0..OPERATIONS_PER_TICK {
            self.reset();
        }
        self.tick();
        OPERATIONS_PER_TICK as u64
    }
}

/// ns per reset, the ticks on the way included.
pub fn run<T: Timers>(workload: &str, n: usize, effort: Effort) -> Vec<Sample> {
    let mut reset = Reset::<T>::new(n);
    vec![Sample::nanos(workload, n, ns_per_operation(&mut reset, settled(n), effort))]
}
