//! The cost of each routine of a timer scheme, as the number of timers grows.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::Instant;

use fastrand::Rng;

use super::SEED;
use crate::measure::{Sample, median};
use crate::plan::{Job, Peer};
use crate::timers::{TimerSet, panic_not_due};

/// The delays of the N timers, in ticks: 5 to 60 s.
const DELAYS: RangeInclusive<u64> = 5000..=60_000;
/// Maximum number of ticks whose duration is measured. None of the N timers is due within this
/// many ticks, so the measured ticks expire nothing.
const QUIET_TICKS_MAX: usize = 4096;
/// The delay, in ticks, of the timers whose expiry is measured.
const EXPIRY_DELAY: u64 = 50;
/// The number of ticks until a batch has expired in the least accurate scheme.
const EXPIRY_TICKS_MAX: u64 = 150;
/// Ticks in which schemes finish deferred work: more than the tick of Netty's worker.
const SETTLE_TICKS: u64 = 200;
/// The number of timed starts, and of timed stops. It is rounded down to whole batches, at least
/// one batch.
const CALLS: usize = 10_000;
/// For an O(n) routine, the maximum of N times the number of calls.
const LINEAR_CALLS: usize = 4_000_000;

/// Measures ns per call of each routine, without the clock readings. Nodes lie in memory in random
/// order, as after long use. Calls O(n) routines fewer times, to save time.
pub fn run<T: TimerSet>(job: Job) -> Vec<Sample> {
    // The freed block makes glibc keep freed memory, as after a long run: the second call of
    // `time_routines` reuses the memory of the first.
    drop(black_box(vec![1_u8; 30 << 20]));
    time_routines::<T>(job);
    let nanos = ["start", "stop", "tick", "expiry"].into_iter().zip(time_routines::<T>(job));
    nanos.map(|(routine, nanos)| job.sample(routine, "ns", nanos)).collect()
}

fn time_routines<T: TimerSet>(job: Job) -> [f64; 4] {
    let mut run = SchemeRun::<T>::new(job);
    // The first, untimed call allocates memory for stopped timers that a scheme has not removed.
    run.time_start_and_stop();
    let [start, stop] = run.time_start_and_stop();
    // Unlinks the stopped timers of `netty`, so that the expiries do not include this work.
    run.advance_idle(SETTLE_TICKS);
    let expiry = run.time_expiries();
    let tick = SchemeRun::<T>::new(job).time_quiet_ticks();
    [start, stop, tick, expiry]
}

struct SchemeRun<T: TimerSet> {
    job: Job,
    timers: T,
    now: u64,
    live: Vec<T::Handle>,
    clock_nanos: f64,
    rng: Rng,
    /// The number of starts that are timed together.
    batch: usize,
}

impl<T: TimerSet> SchemeRun<T> {
    fn new(job: Job) -> Self {
        let batch = if has_linear_start(job) { 10 } else { (job.n / 8).max(10) };
        let (timers, live, rng) = (T::new(), Vec::new(), Rng::with_seed(SEED));
        let clock_nanos = median((0..1001).map(|_| nanos_since(Instant::now())).collect());
        let mut run = Self { job, timers, now: 0, live, clock_nanos, rng, batch };
        run.advance_idle(12_345);
        run.shuffle_free_list();
        let mut delays: Vec<u64> = (0..job.n).map(|_| run.rng.u64(DELAYS)).collect();
        if has_linear_start(job) {
            // Starts in random order would take O(n^2) steps.
            delays.sort_unstable();
        }
        run.live = delays.into_iter().map(|delay| run.start(delay)).collect();
        run.advance_idle(SETTLE_TICKS);
        run
    }

    /// Starts and stops N timers, which shuffles the peer's free list, if it has one. So later
    /// starts use nodes in random order.
    fn shuffle_free_list(&mut self) {
        let mut handles: Vec<_> = (0..self.job.n).map(|_| self.start(*DELAYS.end())).collect();
        self.rng.shuffle(&mut handles);
        assert!(handles.into_iter().all(|handle| self.timers.cancel(&handle)));
        self.advance_idle(SETTLE_TICKS);
    }

