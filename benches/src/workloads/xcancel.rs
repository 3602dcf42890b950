//! Timers that another core cancels: requests that are accepted on one core and answered on
//! another. One core adds timers and hands older ones over, by a ring, in batches; the other
//! cancels them; the first takes them in. One way, or both at once.
//!
//! For each add, a random live timer is handed over. So with few of them the lines travel between
//! caches, and with many they come from memory.

use std::hint::spin_loop;
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rtrb::{Consumer, Producer, RingBuffer};
use tokio::runtime::Runtime;
use tokio::task::{unconstrained, yield_now};

use super::{NOT_DUE_MS, SEED};
use crate::across::{BATCH, IN_FLIGHT, Owner, Remote, both_ways};
use crate::cores;
use crate::measure::{self, Sample, median_of};
use crate::plan::{Job, Workload as W};
use crate::timers::{not_due, payload};

/// Spins of an idle end, which would only take lines away that the other end writes to.
const PAUSES: usize = 32;

/// Timers that are handed over in a stretch, a multiple of [`BATCH`]; and how many stretches are
/// timed, after as many for the warm-up.
fn amounts(job: Job) -> (u64, usize) {
    job.scale.pick((1 << 15, 64), (1 << 14, 10), (1 << 10, 2))
}

/// The counts of one end in a stretch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretch {
    /// From the first timer it added to the last that it has taken in.
    pub elapsed: Duration,
    /// Spent in calls of `cancel`.
    pub busy: Duration,
    /// Timers of the other end that it cancelled successfully.
    pub cancelled: u64,
    /// Its own timers that it handed over.
    pub handed: u64,
    /// Of those, the timers that it has collected.
    pub taken_in: u64,
    /// Its thread kept its core. One that has lost it makes the other wait for milliseconds.
    pub undisturbed: bool,
}

struct Party<T: Owner> {
    own: T,
    other: T::Remote,
    way: Way<T::Handle>,
    /// Timers that have not been handed over.
    live: Vec<T::Handle>,
    batch: Vec<T::Handle>,
    rng: Rng,
    done: Stretch,
}

/// The rings to the other end and from it, and what is to be done in each stretch.
struct Way<H> {
    to_other: Producer<H>,
    from_other: Consumer<H>,
    to_hand: u64,
    to_cancel: u64,
}

impl<H> Way<H> {
    fn pair(job: Job) -> [Self; 2] {
        let [first, second] = both_ways(|| RingBuffer::new(IN_FLIGHT));
        let (handed, _) = amounts(job);
        let other = if job.workload == W::XcancelBoth { handed } else { 0 };
        [(first, handed, other), (second, other, handed)].map(|(ring, to_hand, to_cancel)| {
            let (to_other, from_other) = ring;
            Self { to_other, from_other, to_hand, to_cancel }
        })
    }
}

impl<T: Owner> Party<T> {
    fn new(own: T, other: T::Remote, live: usize, way: Way<T::Handle>) -> Self {
        let live = if way.to_hand > 0 { live } else { 0 };
        let (batch, rng) = (Vec::with_capacity(BATCH), Rng::with_seed(SEED));
        let mut party =
            Self { own, other, way, live: Vec::new(), batch, rng, done: Stretch::default() };
        party.live = (0..live).map(|id| party.add(id)).collect();
        party
    }

    fn add(&mut self, id: usize) -> T::Handle {
        self.own.add(Duration::from_millis(self.rng.u64(NOT_DUE_MS)), payload(id))
    }

    fn is_done(&self) -> bool {
        (self.done.taken_in, self.done.cancelled) == (self.way.to_hand, self.way.to_cancel)
    }

    /// Does a batch of what there is to do.
    fn step(&mut self) {
        let in_flight = (self.done.handed - self.done.taken_in) as usize;
        let hands = self.done.handed < self.way.to_hand && in_flight + BATCH <= IN_FLIGHT;
        if hands {
            self.hand_over();
        }
        if self.done.taken_in < self.done.handed {
            self.take_in();
        }
        let cancels = self.done.cancelled < self.way.to_cancel && self.cancel();
        if !hands && !cancels {
            (0..PAUSES).for_each(|_| spin_loop());
        }
    }

    fn hand_over(&mut self) {
        for _ in 0..BATCH {
            let id = self.rng.usize(..self.live.len());
            let added = self.add(id);
            self.batch.push(mem::replace(&mut self.live[id], added));
        }
        let chunk = self.way.to_other.write_chunk_uninit(BATCH).expect("room for all in flight");
        self.done.handed += chunk.fill_from_iter(self.batch.drain(..)) as u64;
    }

