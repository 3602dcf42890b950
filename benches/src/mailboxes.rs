//! Ways for one core to tell another which of its timers were cancelled.
//!
//! A message is the number of a node, from 1; 0 is none. Who sends one has claimed its node, so nobody else sends the
//! same, and who takes it frees the node. Some mailboxes link the nodes themselves and need no memory; others keep
//! the numbers.

mod chains;
mod queues;
mod stack;
mod swap_queue;

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

pub use self::{
    chains::Chains,
    queues::{Array, Channel, Ring, Seg},
    stack::Stack,
    swap_queue::SwapQueue,
};

/// A mailbox with one receiver.
pub trait Mailbox {
    /// Who sends.
    type Sender: Send;
    /// Who receives.
    type Receiver: Send;

    /// An empty one, with room for a message from each of the nodes.
    fn open(nodes: &Arc<Nodes>) -> (Self::Sender, Self::Receiver);

    /// Sends the number of a node.
    fn push(sender: &mut Self::Sender, index: u32);

    /// Takes what is there. What is sent meanwhile may be left for the next time.
    fn take(receiver: &mut Self::Receiver, on_message: impl FnMut(u32));
}

/// The nodes of an owner's timers, numbered from 1. Node 0, and one after the last, are the mailbox's.
#[derive(Debug)]
pub struct Nodes(Box<[Node]>);

/// 16 bytes, as in corewheel.
#[derive(Debug, Default)]
struct Node {
    claimed: AtomicU64,
    link: AtomicU32,
}

impl Nodes {
    /// So many, all free.
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
        // Acquire: whoever freed it has done with its link. Looked at before, so that waiting for it does not take
        // its line away.
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

/// Alone in its lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone<T>(T);
