//! The state word: decides which thread ends a timer.
//!
//! Every timer has one 64-bit word. The thread that moves it out of `Armed` owns the ending. Other
//! threads learn from their failed swap how the timer ended. There is no second flag, no lock and
//! no reference count.
//!
//! ```text
//!  63                      8      7            6           5       4         3       2     0
//! +-------------------------+----------+---------------+-------+--------+----------+-------+
//! |  generation (56 bits)   | by owner | payload taken | moved | queued | periodic | phase |
//! +-------------------------+----------+---------------+-------+--------+----------+-------+
//! ```
//!
//! The *generation* identifies the timer. It comes from a counter of the shard that never repeats,
//! and that the registry passes on to the next shard of the same number. The generation of a remote
//! timer is the node's last one plus one, with a bit that marks it (`slab`). A handle is stale if
//! the word has another generation.
//!
//! | flag | meaning |
//! |---|---|
//! | *periodic* | it runs repeatedly; does not change while the timer lives |
//! | *queued* | a message of the node is in the mailbox or on the way: the thread that sets it pushes, the owner clears it |
//! | *moved* | another thread has written a deadline beside the word (`slab::Requested`); the owner has not linked the timer there yet |
//! | *payload taken* | the timer is cancelled, and the thread that sets the flag takes the payload, which may leave the owner's thread |
//! | *by owner* | the owner itself has cancelled the timer: it has the payload, or is running it for the last time |
//!
//! # Phases
//!
//! | phase | meaning | payload |
//! |---|---|---|
//! | `Idle` | ended, or never used | none |
//! | `Private` | pending; no other thread can have a handle | the owner's |
//! | `Armed` | pending | the owner's |
//! | `Moving` | pending; another thread is writing its deadline, and the owner must not run it | the owner's |
//! | `Running` | its callback runs | the owner's run's |
//! | `Stopping` | its callback runs, and no further run will start (periodic only) | the owner's run's |
//! | `Cancelled` | cancelled, and its message is queued ("held"): the owner must not run it, and will free it | the owner's, unless *payload taken* |
//! | `Cancelling` | cancelled while another thread has exclusive use of the node, and will make it `Cancelled` | the owner's, or that thread's if *payload taken* |
//!
//! Other threads never touch the wheel's entry, and touch the payload only if *payload taken* is
//! set. Three more fields are shared: this word, the mailbox link beside it, and the requested
//! deadline. A node is free for reuse when it is `Idle` and not queued.
//!
//! # Transitions
//!
//! | from | to | thread | method | decides |
//! |---|---|---|---|---|
//! | `Idle` | `Private`, `Armed` | owner | `arm` | |
//! | `Idle` | `Armed`, queued, moved | the adder that has taken the node | `arm_remote` | |
//! | `Private` | `Armed` | owner | `share` | |
//! | `Private` | `Running`, `Idle` | owner | `claim`, `cancel_own` | a plain store: no other thread has a handle |
//! | `Private` | `Idle` | owner | `sweep` | swap, as in every phase |
//! | `Armed`, not moved | `Running` | owner | `claim` | swap: it fires |
//! | `Armed`, moved | not moved | owner | `claim`, `movable`, `collect` | swap: the owner takes over the deadline |
//! | any, queued | not queued | owner | `collect` | swap: the message has been consumed |
//! | `Armed` | `Idle` | owner | `cancel_own`, `sweep` | swap: it is cancelled, or handed back |
//! | `Armed` | `Cancelled`, queued | any thread | `cancel` | swap: it is cancelled |
//! | `Armed`, added by another thread | `Cancelling`, payload taken | any thread | `cancel` | swap: it is cancelled |
//! | `Armed` | `Moving` | any thread | `begin_move` | swap: it is moved |
//! | `Moving` | `Armed`, queued, moved | the mover | `end_move` | swap |
//! | `Moving` | `Cancelling` | any thread | `cancel`, `cancel_own` | swap: it is cancelled |
//! | `Cancelling`, added by another thread | payload taken | the mover | `end_move` | swap |
//! | `Cancelling` | `Cancelled`, queued | the mover, or the thread that has cancelled it | `end_move` | swap |
//! | `Moving` | `Idle` | owner | `sweep` | swap: it is handed back; nodes are not reused |
//! | `Running` | `Stopping` | any thread | `cancel`, `cancel_own` | swap, periodic only: this run is the last |
//! | `Running` | `Armed` | owner | `rearm` | swap, periodic only: it continues |
//! | `Running` | `Idle` | owner | `finish` | a plain store: no other thread leaves this phase, except to `Stopping` (periodic only), which the store ends too |
//! | `Stopping` | `Idle` | owner | `finish` | a plain store: no other thread leaves this phase |
//! | `Cancelled` | `Idle` | owner | `collect`, `sweep` | a plain store, or a swap: no other thread leaves this phase |
//! | `Cancelling` | `Idle` | owner | `sweep` | swap: nodes are not reused |
//! | `Armed`, queued, moved | `Idle` | the adder that has armed it | `disarm_remote` | swap: the mailbox is closed, and the last sweep may find it |
//!
//! # Exactly one ending
//!
//! In every phase, either one thread alone may write, or all writers swap. An ending leaves `Armed`
//! once per arming, because it is a compare-and-swap on the whole word, including the generation. A
//! one-shot timer is armed once per generation, so exactly one of fire, cancel and hand back
//! happens. A periodic timer returns to `Armed` by a swap from `Running`, which fails if a cancel
//! has made it `Stopping`. A move returns to `Armed` by a swap from `Moving`, which fails if a
//! cancel has made it `Cancelling`.
//!
//! # The four traps
//!
//! 1. *Twice in the mailbox.* Only the thread that sets *queued* pushes, and the swap that needs
//!    the message sets it. So a node is in the mailbox at most once. The owner clears it when it
//!    has consumed the message; a later request finds it clear and pushes again. If a timer ends
//!    while its message is queued, its node stays `Idle` and queued. It is reused only after the
//!    owner has consumed that message. The owner reads the link before it frees the index.
//! 2. *Leftover entries.* A timer is one entry in the wheel. It is in at most one slot and knows
//!    which. A move unlinks it from the old slot, so no leftover entry can fire a second time. A
//!    timer that is `Moving`, `Cancelled` or *moved* may still be in its slot. It may also have
//!    been popped from the slot when its claim failed. The next operation on it unlinks or links it
//!    in either case.
//! 3. *Reset from another core.* A thread that moves a timer has exclusive use of the requested
//!    deadline from `Moving` until its second swap. During that time the node cannot be reused,
//!    because only that thread leaves `Moving` or `Cancelling` towards `Idle`. The end of the shard
//!    does so too, but no node is reused after it. The owner does not fire a timer that is
//!    `Moving`, and fires a *moved* timer by its new deadline. A reset by the owner clears *moved*,
//!    so an earlier remote reset cannot overwrite it. A remote reset that is still `Moving` comes
//!    after it. A second thread that finds a timer `Moving` has nothing to write: its reset is
//!    ordered directly before the one in progress.
//! 4. *The end.* When the shard drains for the last time, a canceller or mover may have claimed
//!    without a push yet. The owner first closes the mailbox, by swapping a marker in, and then
//!    sweeps all words. Timers that are `Armed` or `Moving` are handed back. Timers that are
//!    `Cancelled` belong to their cancellers, with or without a push. A pusher that finds the
//!    marker touches nothing more. The words themselves are freed through epochs, after the last
//!    thread that might read them has gone.
//!
//! # The moment of a reset
//!
//! A remote reset answers true once it has made the timer `Moving`, and takes effect at one moment
//! between its two swaps. The owner fires by the old deadline before the first swap, or by the new
//! one after the second. A thread that stalls in between delays only that timer. If the timer is
//! cancelled in between, the move is ordered before the cancel. If the shard ends in between, the
//! reset answers false, but other resets that found the timer `Moving` have answered true. That
//! timer is handed back with one of the requested deadlines, or with the one before.
//!
//! # Orderings, in pairs
//!
//! - S1: the canceller's swap to `Cancelled`, `Cancelling` or `Stopping` releases; the owner's
//!   `collect`, `sweep` and `rearm` acquire. So the canceller's work before the cancel happens
//!   before the owner drops the payload.
//! - S2: the owner's `finish` and `rearm` release; `cancel` and `is_running` acquire. So a thread
//!   with the answer `Ended` after the timer fired sees the callback's work. A thread that cancels
//!   a periodic timer sees the work of its runs. The reader may find a later word of the same node
//!   instead, so every plain store of the owner releases, which costs nothing on x86. Swaps
//!   continue the release sequence of the word they replace.
//! - S3: `end_move` and `arm_remote` release. The calls that clear *moved* (`claim`, `movable`,
//!   `collect`, `sweep`) acquire, and so does the next `begin_move`. So the requested deadline is
//!   read and written in order, and the owner reads the period that the adder has written.
//! - S4: the owner's `collect` releases when it clears *queued*; `cancel` and `end_move` acquire
//!   when they set it. So the owner has finished with a node's link, which it reads and reverses,
//!   before the next writer of the link. `arm_remote` gets the node from its page's free list.
//!
//! # The payload
//!
//! An adder writes the payload before `arm_remote`, the owner before `arm`. From then on the
//! payload belongs to the owner. The owner takes it with the transition that ends the timer or
//! claims it for a run. After `disarm_remote` the adder takes it. A node that is `Idle` has no
//! payload, so a page of free nodes can be freed at once.
//!
//! The payload of a remotely added timer is `Send`. The thread that cancels it also drops it, since
//! the owner may sleep for long. It makes the timer `Cancelling` with *payload taken*, moves the
//! payload to its own stack, and then makes the timer `Cancelled`. If the timer was being moved,
//! the mover does this instead. The swap that sets *payload taken* acquires the adder's writes and
//! the runs of a periodic timer (S2), and the swap to `Cancelled` releases the node to the owner's
//! `collect` (S1). If the shard ends in between, `sweep` leaves the payload alone.
//!
//! # Models
//!
//! `loom-tests/tests/cancel.rs` (fire, cancel, reuse, links, periodic runs),
//! `loom-tests/tests/reset.rs` (remote resets), `loom-tests/tests/remote_add.rs` (remote adds),
//! `loom-tests/tests/end.rs` (the last drain).

