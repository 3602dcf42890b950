//! Ways for one core to tell another which of its timers were cancelled.
//!
//! A message is the number of a node, from 1; 0 is none. A sender has claimed its node, so no other
//! thread sends it, and the receiver frees it. Some mailboxes link the nodes themselves and need no
//! memory; others store the numbers.

use std::{
    iter::from_fn,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
};

use crossbeam_queue::{ArrayQueue, SegQueue};
use rtrb::RingBuffer;

use crate::across::Alone;

/// The sender of a mailbox with one receiver.
pub trait Mailbox: Send + Sized {
    /// The receiver.
    type Receiver: Send;

    /// An empty one, with room for a message from each of the nodes.
    fn open(nodes: &Arc<Nodes>) -> (Self, Self::Receiver);

    /// Sends the number of a node.
    fn push(&mut self, index: u32);

    /// Takes the messages. Messages that are sent during the call may stay for the next one.
    fn take(receiver: &mut Self::Receiver, on_message: impl FnMut(u32));
}

/// The nodes of an owner's timers, numbered from 1. Node 0, and one after the last, are the mailbox's.
pub struct Nodes(Box<[Node]>);

/// 16 bytes, as in corewheel.
#[derive(Debug, Default)]
struct Node {
    claimed: AtomicU64,
    link: AtomicU32,
}

impl Nodes {
    /// Creates this number of free nodes.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self((0..count + 2).map(|_| Node::default()).collect()))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len() - 2
    }

    /// Claims a node for a message, if it is free.
    pub fn claim(&self, index: u32) -> bool {
        let claimed = &self.0[index as usize].claimed;
        // Acquire: the thread that freed it is done with its link. It loads first, so that waiting
        // does not take the cache line away.
        claimed.load(Ordering::Relaxed) == 0 && claimed.swap(1, Ordering::Acquire) == 0
    }

    /// Frees a node whose message was taken.
    pub fn free(&self, index: u32) {
        // Release: the link is no longer read.
        self.0[index as usize].claimed.store(0, Ordering::Release);
    }

    fn link(&self, index: u32) -> &AtomicU32 {
        &self.0[index as usize].link
    }

    /// The node after the last.
    fn spare(&self) -> u32 {
        self.0.len() as u32 - 1
    }
}

/// The head of a stack through the nodes, and the nodes.
#[derive(Clone)]
pub struct Stack {
    head: Arc<Alone<AtomicU64>>,
    nodes: Arc<Nodes>,
}

impl Stack {
    fn new(nodes: &Arc<Nodes>) -> Self {
        Self { head: Arc::default(), nodes: Arc::clone(nodes) }
    }

    /// Empties the stack; returns its old head, which is 0 if it was empty.
    fn take_all(&self) -> u64 {
        let head = &self.head.0;
        // Acquire: the links.
        if head.load(Ordering::Relaxed) == 0 { 0 } else { head.swap(0, Ordering::Acquire) }
    }

    fn link(&self, index: u32) -> u32 {
        self.nodes.link(index).load(Ordering::Relaxed)
    }

    /// Takes all of a [`Chain`], one at a time.
    fn take_singly(&self, mut on_message: impl FnMut(u32)) {
        // Acquire, here and below: the link of the head.
        let mut head = self.head.0.load(Ordering::Acquire);
        while head != 0 {
            let index = head as u32;
            let below = self.link(index);
            // The depth tells an empty stack from one whose last message was taken: both are 0.
            let rest = ((head & !(DEPTH - 1)) - DEPTH) | u64::from(below);
            match self.head.0.compare_exchange_weak(
                head,
                rest,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    on_message(index);
                    head = self.head.0.load(Ordering::Acquire);
                }
                Err(found) => head = found,
            }
        }
    }
}

/// Pushes a node on a stack. Its link and the new head follow from the old head.
pub(crate) fn push(
    head: &AtomicU64,
    link: &AtomicU32,
    link_of: impl Fn(u64) -> u32,
    pushed_on: impl Fn(u64) -> u64,
) {
    let mut found = head.load(Ordering::Relaxed);
    loop {
        link.store(link_of(found), Ordering::Relaxed);
        let pushed = pushed_on(found);
        // Release: publishes the link.
        match head.compare_exchange_weak(found, pushed, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => found = other,
        }
    }
}

