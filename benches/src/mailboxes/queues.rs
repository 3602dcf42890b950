//! Queues that keep the numbers of the nodes, and hand them out one at a time.

use std::sync::{Arc, mpsc};

use crossbeam_queue::{ArrayQueue, SegQueue};
use rtrb::RingBuffer;

use super::{Mailbox, Nodes};

/// `seg-queue`: of any number of senders and receivers, unbounded, in blocks that are allocated on the way.
#[derive(Debug)]
pub struct Seg(());

/// `array-queue`: the same, bounded.
#[derive(Debug)]
pub struct Array(());

/// `std-mpsc`: the standard library's channel, unbounded.
#[derive(Debug)]
pub struct Channel(());

/// `ring`: of a single sender, bounded. What is left when there is only one other core.
#[derive(Debug)]
pub struct Ring(());

impl Mailbox for Seg {
    type Sender = Arc<SegQueue<u32>>;
    type Receiver = Arc<SegQueue<u32>>;

    fn open(_: &Arc<Nodes>) -> (Self::Sender, Self::Receiver) {
        let queue = Arc::default();
        (Arc::clone(&queue), queue)
    }

    fn push(sender: &mut Self::Sender, index: u32) {
        sender.push(index);
    }

    fn take(receiver: &mut Self::Receiver, on_message: impl FnMut(u32)) {
        std::iter::from_fn(|| receiver.pop()).for_each(on_message);
    }
}

impl Mailbox for Array {
    type Sender = Arc<ArrayQueue<u32>>;
    type Receiver = Arc<ArrayQueue<u32>>;

    fn open(nodes: &Arc<Nodes>) -> (Self::Sender, Self::Receiver) {
        let queue = Arc::new(ArrayQueue::new(nodes.count()));
        (Arc::clone(&queue), queue)
    }

    fn push(sender: &mut Self::Sender, index: u32) {
        sender.push(index).expect("room for each node");
    }

    fn take(receiver: &mut Self::Receiver, on_message: impl FnMut(u32)) {
        std::iter::from_fn(|| receiver.pop()).for_each(on_message);
    }
}

impl Mailbox for Channel {
    type Sender = mpsc::Sender<u32>;
    type Receiver = mpsc::Receiver<u32>;

    fn open(_: &Arc<Nodes>) -> (Self::Sender, Self::Receiver) {
        mpsc::channel()
    }

    fn push(sender: &mut Self::Sender, index: u32) {
        sender.send(index).expect("there is a receiver");
    }

    fn take(receiver: &mut Self::Receiver, on_message: impl FnMut(u32)) {
        receiver.try_iter().for_each(on_message);
    }
}

impl Mailbox for Ring {
    type Sender = rtrb::Producer<u32>;
    type Receiver = rtrb::Consumer<u32>;

    fn open(nodes: &Arc<Nodes>) -> (Self::Sender, Self::Receiver) {
        RingBuffer::new(nodes.count())
    }

    fn push(sender: &mut Self::Sender, index: u32) {
        sender.push(index).expect("room for each node");
    }

    fn take(receiver: &mut Self::Receiver, on_message: impl FnMut(u32)) {
        std::iter::from_fn(|| receiver.pop().ok()).for_each(on_message);
    }
}
