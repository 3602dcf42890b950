//! What a request to another core costs: one core asks so many times, then the other takes all of it in, in a turn, as a loop
//! does that had something else to do meanwhile. What the two spend is timed apart, so neither waits for the other in it.

use std::{
    hint::spin_loop,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::SEED;
use crate::{
    asked::{Asker, Owner},
    cores,
    measure::{Sample, median},
    timers::payload,
};

/// Milliseconds: none is due within a run, though it may go by the machine's clock.
const DELAY: std::ops::RangeInclusive<u64> = 20_000..=60_000;
/// Timers that are there all the time, and are moved.
const LIVE: usize = 10_000;
/// Of a size's rounds, one in so many is a warm-up.
const WARM_UP: usize = 4;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Add,
    Reset,
    Run,
}

const REQUESTS: [(Request, &str); 3] = [(Request::Add, "add"), (Request::Reset, "reset"), (Request::Run, "run")];

/// Each side does its part of a round twice: the requests, and cancelling what was added, which is not timed.
const PARTS: u64 = 4;

/// Whose part it is.
#[derive(Debug, Default)]
struct Baton(AtomicU64);

const DROPPED: u64 = u64::MAX;

impl Baton {
    /// Waits for a part.
    fn wait_for(&self, part: u64) {
        for spins in 1.. {
            // Acquire: what the other one did in its part.
            let at = self.0.load(Ordering::Acquire);
            if at == part {
                return;
            }
            assert!(at != DROPPED, "the other one panics");
            // Where both threads have one core.
            if spins % 4096 == 0 {
                thread::yield_now();
            }
            spin_loop();
        }
    }

    /// The part before this one is over.
    fn pass_to(&self, part: u64) {
        // Release: for the one who waits.
        self.0.store(part, Ordering::Release);
    }
}

/// Who panics leaves nobody waiting.
impl Drop for Runner<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.pass_to(DROPPED);
        }
    }
}

/// Who has the baton now and then.
struct Runner<'a>(&'a Baton);

/// ns per request, by both sides together, and for the one who asks; of each kind.
pub fn run<O: Owner>(name: &str, at_once: usize, rounds: usize) -> Vec<Sample> {
    let (baton, (sender, askers)) = (Baton::default(), mpsc::channel());
    let (asking, taking) = cores::on_two(
        || {
            let (runner, askers) = (Runner(&baton), askers);
            let asker: O::Asker = askers.recv().expect("the owner has begun");
            Asking::new(asker, at_once).run(&runner, rounds)
        },
        || {
            let runner = Runner(&baton);
            let (owner, asker) = O::new();
            sender.send(asker).expect("it is waited for");
            take_in(owner, &runner, at_once, rounds)
        },
    );
    let sides = REQUESTS.iter().zip(asking.chunks(rounds).zip(taking.chunks(rounds)));
    sides.flat_map(|(&(_, request), (asking, taking))| samples(name, request, at_once, asking, taking)).collect()
}

fn samples(name: &str, request: &str, at_once: usize, asking: &[Duration], taking: &[Duration]) -> [Sample; 2] {
    let warm_up = asking.len() / WARM_UP;
    let sample = |name: String, spent: &dyn Fn(usize) -> Duration| {
        let nanos = (warm_up..asking.len()).map(|round| spent(round).as_nanos() as f64 / at_once as f64);
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
    fn run(&mut self, Runner(baton): &Runner<'_>, rounds: usize) -> Vec<Duration> {
        let mut part = 0;
        while self.live.len() < LIVE {
            baton.wait_for(part);
            for id in 0..self.at_once {
                let added = self.add(id);
                self.live.push(added);
            }
            baton.pass_to(part + 1);
            part += 2;
        }
        let mut spent = Vec::with_capacity(rounds * REQUESTS.len());
        for (request, _) in REQUESTS {
            for _ in 0..rounds {
                baton.wait_for(part);
                let started = Instant::now();
                self.ask(request);
                spent.push(started.elapsed());
                baton.pass_to(part + 1);
                baton.wait_for(part + 2);
                for handle in self.added.drain(..) {
                    assert!(self.asker.cancel(handle), "it was live");
                }
                baton.pass_to(part + 3);
                part += PARTS;
            }
        }
        spent
    }

    fn add(&mut self, id: usize) -> A::Handle {
        self.asker.add(self.rng.u64(DELAY), payload(id))
    }

    fn ask(&mut self, request: Request) {
        for id in 0..self.at_once {
            match request {
                Request::Add => {
                    let added = self.add(id);
                    self.added.push(added);
                }
                Request::Reset => {
                    let timer = self.rng.usize(..self.live.len());
                    assert!(self.asker.reset(&mut self.live[timer], self.rng.u64(DELAY)), "it is live");
                }
                Request::Run => self.asker.run(payload(1)),
            }
        }
    }
}

/// The side that owns the timers: how long it took to take the requests in, in the same order.
fn take_in<O: Owner>(mut owner: O, Runner(baton): &Runner<'_>, at_once: usize, rounds: usize) -> Vec<Duration> {
    let (mut part, mut runs) = (1, 0);
    for _ in 0..LIVE.div_ceil(at_once) {
        baton.wait_for(part);
        owner.turn(runs);
        baton.pass_to(part + 1);
        part += 2;
    }
    let mut spent = Vec::with_capacity(rounds * REQUESTS.len());
    for (request, _) in REQUESTS {
        for _ in 0..rounds {
            baton.wait_for(part);
            runs += if request == Request::Run { at_once as u64 } else { 0 };
            let started = Instant::now();
            owner.turn(runs);
            spent.push(started.elapsed());
            assert!(owner.is_settled(), "a turn takes in all");
            baton.pass_to(part + 1);
            baton.wait_for(part + 2);
            owner.turn(runs);
            baton.pass_to(part + 3);
            part += PARTS;
        }
    }
    spent
}
