//! THE state word: who ends a timer, and everything that follows from it.
//!
//! Every timer has one 64-bit word. Whoever moves it out of `Armed` owns the ending; the loser learns from the failed
//! swap what happened. There is no second flag, no lock and no reference count.
//!
//! ```text
//!  63                            8     7       6       5        4         3      2     0
//! +-------------------------------+-------+-------+-------+--------+----------+-------+
//! |     generation (56 bits)      | taken | gone  | moved | queued | periodic | phase |
//! +-------------------------------+-------+-------+-------+--------+----------+-------+
//! ```
//!
//! The *generation* names the timer: it comes from a counter of the shard that never repeats, and that the registry carries over to
//! the next shard of the same number. Remote timers have another counter, and a generation bit that says so. A handle whose
//! generation is not in the word is stale.
//!
//! | flag | meaning |
//! |---|---|
//! | *periodic* | it runs again and again; does not change while the timer lives |
//! | *queued* | a message of the node is in the mailbox or on the way: whoever sets it pushes, the owner clears it |
//! | *moved* | another thread has said when the timer is due, beside the word (`slab::Requested`); the owner has not placed it there yet |
//! | *gone* | of a cancelled timer: the thread that sets it takes the payload, which may leave the owner's thread |
//! | *taken* | of a timer that the owner itself has cancelled: it has the payload, or is running it for the last time |
//!
//! # Phases
//!
//! | phase | meaning | payload |
//! |---|---|---|
//! | `Idle` | ended, or never used | none |
//! | `Private` | pending; no other thread can have a handle | the owner's |
//! | `Armed` | pending | the owner's |
//! | `Moving` | pending; another thread is writing when it is due, and the owner must not run it | the owner's |
//! | `Running` | its callback runs | the owner's run's |
//! | `Stopping` | its callback runs, and no further run will start (periodic only) | the owner's run's |
//! | `Cancelled` | cancelled, and its message is queued ("held"): the owner must not run it, and will free it | the owner's, unless *gone* |
//! | `Withdrawn` | cancelled while another thread has the node to itself, which will make it `Cancelled` | the owner's, or that thread's if *gone* |
//!
//! The wheel's entry is never touched by another thread, in no phase, and the payload only if it is *gone*. What else crosses threads
//! is this word, the mailbox link beside it, and the deadline that is asked for. A node is free for reuse when it is `Idle` and not
//! queued.
//!
//! # Transitions
//!
//! | from | to | who | method | decides |
//! |---|---|---|---|---|
//! | `Idle` | `Private`, `Armed` | owner | `arm` | |
//! | `Idle` | `Armed`, queued, moved | the adder that has taken the node | `arm_remote` | |
//! | `Private` | `Armed` | owner | `share` | |
//! | `Private` | `Running`, `Idle` | owner | `claim`, `cancel_own` | a plain store: nobody else can |
//! | `Private` | `Idle` | owner | `sweep` | swap, as of any |
//! | `Armed`, not moved | `Running` | owner | `claim` | swap: it fires |
//! | `Armed`, moved | not moved | owner | `claim`, `movable`, `collect` | swap: the owner takes over the deadline |
//! | any, queued | not queued | owner | `collect` | swap: the message has been met |
//! | `Armed` | `Idle` | owner | `cancel_own`, `sweep` | swap: it is cancelled, or handed back |
//! | `Armed` | `Cancelled`, queued | any thread | `cancel` | swap: it is cancelled |
//! | `Armed`, added by another thread | `Withdrawn`, gone | any thread | `cancel` | swap: it is cancelled |
//! | `Armed` | `Moving` | any thread | `begin_move` | swap: it is moved |
//! | `Moving` | `Armed`, queued, moved | who moves it | `end_move` | swap |
//! | `Moving` | `Withdrawn` | any thread | `cancel`, `cancel_own` | swap: it is cancelled |
//! | `Withdrawn`, added by another thread | gone | who moves it | `end_move` | swap |
//! | `Withdrawn` | `Cancelled`, queued | who moves it, or has withdrawn it | `end_move` | swap |
//! | `Moving` | `Idle` | owner | `sweep` | swap: it is handed back; nodes are not used again |
//! | `Running` | `Stopping` | any thread | `cancel`, `cancel_own` | swap, periodic only: this run is the last |
//! | `Running` | `Armed` | owner | `rearm` | swap, periodic only: it goes on |
//! | `Running` | `Idle` | owner | `finish` | a plain store, one-shot only: nobody else leaves it |
//! | `Stopping` | `Idle` | owner | `finish` | a plain store: nobody else leaves it |
//! | `Cancelled` | `Idle` | owner | `collect`, `sweep` | a plain store, or a swap: nobody else leaves it |
//! | `Withdrawn` | `Idle` | owner | `sweep` | swap: nodes are not used again |
//! | `Armed`, queued, moved | `Idle` | the adder that has armed it | `disarm_remote` | swap: the mailbox is closed, and the last sweep may find it |
//!
//! # Why exactly once
//!
//! In every phase either one thread alone may write, or all writers swap. `Armed` is left for an ending once per arming,
//! because leaving it is a compare-and-swap on the whole word, generation included. A one-shot timer is armed once per
//! generation; so exactly one of fire, cancel and hand back happens. A periodic timer returns to `Armed` by a swap from
//! `Running`, which fails if a cancel has made it `Stopping`. A move returns to `Armed` by a swap from `Moving`, which
//! fails if a cancel has made it `Withdrawn`.
//!
//! # The four traps
//!
//! 1. *Twice in the mailbox.* Only who sets *queued* pushes, and it is set by the swap that needs the message: so a node is
//!    in the mailbox at most once. The owner clears it when it has met the message: whoever asks after that finds it
//!    clear and pushes again. A node whose timer has ended while its message is queued stays `Idle` and queued until the
//!    owner has met that message, and is not reused before. (The owner reads the link before it gives the index back.)
//! 2. *Leftover entries.* A timer is one entry in the wheel, which is in at most one slot and knows which. Moving
//!    it takes it out of the old one, so no leftover entry can fire a second time. A timer that is `Moving`, `Cancelled`
//!    or *moved* may still be in its slot or may have been popped from it when its claim failed; whoever deals with it
//!    later removes or places it wherever it is.
//! 3. *Reset from another core.* A thread that moves a timer has it to itself from `Moving` until its second swap: it alone
//!    writes the deadline beside the word. The node cannot be reused meanwhile, because nobody but that thread leaves
//!    `Moving` or `Withdrawn` towards `Idle` (but for the end of the shard, after which no node is reused). The owner
//!    does not fire what is `Moving`, and fires what is *moved* by the deadline it was moved to. A reset of the owner's
//!    clears *moved*, so an earlier reset from elsewhere cannot overwrite it; one that is still `Moving` comes after it.
//!    A second thread that finds a timer `Moving` has nothing to write: its reset came just before the one under way.
//! 4. *The end.* A canceller or mover may have claimed and not yet pushed when the shard drains for the last time. The owner
//!    first closes the mailbox, by swapping a marker in, and then sweeps all words: what is `Armed` or `Moving` is handed
//!    back, what is `Cancelled` has its canceller, pushed or not. A pusher that meets the marker touches nothing more. The
//!    words themselves are freed through epochs, after the last thread that might look has gone.
//!
//! # When a reset happens
//!
//! A reset from elsewhere answers true once it has made the timer `Moving`, and takes effect at one moment between its two
//! swaps: the owner fires by the old deadline before the first or by the new one after the second. A thread that stalls in
//! between holds up nobody but that timer. If the timer is cancelled in between, it was moved first and cancelled then. If the shard
//! ends in between, it answers false, and whoever had found the timer `Moving` was told true: that timer comes back with one of the
//! deadlines that were asked for, or the one before.
//!
//! # Orderings, in pairs
//!
//! * S1: the canceller's swap to `Cancelled`, `Withdrawn` or `Stopping` releases; the owner's `collect`, `sweep` and
//!   `rearm` acquire. So what the canceller did before it cancelled happens before the owner drops the payload.
//! * S2: the owner's `finish` and `rearm` release; `cancel` and `is_running` acquire. So who is told `Ended` after the timer
//!   fired sees what the callback did, and who cancels a periodic one what its runs did. The reader may find a later word of the
//!   same node instead, so every plain store of the owner releases (which costs nothing on x86); swaps continue what they
//!   replace.
//! * S3: `end_move` and `arm_remote` release; whoever takes *moved* away (`claim`, `movable`, `collect`, `sweep`) acquires,
//!   and so does the next `begin_move`. So the deadline asked for is read and written in order.
//! * S4: the owner's `collect` releases when it clears *queued*; `cancel` and `end_move` acquire when they set it. So the owner is done
//!   with a node's link, which it reads and reverses, before the next one writes there. (`arm_remote` has the node from its page's free
//!   list.)
//!
//! # The payload
//!
//! An adder writes the payload before `arm_remote`, the owner before `arm`. From then on the payload belongs to the owner. The owner
//! takes it with the transition that ends the timer or claims it for a run; after `disarm_remote` the adder takes it. A node that is
//! `Idle` has no payload, so a page of free nodes can be freed as it is.
//!
//! What another thread has added is `Send`. The thread that cancels it drops it, since the owner may sleep for long: it makes the timer
//! `Withdrawn` and *gone*, moves the payload to its own stack, and then makes the timer `Cancelled`. (If the timer was being moved, the
//! thread that moves it does so.) The swap that sets *gone* acquires what the adder wrote, and the swap to `Cancelled` releases the
//! node to the owner's `collect` (S1). If the shard ends in between, `sweep` leaves the payload alone.
//!
//! # Models
//!
//! `loom-tests/tests/cancel.rs` (fire, cancel, reuse, placement, periodic runs), `loom-tests/tests/reset.rs` (reset from
//! elsewhere), `loom-tests/tests/remote_add.rs` (timers added by other threads), `loom-tests/tests/end.rs` (the last drain).

