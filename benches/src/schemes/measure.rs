//! What each routine of each scheme costs as the number of timers grows.

use std::{hint::black_box, ops::RangeInclusive, time::Instant};

use fastrand::Rng;

use super::{Properties, Visitor, visit_all};
use crate::{
    measure::{Sample, median},
    timers::{Timers, not_due},
};

/// The intervals of the N timers, in ticks: 5 to 60 s.
const INTERVALS: RangeInclusive<u64> = 5000..=60_000;
/// The number of ticks before the first of them is due.
const QUIET: usize = 4096;
/// The interval of a batch that is to expire.
const SOON: u64 = 50;
/// The number of ticks until a batch has expired in the least accurate scheme.
const EXPIRED: u64 = 150;
/// Ticks that every scheme is allowed to settle in: more than the tick of Netty's worker.
const SETTLE: u64 = 200;
/// Starts and stops in one sample, unless a single batch is more.
const CALLS: usize = 10_000;
/// The number of calls times N where a call is O(n).
const LINEAR_CALLS: usize = 4_000_000;

/// Numbers of outstanding timers.
pub const COUNTS: [usize; 5] = [10, 100, 1000, 10_000, 100_000];

/// Measures every routine of every scheme once among `n` timers, the same ones for every scheme: by
/// the scheme's name.
///
/// The intervals are uniform over 5 to 60 s, and the nodes lie in memory at random, as they do
/// after a while of use. A routine that is O(n) by its documented growth is called fewer times. The
/// time of reading the clock is subtracted.
///
/// - **start**: ns per timer, for a batch of N / 8 (but 10 at least) on top of the N.
/// - **stop**: ns per timer, for as many random ones of them all. A tick passes, not timed, after
///   each batch.
/// - **tick**: ns per tick in which nothing is due, over up to 4,096 ticks: with the counting down,
///   the rounds and the cascades that fall into them.
/// - **expiry**: ns per timer, the time of a tick in which a batch on top of the N expires, less
///   the median of those in which nothing does. For Netty it contains the linking that start has
///   left to the worker; the unlinking that stop has left shows in no row.
pub fn measure(n: usize, seed: u64) -> Vec<(&'static str, Vec<Sample>)> {
    let readings = (0..1001).map(|_| nanos_since(Instant::now())).collect();
    let mut round = Round { n, clock: median(readings), seed, samples: Vec::new() };
    visit_all(&mut round);
    round.samples
}

struct Round {
    n: usize,
    clock: f64,
    seed: u64,
    samples: Vec<(&'static str, Vec<Sample>)>,
}

impl Visitor for Round {
    fn visit<T: Timers>(&mut self, properties: Properties) {
        let mut run = Run::<T>::new(self, properties);
        // The first pass allocates the memory that a scheme needs for stopped timers that it has
        // not cleared away.
        run.start_and_stop();
        let [start, stop] = run.start_and_stop();
        let expiry = run.expiry();
        let tick = Run::<T>::new(self, properties).quiet_tick();
        let routines = [("start", start), ("stop", stop), ("tick", tick), ("expiry", expiry)];
        let sample =
            |(routine, nanos)| Sample::new(format!("scheme-{routine}"), self.n, "ns", nanos);
        self.samples.push((properties.name, routines.map(sample).to_vec()));
    }
}

/// One scheme with N timers in it.
struct Run<T: Timers> {
    timers: T,
    now: u64,
    properties: Properties,
    live: Vec<T::Handle>,
    n: usize,
    clock: f64,
    rng: Rng,
    /// Starts that are timed together.
    batch: usize,
}

impl<T: Timers> Run<T> {
    fn new(&Round { n, clock, seed, .. }: &Round, properties: Properties) -> Self {
        let batch = if properties.is_start_linear { 10 } else { (n / 8).max(10) };
        let (timers, live, rng) = (T::new(), Vec::new(), Rng::with_seed(seed));
        let mut run = Self { timers, now: 0, properties, live, n, clock, rng, batch };
        run.pass(12_345);
        run.age();
        let mut intervals: Vec<u64> = (0..n).map(|_| run.rng.u64(INTERVALS)).collect();
        if properties.is_start_linear {
            // Out of order they would take N^2 steps.
            intervals.sort_unstable();
        }
        run.live = intervals.into_iter().map(|interval| run.start(interval)).collect();
        run.pass(SETTLE);
        run
    }

