//! Requests to a shard's owner, usually from other threads, in two intrusive stacks of nodes.
//!
//! A message is a node's index, and tells the owner to read that node's state word. The thread that
//! has set a node's *queued* flag writes the node's link, and pushes the index onto a stack by a
//! compare-and-swap. A push allocates nothing, and a stack is never full. The owner takes a whole
//! stack by one swap.
//!
//! ```text
//!   63                  39 38                  14        13               12        11         0
//! +----------------------+----------------------+----------------+-----------------+-------------+
//! | index of the second  | index of the newest  | turn requested | payload to drop |    count    |
//! +----------------------+----------------------+----------------+-----------------+-------------+
//!   all zeros: empty, all ones: closed
//! ```
//!
//! A message's link is the index of the message after the next one, so the links form two
//! interleaved chains. Reading a link usually stalls the owner, because another core has just
//! written its cache line. With two chains, the owner can load two such lines at once.
//!
//! The *count* is the number of messages in the stack. A count that overflows continues at
//! `FIRST_INEXACT_COUNT`, and is inexact from then on.
//!
//! The flag *payload to drop* means that the owner must drop the payload of a cancelled timer in
//! the stack.
//!
//! The flag *turn requested* of the urgent stack stands for an urgent message without a node. A
//! thread that finds no free node for its message sets *turn requested*, so that the owner takes a
//! turn before it sleeps. A push clears *turn requested*, because the pushed message also makes the
//! owner take a turn.
//!
//! One stack is for *urgent* messages about added or reset timers. An added or reset timer may have
//! the earliest deadline, so the owner consumes all urgent messages before it sleeps. The second
//! stack is for low-priority messages about cancelled timers. Within its budget, a turn first
//! consumes urgent messages in FIFO order, then fires due timers, and then consumes low-priority
//! messages.
//!
//! # Permitted operations
//!
//! - Any thread may `request_turn`, and may `push` a node whose *queued* flag this thread has set
//!   (`state`, S4). Until the push, this thread has exclusive use of the node's link.
//! - Only the owner calls `take_all`, `close` and `peek_messages`. The owner may read the links of
//!   queued messages. Between taking and consuming a message, the owner may also write the
//!   message's link (S4).
//!
//! # Each message is taken once
//!
//! The pushed message becomes the newest, and the old newest message becomes the second. The pushed
//! node's link stores the index of the old second message, which is now the third. So every message
//! is reachable. `take_all` removes all messages at once and reads no link, so it cannot use a
//! stale link. ABA does not harm a push, because the pusher computes link and head only from the
//! old head and its own index. After `close` every push fails.
//!
//! # Ordering
//!
//! M1: `push` and `request_turn` release; `take_all`, `close` and `peek_messages` acquire. Each
//! push or turn request is a read-modify-write, so it continues the release sequences since the
//! last `take_all`. So the owner sees every link, and all writes before each push or turn request.
//!
//! # Models
//!
//! `loom-tests/tests/mailbox.rs`; for `request_turn`, `loom-tests/tests/purgatory.rs`.

mod backlog;

pub(crate) use self::backlog::{Backlog, MessagePhase};
use crate::{
    limits::{INDEX_MAX, MESSAGE_COUNT_OVERFLOW, WAKE_AT_QUEUED_MESSAGES},
    util::sync::{AtomicU32, AtomicU64, Ordering},
};

const EMPTY_HEAD: u64 = 0;
/// The head of a closed stack. An open stack never has this head, because its newest and second
/// messages are different nodes.
const CLOSED_HEAD: u64 = u64::MAX;
const INDEX_BITS: u32 = 25;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const NEWEST_SHIFT: u32 = 14;
const SECOND_NEWEST_SHIFT: u32 = NEWEST_SHIFT + INDEX_BITS;
const COUNT_MASK: u64 = MESSAGE_COUNT_OVERFLOW as u64 - 1;
const PAYLOAD_TO_DROP_FLAG: u64 = COUNT_MASK + 1;
const TURN_REQUESTED_FLAG: u64 = PAYLOAD_TO_DROP_FLAG << 1;
/// A count that overflows continues at this value. So a count of at least this value may be
/// inexact.
const FIRST_INEXACT_COUNT: u32 = MESSAGE_COUNT_OVERFLOW - WAKE_AT_QUEUED_MESSAGES;
/// The count of a list whose exact number of messages is unknown. Removals leave the count above
/// `FIRST_INEXACT_COUNT` until the list is empty.
const UNKNOWN_COUNT: u32 = FIRST_INEXACT_COUNT + INDEX_MAX + 1;
const _: () = assert!(
    INDEX_MAX <= INDEX_MASK
        && SECOND_NEWEST_SHIFT + INDEX_BITS == 64
        && TURN_REQUESTED_FLAG >> NEWEST_SHIFT == 0,
    "the parts of a head fit its 64 bits"
);
const _: () = assert!(
    FIRST_INEXACT_COUNT.is_multiple_of(WAKE_AT_QUEUED_MESSAGES),
    "an overflowed count still reaches each multiple of `WAKE_AT_QUEUED_MESSAGES`"
);

