//! Vyukov's intrusive queue: a push swaps itself in as the newest and then links the one before to itself. It takes
//! no loop; but between its two steps the receiver cannot go on, and a sender that stalls there holds up all messages
//! after its own.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use super::{Alone, Mailbox, Nodes};

/// `swap-queue`.
#[derive(Debug)]
pub struct SwapQueue(());

/// Who sends.
#[derive(Debug)]
pub struct Sender {
    newest: Arc<Alone<AtomicU32>>,
    nodes: Arc<Nodes>,
}

/// Who receives.
#[derive(Debug)]
pub struct Receiver {
    queue: Sender,
    /// The next message, or the spare node, which stands in the queue where it would be empty.
    oldest: u32,
}

impl Sender {
    fn push(&self, index: u32) {
        self.nodes.link(index).store(0, Ordering::Relaxed);
        // AcqRel: publishes the link above; and the one before must be there when it is linked.
        let before = self.newest.0.swap(index, Ordering::AcqRel);
        // Release: publishes what the sender did.
        self.nodes.link(before).store(index, Ordering::Release);
    }

    fn after(&self, index: u32) -> u32 {
        // Acquire: what the sender of the next one did.
        self.nodes.link(index).load(Ordering::Acquire)
    }
}

impl Receiver {
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
            // Acquire: if it is the newest, nobody links it any more but whoever comes after the spare node.
            if self.queue.newest.0.load(Ordering::Acquire) != index {
                return None;
            }
            self.queue.push(spare);
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
    type Sender = Sender;
    type Receiver = Receiver;

    fn open(nodes: &Arc<Nodes>) -> (Sender, Receiver) {
        let newest = Arc::new(Alone(AtomicU32::new(nodes.spare())));
        let sender = || Sender { newest: Arc::clone(&newest), nodes: Arc::clone(nodes) };
        (sender(), Receiver { queue: sender(), oldest: nodes.spare() })
    }

    fn push(sender: &mut Sender, index: u32) {
        sender.push(index);
    }

    fn take(receiver: &mut Receiver, on_message: impl FnMut(u32)) {
        std::iter::from_fn(|| receiver.pop()).for_each(on_message);
    }
}
