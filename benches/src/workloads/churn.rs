//! Requests that end long before their timeout: one random timer is cancelled, a new one added. Time moves on by one tick
//! every thousand pairs.

use std::time::Duration;

use fastrand::Rng;

use super::{OPERATIONS_PER_TICK, SEED, TIMEOUT};
use crate::{
    measure::{Clock, Effort, Load, Sample, ns_per_operation, settled, warm_up},
    timers::{Payload, Timers, connection, payload},
};

/// How far ahead timers are added, in ticks.
#[derive(Clone, Copy, Debug)]
pub enum Delay {
    /// Uniform between two ticks, both included.
    Uniform(u64, u64),
    /// Always the same.
    Fixed(u64),
}

impl Delay {
    /// 1 to 60 s.
    pub const MIXED: Self = Self::Uniform(1000, 60_000);
    /// 30 s.
    pub const TIMEOUT: Self = Self::Fixed(TIMEOUT);

    /// The next one.
    pub fn draw(self, rng: &mut Rng) -> u64 {
        match self {
            Self::Uniform(from, to) => rng.u64(from..=to),
            Self::Fixed(delay) => delay,
        }
    }
}

/// A constant number of live timers, replaced one by one. The few that fire on the way are added anew.
#[derive(Debug)]
pub struct Churn<T: Timers> {
    timers: T,
    handles: Vec<T::Handle>,
    fired: Vec<Payload>,
    delay: Delay,
    rng: Rng,
    now: u64,
}

impl<T: Timers> Churn<T> {
    /// `n` live timers, which came at the pace at which they will be replaced.
    pub fn new(n: usize, delay: Delay) -> Self {
        let (timers, handles) = (T::new(), Vec::with_capacity(n));
        let mut churn = Self {
            timers,
            handles,
            fired: Vec::with_capacity(n),
            delay,
            rng: Rng::with_seed(SEED),
            now: 0,
        };
        for id in 0..n {
            let handle = churn.add(id);
            churn.handles.push(handle);
            if (id + 1) % OPERATIONS_PER_TICK == 0 {
                churn.tick();
            }
        }
        churn
    }

    fn add(&mut self, id: usize) -> T::Handle {
        let deadline = self.now + self.delay.draw(&mut self.rng);
        self.timers.add(deadline, payload(id))
    }

    /// Cancels a random timer and adds a new one.
    pub fn pair(&mut self) {
        let id = self.rng.usize(..self.handles.len());
        self.timers.cancel(&self.handles[id]);
        self.handles[id] = self.add(id);
    }

    /// A tick passes.
    pub fn tick(&mut self) {
        self.now += 1;
        let fired = &mut self.fired;
        self.timers.advance(self.now, |payload| fired.push(payload));
        while let Some(payload) = self.fired.pop() {
            let id = connection(payload);
            self.handles[id] = self.add(id);
        }
    }
}

impl<T: Timers> Load for Churn<T> {
    fn batch(&mut self) -> u64 {
        for _ in 0..OPERATIONS_PER_TICK {
            self.pair();
        }
        self.tick();
        OPERATIONS_PER_TICK as u64
    }
}

/// [`Churn`] with a reading of a clock after each operation.
#[derive(Debug)]
pub struct Longest<T: Timers> {
    churn: Churn<T>,
    clock: Clock,
    most: Duration,
}

impl<T: Timers> Longest<T> {
    /// Churn that has settled, watched from now on.
    pub fn of(churn: Churn<T>, clock: Clock) -> Self {
        Self { churn, clock, most: Duration::ZERO }
    }

    /// Watches by another clock from now on.
    #[must_use]
    pub fn by(self, clock: Clock) -> Self {
        Self::of(self.churn, clock)
    }

    /// The longest pair or tick so far.
    pub fn sample(&self, workload: &str) -> Sample {
        let name =
            if self.clock == Clock::Wall { workload.to_owned() } else { format!("{workload}-cpu") };
        Sample::nanos(&name, self.churn.handles.len(), self.most.as_nanos() as f64)
    }
}

impl<T: Timers> Load for Longest<T> {
    fn batch(&mut self) -> u64 {
        let mut last = self.clock.read();
        let mut lap = || {
            let now = self.clock.read();
            self.most = self.most.max(now.saturating_sub(last));
            last = now;
        };
        for _ in 0..OPERATIONS_PER_TICK {
            self.churn.pair();
            lap();
        }
        self.churn.tick();
        lap();
        OPERATIONS_PER_TICK as u64
    }
}

/// ns per pair, the ticks on the way included.
pub fn run<T: Timers>(workload: &str, n: usize, delay: Delay, effort: Effort) -> Vec<Sample> {
    let mut churn = Churn::<T>::new(n, delay);
    vec![Sample::nanos(workload, n, ns_per_operation(&mut churn, settled(n), effort))]
}

/// The longest single pair or tick, in a run of its own because of the readings of the clock.
pub fn longest<T: Timers>(workload: &str, n: usize, effort: Effort) -> Vec<Sample> {
    let mut churn = Churn::<T>::new(n, Delay::MIXED);
    warm_up(&mut churn, settled(n), effort);
    let mut wall = Longest::of(churn, Clock::Wall);
    ns_per_operation(&mut wall, 0, effort);
    let wall_sample = wall.sample(workload);
    let mut cpu = wall.by(Clock::Cpu);
    ns_per_operation(&mut cpu, 0, effort);
    vec![wall_sample, cpu.sample(workload)]
}
