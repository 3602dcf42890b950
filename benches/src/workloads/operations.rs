//! Single operations on a constant number of timers, and timers that all fire.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{OPERATIONS_PER_TICK, SEED, TIMEOUT};
use crate::measure::{Durations, Load, Sample, ns_per_operation, run_batches, warm_up_operations};
use crate::plan::{Job, Peer, Workload as W};
use crate::timers::{Payload, TimerSet, connection, panic_not_due, payload};

/// The longest delay in [`Steady`], in ticks.
const DELAY_MAX: u64 = 1000;
/// Ticks in a batch of [`Steady`].
const STEADY_TICKS: u32 = 50;
const ADVANCES_PER_IDLE_BATCH: u64 = 1000;

const HOUR: u64 = 3_600_000;
const MINUTE: u64 = 60_000;

/// The delay of new timers, in ticks.
#[derive(Clone, Copy, Debug)]
pub enum Delay {
    Uniform(u64, u64),
    Fixed(u64),
}

impl Delay {
    pub const MIXED: Self = Self::Uniform(1000, 60_000);
    pub const TIMEOUT: Self = Self::Fixed(TIMEOUT);

    pub fn draw(self, rng: &mut Rng) -> u64 {
        match self {
            Self::Uniform(from, to) => rng.u64(from..=to),
            Self::Fixed(delay) => delay,
        }
    }
}

/// Models requests that end before their timeout: each operation cancels a random timer and adds a
/// new one. A tick passes every thousand operations. A timer that fires is added again.
///
/// With `RESET`, each operation moves a random timer, as a packet moves an idle timeout.
pub struct Churn<T: TimerSet, const RESET: bool = false> {
    timers: T,
    handles: Vec<T::Handle>,
    fired: Vec<Payload>,
    delay: Delay,
    rng: Rng,
    now: u64,
}

pub type Reset<T> = Churn<T, true>;

impl<T: TimerSet> Churn<T> {
    /// Adds `n` timers at the rate at which operations replace them.
    pub fn new(n: usize, delay: Delay) -> Self {
        let mut churn = Self::empty(n, delay);
        for id in 0..n {
            let handle = churn.add(id);
            churn.handles.push(handle);
            if (id + 1) % OPERATIONS_PER_TICK == 0 {
                churn.tick();
            }
        }
        churn
    }
}

impl<T: TimerSet> Reset<T> {
    pub fn new(n: usize) -> Self {
        let mut reset = Self::empty(n, Delay::TIMEOUT);
        for id in 0..n {
            let deadline = reset.rng.u64(1..=TIMEOUT);
            reset.handles.push(reset.timers.add(deadline, payload(id)));
        }
        reset
    }
}

impl<T: TimerSet, const RESET: bool> Churn<T, RESET> {
    fn empty(n: usize, delay: Delay) -> Self {
        Self {
            timers: T::new(),
            handles: Vec::with_capacity(n),
            fired: Vec::with_capacity(n),
            delay,
            rng: Rng::with_seed(SEED),
            now: 0,
        }
    }

    fn add(&mut self, id: usize) -> T::Handle {
        let deadline = self.now + self.delay.draw(&mut self.rng);
        self.timers.add(deadline, payload(id))
    }

    pub fn do_operation(&mut self) {
        if RESET {
            self.reset();
        } else {
            self.cancel_and_add();
        }
    }

    /// Not inlined, so that the compiler cannot move work between operations. In a server, other
    /// code runs between two operations.
    #[inline(never)]
    fn cancel_and_add(&mut self) {
        let id = self.rng.usize(..self.handles.len());
        self.timers.cancel(&self.handles[id]);
        self.handles[id] = self.add(id);
    }

    fn reset(&mut self) {
        let id = self.rng.usize(..self.handles.len());
        self.timers.reset(&mut self.handles[id], self.now + TIMEOUT);
    }

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

impl<T: TimerSet, const RESET: bool> Load for Churn<T, RESET> {
    const MUST_YIELD: bool = T::IN_TASK;