mod owner;
mod remote;

use crate::util::sync::{AtomicU64, Ordering};

const GENERATION_SHIFT: u32 = 8;
const PHASE_MASK: u64 = 7;
const PERIODIC: u64 = 1 << 3;
const QUEUED: u64 = 1 << 4;
const MOVED: u64 = 1 << 5;
const PAYLOAD_TAKEN: u64 = 1 << 6;
const BY_OWNER: u64 = 1 << 7;
const _: () = assert!(
    crate::limits::REMOTE_GENERATION | crate::limits::GENERATION_MAX
        == u64::MAX >> GENERATION_SHIFT,
    "the parts fill the word"
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Idle,
    Private,
    Armed,
    Moving,
    Running,
    Stopping,
    Cancelled,
    Cancelling,
}

impl Phase {
    #[inline]
    const fn of(word: u64) -> Self {
        match word & PHASE_MASK {
            0 => Self::Idle,
            1 => Self::Private,
            2 => Self::Armed,
            3 => Self::Moving,
            4 => Self::Running,
            5 => Self::Stopping,
            6 => Self::Cancelled,
            _ => Self::Cancelling,
        }
    }

    /// Returns `word` with this phase.
    const fn set_in(self, word: u64) -> u64 {
        (word & !PHASE_MASK) | self as u64
    }