mod anyone;
mod owner;

use crate::sync::{AtomicU64, Ordering};

const GENERATION_SHIFT: u32 = 8;
const PHASE_MASK: u64 = 7;
const PERIODIC: u64 = 1 << 3;
const QUEUED: u64 = 1 << 4;
const MOVED: u64 = 1 << 5;
const GONE: u64 = 1 << 6;
const TAKEN: u64 = 1 << 7;
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
    Withdrawn,
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
            _ => Self::Withdrawn,
        }
    }

    /// `word` with this phase instead of its own.
    const fn in_place_of(self, word: u64) -> u64 {
        (word & !PHASE_MASK) | self as u64
    }

    /// What is left of a timer that has ended: its generation, and whether a message of the node has still to come.
    const fn idle(word: u64) -> u64 {
        word & (u64::MAX << GENERATION_SHIFT | QUEUED)
    }
}

/// What a new timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One-shot, and nobody but the owner has a handle: no ending needs a swap.
    Private,
    /// One-shot; any thread may have a handle.
    Shared,
    /// Runs again and again until it is cancelled; any thread may have a handle.
    Periodic,
}

/// What the owner learns when it wants to fire a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Claim {
    /// It is `Running` now: the owner takes the payload and must `finish` or `rearm`.
    Fires,
    /// Another thread has moved it: the owner must place it where that said, and then ask again if it is due.
    Moved { periodic: bool },
    /// Another thread has cancelled it or is moving it; its message is in the mailbox or on the way.
    Held,
}

