//! corewheel's: a stack through the nodes, whose links lead to the message after the next. A push writes the link and swaps the
//! head, which holds the two newest and the depth; the receiver takes all by one swap and follows two chains, so that
//! the lines of two messages are on their way to it at once. Nobody waits for anybody.

use std::sync::{Arc, atomic::Ordering};

use super::{Mailbox, Nodes, stack::End};

const INDEX_BITS: u32 = 26;
const DEPTH_BITS: u32 = 64 - 2 * INDEX_BITS;

/// `stack`.
#[derive(Debug)]
pub struct Chains(());

impl Mailbox for Chains {
    type Sender = End;
    type Receiver = End;

    fn open(nodes: &Arc<Nodes>) -> (End, End) {
        assert!(nodes.count() < 1 << INDEX_BITS, "a number has {INDEX_BITS} bits");
        End::both(nodes)
    }

    fn push(sender: &mut End, index: u32) {
        let head = &sender.head.0;
        let mut found = head.load(Ordering::Relaxed);
        loop {
            sender.nodes.link(index).store(second_of(found), Ordering::Relaxed);
            let pushed = pack(depth_of(found) + 1, newest_of(found), index);
            // Release: publishes the link.
            match head.compare_exchange_weak(found, pushed, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
    }

    fn take(receiver: &mut End, mut on_message: impl FnMut(u32)) {
        let head = &receiver.head.0;
        if head.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Acquire: the links.
        let taken = head.swap(0, Ordering::Acquire);
        let (mut index, mut next) = (newest_of(taken), second_of(taken));
        while index != 0 {
            let link = receiver.nodes.link(index).load(Ordering::Relaxed);
            on_message(index);
            (index, next) = (next, link);
        }
    }
}

/// The depth goes round.
const fn pack(depth: u32, second: u32, newest: u32) -> u64 {
    (depth as u64 & ((1 << DEPTH_BITS) - 1)) << (2 * INDEX_BITS)
        | (second as u64) << INDEX_BITS
        | newest as u64
}

const fn newest_of(head: u64) -> u32 {
    head as u32 & ((1 << INDEX_BITS) - 1)
}

const fn second_of(head: u64) -> u32 {
    (head >> INDEX_BITS) as u32 & ((1 << INDEX_BITS) - 1)
}

const fn depth_of(head: u64) -> u32 {
    (head >> (2 * INDEX_BITS)) as u32
}