/// The queued messages of a shard: one stack per priority.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Mailbox {
    /// Messages about added or reset timers, some of which may have been cancelled since.
    pub(crate) urgent: Stack,
    /// Messages about cancelled timers.
    pub(crate) low_priority: Stack,
}

/// The queued messages of one priority.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    head: AtomicU64,
}

/// A node's link in the mailbox: the index of the message two places further in the stack, or 0 if
/// there is none. While the node is free, a list of free nodes may use the link.
#[derive(Debug, Default)]
pub(crate) struct MailboxLink(AtomicU32);

/// A list of messages of one priority: newest first, or oldest first after a reversal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageList {
    /// The index of the first message, or 0 if the list is empty. The first message's link is the
    /// index of the third.
    pub(crate) first_index: u32,
    second_index: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum PushOutcome {
    /// The message is queued, and its stack now has `depth` messages. If `depth` is at least
    /// `FIRST_INEXACT_COUNT`, the true number may be larger by a multiple of
    /// `WAKE_AT_QUEUED_MESSAGES`. `has_set_payload_flag` is true if this push has set the flag
    /// *payload to drop*.
    Queued { depth: u32, has_set_payload_flag: bool },
    /// The shard has ended.
    Closed,
}

impl Mailbox {
    /// Makes the owner take a turn before its next sleep. The caller must then wake a sleeping
    /// owner.
    pub(crate) fn request_turn(&self) {
        // Release (M1): publishes the caller's earlier writes to the owner's `take_all`. The OR
        // leaves a closed head unchanged, because all bits of such a head are set.
        self.urgent.head.fetch_or(TURN_REQUESTED_FLAG, Ordering::Release);
    }

    /// Closes the mailbox and discards its messages. Called once.
    pub(crate) fn close(&self) {
        for stack in [&self.urgent, &self.low_priority] {
            // Acquire (M1): the pushers' writes happen before the owner's `end_at_close` for all
            // state words (`state`).
            stack.head.swap(CLOSED_HEAD, Ordering::Acquire);
        }
    }

    /// Returns true if the owner must not fall asleep, because an urgent message or at least
    /// `wake_depth` low-priority messages are queued. If `ends_on_cancel` is true, one payload to
    /// drop also keeps the owner awake.
    pub(crate) fn must_not_sleep(&self, wake_depth: u32, ends_on_cancel: bool) -> bool {
        // The loads are relaxed: before them, the owner has announced its sleep and executed fence
        // F1 (see `parker`).
        self.urgent.has_messages()
            || self.low_priority.depth() >= wake_depth
            || ends_on_cancel && self.low_priority.has_payload_to_drop()
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: the result is a hint. If the mailbox is closed, a later push fails.
        self.urgent.head.load(Ordering::Relaxed) == CLOSED_HEAD
    }

    /// Returns true if the mailbox is open and the owner sees no message in it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Both `Relaxed`: a later turn sees a message that these loads miss, and `take_all`
        // acquires.
        self.urgent.head.load(Ordering::Relaxed) | self.low_priority.head.load(Ordering::Relaxed)
            == EMPTY_HEAD
    }

    /// Returns the number of queued messages, counting at most `FIRST_INEXACT_COUNT` in each stack.
    pub(crate) fn depth(&self) -> u32 {
        self.urgent.depth().saturating_add(self.low_priority.depth())
    }

    /// Returns the queued urgent messages and the queued low-priority messages, without taking
    /// them. Only the owner may call this.
    pub(crate) fn peek_messages(&self) -> [MessageList; 2] {
        [self.urgent.peek_messages(), self.low_priority.peek_messages()]
    }
}

