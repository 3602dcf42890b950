//! A stack through the nodes, as any other. A push writes the link and swaps the head, which holds the depth too; the
//! receiver takes all by one swap and walks from the newest. Nobody waits for anybody.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{Alone, Mailbox, Nodes};

/// `stack-chain`; with `SINGLE`, `stack-single`: the receiver takes one message at a time by a compare-and-swap. (It alone
/// removes, and a node is sent again only after it was freed, so a head that it finds again is the same.)
#[derive(Debug)]
pub struct Stack<const SINGLE: bool>(());

/// Either end of a stack.
#[derive(Clone, Debug)]
pub struct End {
    pub(super) head: Arc<Alone<AtomicU64>>,
    pub(super) nodes: Arc<Nodes>,
}

impl<const SINGLE: bool> Mailbox for Stack<SINGLE> {
    type Sender = End;
    type Receiver = End;

    fn open(nodes: &Arc<Nodes>) -> (End, End) {
        End::both(nodes)
    }

    fn push(sender: &mut End, index: u32) {
        let head = &sender.head.0;
        let mut found = head.load(Ordering::Relaxed);
        loop {
            sender.nodes.link(index).store(index_of(found), Ordering::Relaxed);
            let pushed = pack(depth_of(found) + 1, index);
            // Release: publishes the link.
            match head.compare_exchange_weak(found, pushed, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
    }

    fn take(receiver: &mut End, on_message: impl FnMut(u32)) {
        if SINGLE { receiver.take_singly(on_message) } else { receiver.take_all(on_message) }
    }
}

impl End {
    /// Both ends of an empty one.
    pub(super) fn both(nodes: &Arc<Nodes>) -> (Self, Self) {
        let end = Self { head: Arc::default(), nodes: Arc::clone(nodes) };
        (end.clone(), end)
    }

    fn take_all(&self, mut on_message: impl FnMut(u32)) {
        if self.head.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Acquire: the links.
        let mut index = index_of(self.head.0.swap(0, Ordering::Acquire));
        while index != 0 {
            let below = self.nodes.link(index).load(Ordering::Relaxed);
            on_message(index);
            index = below;
        }
    }

    fn take_singly(&self, mut on_message: impl FnMut(u32)) {
        // Acquire, here and below: the link of the head.
        let mut head = self.head.0.load(Ordering::Acquire);
        while head != 0 {
            let index = index_of(head);
            let below = self.nodes.link(index).load(Ordering::Relaxed);
            // The depth tells an empty stack from one whose last message was taken: both are 0.
            let rest = pack(depth_of(head) - 1, below);
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

const fn pack(depth: u32, index: u32) -> u64 {
    (depth as u64) << 32 | index as u64
}

const fn index_of(head: u64) -> u32 {
    head as u32
}

const fn depth_of(head: u64) -> u32 {
    (head >> 32) as u32
}
