//! The cost of a message for its sender and its receiver. One core claims nodes and sends their
//! numbers. The other takes all messages every few microseconds, as turns do, and frees the nodes.

use std::{
    hint::spin_loop,
    sync::Arc,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::SEED;
use crate::{
    cores,
    mailboxes::{Mailbox, Nodes},
    measure::{Sample, median},
    plan::Job,
};

/// Messages between two readings of the clock.
const BATCH: usize = 64;
/// The receiver's pause between two looks: the rest of a turn of a busy loop.
const PAUSE: Duration = Duration::from_micros(2);

/// Parts of a run. The result is the median of them; the first few are the warm-up.
const STRETCHES: usize = 200;
const WARM_UP: usize = 40;

/// The work of one side.
struct Side {
    messages: u64,
    /// The sum of the messages.
    sum: u64,
    /// For each stretch, the time spent on messages, and how many they were.
    stretches: [(Duration, u64); STRETCHES],
}

impl Side {
    fn new() -> Self {
        Self { messages: 0, sum: 0, stretches: [(Duration::ZERO, 0); STRETCHES] }
    }

    fn count(&mut self, index: u32) {
        self.messages += 1;
        self.sum += u64::from(index);
    }

    /// Counts the time of the last few messages; `all` is the number in the run.
    fn took(&mut self, elapsed: Duration, few: u64, all: u64) {
        let stretch = (self.messages - 1) * STRETCHES as u64 / all;
        let (spent, count) = &mut self.stretches[stretch as usize];
        *spent += elapsed;
        *count += few;
    }

    fn sample(&self, job: Job, part: &str) -> Sample {
        let stretches = self.stretches[WARM_UP..].iter().filter(|(_, messages)| *messages > 0);
        let nanos = stretches.map(|(spent, messages)| spent.as_nanos() as f64 / *messages as f64);
        job.sample(part, "ns", median(nanos.collect()))
    }
}

/// ns per push and per message taken, with `n` nodes.
pub fn run<M: Mailbox>(job: Job) -> Vec<Sample> {
    let (nodes, messages) = (Nodes::new(job.n), job.scale.pick(1 << 22, 1 << 18, 1 << 13));
    let (mut sender, mut receiver) = M::open(&nodes);
    let (sent, received) = cores::on_two(
        || send(&mut sender, &nodes, messages),
        || receive::<M>(&mut receiver, &nodes, messages),
    );
    assert_eq!((sent.messages, sent.sum), (received.messages, received.sum), "each arrives once");
    vec![sent.sample(job, "push"), received.sample(job, "take")]
}

/// Each node in its turn, in an order that no prefetcher guesses.
fn send<M: Mailbox>(sender: &mut M, nodes: &Arc<Nodes>, messages: u64) -> Side {
    let mut order: Vec<u32> = (1..=nodes.count() as u32).collect();
    Rng::with_seed(SEED).shuffle(&mut order);
    let mut order = order.iter().copied().cycle();
    let mut side = Side::new();
    let mut batch = [0; BATCH];
    while side.messages < messages {
        for (place, index) in batch.iter_mut().zip(&mut order) {
            while !nodes.claim(index) {
                spin_loop();
            }
            *place = index;
        }
        let started = Instant::now();
        for index in batch {
            sender.push(index);
        }
        let elapsed = started.elapsed();
        for index in batch {
            side.count(index);
        }
        side.took(elapsed, BATCH as u64, messages);
    }
    side
}

fn receive<M: Mailbox>(receiver: &mut M::Receiver, nodes: &Arc<Nodes>, messages: u64) -> Side {
    let mut side = Side::new();
    while side.messages < messages {
        let before = side.messages;
        let started = Instant::now();
        M::take(receiver, |index| {
            nodes.free(index);
            side.count(index);
        });
        let elapsed = started.elapsed();
        if side.messages > before {
            side.took(elapsed, side.messages - before, messages);
        }
        let pause = Instant::now();
        while pause.elapsed() < PAUSE {
            spin_loop();
        }
    }
    side
}