    /// Leaves a free list that is in no order, so that neighbours in time are none in memory.
    fn age(&mut self) {
        let mut handles: Vec<_> = (0..self.n).map(|_| self.start(*INTERVALS.end())).collect();
        self.rng.shuffle(&mut handles);
        assert!(handles.into_iter().all(|handle| self.timers.cancel(&handle)));
        self.pass(SETTLE);
    }

    fn start(&mut self, interval: u64) -> T::Handle {
        self.timers.add(self.now + interval, [interval; 3])
    }

    /// Lets ticks pass in which nothing is due.
    fn pass(&mut self, ticks: u64) {
        self.now += ticks;
        black_box(&mut self.timers).advance(self.now, not_due);
    }

    /// Returns the nanoseconds since `started`, minus the cost of reading the clock.
    fn since(&self, started: Instant) -> f64 {
        nanos_since(started) - self.clock
    }

    fn start_and_stop(&mut self) -> [f64; 2] {
        let calls =
            if self.properties.is_start_linear { CALLS.min(LINEAR_CALLS / self.n) } else { CALLS };
        let (batch, batches) = (self.batch, (calls / self.batch).max(1));
        let (mut starting, mut stopping) = (0.0, 0.0);
        for _ in 0..batches {
            let intervals: Vec<u64> = (0..batch).map(|_| self.rng.u64(INTERVALS)).collect();
            self.live.reserve(batch);
            let started = Instant::now();
            for interval in intervals {
                let handle = self.start(interval);
                self.live.push(handle);
            }
            starting += self.since(started);
            stopping += self.stop_some();
            self.pass(1);
        }
        [starting, stopping].map(|nanos| nanos / (batch * batches) as f64)
    }

    /// Stops a batch of random timers and returns the time it takes.
    fn stop_some(&mut self) -> f64 {
        let left = self.live.len() - self.batch;
        for place in left..self.live.len() {
            let other = self.rng.usize(..=place);
            self.live.swap(place, other);
        }
        let started = Instant::now();
        let stopped = self.live.drain(left..).filter(|timer| self.timers.cancel(timer));
        let stopped = stopped.count();
        let nanos = self.since(started);
        assert_eq!(stopped, self.batch, "all of them were outstanding");
        nanos
    }

    fn quiet_tick(&mut self) -> f64 {
        let ticks = if self.properties.is_tick_linear {
            (LINEAR_CALLS / self.n).clamp(32, QUIET)
        } else {
            QUIET
        };
        let started = Instant::now();
        for _ in 0..ticks {
            self.pass(1);
        }
        self.since(started) / ticks as f64
    }

    fn expiry(&mut self) -> f64 {
        let batches = (CALLS / self.batch).clamp(4, 16);
        let (mut busy, mut quiet) = (Vec::new(), Vec::new());
        for _ in 0..batches {
            for _ in 0..self.batch {
                self.start(SOON);
            }
            self.expire_batch(&mut busy, &mut quiet);
        }
        let usual = median(quiet);
        busy.iter().map(|nanos| nanos - usual).sum::<f64>() / (self.batch * batches) as f64
    }

    /// Advances time until the batch has expired. Each tick is timed separately, as busy or quiet.
    fn expire_batch(&mut self, busy: &mut Vec<f64>, quiet: &mut Vec<f64>) {
        let mut expired = 0;
        for _ in 0..EXPIRED {
            let before = expired;
            let started = Instant::now();
            self.now += 1;
            let on_fire = |payload| expired += usize::from(black_box(payload) == [SOON; 3]);
            self.timers.advance(self.now, on_fire);
            let nanos = self.since(started);
            if expired == before { &mut *quiet } else { &mut *busy }.push(nanos);
            if expired == self.batch {
                return;
            }
        }
        panic!("{}: a timer is later than documented", self.properties.name);
    }
}

fn nanos_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_routine_of_every_scheme_has_a_figure() {
        let schemes = measure(100, 1);
        let names: BTreeSet<&str> = schemes.iter().map(|scheme| scheme.0).collect();
        assert_eq!((schemes.len(), names.len()), (12, 12));
        for (scheme, samples) in schemes {
            assert_eq!(samples.len(), 4, "{scheme}");
            assert!(samples.iter().all(|sample| sample.n == 100 && sample.value.is_finite()));
        }
    }
}