/// The answer of a cancel, which the canceller has at once, on any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancel {
    /// The callback has not started and never will, even if it was already queued behind another one in a turn.
    Cancelled,
    /// The callback is running at this moment. For a periodic timer: no further run will start.
    Running,
    /// The timer had ended before (fired, cancelled or handed back), or the handle is stale.
    Ended,
}

/// What becomes of the node of a timer that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Freed {
    /// It can be used again.
    Now,
    /// Its message has still to come; `collect` will say so.
    Queued,
}

/// Whether a timer can be moved by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Movable {
    /// It is pending, one-shot, and in the wheel.
    Plainly,
    /// It is pending, and in the wheel unless it is astray.
    Otherwise { periodic: bool, astray: bool },
    /// It has ended, is running, or the handle is stale.
    No,
}

/// What a message of a node meant.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Collected {
    /// The timer was cancelled by another thread; it has ended now. Its payload is there unless that thread has taken it.
    Cancelled { has_payload: bool },
    /// The timer had ended before; the node can be used again.
    Freed,
    /// Another thread has moved it: the owner must place it where that said.
    Moved { periodic: bool },
    /// Nothing that the owner has not dealt with.
    Nothing,
}

/// What the last sweep finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Swept {
    /// It was pending: its payload is handed back. If it was moved, its deadline is the one that was asked for.
    HandedBack { moved: bool },
    /// It had been cancelled: its payload is dropped, unless who cancelled it has it.
    Cancelled { has_payload: bool },
    /// No payload is left here.
    Idle,
}

/// What a thread that is not the owner must do after its swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Next {
    /// Push the node on the owner's mailbox.
    Push,
    /// Take the payload of the cancelled timer, and then end the move.
    Take,
    /// Nothing: a message of the node is queued already, or somebody else will push it.
    Nothing,
}

/// Which thread moves a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    Owner,
    Other,
}

/// Whether a thread may move a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Move {
    /// The caller writes the deadline and then ends the move.
    Begun,
    /// It is pending, and another thread's move is under way, which this one came just before: nothing is left to do.
    Overtaken,
    /// It has ended, is running, or the handle is stale.
    Refused,
}

impl Next {
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
    /// The orderings are the caller's; it says why.
    #[inline]
    fn swap(&self, from: u64, to: u64, success: Ordering, failure: Ordering) -> Result<(), u64> {
        self.0.compare_exchange(from, to, success, failure).map(drop)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