    /// Returns the word of an ended timer: its generation, and whether a message of the node is
    /// still to come.
    const fn idle(word: u64) -> u64 {
        word & (u64::MAX << GENERATION_SHIFT | QUEUED)
    }
}

/// The kind of a new timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One-shot, and only the owner has a handle: no ending needs a swap.
    Private,
    /// One-shot; any thread may have a handle.
    Shared,
    /// Runs repeatedly until it is cancelled; any thread may have a handle.
    Periodic,
}

/// The result of the owner's attempt to fire a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Claim {
    /// It is `Running` now: the owner takes the payload and must `finish` or `rearm`.
    Fires,
    /// Another thread has moved it. The owner must link it at the new deadline, and then claim
    /// again if it is due.
    Moved { periodic: bool },
    /// Another thread has cancelled it or is moving it; its message is in the mailbox or on the
    /// way.
    Held,
}

/// The answer of a cancel, available at once on any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancel {
    /// The callback has not started and never will, even if it was already queued behind another
    /// one in a turn.
    Cancelled,
    /// The callback is running at this moment. For a periodic timer: no further run will start.
    Running,
    /// The timer had ended before (fired, cancelled or handed back), or the handle is stale.
    Ended,
}

/// The phase of a timer; from [`TimerHandle::status`](crate::TimerHandle::status).
///
/// # Examples
///
/// ```
/// use corewheel::{TimerStatus, local_timer};
/// use std::time::Duration;
///
/// let timeout = local_timer().add(Duration::from_secs(5), || println!("no response"));
/// assert_eq!(timeout.status(), TimerStatus::Pending);
/// timeout.cancel();
/// assert_eq!(timeout.status(), TimerStatus::Ended);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerStatus {
    /// It waits for its deadline, or for the turn that fires it.
    Pending,
    /// Its callback is running. A periodic timer is pending again after the run.
    Running,
    /// It fired, was cancelled or handed back, or the handle is stale.
    Ended,
}

