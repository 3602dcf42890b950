//! What other cores ask of this one: an intrusive stack through the nodes themselves.
//!
//! A message is a node's index. A canceller that has won a node writes the node's link and swaps the index onto the
//! stack; the owner takes the whole stack by one swap. So there is nothing to allocate, nothing that can be full, and
//! nobody to wait for: a canceller that stalls between its claim and its push holds up nobody, least of all the owner.
//! (A queue whose consumer waits for a producer that has claimed a place would; see ARCHITECTURE.md.)
//!
//! ```text
//!  63                    32 31                     0
//! +------------------------+-------------------------+
//! |  messages (saturating) |  index of the newest    |     index 0: empty      all ones: closed
//! +------------------------+-------------------------+
//! ```
//!
//! # Who may do what
//!
//! * Any thread: `push`, for a node that it has won (`Armed -> Cancelled` in `state`). Winning is what makes the node's
//!   link its own until the push.
//! * The owner: `take`, `close`, and reading the links of what it took.
//!
//! # Why nothing is lost or seen twice
//!
//! A push is a compare-and-swap from the head that its link names, so every message is reachable from the one after it.
//! `take` removes all of them at once; the owner alone removes, so a head cannot go away and come back in
//! between (and if it did, the link would still name what is below it). After `close` every push fails.
//!
//! # Ordering
//!
//! M1: `push` releases, `take` and `close` acquire. All pushes since the last `take` are one release sequence (each is a
//! read-modify-write), so the owner sees every link, and whatever each canceller did before.
//!
//! # Models
//!
//! `loom-tests/tests/mailbox.rs`.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

const EMPTY: u64 = 0;
const CLOSED: u64 = u64::MAX;

/// The owner's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    head: AtomicU64,
}

/// A node's place in the mailbox: the message below it.
#[derive(Debug)]
pub(crate) struct Link(AtomicU32);

/// Messages that the owner has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The index of the newest one, 0 if there is none; [`Link::below`] leads on.
    pub(crate) newest: u32,
    /// How many there are.
    pub(crate) count: u32,
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Push {
    /// It is in the mailbox, which now has this many.
    Queued(u32),
    /// The owner is gone, and has swept the node or will: nothing more to do.
    Closed,
}

impl Default for Mailbox {
    fn default() -> Self {
        Self { head: AtomicU64::new(EMPTY) }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl Mailbox {
    /// Puts the node `index`, which the caller has won, and whose link is `link`, into the mailbox.
    #[inline]
    pub(crate) fn push(&self, index: u32, link: &Link) -> Push {
        // Relaxed: only compared, and checked by the swap.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == CLOSED {
                return Push::Closed;
            }
            // Relaxed: published by the swap below.
            link.0.store(index_of(head), Ordering::Relaxed);
            let depth = depth_of(head).saturating_add(1).min(u32::MAX - 1);
            // Release (M1): publishes the link to the owner's `take`. Relaxed: a failure is only another head.
            match self.head.compare_exchange_weak(head, pack(depth, index), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Push::Queued(depth),
                Err(found) => head = found,
            }
        }
    }

    /// Takes all messages.
    #[inline]
    pub(crate) fn take(&self) -> Taken {
        // Relaxed: an idle turn should not write the line that others push to; a message missed here is seen by the
        // next turn, and the swap below acquires.
        if matches!(self.head.load(Ordering::Relaxed), EMPTY | CLOSED) {
            return Taken::default();
        }
        // Acquire (M1): the links, and what the cancellers did.
        let head = self.head.swap(EMPTY, Ordering::Acquire);
        Taken { newest: index_of(head), count: depth_of(head) }
    }

    /// Refuses all further messages. What was queued is found by the sweep that follows, by its state; so today this only
    /// spares late cancellers a push that nobody would take.
    pub(crate) fn close(&self) {
        // Acquire (M1): what the cancellers did comes before the sweep.
        self.head.swap(CLOSED, Ordering::Acquire);
    }

    /// How many messages wait.
    pub(crate) fn depth(&self) -> u32 {
        // Relaxed: a gauge. Where it decides about sleeping, a fence orders it (see `parker`).
        match self.head.load(Ordering::Relaxed) {
            CLOSED => 0,
            head => depth_of(head),
        }
    }
}

impl Link {
    /// The message below this one, or 0. For the owner, of a message it has taken.
    pub(crate) fn below(&self) -> u32 {
        // Relaxed: the `take` that brought the message has acquired the link.
        self.0.load(Ordering::Relaxed)
    }
}

const fn pack(depth: u32, index: u32) -> u64 {
    ((depth as u64) << 32) | index as u64
}

#[allow(clippy::cast_possible_truncation)] // The low half is the index.
const fn index_of(head: u64) -> u32 {
    head as u32
}

const fn depth_of(head: u64) -> u32 {
    (head >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_owner_takes_all_messages_newest_first() {
        let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| Link::default()));
        assert_eq!(mailbox.take(), Taken::default());
        for index in 1..4 {
            assert_eq!(mailbox.push(index, &links[index as usize]), Push::Queued(index));
        }
        assert_eq!(mailbox.depth(), 3);
        let Taken { newest, count } = mailbox.take();
        assert_eq!(count, 3);
        assert_eq!((newest, links[3].below(), links[2].below(), links[1].below()), (3, 2, 1, 0));
        assert_eq!((mailbox.take(), mailbox.depth()), (Taken::default(), 0));
    }

    #[test]
    fn a_closed_mailbox_refuses() {
        let (mailbox, link) = (Mailbox::default(), Link::default());
        mailbox.close();
        for _ in 0..2 {
            assert_eq!(mailbox.push(1, &link), Push::Closed);
            assert_eq!((mailbox.take(), mailbox.depth()), (Taken::default(), 0));
        }
    }

    #[test]
    fn the_gauge_saturates_and_never_looks_closed() {
        let (mailbox, link) = (Mailbox { head: AtomicU64::new(pack(u32::MAX - 1, 7)) }, Link::default());
        assert_eq!(mailbox.push(u32::MAX, &link), Push::Queued(u32::MAX - 1));
        assert_ne!(mailbox.push(8, &link), Push::Closed);
    }
}