    fn take_in(&mut self) {
        let other_is_gone = self.way.to_other.is_abandoned();
        let taken = self.own.turn(usize::MAX, not_due).collected as u64;
        self.done.taken_in += taken;
        // A turn may leave some for the next one, but not all.
        assert!(
            !other_is_gone || taken > 0 || self.done.taken_in == self.done.handed,
            "the other end has cancelled all"
        );
    }

    /// False if nothing has been handed over.
    fn cancel(&mut self) -> bool {
        let Ok(chunk) = self.way.from_other.read_chunk(BATCH) else {
            assert!(!self.way.from_other.is_abandoned(), "the other end hands over what it shall");
            return false;
        };
        self.batch.extend(chunk);
        let started = Instant::now();
        let mut cancelled = 0;
        for handle in self.batch.drain(..) {
            cancelled += u64::from(self.other.cancel(handle));
        }
        self.done.busy += started.elapsed();
        assert_eq!(cancelled, BATCH as u64, "each was live");
        self.done.cancelled += cancelled;
        self.other.send();
        true
    }

    /// Runs all stretches. In a task, it yields after each batch.
    async fn run(mut self, stretches: usize, is_task: bool) -> Vec<Stretch> {
        let mut all = Vec::with_capacity(2 * stretches);
        for _ in 0..2 * stretches {
            self.done = Stretch::default();
            let (core_losses, started) = (cores::losses(), Instant::now());
            while !self.is_done() {
                self.step();
                if is_task {
                    yield_now().await;
                }
            }
            let elapsed = started.elapsed();
            let undisturbed = cores::losses() == core_losses;
            all.push(Stretch { elapsed, undisturbed, ..self.done });
        }
        all
    }
}

/// On two threads, each pinned to its core: what both ends did, stretch by stretch.
pub fn on_threads<T: Owner>(job: Job) -> Vec<[Stretch; 2]> {
    let run = |start, (to_other, of_other): (Sender<T::Remote>, Receiver<T::Remote>)| {
        let (own, remote) = T::new(job.n);
        to_other.send(remote).expect("the other end waits");
        let other = of_other.recv().expect("the other end sends");
        let party = Party::new(own, other, job.n, start);
        measure::run(party.run(amounts(job).1, false))
    };
    let ([first, second], [line, other_line]) = (Way::pair(job), both_ways(mpsc::channel));
    let (first, second) = cores::on_two(|| run(first, line), || run(second, other_line));
    side_by_side(first, second)
}

pub fn in_tasks<T: Owner + Send + 'static>(job: Job, runtime: &Runtime) -> Vec<[Stretch; 2]> {
    let [(first, to_first), (second, to_second)] = [(); 2].map(|()| T::new(job.n));
    let [start, other_start] = Way::pair(job);
    // Unconstrained, as in `run::in_task`.
    let run = |own: T, other, start| {
        unconstrained(async move {
            Party::new(own, other, job.n, start).run(amounts(job).1, true).await
        })
    };
    runtime.block_on(async {
        let first = tokio::spawn(run(first, to_second, start));
        let second = tokio::spawn(run(second, to_first, other_start));
        let done = "a run that does not panic";
        side_by_side(first.await.expect(done), second.await.expect(done))
    })
}

/// The stretches of both ends, of the second half.
fn side_by_side(first: Vec<Stretch>, second: Vec<Stretch>) -> Vec<[Stretch; 2]> {
    let warm_up = first.len() / 2;
    first.into_iter().zip(second).map(Into::into).skip(warm_up).collect()
}

/// Measures ns per timer, from the first add to the last collection, and per call of `cancel`:
/// medians of the undisturbed stretches, if there are any.
pub fn run(job: Job, exchange: impl FnOnce(Job) -> Vec<[Stretch; 2]>) -> Vec<Sample> {
    let both = job.workload == W::XcancelBoth;
    let before = cores::line_nanos();
    let stretches = exchange(job);
    let line = f64::midpoint(before, cores::line_nanos());
    let timers = amounts(job).0 * if both { 2 } else { 1 };
    let undisturbed: Vec<_> =
        stretches.iter().filter(|ends| ends.iter().all(|end| end.undisturbed)).collect();
    let share = 100.0 * undisturbed.len() as f64 / stretches.len() as f64;
    let counted = if undisturbed.is_empty() { stretches.iter().collect() } else { undisturbed };
    let per_timer = |spent: Duration| spent.as_nanos() as f64 / timers as f64;
    let elapsed = median_of(&counted, |[first, second]| {
        per_timer(if both { first.elapsed.max(second.elapsed) } else { first.elapsed })
    });
    let call = median_of(&counted, |[first, second]| per_timer(first.busy + second.busy));
    vec![
        job.sample("", "ns", elapsed),
        job.sample("call", "ns", call),
        job.sample("undisturbed", "%", share),
        job.sample("line", "ns there and back", line),
    ]
}
