//! The cost of requests to another core. One core sends many requests, and then the other consumes
//! all of them in a turn. Both are timed separately, so neither waits for the other.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{NOT_DUE_MS, SEED};
use crate::across::{Owner, Requests, noted};
use crate::cores::{self, Alone, Runner};
use crate::measure::{Sample, median_of};
use crate::plan::Job;
use crate::timers::{not_due, payload};

/// Timers that are there all the time, and are moved.
const LIVE: usize = 10_000;
/// One in this number of a size's rounds is a warm-up.
const WARM_UP: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Add,
    Reset,
    Run,
}

const REQUESTS: [(Request, &str); 3] =
    [(Request::Add, "add"), (Request::Reset, "reset"), (Request::Run, "run")];

/// ns per request of each kind, on both sides together, and for the requester.
pub fn run<O: Owner<Remote: Requests>>(job: Job) -> Vec<Sample> {
    let at_once = job.n;
    let rounds = if at_once < 1000 { 4000 } else { 400 };
    let rounds = job.scale.pick(rounds, rounds / 4, 8);
    let (baton, (sender, remotes)) = (Alone::default(), mpsc::channel());
    let [asks, takes] = Runner::pair(&baton);
    let (asking, taking) = cores::on_two(
        move || {
            let remote: O::Remote = remotes.recv().expect("the owner has begun");
            let (live, added) = (Vec::with_capacity(LIVE), Vec::with_capacity(at_once));
            let rng = Rng::with_seed(SEED);
            Asking { remote, rng, live, added, at_once }.run(asks, rounds)
        },
        move || {
            let (owner, remote) = O::new(LIVE + at_once);
            sender.send(remote).expect("it is waited for");
            take_in(owner, takes, at_once, rounds)
        },
    );
    let per_request = |spent: Duration| spent.as_nanos() as f64 / at_once as f64;
    let sides = asking.chunks(rounds).zip(taking.chunks(rounds));
    let samples = REQUESTS.iter().zip(sides).flat_map(|((_, name), (asking, taking))| {
        let timed: Vec<_> = asking.iter().zip(taking).skip(rounds / WARM_UP).collect();
        let all = median_of(&timed, |&(asking, taking)| per_request(*asking + *taking));
        let call = median_of(&timed, |&(asking, _)| per_request(*asking));
        [job.sample(name, "ns", all), job.sample(&format!("{name}-call"), "ns", call)]
    });
    samples.collect()
}

struct Asking<R: Requests> {
    remote: R,
    rng: Rng,
    live: Vec<R::Handle>,
    added: Vec<R::Handle>,
    at_once: usize,
}

impl<R: Requests> Asking<R> {
    /// How long the calls took, round by round, kind by kind.
    fn run(&mut self, mut runner: Runner<'_>, rounds: usize) -> Vec<Duration> {
        while self.live.len() < LIVE {
            runner.run(|| self.ask(Request::Add));
            self.live.append(&mut self.added);
        }
        let mut spent = Vec::with_capacity(rounds * REQUESTS.len());
        for (request, _) in REQUESTS {
            for _ in 0..rounds {
                spent.push(runner.run(|| timed(|| self.ask(request))));
                runner.run(|| {
                    for handle in self.added.drain(..) {
                        assert!(self.remote.cancel(handle), "it was live");
                    }
                });
            }
        }
        spent
    }

    fn ask(&mut self, request: Request) {
        let delay = |rng: &mut Rng| Duration::from_millis(rng.u64(NOT_DUE_MS));
        for id in 0..self.at_once {
            match request {
                Request::Add => {
                    self.added.push(self.remote.add(delay(&mut self.rng), payload(id)));
                }
                Request::Reset => {
                    let timer = self.rng.usize(..self.live.len());
                    let timer = &mut self.live[timer];
                    assert!(self.remote.reset(timer, delay(&mut self.rng)), "it is live");
                }
                Request::Run => self.remote.run(payload(1)),
            }
        }
    }
}

/// The side that owns the timers: how long it took to take the requests in, in the same order.
fn take_in<O: Owner>(
    mut owner: O,
    mut runner: Runner<'_>,
    at_once: usize,
    rounds: usize,
) -> Vec<Duration> {
    let mut turn = |runs| {
        let turned = owner.turn(usize::MAX, not_due);
        assert!(!turned.is_behind && noted() == runs, "a turn takes in all");
    };
    let mut runs = 0;
    for _ in 0..LIVE.div_ceil(at_once) {
        runner.run(|| turn(runs));
    }
    let mut spent = Vec::with_capacity(rounds * REQUESTS.len());
    for (request, _) in REQUESTS {
        for _ in 0..rounds {
            runs += if request == Request::Run { at_once as u64 } else { 0 };
            spent.push(runner.run(|| timed(|| turn(runs))));
            // Added timers are cancelled, which is not timed.
            runner.run(|| turn(runs));
        }
    }
    spent
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}
