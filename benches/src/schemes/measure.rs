//! What each routine of each scheme costs as the number of timers grows.
//!
//! The workload is the same for every scheme: N timers whose intervals are uniform over [`INTERVALS`], in nodes that
//! lie in memory at random, as they do after a while of use. A routine that is O(n) by its documented growth is
//! called fewer times, nothing else.
//!
//! - **start**: ns per timer, for a batch of N / 8 (but 10 at least) on top of the N.
//! - **stop**: ns per timer, for as many random ones of them all. A tick passes, not timed, after each batch.
//! - **tick**: ns per tick in which nothing is due, over up to [`QUIET`] ticks: with the counting down, the rounds
//!   and the cascades that fall into them.
//! - **expiry**: ns per timer, the time of a tick in which a batch on top of the N expires, less the median of those
//!   in which nothing does. For Netty it contains the linking that start has left to the worker; the unlinking that
//!   stop has left shows in no row.
//!
//! The time that reading the clock takes is subtracted.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{Growth, Handle, Scheme, Visitor, visit_all};

/// The intervals of the N timers, in ticks: 5 to 60 s.
const INTERVALS: RangeInclusive<u64> = 5000..=60_000;
/// So many ticks pass before the first of them is due.
const QUIET: usize = 4096;
/// The interval of a batch that is to expire.
const SOON: u64 = 50;
/// A batch has expired after so many ticks, in the least accurate scheme.
const EXPIRED: u64 = 150;
/// Ticks that every scheme is allowed to settle in: more than the tick of Netty's worker.
const SETTLE: u64 = 200;
/// Starts and stops in one sample, unless a single batch is more.
const CALLS: usize = 10_000;
/// The same where a call is O(n), times N.
const LINEAR_CALLS: usize = 4_000_000;

/// The routines, in the order in which a sample measures them.
pub const ROUTINES: [&str; 4] = ["start", "stop", "tick", "expiry"];

/// The nanoseconds of one routine of one scheme among `n` timers.
#[derive(Clone, Debug)]
pub struct Row {
    /// One of [`names`](super::names).
    pub scheme: &'static str,
    /// One of [`ROUTINES`].
    pub routine: &'static str,
    /// How many timers were outstanding.
    pub n: usize,
    /// The median of the samples.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The largest of them.
    pub max: f64,
}

/// How many timers are outstanding.
const COUNTS: [usize; 5] = [10, 100, 1000, 10_000, 100_000];

/// Measures every routine of every scheme for N from 10 to 100 000, with 15 samples, or 5 if it is to be `quick`. The
/// schemes take turns, sample by sample. `progress` hears what comes next.
pub fn measure(progress: &mut dyn FnMut(&str), quick: bool) -> Vec<Row> {
    let samples = samples(quick);
    let clock = clock_cost();
    let mut rows = Vec::new();
    for n in COUNTS {
        let mut round = Round { n, clock, seed: 0, samples: Vec::new() };
        while round.seed < samples {
            round.seed += 1;
            progress(&format!("schemes: {n} timers, sample {} of {samples}", round.seed));
            visit_all(&mut round);
        }
        rows.extend(round.rows());
    }
    rows
}

fn samples(quick: bool) -> u64 {
    if quick { 5 } else { 15 }
}

/// How often [`measure`] tells its progress.
pub fn steps(quick: bool) -> u64 {
    samples(quick) * COUNTS.len() as u64
}

/// The samples of all schemes for one N.
struct Round {
    n: usize,
    clock: f64,
    /// The same for every scheme, so that all get the same timers.
    seed: u64,
    samples: Vec<(&'static str, [f64; 4])>,
}

impl Round {
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for scheme in super::names() {
            for (which, routine) in ROUTINES.into_iter().enumerate() {
                let of_scheme = self.samples.iter().filter(|sample| sample.0 == scheme);
                let mut times: Vec<f64> = of_scheme.map(|sample| sample.1[which]).collect();
                times.sort_by(f64::total_cmp);
                let (median, min, max) = (times[times.len() / 2], times[0], times[times.len() - 1]);
                rows.push(Row { scheme, routine, n: self.n, median, min, max });
            }
        }
        rows
    }
}

impl Visitor for Round {
    fn visit<S: Scheme>(&mut self) {
        let mut sample = Sample::<S>::new(self.n, self.clock, self.seed);
        // The first pass fetches what memory a scheme needs for what was stopped and not yet cleared away.
        sample.start_and_stop();
        let (start, stop) = sample.start_and_stop();
        let expiry = sample.expiry();
        let tick = Sample::<S>::new(self.n, self.clock, self.seed).quiet_tick();
        self.samples.push((S::NAME, [start, stop, tick, expiry]));
    }
}

/// One scheme with N timers in it.
struct Sample<S> {
    scheme: S,
    live: Vec<Handle>,
    n: usize,
    clock: f64,
    rng: Rng,
}

impl<S: Scheme> Sample<S> {
    fn new(n: usize, clock: f64, seed: u64) -> Self {
        let mut sample =
            Self { scheme: S::new(), live: Vec::new(), n, clock, rng: Rng::with_seed(seed) };
        sample.scheme.advance(12_345, &mut unexpected);
        sample.age();
        sample.populate();
        sample.scheme.advance(SETTLE, &mut unexpected);
        sample
    }

