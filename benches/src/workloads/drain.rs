//! Timers that are never cancelled: all are added, and then time passes tick by tick until all have
//! fired.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::SEED;
use crate::{
    measure::Sample,
    plan::{Job, Peer},
    timers::{Timers, payload},
};

const SPAN: u64 = 60_000;

struct Drain<T: Timers> {
    timers: T,
    handles: Vec<T::Handle>,
    rng: Rng,
    now: u64,
}

impl<T: Timers> Drain<T> {
    fn fill(&mut self, n: usize) {
        self.handles.clear();
        for id in 0..n {
            let deadline = self.now + self.rng.u64(1..=SPAN);
            self.handles.push(self.timers.add(deadline, payload(id)));
        }
    }

    /// Lets the whole span pass; how many fired.
    fn drain(&mut self) -> usize {
        let mut fired = 0;
        for _ in 0..SPAN {
            self.now += 1;
            self.timers.advance(self.now, |payload| {
                fired += usize::from(black_box(payload) != [u64::MAX; 3]);
            });
        }
        fired
    }
}

/// ns per timer of adding and of draining. The first cycle is the warm-up: it leaves the memory
/// that the others use. Timers of a floor never fire: all are cancelled, which is no figure.
pub fn run<T: Timers>(job: Job) -> Vec<Sample> {
    let n = job.n;
    let is_floor = matches!(job.peer, Peer::Floor | Peer::FloorCas);
    let (timers, handles) = (T::new(), Vec::with_capacity(n));
    let mut drain = Drain { timers, handles, rng: Rng::with_seed(SEED), now: 0 };
    let mut cycle = || {
        let started = Instant::now();
        drain.fill(n);
        let filled = Instant::now();
        if is_floor {
            drain.handles.iter().for_each(|handle| _ = drain.timers.cancel(handle));
        } else {
            assert_eq!(drain.drain(), n, "each timer fires once");
        }
        [filled - started, filled.elapsed()]
    };
    cycle();
    let (mut filling, mut draining, mut cycles) = (Duration::ZERO, Duration::ZERO, 0);
    while filling + draining < job.effort().timed {
        let [filled, drained] = cycle();
        filling += filled;
        draining += drained;
        cycles += 1;
    }
    let per_timer = |name: &str, time: Duration| {
        Sample::new(name, n, "ns", time.as_nanos() as f64 / (cycles * n) as f64)
    };
    let mut samples = vec![per_timer("fill", filling)];
    samples.extend((!is_floor).then(|| per_timer("drain", draining)));
    samples
}
