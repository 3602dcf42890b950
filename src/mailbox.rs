//! What other cores ask of this one: two intrusive stacks through the nodes themselves.
//!
//! A message is a node's index, and says: look at this one's word. A thread that has set a node's *queued* flag writes
//! the node's link and swaps the index onto a stack; the owner takes the whole stack by one swap. So there is nothing to
//! allocate, nothing that can be full, and nobody to wait for: a thread that stalls between its claim and its push holds
//! up nobody, least of all the owner. (A queue whose consumer waits for a producer that has claimed a place would; see
//! ARCHITECTURE.md.)
//!
//! ```text
//!   63                    32 31                     0
//! +-------------------------+-------------------------+
//! |    messages (satur.)    |   index of the newest   |     0: empty      all ones: closed
//! +-------------------------+-------------------------+
//! ```
//!
//! One stack is for what is *urgent*, about a deadline, which may be the next one: an owner must not fall asleep over it. The other
//! is for what can wait, timers that were cancelled. The owner meets messages of both by turns: so none waits for more of
//! the other kind than of its own.
//!
//! # Who may do what
//!
//! * Any thread: `push`, for a node whose *queued* flag it has set (`state`, S4). That is what makes the node's link its own
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
//! M1: `push` releases, `take` and `close` acquire. All pushes on a stack since the last `take` are one release sequence (each is a
//! read-modify-write), so the owner sees every link, and whatever each pusher did before.
//!
//! # Models
//!
//! `loom-tests/tests/mailbox.rs`.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

const EMPTY: u64 = 0;
const CLOSED: u64 = u64::MAX;
const DEPTH_MAX: u32 = u32::MAX - 1;

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

/// A node's place in the mailbox: the message below it.
#[derive(Debug)]
pub(crate) struct Link(AtomicU32);

/// Messages of one kind that the owner has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The index of the newest one, 0 if there is none; [`Link::below`] leads on.
    pub(crate) newest: u32,
    /// How many there are.
    pub(crate) count: u32,
}

/// What the owner has taken and not dealt with.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// Of each kind; the urgent ones first.
    left: [Taken; 2],
    /// Which kinds have been looked for in this pass.
    is_looked_for: [bool; 2],
    /// The last one that was met was an urgent one.
    was_urgent: bool,
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
    /// It is in the mailbox, which now has this many of its kind.
    Queued(u32),
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
        Self(AtomicU32::new(0))
    }
}

impl Mailbox {
    /// Puts the node `index`, whose link is `link` and belongs to the caller, into the mailbox.
    #[inline]
    pub(crate) fn push(&self, index: u32, link: &Link, urgency: Urgency) -> Push {
        match urgency {
            Urgency::Urgent => self.urgent.push(index, link),
            Urgency::CanWait => self.can_wait.push(index, link),
        }
    }

    /// Refuses all further messages, and gives those that are there. Once only.
    pub(crate) fn close(&self) -> [Taken; 2] {
        self.stacks().map(Stack::close)
    }

    /// Whether a message waits over which an owner must not fall asleep: there are `debt` of them, or one is urgent.
    pub(crate) fn keeps_awake(&self, debt: u32) -> bool {
        // Its loads are relaxed: the fence of the announcement orders them (see `parker`).
        self.is_urgent() || self.can_wait.depth() >= debt
    }

    /// Whether the owner is gone.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: who must know pushes.
        self.urgent.head.load(Ordering::Relaxed) == CLOSED
    }

    /// Whether one of the messages is about a deadline.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.depth() > 0
    }

    /// How many messages wait.
    pub(crate) fn depth(&self) -> u32 {
        self.urgent.depth().saturating_add(self.can_wait.depth())
    }

    /// The newest message of each kind, or 0. For the owner, who may follow the links from here: only it takes messages away.
    pub(crate) fn newest(&self) -> [u32; 2] {
        self.stacks().map(Stack::newest)
    }

    fn stacks(&self) -> [&Stack; 2] {
        [&self.urgent, &self.can_wait]
    }
}

