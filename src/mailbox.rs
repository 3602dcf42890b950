//! What other cores ask of this one: two intrusive stacks through the nodes themselves.
//!
//! A message is a node's index, and says: look at this one's word. A thread that has set a node's *queued* flag writes
//! the node's link and swaps the index onto a stack; the owner takes the whole stack by one swap. So there is nothing to
//! allocate, nothing that can be full, and nobody to wait for: a thread that stalls between its claim and its push holds
//! up nobody, least of all the owner. (A queue whose consumer waits for a producer that has claimed a place would; see
//! ARCHITECTURE.md.)
//!
//! ```text
//!   63        52    51      50    49                  25 24                   0
//! +-------------+------+---------+----------------------+----------------------+
//! |  how many   |  -   | payload | index of the second  | index of the newest  |   0: empty   all ones: closed
//! +-------------+------+---------+----------------------+----------------------+
//! ```
//!
//! A message's link names not the one below it but the one below that. The owner learns what comes next from a line that another
//! core has written, and waits for it; with two chains it waits for two at once. (Taking a message that can wait costs 8.2 ns,
//! along one chain 14.5: `compare --workload mailbox`. One chain would leave 32 bits for the count. With two it has 12, and goes
//! round; the gauge says "so many or more".) *payload* says that one of the messages is of a cancelled timer whose payload the owner
//! has to drop.
//!
//! One stack is for what is *urgent*, about a deadline, which may be the next one: an owner must not fall asleep over it. The other
//! is for what can wait, timers that were cancelled. The owner meets the urgent ones at the beginning of
//! a pass, before what is due fires, and what can wait at its end; of a flood of both it takes as many of each. Urgent ones it meets in
//! the order in which they came: it reverses the links of those that it has taken, before it meets the first.
//!
//! # Who may do what
//!
//! * Any thread: `push`, for a node whose *queued* flag it has set (`state`, S4). That is what makes the node's link its own
//!   until the push.
//! * The owner: `take`, `close`, and reading and reversing the links of what it took, each until it has met the message (S4).
//!
//! # Why nothing is lost or seen twice
//!
//! A push is a compare-and-swap from a head whose newest becomes its second, and whose second its link names: so every message is
//! reachable. `take` removes all of them at once; the owner alone removes, so a head cannot go away and come back in
//! between (and if it did, the two would still be those that are below). After `close` every push fails.
//!
//! # Ordering
//!
//! M1: `push` releases, `take` and `close` acquire. All pushes on a stack since the last `take` are one release sequence (each is a
//! read-modify-write), so the owner sees every link, and whatever each pusher did before.
//!
//! # Models
//!
//! `loom-tests/tests/mailbox.rs`.

mod opened;

pub(crate) use self::opened::Opened;
use crate::{
    limits::{DEBT_MAX, INDEX_MAX, MESSAGES_COUNTED},
    sync::{AtomicU32, AtomicU64, Ordering},
};

const EMPTY: u64 = 0;
/// No head is that: the newest message and the second are of two nodes.
const CLOSED: u64 = u64::MAX;
const INDEX_BITS: u32 = 25;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const PAYLOAD: u64 = 1 << (2 * INDEX_BITS);
const COUNT_SHIFT: u32 = 52;
/// So many or more.
const MANY: u32 = MESSAGES_COUNTED - DEBT_MAX;
const _: () = assert!(
    INDEX_MAX <= INDEX_MASK && MESSAGES_COUNTED.ilog2() == 64 - COUNT_SHIFT,
    "the parts fit the word"
);
const _: () = assert!(
    MANY.is_multiple_of(DEBT_MAX),
    "a count that goes round passes a multiple as often as before"
);

/// The owner's mailbox.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    urgent: Stack,
    can_wait: Stack,
}

/// Messages of one kind.
#[derive(Debug)]
struct Stack {
    head: AtomicU64,
}

/// A node's place in the mailbox: the second message below it, or before it when links are reversed, or 0. (Of a node that is in no
/// mailbox, whatever its user links.)
#[derive(Debug)]
pub(crate) struct Link(AtomicU32);

/// Messages of one kind, the newest first, or, reversed, the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    /// The index of the first one, 0 if there is none; its link leads to the third.
    pub(crate) first: u32,
    second: u32,
    count: u32,
}

/// Which kinds of messages wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    urgent: bool,
    can_wait: bool,
}

impl Arrived {
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        !self.urgent && !self.can_wait
    }
}

/// Whether an owner may sleep over a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It is about a payload that can be dropped.
    CanWait,
    /// It is about a node without a payload.
    Empty,
    /// It is about a deadline.
    Urgent,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Push {
    /// It is in the mailbox, as the so many-th of its kind; beyond `MANY` the number goes round, and is right modulo `DEBT_MAX` only.
    /// It may be the first about a payload since the owner has taken those before.
    Queued { depth: u32, is_first_payload: bool },
    /// The owner is gone, and has swept the node or will: nothing more to do.
    Closed,
}

