//! The cost of remote requests. One core sends a batch of requests, and then the owner consumes it
//! in one turn. The cores alternate, so no timed part waits for the other core.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{NOT_DUE_MS, SEED};
use crate::across::{Owner, Requests, counted_runs};
use crate::cores::{self, AlternatingThread, PaddedAtomic};
use crate::measure::{Sample, median_of};
use crate::plan::Job;
use crate::timers::{panic_not_due, payload};

/// The number of timers that stay live and that the reset requests move.
const LIVE: usize = 10_000;
/// Of each request kind's rounds, the first `1 / WARM_UP_DIVISOR` are the warm-up.
const WARM_UP_DIVISOR: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Add,
    Reset,
    Run,
}

const REQUESTS: [(Request, &str); 3] =
    [(Request::Add, "add"), (Request::Reset, "reset"), (Request::Run, "run")];

/// Measures ns per request of each kind, for both sides and for the requester alone.
pub fn run<O: Owner<Remote: Requests>>(job: Job) -> Vec<Sample> {
    let batch_size = job.n;
    let rounds = if batch_size < 1000 { 4000 } else { 400 };
    let rounds = job.scale.pick(rounds, rounds / 4, 8);
    let (baton, (sender, remotes)) = (PaddedAtomic::default(), mpsc::channel());
    let [requester_thread, owner_thread] = AlternatingThread::pair(&baton);
    let (call_times, turn_times) = cores::run_on_two(
        move || {
            let remote: O::Remote = remotes.recv().expect("the owner has begun");
            let (live, added) = (Vec::with_capacity(LIVE), Vec::with_capacity(batch_size));
            let rng = Rng::with_seed(SEED);
            Requester { remote, rng, live, added, batch_size }.run(requester_thread, rounds)
        },
        move || {
            let (owner, remote) = O::new(LIVE + batch_size);
            sender.send(remote).expect("the requester waits");
            consume_batches(owner, owner_thread, batch_size, rounds)
        },
    );
    let per_request = |spent: Duration| spent.as_nanos() as f64 / batch_size as f64;
    let times_by_request = call_times.chunks(rounds).zip(turn_times.chunks(rounds));
    let samples =
        REQUESTS.iter().zip(times_by_request).flat_map(|((_, name), (call_times, turn_times))| {
            let measured: Vec<_> =
                call_times.iter().zip(turn_times).skip(rounds / WARM_UP_DIVISOR).collect();
            let total = median_of(&measured, |&(call_times, turn_times)| {
                per_request(*call_times + *turn_times)
            });
            let call = median_of(&measured, |&(call_times, _)| per_request(*call_times));
            [job.sample(name, "ns", total), job.sample(&format!("{name}-call"), "ns", call)]
        });
    samples.collect()
}

struct Requester<R: Requests> {
    remote: R,
    rng: Rng,
    live: Vec<R::Handle>,
    added: Vec<R::Handle>,
    batch_size: usize,
}

impl<R: Requests> Requester<R> {
    /// Runs the requester's side. Returns how long the calls of each batch take, in the order of
    /// `consume_batches`.
    fn run(&mut self, mut thread: AlternatingThread<'_>, rounds: usize) -> Vec<Duration> {
        while self.live.len() < LIVE {
            thread.run(|| self.send_batch(Request::Add));
            self.live.append(&mut self.added);
        }
        let mut batch_times = Vec::with_capacity(rounds * REQUESTS.len());
        for (request, _) in REQUESTS {
            for _ in 0..rounds {
                batch_times.push(thread.run(|| time_call(|| self.send_batch(request))));
                thread.run(|| {
                    for handle in self.added.drain(..) {
                        assert!(self.remote.cancel(handle), "the timer was live");
                    }
                });
            }
        }
        batch_times
    }

    fn send_batch(&mut self, request: Request) {
        let delay = |rng: &mut Rng| Duration::from_millis(rng.u64(NOT_DUE_MS));
        for id in 0..self.batch_size {
            match request {
                Request::Add => {
                    self.added.push(self.remote.add(delay(&mut self.rng), payload(id)));
                }
                Request::Reset => {
                    let timer = self.rng.usize(..self.live.len());
                    let timer = &mut self.live[timer];
                    assert!(self.remote.reset(timer, delay(&mut self.rng)), "the timer is live");
                }
                Request::Run => self.remote.run(payload(1)),
            }
        }
    }
}

/// Runs the owner's side. Returns how long the turn that consumes each batch takes: first in all
/// rounds of the first request kind, then in all rounds of the next.
fn consume_batches<O: Owner>(
    mut owner: O,
    mut thread: AlternatingThread<'_>,
    batch_size: usize,
    rounds: usize,
) -> Vec<Duration> {
    let mut turn = |runs| {
        let result = owner.turn(usize::MAX, panic_not_due);
        assert!(!result.is_behind && counted_runs() == runs, "a turn consumes all requests");
    };
    let mut runs = 0;
    for _ in 0..LIVE.div_ceil(batch_size) {
        thread.run(|| turn(runs));
    }
    let mut batch_times = Vec::with_capacity(rounds * REQUESTS.len());
    for (request, _) in REQUESTS {
        for _ in 0..rounds {
            runs += if request == Request::Run { batch_size as u64 } else { 0 };
            batch_times.push(thread.run(|| time_call(|| turn(runs))));
            // This turn consumes the cancels of the timers that the batch added. It is not timed.
            thread.run(|| turn(runs));
        }
    }
    batch_times
}

fn time_call(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}
