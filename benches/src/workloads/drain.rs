//! Timers that are never cancelled: all are added, and then time passes tick by tick until all have
//! fired.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::SEED;
use crate::{
    measure::{Effort, Sample, Timing},
    timers::{Timers, payload},
};

const SPAN: u64 = 60_000;

/// Adds timers over a span, and drains them.
#[derive(Debug)]
pub struct Drain<T: Timers> {
    timers: T,
    handles: Vec<T::Handle>,
    rng: Rng,
    now: u64,
}

impl<T: Timers> Drain<T> {
    /// No timers, room for `n` handles.
    pub fn new(n: usize) -> Self {
        Self { timers: T::new(), handles: Vec::with_capacity(n), rng: Rng::with_seed(SEED), now: 0 }
    }

    /// Adds `n` timers.
    pub fn fill(&mut self, n: usize) {
        self.handles.clear();
        for id in 0..n {
            let deadline = self.now + self.rng.u64(1..=SPAN);
            self.handles.push(self.timers.add(deadline, payload(id)));
        }
    }

    /// Lets the whole span pass; how many fired.
    pub fn drain(&mut self) -> u64 {
        let mut fired = 0;
        for _ in 0..SPAN {
            self.now += 1;
            self.timers.advance(self.now, |payload| {
                fired += u64::from(black_box(payload) != [u64::MAX; 3]);
            });
        }
        fired
    }

    fn cancel_all(&mut self) {
        self.handles.iter().for_each(|handle| _ = self.timers.cancel(handle));
    }
}

/// ns per timer of adding and of draining. The first cycle is the warm-up: it leaves the memory that the others use.
pub fn run<T: Timers>(n: usize, effort: Effort) -> Vec<Sample> {
    let mut drain = Drain::<T>::new(n);
    let (mut filling, mut draining, mut cycles) = (Duration::ZERO, Duration::ZERO, 0);
    drain.fill(n);
    drain.drain();
    while filling + draining < effort.timed {
        let started = Instant::now();
        drain.fill(n);
        let filled = Instant::now();
        assert_eq!(drain.drain(), n as u64, "each timer fires once");
        draining += filled.elapsed();
        filling += filled - started;
        cycles += 1;
    }
    let per_timer = |time: Duration| time.as_nanos() as f64 / (cycles * n) as f64;
    vec![
        Sample::nanos("fill", n, per_timer(filling)),
        Sample::nanos("drain", n, per_timer(draining)),
    ]
}

/// ns per timer of adding alone, for what never fires: between the cycles all are cancelled.
pub fn run_fill<T: Timers>(n: usize, effort: Effort) -> Vec<Sample> {
    let mut drain = Drain::<T>::new(n);
    drain.fill(n);
    let mut filling = Duration::ZERO;
    let mut timing = Timing::start(effort.timed);
    while timing.goes_on() {
        drain.cancel_all();
        let started = Instant::now();
        drain.fill(n);
        filling += started.elapsed();
        timing.count(n as u64);
    }
    vec![Sample::nanos("fill", n, filling.as_nanos() as f64 / timing.operations() as f64)]
}
