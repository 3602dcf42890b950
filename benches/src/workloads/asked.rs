//! The cost of requests to another core. One core sends many requests, and then the other consumes
//! all of them in a turn, like a loop that was busy. Both are timed separately, so neither waits
//! for the other.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::SEED;
use crate::{
    asked::{Asker, Owner},
    cores::{self, Baton, Runner},
    measure::{Sample, median},
    timers::payload,
};

/// Milliseconds: none is due within a run, though it may go by the machine's clock.
const DELAY: std::ops::RangeInclusive<u64> = 20_000..=60_000;
/// Timers that are there all the time, and are moved.
const LIVE: usize = 10_000;
/// One in this number of a size's rounds is a warm-up.
const WARM_UP: usize = 4;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Add,
    Reset,
    Run,
}

const REQUESTS: [(Request, &str); 3] =
    [(Request::Add, "add"), (Request::Reset, "reset"), (Request::Run, "run")];

/// ns per request of each kind, on both sides together, and for the requester.
pub fn run<O: Owner>(name: &str, at_once: usize, rounds: usize) -> Vec<Sample> {
    let (baton, (sender, askers)) = (Baton::default(), mpsc::channel());
    let [asks, takes] = Runner::pair(&baton);
    let (asking, taking) = cores::on_two(
        move || {
            let asker: O::Asker = askers.recv().expect("the owner has begun");
            Asking::new(asker, at_once).run(asks, rounds)
        },
        move || {
            let (owner, asker) = O::new();
            sender.send(asker).expect("it is waited for");
            take_in(owner, takes, at_once, rounds)
        },
    );
    let sides = REQUESTS.iter().zip(asking.chunks(rounds).zip(taking.chunks(rounds)));
    sides
        .flat_map(|(&(_, request), (asking, taking))| {
            samples(name, request, at_once, asking, taking)
        })
        .collect()
}

fn samples(
    name: &str,
    request: &str,
    at_once: usize,
    asking: &[Duration],
    taking: &[Duration],
) -> [Sample; 2] {
    let warm_up = asking.len() / WARM_UP;
    let sample = |name: String, spent: &dyn Fn(usize) -> Duration| {
        let nanos =
            (warm_up..asking.len()).map(|round| spent(round).as_nanos() as f64 / at_once as f64);
        Sample::nanos(&name, at_once, median(nanos.collect()))
    };
    [
        sample(format!("{name}-{request}"), &|round| asking[round] + taking[round]),
        sample(format!("{name}-{request}-call"), &|round| asking[round]),
    ]
}

/// The side that asks.
struct Asking<A: Asker> {
    asker: A,
    rng: Rng,
    live: Vec<A::Handle>,
    added: Vec<A::Handle>,
    at_once: usize,
}

impl<A: Asker> Asking<A> {
    fn new(asker: A, at_once: usize) -> Self {
        let (live, added) = (Vec::with_capacity(LIVE), Vec::with_capacity(at_once));
        Self { asker, rng: Rng::with_seed(SEED), live, added, at_once }
    }

    /// How long the calls took, round by round, kind by kind.
    fn run(&mut self, mut runner: Runner<'_>, rounds: usize) -> Vec<Duration> {
        while self.live.len() < LIVE {
            runner.run(|| {
                self.ask(Request::Add);
                self.live.append(&mut self.added);
            });
        }
        let mut spent = Vec::with_capacity(rounds * REQUESTS.len());
        for (request, _) in REQUESTS {
            for _ in 0..rounds {
                spent.push(runner.run(|| timed(|| self.ask(request))));
                runner.run(|| self.cancel_added());
            }
        }
        spent
    }

    fn cancel_added(&mut self) {
        for handle in self.added.drain(..) {
            assert!(self.asker.cancel(handle), "it was live");
        }
    }

    fn ask(&mut self, request: Request) {
        for id in 0..self.at_once {
            match request {
                Request::Add => self.added.push(self.asker.add(self.rng.u64(DELAY), payload(id))),
                Request::Reset => {
                    let timer = self.rng.usize(..self.live.len());
                    assert!(
                        self.asker.reset(&mut self.live[timer], self.rng.u64(DELAY)),
                        "it is live"
                    );
                }
                Request::Run => self.asker.run(payload(1)),
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
    let mut runs = 0;
    for _ in 0..LIVE.div_ceil(at_once) {
        runner.run(|| owner.turn(runs));
    }
    let mut spent = Vec::with_capacity(rounds * REQUESTS.len());
    for (request, _) in REQUESTS {
        for _ in 0..rounds {
            runs += if request == Request::Run { at_once as u64 } else { 0 };
            spent.push(runner.run(|| {
                let taken = timed(|| owner.turn(runs));
                assert!(owner.is_settled(), "a turn takes in all");
                taken
            }));
            // Added timers are cancelled, which is not timed.
            runner.run(|| owner.turn(runs));
        }
    }
    spent
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}