impl Default for Stack {
    fn default() -> Self {
        Self { head: AtomicU64::new(EMPTY) }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Mailbox {
    /// Puts the node `index`, whose link is `link` and belongs to the caller, into the mailbox.
    #[inline]
    pub(crate) fn push(&self, index: u32, link: &Link, urgency: Urgency) -> Push {
        match urgency {
            Urgency::Urgent => self.urgent.push(index, link, 0),
            Urgency::CanWait => self.can_wait.push(index, link, PAYLOAD),
            Urgency::Empty => self.can_wait.push(index, link, 0),
        }
    }

    /// Refuses all further messages, and gives those that are there. Once only.
    pub(crate) fn close(&self) -> [Messages; 2] {
        self.stacks().map(Stack::close)
    }

    /// Whether a message waits over which an owner must not fall asleep: there are `debt` of them, one is urgent, or one is about a
    /// payload and the sleep is long.
    pub(crate) fn keeps_awake(&self, debt: u32, is_long: bool) -> bool {
        // Its loads are relaxed: the fence of the announcement orders them (see `parker`).
        self.is_urgent() || self.can_wait.depth() >= debt || is_long && self.can_wait.has_payload()
    }

    /// Whether the owner is gone.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: who must know pushes.
        self.urgent.head.load(Ordering::Relaxed) == CLOSED
    }

    /// Which kinds of messages wait, as far as the owner can see.
    #[inline]
    pub(crate) fn arrived(&self) -> Arrived {
        Arrived { urgent: self.urgent.has_any(), can_wait: self.can_wait.has_any() }
    }

    /// Whether one of the messages is about a deadline.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.depth() > 0
    }

    /// How many messages wait; of each kind, `MANY` is that or more.
    pub(crate) fn depth(&self) -> u32 {
        self.urgent.depth().saturating_add(self.can_wait.depth())
    }

    /// Returns how many messages about cancelled timers wait; `MANY` is that or more.
    pub(crate) fn cancelled(&self) -> u32 {
        self.can_wait.depth()
    }

    /// The messages of each kind. For the owner, who may follow the links from here: only it takes messages away.
    pub(crate) fn waiting(&self) -> [Messages; 2] {
        self.stacks().map(Stack::waiting)
    }

    fn stacks(&self) -> [&Stack; 2] {
        [&self.urgent, &self.can_wait]
    }
}

impl Stack {
    #[inline]
    fn push(&self, index: u32, link: &Link, payload: u64) -> Push {
        // Relaxed: only compared, and checked by the swap.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == CLOSED {
                return Push::Closed;
            }
            // Relaxed: published by the swap below.
            link.0.store(second_of(head), Ordering::Relaxed);
            let depth = one_more(depth_of(head));
            let new = pack(depth, newest_of(head), index) | head & PAYLOAD | payload;
            // Release (M1): publishes the link to the owner's `take`. Relaxed: a failure is only another head.
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    let is_first_payload = payload & !head != 0;
                    return Push::Queued { depth, is_first_payload };
                }
                Err(found) => head = found,
            }
        }
    }

    /// Returns true if there are messages. An idle turn should not write the line that others push to.
    #[inline]
    fn has_any(&self) -> bool {
        // Relaxed: a message missed here is seen by the next turn, and `take` acquires.
        !matches!(self.head.load(Ordering::Relaxed), EMPTY | CLOSED)
    }

    /// Takes all messages, of which there are some.
    #[inline]
    fn take(&self) -> Messages {
        // Acquire (M1): the links, and what the pushers did.
        let head = self.head.swap(EMPTY, Ordering::Acquire);
        Messages::of(head)
    }

    fn close(&self) -> Messages {
        // Acquire (M1): what the pushers did comes before the sweep.
        let head = self.head.swap(CLOSED, Ordering::Acquire);
        Messages::of(head)
    }

    #[inline]
    fn depth(&self) -> u32 {
        // Relaxed: a gauge; who may miss nothing has a fence before it.
        match self.head.load(Ordering::Relaxed) {
            CLOSED => 0,
            head => Messages::of(head).count,
        }
    }

    /// Returns true if a message is about a payload.
    fn has_payload(&self) -> bool {
        // Relaxed: who may miss nothing has a fence before it.
        let head = self.head.load(Ordering::Relaxed);
        head != CLOSED && head & PAYLOAD != 0
    }

    fn waiting(&self) -> Messages {
        // Acquire (M1): the links of the messages from there on.
        match self.head.load(Ordering::Acquire) {
            CLOSED => Messages::default(),
            head => Messages::of(head),
        }
    }
}

impl Messages {
    #[inline]
    fn of(head: u64) -> Self {
        Self { first: newest_of(head), second: second_of(head), count: depth_of(head).min(MANY) }
    }

    /// Those after the first, whose link is `third`. As long as many were left, many may be.
    #[inline]
    pub(crate) const fn rest(self, third: u32) -> Self {
        let count = match (self.second, self.count) {
            (0, _) => 0,
            (_, MANY) => MANY,
            (_, count) => count.saturating_sub(1),
        };
        Self { first: self.second, second: third, count }
    }
}

impl Link {
    pub(crate) fn new(next: u32) -> Self {
        Self(AtomicU32::new(next))
    }

    /// Links to another node. For who has this node to itself.
    pub(crate) fn set(&self, index: u32) {
        // Relaxed: published with the node.
        self.0.store(index, Ordering::Relaxed);
    }

    /// Where it leads.
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        // Relaxed: who follows it has acquired the head, by `take`, `close` or `waiting` (M1), or that of a pool (G1).
        self.0.load(Ordering::Relaxed)
    }
}

/// The count of one more message.
#[inline]
const fn one_more(depth: u32) -> u32 {
    if depth + 1 == MESSAGES_COUNTED { MANY } else { depth + 1 }
}

#[inline]
const fn pack(depth: u32, second: u32, newest: u32) -> u64 {
    ((depth as u64) << COUNT_SHIFT) | ((second as u64) << INDEX_BITS) | newest as u64
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // Masked.
const fn newest_of(head: u64) -> u32 {
    head as u32 & INDEX_MASK
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // Masked.
const fn second_of(head: u64) -> u32 {
    (head >> INDEX_BITS) as u32 & INDEX_MASK
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // 12 bits.
const fn depth_of(head: u64) -> u32 {
    (head >> COUNT_SHIFT) as u32
}

#[cfg(all(test, not(loom)))]
mod tests;
