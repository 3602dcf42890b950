//! What a message costs who sends it, and who receives it: one core claims nodes and sends their numbers, the other
//! takes what there is every few microseconds, as turns do, and frees the nodes.

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
};

/// Messages between two readings of the clock.
const BATCH: usize = 64;
/// Between two looks of the receiver: what a turn of a busy loop does besides.
const PAUSE: Duration = Duration::from_micros(2);

/// Parts of a run. What is shown is the median of them; the first few are the warm-up.
const STRETCHES: usize = 200;
const WARM_UP: usize = 40;

/// Time spent on messages, and how many they were, in each stretch.
#[derive(Debug)]
struct Spent([(Duration, u64); STRETCHES]);

impl Spent {
    fn new() -> Self {
        Self([(Duration::ZERO, 0); STRETCHES])
    }

    /// `messages` of `all` are done, the last few of them just now.
    fn add(&mut self, elapsed: Duration, few: u64, messages: u64, all: u64) {
        let stretch = (messages - 1) * STRETCHES as u64 / all;
        let (spent, count) = &mut self.0[stretch as usize];
        *spent += elapsed;
        *count += few;
    }

    fn sample(&self, name: &str, n: usize) -> Sample {
        let stretches = self.0[WARM_UP..].iter().filter(|(_, messages)| *messages > 0);
        let nanos = stretches.map(|(spent, messages)| spent.as_nanos() as f64 / *messages as f64);
        Sample::nanos(name, n, median(nanos.collect()))
    }
}

/// What one side did in all: messages, and the sum of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total {
    messages: u64,
    sum: u64,
}

impl Total {
    fn count(&mut self, index: u32) {
        self.messages += 1;
        self.sum += u64::from(index);
    }
}

/// ns per push and per message taken, with `n` nodes; `messages` is a multiple of the batch.
pub fn run<M: Mailbox>(name: &str, n: usize, messages: u64) -> Vec<Sample> {
    let nodes = Nodes::new(n);
    let (mut sender, mut receiver) = M::open(&nodes);
    let ((sent, pushing), (received, taking)) = cores::on_two(
        || send(&mut sender, &nodes, messages),
        || receive::<M>(&mut receiver, &nodes, messages),
    );
    assert_eq!(sent, received, "every message arrives once");
    vec![pushing.sample(&format!("{name}-push"), n), taking.sample(&format!("{name}-take"), n)]
}

/// Each node in its turn, in an order that no prefetcher guesses.
fn send<M: Mailbox>(sender: &mut M, nodes: &Arc<Nodes>, messages: u64) -> (Total, Spent) {
    let mut order: Vec<u32> = (1..=nodes.count() as u32).collect();
    Rng::with_seed(SEED).shuffle(&mut order);
    let mut order = order.iter().copied().cycle();
    let (mut total, mut spent) = (Total::default(), Spent::new());
    let mut batch = [0; BATCH];
    while total.messages < messages {
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
            total.count(index);
        }
        spent.add(elapsed, BATCH as u64, total.messages, messages);
    }
    (total, spent)
}

fn receive<M: Mailbox>(
    receiver: &mut M::Receiver,
    nodes: &Arc<Nodes>,
    messages: u64,
) -> (Total, Spent) {
    let (mut total, mut spent) = (Total::default(), Spent::new());
    while total.messages < messages {
        let before = total.messages;
        let started = Instant::now();
        M::take(receiver, |index| {
            nodes.free(index);
            total.count(index);
        });
        let elapsed = started.elapsed();
        if total.messages > before {
            spent.add(elapsed, total.messages - before, total.messages, messages);
        }
        let pause = Instant::now();
        while pause.elapsed() < PAUSE {
            spin_loop();
        }
    }
    (total, spent)
}