impl Stack {
    #[inline]
    fn push(&self, index: u32, link: &Link) -> Push {
        // Relaxed: only compared, and checked by the swap.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == CLOSED {
                return Push::Closed;
            }
            // Relaxed: published by the swap below.
            link.0.store(index_of(head), Ordering::Relaxed);
            let depth = depth_of(head).saturating_add(1).min(DEPTH_MAX);
            let new = pack(depth, index);
            // Release (M1): publishes the link to the owner's `take`. Relaxed: a failure is only another head.
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Push::Queued(depth),
                Err(found) => head = found,
            }
        }
    }

    /// Takes all messages, if there are any.
    #[inline]
    fn take(&self) -> Option<Taken> {
        // Relaxed: an idle turn should not write the line that others push to; a message missed here is seen by the
        // next turn, and the swap below acquires.
        if matches!(self.head.load(Ordering::Relaxed), EMPTY | CLOSED) {
            return None;
        }
        // Acquire (M1): the links, and what the pushers did.
        let head = self.head.swap(EMPTY, Ordering::Acquire);
        Some(Taken { newest: index_of(head), count: depth_of(head) })
    }

    fn close(&self) -> Taken {
        // Acquire (M1): what the pushers did comes before the sweep.
        let head = self.head.swap(CLOSED, Ordering::Acquire);
        Taken { newest: index_of(head), count: depth_of(head) }
    }

    #[inline]
    fn depth(&self) -> u32 {
        // Relaxed: a gauge; who may miss nothing has a fence before it.
        match self.head.load(Ordering::Relaxed) {
            CLOSED => 0,
            head => depth_of(head),
        }
    }

    fn newest(&self) -> u32 {
        // Acquire (M1): the links of the messages from there on.
        match self.head.load(Ordering::Acquire) {
            CLOSED => 0,
            head => index_of(head),
        }
    }
}

impl Opened {
    /// A pass of the owner begins: what arrives from here on is taken once in it.
    #[inline]
    pub(crate) fn begin_pass(&mut self) {
        self.is_looked_for = [false; 2];
    }

    /// Takes the messages of each kind of which none is left, once in a pass; what arrives later is left for the next one, so that a
    /// flood holds up nobody. Whether this was the first look of the pass.
    #[inline]
    pub(crate) fn take_more(&mut self, mailbox: &Mailbox) -> bool {
        let is_first = self.is_looked_for == [false; 2];
        let [urgent, can_wait] = mailbox.stacks();
        let has_looked = self.take_kind(0, urgent);
        (self.take_kind(1, can_wait) || has_looked) && is_first
    }

    #[inline]
    fn take_kind(&mut self, kind: usize, stack: &Stack) -> bool {
        if self.left[kind].newest != 0 || self.is_looked_for[kind] {
            return false;
        }
        self.is_looked_for[kind] = true;
        if let Some(taken) = stack.take() {
            self.left[kind] = taken;
        }
        true
    }

    /// The message that is to be met next, 0 if there is none: the newest one, of the two kinds by turns.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.left[usize::from(!self.is_next_urgent())].newest
    }

    /// The next one is being met, and `below` is the message below it.
    #[inline]
    pub(crate) fn meet(&mut self, below: u32) {
        self.was_urgent = self.is_next_urgent();
        let left = &mut self.left[usize::from(!self.was_urgent)];
        *left = Taken { newest: below, count: left.count.saturating_sub(1) };
    }

    #[inline]
    fn is_next_urgent(&self) -> bool {
        let [urgent, can_wait] = &self.left;
        urgent.newest != 0 && (can_wait.newest == 0 || !self.was_urgent)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.left.iter().all(|kind| kind.newest == 0)
    }

    /// How many messages are left.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.left[0].count.saturating_add(self.left[1].count)
    }

    /// What is left, of each kind.
    pub(crate) fn left(&self) -> [Taken; 2] {
        self.left
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
    (head >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests;