    fn start(&mut self, delay: u64) -> T::Handle {
        self.timers.add(self.now + delay, [delay; 3])
    }

    /// Advances time by `ticks`, in which no timer is due.
    fn advance_idle(&mut self, ticks: u64) {
        self.now += ticks;
        black_box(&mut self.timers).advance(self.now, panic_not_due);
    }

    /// Returns the nanoseconds since `started`, minus the cost of reading the clock.
    fn net_nanos_since(&self, started: Instant) -> f64 {
        nanos_since(started) - self.clock_nanos
    }

    fn time_start_and_stop(&mut self) -> [f64; 2] {
        let is_linear = has_linear_start(self.job);
        let calls = if is_linear { CALLS.min(LINEAR_CALLS / self.job.n) } else { CALLS };
        let (batch, batches) = (self.batch, (calls / self.batch).max(1));
        let (mut start_nanos, mut stop_nanos) = (0.0, 0.0);
        for _ in 0..batches {
            let delays: Vec<u64> = (0..batch).map(|_| self.rng.u64(DELAYS)).collect();
            self.live.reserve(batch);
            let started = Instant::now();
            for delay in delays {
                let handle = self.start(delay);
                self.live.push(handle);
            }
            start_nanos += self.net_nanos_since(started);
            stop_nanos += self.time_stops();
            self.advance_idle(1);
        }
        [start_nanos, stop_nanos].map(|nanos| nanos / (batch * batches) as f64)
    }

    /// Stops a batch of random timers and returns the time it takes.
    fn time_stops(&mut self) -> f64 {
        let kept_count = self.live.len() - self.batch;
        for position in kept_count..self.live.len() {
            let random_position = self.rng.usize(..=position);
            self.live.swap(position, random_position);
        }
        let started = Instant::now();
        let stopped = self.live.drain(kept_count..).filter(|timer| self.timers.cancel(timer));
        let stopped = stopped.count();
        let nanos = self.net_nanos_since(started);
        assert_eq!(stopped, self.batch, "all timers were outstanding");
        nanos
    }

    fn time_quiet_ticks(&mut self) -> f64 {
        let is_linear = self.job.peer == Peer::Countdown;
        let ticks = if is_linear {
            (LINEAR_CALLS / self.job.n).clamp(32, QUIET_TICKS_MAX)
        } else {
            QUIET_TICKS_MAX
        };
        let started = Instant::now();
        for _ in 0..ticks {
            self.advance_idle(1);
        }
        self.net_nanos_since(started) / ticks as f64
    }

    fn time_expiries(&mut self) -> f64 {
        let batches = (CALLS / self.batch).clamp(4, 16);
        let (mut busy_nanos, mut quiet_nanos) = (Vec::new(), Vec::new());
        for _ in 0..batches {
            for _ in 0..self.batch {
                self.start(EXPIRY_DELAY);
            }
            self.time_ticks_until_expiry(&mut busy_nanos, &mut quiet_nanos);
        }
        let median_quiet = median(quiet_nanos);
        busy_nanos.iter().map(|nanos| nanos - median_quiet).sum::<f64>()
            / (self.batch * batches) as f64
    }

    /// Advances time until the batch has expired. Times each tick separately, as busy or quiet.
    fn time_ticks_until_expiry(&mut self, busy_nanos: &mut Vec<f64>, quiet_nanos: &mut Vec<f64>) {
        let mut expired = 0;
        for _ in 0..EXPIRY_TICKS_MAX {
            let expired_before = expired;
            let started = Instant::now();
            self.now += 1;
            let on_fire = |payload| expired += usize::from(black_box(payload) == [EXPIRY_DELAY; 3]);
            self.timers.advance(self.now, on_fire);
            let nanos = self.net_nanos_since(started);
            if expired == expired_before { &mut *quiet_nanos } else { &mut *busy_nanos }
                .push(nanos);
            if expired == self.batch {
                return;
            }
        }
        panic!("{:?}: a timer is later than documented", self.job.peer);
    }
}

fn has_linear_start(job: Job) -> bool {
    job.peer == Peer::OrderedList
}

fn nanos_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e9
}