/// `stack`: corewheel's stack, whose links lead to the message after the next. The head holds the two newest messages and
/// the depth. The receiver takes all by one swap and follows two chains, so that it fetches the lines of two messages at
/// once. No thread waits for another.
pub struct Chains(Stack);

const INDEX_BITS: u32 = 26;
const INDEX: u64 = (1 << INDEX_BITS) - 1;

/// The newest message of a head of [`Chains`], and the second.
const fn newest_two(head: u64) -> [u32; 2] {
    [(head & INDEX) as u32, (head >> INDEX_BITS & INDEX) as u32]
}

impl Mailbox for Chains {
    type Receiver = Stack;

    fn open(nodes: &Arc<Nodes>) -> (Self, Stack) {
        assert!(nodes.count() < 1 << INDEX_BITS, "a number has {INDEX_BITS} bits");
        let stack = Stack::new(nodes);
        (Self(stack.clone()), stack)
    }

    fn push(&mut self, index: u32) {
        let Stack { head, nodes } = &self.0;
        let second = |head| newest_two(head)[1];
        push(&head.0, nodes.link(index), second, |head| {
            // The depth goes round.
            let depth = (head >> (2 * INDEX_BITS)) + 1;
            depth << (2 * INDEX_BITS) | (head & INDEX) << INDEX_BITS | u64::from(index)
        });
    }

    fn take(stack: &mut Stack, mut on_message: impl FnMut(u32)) {
        let [mut index, mut next] = newest_two(stack.take_all());
        while index != 0 {
            let link = stack.link(index);
            on_message(index);
            (index, next) = (next, link);
        }
    }
}

/// `stack-chain`: a stack with plain links. The head holds the newest message and, above it, the depth. The receiver takes
/// all by one swap and walks from the newest. No thread waits for another.
///
/// With `SINGLE`, `stack-single`: the receiver takes one message at a time by a compare-and-swap. Only the receiver pops,
/// and a node is sent again only after it was freed, so an equal head has an equal link.
pub struct Chain<const SINGLE: bool>(Stack);

/// One message, in the depth of a head of [`Chain`].
const DEPTH: u64 = 1 << 32;

impl<const SINGLE: bool> Mailbox for Chain<SINGLE> {
    type Receiver = Stack;

    fn open(nodes: &Arc<Nodes>) -> (Self, Stack) {
        let stack = Stack::new(nodes);
        (Self(stack.clone()), stack)
    }

    fn push(&mut self, index: u32) {
        let Stack { head, nodes } = &self.0;
        push(
            &head.0,
            nodes.link(index),
            |head| head as u32,
            |head| ((head & !(DEPTH - 1)) + DEPTH) | u64::from(index),
        );
    }

    fn take(stack: &mut Stack, mut on_message: impl FnMut(u32)) {
        if SINGLE {
            return stack.take_singly(on_message);
        }
        let mut index = stack.take_all() as u32;
        while index != 0 {
            let below = stack.link(index);
            on_message(index);
            index = below;
        }
    }
}

/// `swap-queue`: Vyukov's intrusive queue. A push swaps itself in as the newest and then links the one before to itself. It
/// takes no loop; but between its two steps the receiver cannot go on, and a sender that stalls there holds up all messages
/// after its own.
pub struct SwapQueue {
    newest: Arc<Alone<AtomicU32>>,
    nodes: Arc<Nodes>,
}

/// The receiver of a [`SwapQueue`].
pub struct SwapReceiver {
    queue: SwapQueue,
    /// The next message, or the spare node, which stands in the queue where it would be empty.
    oldest: u32,
}

impl SwapQueue {
    fn send(&self, index: u32) {
        self.nodes.link(index).store(0, Ordering::Relaxed);
        // AcqRel: publishes the link above; and the one before must be there when it is linked.
        let before = self.newest.0.swap(index, Ordering::AcqRel);
        // Release: publishes what the sender did.
        self.nodes.link(before).store(index, Ordering::Release);
    }

