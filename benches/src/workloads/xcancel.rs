//! Timers that another core cancels. One core adds timers and hands over others in batches, through
//! a ring; the other core cancels them; the first core collects them. Timers travel in one
//! direction, or in both at once. With each add, the adding core hands over a random live timer:
//! with few timers, cache lines travel between caches; with many, they come from memory.

use std::hint::spin_loop;
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rtrb::{Consumer, Producer, RingBuffer};
use tokio::runtime::Runtime;
use tokio::task::{unconstrained, yield_now};

use super::{NOT_DUE_MS, SEED};
use crate::across::{BATCH, IN_FLIGHT, Owner, Remote, channel_pair};
use crate::cores;
use crate::measure::{self, Sample, median_of};
use crate::plan::{Job, Workload as W};
use crate::timers::{panic_not_due, payload};

/// An idle party spins this number of times between two steps, to leave cache lines to the other
/// party.
const IDLE_SPINS: usize = 32;

/// Returns the number of timers handed over in an interval, a multiple of [`BATCH`], and the number
/// of timed intervals. The warm-up has as many intervals as are timed.
fn timers_and_intervals(job: Job) -> (u64, usize) {
    job.scale.pick((1 << 15, 64), (1 << 14, 10), (1 << 10, 2))
}

/// The results of one party in an interval. A party is one of the two threads or tasks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// The time until this party had done all its hand-overs, cancels and collections.
    pub elapsed: Duration,
    /// The time spent in calls of `cancel`.
    pub in_cancel: Duration,
    /// Timers of the other party that this party cancelled.
    pub cancelled: u64,
    /// Timers of this party that it handed over to the other party.
    pub handed_over: u64,
    /// Timers that this party handed over, and collected after the other party had cancelled them.
    pub collected: u64,
    /// True if the thread had no involuntary context switch.
    pub is_undisturbed: bool,
}

struct Party<T: Owner> {
    own: T,
    other: T::Remote,
    exchange: Exchange<T::Handle>,
    /// Timers that have not been handed over.
    live: Vec<T::Handle>,
    batch: Vec<T::Handle>,
    rng: Rng,
    progress: Interval,
}

/// The rings to and from the other party, and the work of an interval.
struct Exchange<H> {
    to_other: Producer<H>,
    from_other: Consumer<H>,
    hand_over_target: u64,
    cancel_target: u64,
}

impl<H> Exchange<H> {
    fn pair(job: Job) -> [Self; 2] {
        let [first, second] = channel_pair(|| RingBuffer::new(IN_FLIGHT));
        let (first_hand_overs, _) = timers_and_intervals(job);
        let second_hand_overs = if job.workload == W::XcancelBoth { first_hand_overs } else { 0 };
        [
            (first, first_hand_overs, second_hand_overs),
            (second, second_hand_overs, first_hand_overs),
        ]
        .map(|(ring, hand_over_target, cancel_target)| {
            let (to_other, from_other) = ring;
            Self { to_other, from_other, hand_over_target, cancel_target }
        })
    }
}

impl<T: Owner> Party<T> {
    fn new(own: T, other: T::Remote, live: usize, exchange: Exchange<T::Handle>) -> Self {
        let live = if exchange.hand_over_target > 0 { live } else { 0 };
        let (batch, rng) = (Vec::with_capacity(BATCH), Rng::with_seed(SEED));
        let mut party = Self {
            own,
            other,
            exchange,
            live: Vec::new(),
            batch,
            rng,
            progress: Interval::default(),
        };
        party.live = (0..live).map(|id| party.add(id)).collect();
        party
    }

    fn add(&mut self, id: usize) -> T::Handle {
        self.own.add(Duration::from_millis(self.rng.u64(NOT_DUE_MS)), payload(id))
    }

    fn is_done(&self) -> bool {
        (self.progress.collected, self.progress.cancelled)
            == (self.exchange.hand_over_target, self.exchange.cancel_target)
    }

    fn run_step(&mut self) {
        let in_flight = (self.progress.handed_over - self.progress.collected) as usize;
        let may_hand_over = self.progress.handed_over < self.exchange.hand_over_target
            && in_flight + BATCH <= IN_FLIGHT;
        if may_hand_over {
            self.hand_over();
        }
        if self.progress.collected < self.progress.handed_over {
            self.collect_cancelled();
        }
        let has_cancelled =
            self.progress.cancelled < self.exchange.cancel_target && self.cancel_batch();
        if !may_hand_over && !has_cancelled {
            (0..IDLE_SPINS).for_each(|_| spin_loop());
        }
    }

    fn hand_over(&mut self) {
        for _ in 0..BATCH {
            let id = self.rng.usize(..self.live.len());
            let added = self.add(id);
            self.batch.push(mem::replace(&mut self.live[id], added));
        }
        let chunk =
            self.exchange.to_other.write_chunk_uninit(BATCH).expect("room for all in flight");
        self.progress.handed_over += chunk.fill_from_iter(self.batch.drain(..)) as u64;
    }