    fn batch(&mut self) -> u64 {
        for _ in 0..OPERATIONS_PER_TICK {
            self.do_operation();
        }
        self.tick();
        OPERATIONS_PER_TICK as u64
    }
}

pub async fn run<T: TimerSet>(job: Job) -> Vec<Sample> {
    let Job { workload, n, .. } = job;
    let (durations, warm_up) = (job.durations(), warm_up_operations(n));
    let churn = |delay| Churn::<T>::new(n, delay);
    let nanos = match workload {
        W::Churn => ns_per_operation(&mut churn(Delay::MIXED), warm_up, durations).await,
        W::Churn30 | W::Call => {
            ns_per_operation(&mut churn(Delay::TIMEOUT), warm_up, durations).await
        }
        W::Reset => ns_per_operation(&mut Reset::<T>::new(n), warm_up, durations).await,
        // On average, the warm-up fires each timer at most twice.
        W::Steady => ns_per_operation(&mut Steady::<T>::new(n), 2 * n as u64, durations).await,
        W::IdleHour => {
            let mut idle = Idle { timers: T::new(), now: 0, step: HOUR };
            ns_per_operation(&mut idle, ADVANCES_PER_IDLE_BATCH, durations).await
        }
        W::Idle => idle::<T>(n, durations).await,
        _ => unreachable!("{workload:?} has its own function"),
    };
    vec![job.sample("", "ns", nanos)]
}

/// Measures ns per tick, with `n` timers due in the minute that begins in an hour.
async fn idle<T: TimerSet>(n: usize, durations: Durations) -> f64 {
    let (mut timers, mut rng) = (T::new(), Rng::with_seed(SEED));
    for id in 0..n {
        black_box(timers.add(HOUR + rng.u64(..MINUTE), payload(id)));
    }
    let mut idle = Idle { timers, now: 0, step: 1 };
    idle.batch();
    run_batches(&mut idle, HOUR - 3 * ADVANCES_PER_IDLE_BATCH, durations.timed / 2)
        .await
        .ns_per_operation()
}

/// Heartbeats: each timer that fires is added again, due 1 to 1,000 ticks later.
pub struct Steady<T: TimerSet> {
    timers: T,
    fired: Vec<Payload>,
    rng: Rng,
    now: u64,
}

impl<T: TimerSet> Steady<T> {
    pub fn new(n: usize) -> Self {
        let (mut timers, mut rng) = (T::new(), Rng::with_seed(SEED));
        for id in 0..n {
            black_box(timers.add(rng.u64(1..=DELAY_MAX), payload(id)));
        }
        Self { timers, fired: Vec::with_capacity(n), rng, now: 0 }
    }
}

impl<T: TimerSet> Load for Steady<T> {
    fn batch(&mut self) -> u64 {
        let mut operations = 0;
        for _ in 0..STEADY_TICKS {
            self.now += 1;
            let fired = &mut self.fired;
            black_box(&mut self.timers).advance(self.now, |payload| fired.push(payload));
            operations += self.fired.len() as u64;
            for payload in self.fired.drain(..) {
                black_box(self.timers.add(self.now + self.rng.u64(1..=DELAY_MAX), payload));
            }
        }
        operations
    }
}

pub struct Idle<T: TimerSet> {
    timers: T,
    now: u64,
    step: u64,
}

impl<T: TimerSet> Load for Idle<T> {
    fn batch(&mut self) -> u64 {
        for _ in 0..ADVANCES_PER_IDLE_BATCH {
            self.now += self.step;
            // `black_box` keeps the compiler from holding the state of a peer in registers.
            black_box(&mut self.timers).advance(black_box(self.now), panic_not_due);
        }
        ADVANCES_PER_IDLE_BATCH
    }
}

/// Measures ns per timer for adds and for firing tick by tick, after a warm-up cycle. The peers
/// `floor` and `floor-cas` never fire: their timers are cancelled, which is not reported.
pub fn drain<T: TimerSet>(job: Job) -> Vec<Sample> {
    let n = job.n;
    let is_floor = matches!(job.peer, Peer::Floor | Peer::FloorCas);
    let (mut timers, mut handles) = (T::new(), Vec::with_capacity(n));
    let (mut rng, mut now) = (Rng::with_seed(SEED), 0);
    let mut cycle = || {
        let started = Instant::now();
        handles.clear();
        for id in 0..n {
            handles.push(timers.add(now + rng.u64(1..=MINUTE), payload(id)));
        }
        let fill_end = Instant::now();
        if is_floor {
            for handle in &handles {
                timers.cancel(handle);
            }
        } else {
            let mut fired = 0;
            let mut on_fire = |payload| fired += usize::from(black_box(payload) != [u64::MAX; 3]);
            for _ in 0..MINUTE {
                now += 1;
                black_box(&mut timers).advance(now, &mut on_fire);
            }
            assert_eq!(fired, n, "each timer fires once");
        }
        [fill_end - started, fill_end.elapsed()]
    };
    cycle();
    let (mut fill_total, mut drain_total, mut cycles) = (Duration::ZERO, Duration::ZERO, 0);
    while fill_total + drain_total < job.durations().timed {
        let [fill_time, drain_time] = cycle();
        fill_total += fill_time;
        drain_total += drain_time;
        cycles += 1;
    }
    let per_timer = |name: &str, time: Duration| {
        Sample::new(name, n, "ns", time.as_nanos() as f64 / (cycles * n) as f64)
    };
    let mut samples = vec![per_timer("fill", fill_total)];
    samples.extend((!is_floor).then(|| per_timer("drain", drain_total)));
    samples
}
