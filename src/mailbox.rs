//! What other cores ask of this one: an intrusive stack through the nodes themselves.
//!
//! A message is a node's index, and says: look at this one's word. A thread that has set a node's *queued* flag writes
//! the node's link and swaps the index onto the stack; the owner takes the whole stack by one swap. So there is nothing to
//! allocate, nothing that can be full, and nobody to wait for: a thread that stalls between its claim and its push holds
//! up nobody, least of all the owner. (A queue whose consumer waits for a producer that has claimed a place would; see
//! ARCHITECTURE.md.)
//!
//! ```text
//!   63     62               32 31                     0
//! +--------+------------------+-------------------------+
//! | urgent | messages (satur.)|  index of the newest    |     index 0: empty      all ones: closed
//! +--------+------------------+-------------------------+
//! ```
//!
//! *Urgent*: one of them is about a deadline, which may be the next one: an owner must not fall asleep over it.
//!
//! # Who may do what
//!
//! * Any thread: `push`, for a node whose *queued* flag it has set (`state`). That is what makes the node's link its own
//!   until the push.
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
//! read-modify-write), so the owner sees every link, and whatever each pusher did before.
//!
//! # Models
//!
//! `loom-tests/tests/mailbox.rs`.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

const EMPTY: u64 = 0;
const CLOSED: u64 = u64::MAX;
const URGENT: u64 = 1 << 63;
const DEPTH_MAX: u32 = (1 << 31) - 2;

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

/// Whether an owner may sleep over a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It is about a payload that can be dropped.
    CanWait,
    /// It is about a deadline.
    Urgent,
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
    /// Puts the node `index`, whose link is `link` and belongs to the caller, into the mailbox.
    #[inline]
    pub(crate) fn push(&self, index: u32, link: &Link, urgency: Urgency) -> Push {
        let urgent = if urgency == Urgency::Urgent { URGENT } else { 0 };
        // Relaxed: only compared, and checked by the swap.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == CLOSED {
                return Push::Closed;
            }
            // Relaxed: published by the swap below.
            link.0.store(index_of(head), Ordering::Relaxed);
            let depth = (depth_of(head) + 1).min(DEPTH_MAX);
            let new = pack(depth, index) | urgent | head & URGENT;
            // Release (M1): publishes the link to the owner's `take`. Relaxed: a failure is only another head.
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
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

    /// Takes all messages, and refuses all further ones. Once only.
    pub(crate) fn close(&self) -> Taken {
        // Acquire (M1): what the pushers did comes before the sweep.
        let head = self.head.swap(CLOSED, Ordering::Acquire);
        Taken { newest: index_of(head), count: depth_of(head) }
    }

    /// Whether a message waits over which an owner must not fall asleep: there are `debt` of them, or one is urgent.
    pub(crate) fn keeps_awake(&self, debt: u32) -> bool {
        // Relaxed: the fence of the announcement orders it (see `parker`).
        let head = self.head.load(Ordering::Relaxed);
        head != CLOSED && (head & URGENT != 0 || depth_of(head) >= debt)
    }

    /// Whether the owner is gone.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: who must know pushes.
        self.head.load(Ordering::Relaxed) == CLOSED
    }

    /// Whether one of the messages is about a deadline.
    pub(crate) fn is_urgent(&self) -> bool {
        // Relaxed: a gauge; where nothing may be missed, `keeps_awake` looks again.
        let head = self.head.load(Ordering::Relaxed);
        head != CLOSED && head & URGENT != 0
    }

    /// How many messages wait.
    pub(crate) fn depth(&self) -> u32 {
        // Relaxed: a gauge, by which nothing is ordered.
        match self.head.load(Ordering::Relaxed) {
            CLOSED => 0,
            head => depth_of(head),
        }
    }

    /// The newest message, or 0. For the owner, who may follow the links from here: only it takes messages away.
    pub(crate) fn newest(&self) -> u32 {
        // Acquire (M1): the links of the messages from there on.
        match self.head.load(Ordering::Acquire) {
            CLOSED => 0,
            head => index_of(head),
        }
    }
}

impl Link {
    /// Links to another node that is nobody's. For who has this node to itself.
    pub(crate) fn set(&self, index: u32) {
        // Relaxed: published with the node.
        self.0.store(index, Ordering::Relaxed);
    }

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
    ((head & !URGENT) >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_owner_takes_all_messages_newest_first() {
        let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| Link::default()));
        assert_eq!(mailbox.take(), Taken::default());
        for index in 1..4 {
            assert_eq!(mailbox.push(index, &links[index as usize], Urgency::CanWait), Push::Queued(index));
        }
        assert_eq!((mailbox.depth(), mailbox.newest()), (3, 3));
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
            assert_eq!(mailbox.push(1, &link, Urgency::Urgent), Push::Closed);
            assert_eq!((mailbox.take(), mailbox.depth(), mailbox.newest()), (Taken::default(), 0, 0));
        }
    }

    #[test]
    fn many_messages_or_an_urgent_one_keep_the_owner_awake() {
        let (mailbox, links) = (Mailbox::default(), [(); 3].map(|()| Link::default()));
        assert!(!mailbox.keeps_awake(2));
        assert_eq!(mailbox.push(1, &links[0], Urgency::CanWait), Push::Queued(1));
        assert!(!mailbox.keeps_awake(2) && mailbox.keeps_awake(1));
        assert_eq!(mailbox.push(2, &links[1], Urgency::Urgent), Push::Queued(2));
        assert_eq!(mailbox.push(3, &links[2], Urgency::CanWait), Push::Queued(3));
        assert!(mailbox.keeps_awake(9));
        assert_eq!(mailbox.take(), Taken { newest: 3, count: 3 });
        assert!(!mailbox.keeps_awake(1));
    }

    #[test]
    fn the_gauge_saturates_and_never_looks_closed() {
        let (mailbox, link) = (Mailbox { head: AtomicU64::new(pack(DEPTH_MAX, 7)) }, Link::default());
        for index in [u32::MAX, 8] {
            assert_eq!(mailbox.push(index, &link, Urgency::Urgent), Push::Queued(DEPTH_MAX));
        }
    }
}