    fn collect_cancelled(&mut self) {
        let other_has_ended = self.exchange.to_other.is_abandoned();
        let collected = self.own.turn(usize::MAX, panic_not_due).collected as u64;
        self.progress.collected += collected;
        // A turn may leave some timers for the next one, but not all.
        assert!(
            !other_has_ended
                || collected > 0
                || self.progress.collected == self.progress.handed_over
        );
    }

    /// Cancels the timers of the next batch; returns false if none has arrived.
    fn cancel_batch(&mut self) -> bool {
        let Ok(chunk) = self.exchange.from_other.read_chunk(BATCH) else {
            assert!(
                !self.exchange.from_other.is_abandoned(),
                "the other party hands over all timers"
            );
            return false;
        };
        self.batch.extend(chunk);
        let started = Instant::now();
        let mut cancelled = 0;
        for handle in self.batch.drain(..) {
            cancelled += u64::from(self.other.cancel(handle));
        }
        self.progress.in_cancel += started.elapsed();
        assert_eq!(cancelled, BATCH as u64, "each timer was live");
        self.progress.cancelled += cancelled;
        self.other.return_boxes();
        true
    }

    /// Runs the intervals of the warm-up, and then the timed intervals. In a task, yields after
    /// each step.
    async fn run(mut self, intervals: usize, is_task: bool) -> Vec<Interval> {
        let mut all = Vec::with_capacity(2 * intervals);
        for _ in 0..2 * intervals {
            self.progress = Interval::default();
            let (switches_before, started) = (cores::involuntary_switches(), Instant::now());
            while !self.is_done() {
                self.run_step();
                if is_task {
                    yield_now().await;
                }
            }
            let elapsed = started.elapsed();
            let is_undisturbed = cores::involuntary_switches() == switches_before;
            all.push(Interval { elapsed, is_undisturbed, ..self.progress });
        }
        all
    }
}

/// Runs both parties, each on a pinned thread. Returns the results of both parties for each
/// interval.
pub fn on_threads<T: Owner>(job: Job) -> Vec<[Interval; 2]> {
    let run = |exchange, (to_other, from_other): (Sender<T::Remote>, Receiver<T::Remote>)| {
        let (own, remote) = T::new(job.n);
        to_other.send(remote).expect("the other party waits");
        let other = from_other.recv().expect("the other party sends");
        let party = Party::new(own, other, job.n, exchange);
        measure::expect_ready(party.run(timers_and_intervals(job).1, false))
    };
    let ([first, second], [channel, other_channel]) =
        (Exchange::pair(job), channel_pair(mpsc::channel));
    let (first, second) = cores::run_on_two(|| run(first, channel), || run(second, other_channel));
    pair_results(first, second)
}

pub fn in_tasks<T: Owner + Send + 'static>(job: Job, runtime: &Runtime) -> Vec<[Interval; 2]> {
    let [(first, to_first), (second, to_second)] = [(); 2].map(|()| T::new(job.n));
    let [exchange, other_exchange] = Exchange::pair(job);
    // Unconstrained, for the reason given in `run::in_task`.
    let run = |own: T, other, exchange| {
        unconstrained(async move {
            Party::new(own, other, job.n, exchange).run(timers_and_intervals(job).1, true).await
        })
    };
    runtime.block_on(async {
        let first = tokio::spawn(run(first, to_second, exchange));
        let second = tokio::spawn(run(second, to_first, other_exchange));
        let done = "the run does not panic";
        pair_results(first.await.expect(done), second.await.expect(done))
    })
}

/// Pairs the results of both parties, without the warm-up.
fn pair_results(first: Vec<Interval>, second: Vec<Interval>) -> Vec<[Interval; 2]> {
    let warm_up = first.len() / 2;
    first.into_iter().zip(second).map(Into::into).skip(warm_up).collect()
}

/// Measures ns per timer, from the first add to the last collection, and per call of `cancel`:
/// medians of the undisturbed intervals or, if there are none, of all intervals.
pub fn run(job: Job, exchange_timers: impl FnOnce(Job) -> Vec<[Interval; 2]>) -> Vec<Sample> {
    let both_directions = job.workload == W::XcancelBoth;
    let before = cores::cache_line_nanos();
    let intervals = exchange_timers(job);
    let cache_line = f64::midpoint(before, cores::cache_line_nanos());
    let timers = timers_and_intervals(job).0 * if both_directions { 2 } else { 1 };
    let undisturbed: Vec<_> =
        intervals.iter().filter(|parties| parties.iter().all(|it| it.is_undisturbed)).collect();
    let undisturbed_percent = 100.0 * undisturbed.len() as f64 / intervals.len() as f64;
    let counted_intervals =
        if undisturbed.is_empty() { intervals.iter().collect() } else { undisturbed };
    let per_timer = |spent: Duration| spent.as_nanos() as f64 / timers as f64;
    let elapsed = median_of(&counted_intervals, |[first, second]| {
        per_timer(if both_directions { first.elapsed.max(second.elapsed) } else { first.elapsed })
    });
    let call = median_of(&counted_intervals, |[first, second]| {
        per_timer(first.in_cancel + second.in_cancel)
    });
    vec![
        job.sample("", "ns", elapsed),
        job.sample("call", "ns", call),
        job.sample("undisturbed", "%", undisturbed_percent),
        job.sample("line", "ns per round trip", cache_line),
    ]
}
