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
    measure::Sample,
};

/// Messages between two readings of the clock.
const BATCH: usize = 64;
/// Between two looks of the receiver: what a turn of a busy loop does besides.
const PAUSE: Duration = Duration::from_micros(2);

/// Time spent on messages, and how many they were; those of the warm-up are left out.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    nanos: u128,
    messages: u64,
}

impl Spent {
    fn add(&mut self, elapsed: Duration, messages: u64) {
        self.nanos += elapsed.as_nanos();
        self.messages += messages;
    }

    fn sample(self, name: &str, n: usize) -> Sample {
        Sample::nanos(name, n, self.nanos as f64 / self.messages as f64)
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
    let ((sent, pushing), (received, taking)) =
        cores::on_two(|| send::<M>(&mut sender, &nodes, messages), || receive::<M>(&mut receiver, &nodes, messages));
    assert_eq!(sent, received, "every message arrives once");
    vec![pushing.sample(&format!("{name}-push"), n), taking.sample(&format!("{name}-take"), n)]
}

/// Each node in its turn, in an order that no prefetcher guesses. A quarter is the warm-up.
fn send<M: Mailbox>(sender: &mut M::Sender, nodes: &Arc<Nodes>, messages: u64) -> (Total, Spent) {
    let mut order: Vec<u32> = (1..=nodes.count() as u32).collect();
    Rng::with_seed(SEED).shuffle(&mut order);
    let mut order = order.iter().copied().cycle();
    let (mut total, mut spent) = (Total::default(), Spent::default());
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
            M::push(sender, index);
        }
        let elapsed = started.elapsed();
        for index in batch {
            total.count(index);
        }
        if total.messages > messages / 4 {
            spent.add(elapsed, BATCH as u64);
        }
    }
    (total, spent)
}

fn receive<M: Mailbox>(receiver: &mut M::Receiver, nodes: &Arc<Nodes>, messages: u64) -> (Total, Spent) {
    let (mut total, mut spent) = (Total::default(), Spent::default());
    while total.messages < messages {
        let before = total.messages;
        let started = Instant::now();
        M::take(receiver, |index| {
            nodes.free(index);
            total.count(index);
        });
        let elapsed = started.elapsed();
        if before > messages / 4 && total.messages > before {
            spent.add(elapsed, total.messages - before);
        }
        let pause = Instant::now();
        while pause.elapsed() < PAUSE {
            spin_loop();
        }
    }
    (total, spent)
}