/// Whether the node of an ended timer is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Freed {
    /// The node can be reused.
    Now,
    /// Its message has not been consumed; `collect` will free it.
    Queued,
}

/// Whether the owner can move a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Movable {
    /// It is pending, one-shot, and linked in the wheel.
    Fast,
    /// It is pending, and linked in the wheel except if `unlinked`.
    Slow { periodic: bool, unlinked: bool },
    /// It has ended, is running, or the handle is stale.
    No,
}

/// The meaning of a consumed message.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Collected {
    /// Another thread has cancelled the timer; it has ended now. Its payload is there unless that
    /// thread has taken it.
    Cancelled { has_payload: bool },
    /// The timer had ended before; the node can be reused.
    Freed,
    /// Another thread has moved it: the owner must link it at the new deadline.
    Moved { periodic: bool },
    /// The owner has handled it already.
    Nothing,
}

/// The result of the last sweep for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Swept {
    /// It was pending: its payload is handed back. If it was moved, its deadline is the requested
    /// one.
    HandedBack { moved: bool },
    /// It had been cancelled: its payload is dropped, unless the canceller has it.
    Cancelled { has_payload: bool },
    /// The node has no payload.
    Idle,
}

/// The next step of a remote thread after its swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum FollowUp {
    /// Push the node on the owner's mailbox.
    Push,
    /// Take the payload of the cancelled timer, and then end the move.
    Take,
    /// Nothing: a message of the node is queued already, or another thread will push it.
    Nothing,
}

/// The thread that moves a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    Owner,
    Other,
}

/// The result of an attempt to move a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Move {
    /// The caller writes the deadline and then ends the move.
    Begun,
    /// It is pending, and another thread's move is in progress. This move is ordered directly
    /// before that one: nothing is left to do.
    Superseded,
    /// It has ended, is running, or the handle is stale.
    Refused,
}

impl FollowUp {
    #[inline]
    fn unless_queued(word: u64) -> Self {
        if word & QUEUED == 0 { Self::Push } else { Self::Nothing }
    }
}

/// The word of one node.
#[derive(Debug)]
pub(crate) struct StateWord(AtomicU64);

impl Default for StateWord {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl StateWord {
    /// Compares and exchanges the word with the caller's orderings. The caller's comment justifies
    /// them.
    #[inline]
    fn swap(&self, from: u64, to: u64, success: Ordering, failure: Ordering) -> Result<(), u64> {
        self.0.compare_exchange(from, to, success, failure).map(drop)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