impl Stack {
    /// Pushes the node `index`. The caller must have exclusive use of `link`, the node's link.
    /// `owner_must_drop_payload` is true if the timer was cancelled and its payload not taken.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The parts of a head have at most 25 bits.
    pub(crate) fn push(
        &self,
        index: u32,
        link: &MailboxLink,
        owner_must_drop_payload: bool,
    ) -> PushOutcome {
        let payload_flag = if owner_must_drop_payload { PAYLOAD_TO_DROP_FLAG } else { 0 };
        // Relaxed: the compare-and-swap confirms the value.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let flag_and_count = if head & COUNT_MASK < COUNT_MASK {
                (head & (PAYLOAD_TO_DROP_FLAG | COUNT_MASK)) + 1
            } else if head == CLOSED_HEAD {
                return PushOutcome::Closed;
            } else {
                head & PAYLOAD_TO_DROP_FLAG | u64::from(FIRST_INEXACT_COUNT)
            };
            // Relaxed: the compare-and-swap below publishes the link.
            link.0.store((head >> SECOND_NEWEST_SHIFT) as u32, Ordering::Relaxed);
            let second_newest = head >> NEWEST_SHIFT << SECOND_NEWEST_SHIFT;
            let new_head =
                second_newest | u64::from(index) << NEWEST_SHIFT | payload_flag | flag_and_count;
            // Release (M1): publishes the link to the owner's `take_all`. Relaxed: a failed
            // compare-and-swap is retried.
            match self.head.compare_exchange_weak(
                head,
                new_head,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let has_set_payload_flag = payload_flag & !head != 0;
                    return PushOutcome::Queued {
                        depth: (new_head & COUNT_MASK) as u32,
                        has_set_payload_flag,
                    };
                }
                Err(newer_head) => head = newer_head,
            }
        }
    }

    /// Returns true if the stack has messages or the flag *turn requested*. Only loads the
    /// contended cache line, because a write would be slower.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        // Relaxed: a later turn sees a message that this load misses, and `take_all` acquires.
        // Before a sleep, the fence F1 (`parker`) precedes this load, so the owner misses no
        // message.
        !matches!(self.head.load(Ordering::Relaxed), EMPTY_HEAD | CLOSED_HEAD)
    }

    #[inline]
    fn take_all(&self) -> MessageList {
        if !self.has_messages() {
            return MessageList::default();
        }
        // Acquire (M1): sees the links, and the pushers' writes.
        let head = self.head.swap(EMPTY_HEAD, Ordering::Acquire);
        MessageList::from_head(head)
    }

    /// Returns the number of queued messages, counting at most `FIRST_INEXACT_COUNT`.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        // Relaxed: the number may be outdated. Before a sleep, the fence F1 (`parker`) precedes
        // this load, so the owner misses no message.
        match self.head.load(Ordering::Relaxed) {
            CLOSED_HEAD => 0,
            head => MessageList::from_head(head).count(),
        }
    }

    fn has_payload_to_drop(&self) -> bool {
        // Relaxed: before a sleep, the fence F1 (`parker`) precedes this load, so the owner misses
        // no payload.
        let head = self.head.load(Ordering::Relaxed);
        head != CLOSED_HEAD && head & PAYLOAD_TO_DROP_FLAG != 0
    }

    fn peek_messages(&self) -> MessageList {
        // Acquire (M1): sees the links of the messages.
        match self.head.load(Ordering::Acquire) {
            CLOSED_HEAD => MessageList::default(),
            head => MessageList::from_head(head),
        }
    }
}

impl MessageList {
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The parts of a head have at most 25 bits.
    fn from_head(head: u64) -> Self {
        let depth = (head & COUNT_MASK) as u32;
        let count = if depth < FIRST_INEXACT_COUNT { depth } else { UNKNOWN_COUNT };
        Self {
            first_index: (head >> NEWEST_SHIFT) as u32 & INDEX_MASK,
            second_index: (head >> SECOND_NEWEST_SHIFT) as u32,
            count,
        }
    }

    /// Returns the list without its first message. `third_index` is the first message's link, the
    /// index of the third message.
    #[inline]
    pub(crate) const fn without_first(self, third_index: u32) -> Self {
        Self {
            first_index: self.second_index,
            second_index: third_index,
            count: self.count.wrapping_sub(1),
        }
    }

    /// Returns the number of messages, or `FIRST_INEXACT_COUNT` if there are more or the number is
    /// unknown.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        if self.first_index == 0 { 0 } else { self.count.min(FIRST_INEXACT_COUNT) }
    }
}

impl MailboxLink {
    /// Sets the link. The caller must have exclusive use of the link.
    pub(crate) fn set(&self, index: u32) {
        // Relaxed: only this thread follows the link until a push of the node publishes the link.
        self.0.store(index, Ordering::Relaxed);
    }

    /// Sets the link of a message that the owner has taken. Returns the previous link.
    pub(crate) fn replace(&self, index: u32) -> u32 {
        let previous = self.get();
        self.set(index);
        previous
    }

    #[inline]
    pub(crate) fn get(&self) -> u32 {
        // Relaxed: the caller has acquired the head of the stack (M1), or the head of a page's free
        // list (G1 in `slab::page`).
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