    fn after(&self, index: u32) -> u32 {
        // Acquire: sees the writes of the next message's sender.
        self.nodes.link(index).load(Ordering::Acquire)
    }
}

impl SwapReceiver {
    /// The next message; `None` if there is none, or if its sender is between its two steps.
    fn pop(&mut self) -> Option<u32> {
        let spare = self.queue.nodes.spare();
        if self.oldest == spare {
            match self.queue.after(spare) {
                0 => return None,
                next => self.oldest = next,
            }
        }
        let index = self.oldest;
        if self.queue.after(index) == 0 {
            // Acquire: if it is the newest, only the sender after the spare node links it.
            if self.queue.newest.0.load(Ordering::Acquire) != index {
                return None;
            }
            self.queue.send(spare);
        }
        match self.queue.after(index) {
            0 => None,
            next => {
                self.oldest = next;
                Some(index)
            }
        }
    }
}

impl Mailbox for SwapQueue {
    type Receiver = SwapReceiver;

    fn open(nodes: &Arc<Nodes>) -> (Self, SwapReceiver) {
        let newest = Arc::new(Alone(AtomicU32::new(nodes.spare())));
        let queue = || Self { newest: Arc::clone(&newest), nodes: Arc::clone(nodes) };
        (queue(), SwapReceiver { queue: queue(), oldest: nodes.spare() })
    }

    fn push(&mut self, index: u32) {
        self.send(index);
    }

    fn take(receiver: &mut SwapReceiver, on_message: impl FnMut(u32)) {
        from_fn(|| receiver.pop()).for_each(on_message);
    }
}

/// `seg-queue`: of any number of senders and receivers, unbounded, in blocks that are allocated on the way. It keeps the
/// numbers of the nodes, as the queues below.
pub type Seg = Arc<SegQueue<u32>>;

impl Mailbox for Seg {
    type Receiver = Self;

    fn open(_: &Arc<Nodes>) -> (Self, Self) {
        let queue = Self::default();
        (Arc::clone(&queue), queue)
    }

    fn push(&mut self, index: u32) {
        SegQueue::push(self, index);
    }

    fn take(receiver: &mut Self, on_message: impl FnMut(u32)) {
        from_fn(|| receiver.pop()).for_each(on_message);
    }
}

/// `array-queue`: the same, bounded.
pub type Array = Arc<ArrayQueue<u32>>;

impl Mailbox for Array {
    type Receiver = Self;

    fn open(nodes: &Arc<Nodes>) -> (Self, Self) {
        let queue = Arc::new(ArrayQueue::new(nodes.count()));
        (Arc::clone(&queue), queue)
    }

    fn push(&mut self, index: u32) {
        ArrayQueue::push(self, index).expect("room for each node");
    }

    fn take(receiver: &mut Self, on_message: impl FnMut(u32)) {
        from_fn(|| receiver.pop()).for_each(on_message);
    }
}

/// `std-mpsc`: the standard library's channel, unbounded.
pub type Channel = mpsc::Sender<u32>;

impl Mailbox for Channel {
    type Receiver = mpsc::Receiver<u32>;

    fn open(_: &Arc<Nodes>) -> (Self, Self::Receiver) {
        mpsc::channel()
    }

    fn push(&mut self, index: u32) {
        self.send(index).expect("there is a receiver");
    }

    fn take(receiver: &mut Self::Receiver, on_message: impl FnMut(u32)) {
        receiver.try_iter().for_each(on_message);
    }
}

/// `ring`: bounded, for a single sender. The best case with one other core.
pub type Ring = rtrb::Producer<u32>;

impl Mailbox for Ring {
    type Receiver = rtrb::Consumer<u32>;

    fn open(nodes: &Arc<Nodes>) -> (Self, Self::Receiver) {
        RingBuffer::new(nodes.count())
    }

    fn push(&mut self, index: u32) {
        rtrb::Producer::push(self, index).expect("room for each node");
    }

    fn take(receiver: &mut Self::Receiver, on_message: impl FnMut(u32)) {
        from_fn(|| receiver.pop().ok()).for_each(on_message);
    }
}