    /// Leaves a free list that is in no order, so that neighbours in time are none in memory.
    fn age(&mut self) {
        let mut handles: Vec<_> = (0..self.n).map(|_| self.start(*INTERVALS.end())).collect();
        self.rng.shuffle(&mut handles);
        assert!(handles.into_iter().all(|handle| self.scheme.stop_timer(handle)));
        self.scheme.advance(SETTLE, &mut unexpected);
    }

    /// Starts the N timers; the ordered list gets them in order, as it would otherwise take N^2 steps.
    fn populate(&mut self) {
        let mut intervals: Vec<u64> = (0..self.n).map(|_| self.rng.u64(INTERVALS)).collect();
        if S::COST.start == Growth::Linear {
            intervals.sort_unstable();
        }
        self.live = intervals.into_iter().map(|interval| self.start(interval)).collect();
    }

    fn start(&mut self, interval: u64) -> Handle {
        self.scheme
            .start_timer(interval, interval)
            .expect("an interval within the range of every scheme")
    }

    fn batch(&self) -> usize {
        if S::COST.start == Growth::Linear { 10 } else { (self.n / 8).max(10) }
    }

    /// How many batches of starts and stops there are.
    fn batches(&self) -> usize {
        let calls =
            if S::COST.start == Growth::Linear { CALLS.min(LINEAR_CALLS / self.n) } else { CALLS };
        (calls / self.batch()).max(1)
    }

    /// The nanoseconds since `from`, without those of reading the clock.
    fn since(&self, from: Instant) -> f64 {
        nanos(from.elapsed()) - self.clock
    }

    fn start_and_stop(&mut self) -> (f64, f64) {
        let (batch, batches) = (self.batch(), self.batches());
        let (mut starting, mut stopping) = (0.0, 0.0);
        for _ in 0..batches {
            let intervals: Vec<u64> = (0..batch).map(|_| self.rng.u64(INTERVALS)).collect();
            self.live.reserve(batch);
            let from = Instant::now();
            for interval in intervals {
                let handle = self.start(interval);
                self.live.push(handle);
            }
            starting += self.since(from);
            stopping += self.stop_some(batch);
            self.scheme.per_tick(&mut unexpected);
        }
        let calls = count(batch * batches);
        (starting / calls, stopping / calls)
    }

    /// The time that it takes to stop so many random timers.
    fn stop_some(&mut self, batch: usize) -> f64 {
        let left = self.live.len() - batch;
        for place in left..self.live.len() {
            let other = self.rng.usize(..=place);
            self.live.swap(place, other);
        }
        let from = Instant::now();
        let stopped =
            self.live.drain(left..).filter(|&handle| self.scheme.stop_timer(handle)).count();
        let time = nanos(from.elapsed()) - self.clock;
        assert_eq!(stopped, batch, "all of them were outstanding");
        time
    }

    fn quiet_tick(&mut self) -> f64 {
        let linear = S::COST.tick == Growth::Linear;
        let ticks = if linear { (LINEAR_CALLS / self.n).clamp(32, QUIET) } else { QUIET };
        let from = Instant::now();
        for _ in 0..ticks {
            black_box(&mut self.scheme).per_tick(&mut unexpected);
        }
        self.since(from) / count(ticks)
    }

    fn expiry(&mut self) -> f64 {
        let batch = self.batch();
        let batches = (CALLS / batch).clamp(4, 16);
        let (mut busy, mut quiet) = (Vec::new(), Vec::new());
        for _ in 0..batches {
            for _ in 0..batch {
                self.start(SOON);
            }
            self.expire_batch(batch, &mut busy, &mut quiet);
        }
        quiet.sort_by(f64::total_cmp);
        let usual = quiet[quiet.len() / 2];
        busy.into_iter().map(|time| time - usual).sum::<f64>() / count(batch * batches)
    }

    /// Lets time pass until the batch has expired; each tick is timed by itself, and is busy or quiet.
    fn expire_batch(&mut self, batch: usize, busy: &mut Vec<f64>, quiet: &mut Vec<f64>) {
        let mut expired = 0;
        for _ in 0..EXPIRED {
            let before = expired;
            let from = Instant::now();
            self.scheme.per_tick(&mut |id| expired += usize::from(black_box(id) == SOON));
            let time = self.since(from);
            let ticks = if expired == before { &mut *quiet } else { &mut *busy };
            ticks.push(time);
            if expired == batch {
                return;
            }
        }
        panic!("{}: a timer is later than documented", S::NAME);
    }
}

/// `EXPIRY_PROCESSING` while nothing is due.
fn unexpected(interval: u64) {
    panic!("a timer of {interval} ticks expired before its time");
}

/// The nanoseconds that it takes to read the clock twice.
fn clock_cost() -> f64 {
    let mut times: Vec<Duration> = (0..1001).map(|_| Instant::now().elapsed()).collect();
    times.sort_unstable();
    nanos(times[times.len() / 2])
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn count(of: usize) -> f64 {
    of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_routine_of_every_scheme_has_a_row() {
        let mut round = Round { n: 100, clock: clock_cost(), seed: 1, samples: Vec::new() };
        visit_all(&mut round);
        let rows = round.rows();
        assert_eq!(rows.len(), super::super::names().len() * ROUTINES.len());
        assert!(rows.iter().all(|row| row.n == 100 && row.median.is_finite()));
    }
}
