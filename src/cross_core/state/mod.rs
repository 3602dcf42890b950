//! The state word: decides which thread ends a timer.
//!
//! Every timer has one 64-bit word. The thread that moves it out of `Armed` owns the ending. Other
//! threads learn from their failed swap how the timer ended. There is no second flag, no lock and
//! no reference count.
//!
//! ```text
//!  63             9       8           7            6           5       4         3       2     0
//! +----------------+------------+----------+---------------+-------+--------+----------+-------+
//! |   generation   | deferrable | by owner | payload taken | moved | queued | periodic | phase |
//! +----------------+------------+----------+---------------+-------+--------+----------+-------+
//! ```
//!
//! The *generation* identifies the timer. The owner takes its timers' generations from a counter
//! that never repeats a value; the registry passes the counter on to the next shard of the same
//! number. A remote timer gets the node's last generation plus one, with a bit that marks remote
//! timers (`slab`). A handle is stale if the word has another generation.
//!
//! | flag | meaning |
//! |---|---|
//! | *periodic* | the timer runs repeatedly; the flag does not change while the timer lives |
//! | *queued* | a message of the node is not consumed yet; the setter of the flag pushes it |
//! | *moved* | the owner has not linked the timer at its new requested deadline yet |
//! | *payload taken* | cancelled; the thread that sets the flag takes the payload |
//! | *by owner* | the owner has cancelled the timer, and has its payload or is in its last run |
//! | *deferrable* | a reset to the linked deadline or a later one needs no message (see [below](#a-reset-without-a-message)); only in `Armed` and `Moving`, and never with *queued* |
//!
//! # Phases
//!
//! | phase | meaning | payload |
//! |---|---|---|
//! | `Idle` | ended, or never used | none |
//! | `Private` | pending; no other thread can have a handle | the owner's |
//! | `Armed` | pending | the owner's |
//! | `Moving` | pending; another thread is writing its deadline, and the owner must not run it | the owner's |
//! | `Running` | its callback runs | the owner's, in use by the run |
//! | `Stopping` | its last run is in progress (periodic only) | the owner's, in use by the run |
//! | `Cancelled` | cancelled, and its message is queued: the owner must not run it, and will free the node | the owner's, unless *payload taken* |
//! | `Cancelling` | cancelled, but a mover or the canceller still uses the node, and then makes the timer `Cancelled` | the owner's, or that thread's if *payload taken* |
//!
//! Other threads never touch the wheel's entry, and touch the payload only if *payload taken* is
//! set. Other threads also use three shared fields: this word, the mailbox link beside it, and the
//! requested deadline. A node is free for reuse when it is `Idle` and not queued.
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
//! | `Armed`, moved | not moved | owner | `claim`, `begin_own_move`, `collect` | swap: the owner takes over the deadline |
//! | `Armed`, no flags | deferrable | owner | `set_deferrable` | swap |
//! | `Armed` or `Moving`, deferrable | not deferrable | owner | `claim`, `begin_own_move` | swap: the wheel no longer keeps the timer at the linked deadline |
//! | any, queued | not queued | owner | `collect` | swap: the message has been consumed |
//! | `Armed` | `Idle` | owner | `cancel_own`, `sweep` | swap: it is cancelled, or handed back |
//! | `Armed` | `Cancelled`, queued | any thread | `cancel` | swap: it is cancelled |
//! | `Armed`, added by another thread | `Cancelling`, payload taken | any thread | `cancel` | swap: it is cancelled |
//! | `Armed` | `Moving` | any thread | `begin_move` | swap: it is moved |
//! | `Moving` | `Armed`, queued, moved | the mover | `end_move` | swap |
//! | `Moving`, deferrable | `Armed`, moved, deferrable | the mover | `end_deferred_move` | swap |
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
//! | `Armed`, queued, moved | `Idle` | the adder that has armed it | `undo_arm_remote` | swap: the mailbox is closed, and the last sweep may end the timer first |
//!
//! # Exactly one ending
//!
//! In every phase, either only one thread may write, or all writers swap. A timer leaves `Armed`
//! for its ending by a compare-and-swap on the whole word, which includes the generation, so an
//! armed timer ends once. A one-shot timer is armed once per generation, so exactly one of fire,
//! cancel and hand back happens. A periodic timer returns to `Armed` by a swap from `Running`,
//! which fails if a cancel has made it `Stopping`. A move returns to `Armed` by a swap from
//! `Moving`, which fails if a cancel has made it `Cancelling`.
//!
//! # The four traps
//!
//! 1. *Twice in the mailbox.* A swap that needs a message sets *queued*, and only the thread that
//!    has set the flag pushes the node. So a node is in the mailbox at most once. The owner clears
//!    the flag when it consumes the message; a later request finds the flag clear and pushes again.
//!    If a timer ends while its message is queued, its node stays `Idle` and queued. The node is
//!    reused only after the owner has consumed that message. The owner reads the link before it
//!    frees the index.
//! 2. *Leftover entries.* A timer is one entry in the wheel. The entry is in at most one slot and
//!    knows which. A move leaves the entry there or relinks it, and never makes a second entry. A
//!    timer that is `Moving`, `Cancelled` or *moved* may still be in its slot, or in no slot if it
//!    was due and its claim failed. The next operation on the timer handles both cases.
//! 3. *Reset from another core.* A thread that moves a timer has exclusive use of the requested
//!    deadline from `Moving` until its second swap. During that time the node cannot be reused:
//!    only that thread ends `Moving` or `Cancelling`, apart from the end of the shard, after which
//!    no node is reused. The owner does not fire a timer that is `Moving`, and fires a *moved*
//!    timer by its new deadline. A reset by the owner clears *moved*, so it overrides an earlier
//!    remote reset. A remote reset that is still `Moving` is ordered after the owner's. A second
//!    thread that finds a timer `Moving` writes nothing: its reset is ordered directly before the
//!    reset in progress.
//! 4. *The end.* When the shard drains for the last time, a canceller or mover may have won its
//!    swap and not pushed yet. The owner first closes the mailbox, and then sweeps all words.
//!    Timers that are `Armed` or `Moving` are handed back. `Cancelled` and `Cancelling` timers
//!    count as cancelled, with or without a push. A pusher that finds the mailbox closed does
//!    nothing more. The words are freed through epochs, after the last thread that might read them
//!    has unpinned.
//!
//! # The moment of a reset
//!
//! A remote reset that has made the timer `Moving` returns true, and takes effect between its two
//! swaps. The owner fires the timer by the old deadline before the first swap, or by the new one
//! after the second. A thread that stalls between the swaps delays only this timer. If the timer is
//! cancelled between them, the move is ordered before the cancel. If the shard ends between them,
//! the reset returns false, although other resets that found the timer `Moving` have returned true.
//! The timer is handed back with one of the requested deadlines, or with its previous deadline.
//!
//! # A reset without a message
//!
//! Most resets only postpone a timer, often again and again. The owner need not know of such a
//! reset before the earlier deadline comes. So after the owner has linked a one-shot timer at a
//! requested deadline, it stores this *linked deadline* in the node and sets *deferrable*. If a
//! mover finds the flag, and its new deadline is not before the linked one, it ends the move with
//! *moved* and without *queued*. When the linked deadline comes, the owner's `claim` finds the
//! timer *moved*, and the owner links it at the deadline that was requested last. To bound this
//! work of a tick, each slot of the wheel's first level counts such timers, and the owner sets the
//! flag only in a slot that has few of them (P7).
//!
//! The owner clears the flag when it claims or resets the timer. If another thread is moving the
//! timer at that moment, that thread's `end_deferred_move` fails, and the thread sends a message.
//! Otherwise the timer could be lost: if `claim` finds a due timer `Moving`, the timer is in no
//! slot any more, and only a message makes the owner link it again.
//!
//! # Orderings, in pairs
//!
//! - S1: the canceller's swap to `Cancelled`, `Cancelling` or `Stopping` releases; the owner's
//!   `collect`, `sweep` and `rearm` acquire. So the canceller's work before the cancel happens
//!   before the owner drops the payload.
//! - S2: the owner's `finish` and `rearm` release; `cancel`, `status` and `is_running` acquire. So
//!   a thread with the answer `Ended` after the timer fired sees the callback's work. A thread that
//!   cancels a periodic timer sees the work of its runs. A reader may find a later word of the node
//!   instead of the word of `finish` or `rearm`. So every plain store of the owner releases, which
//!   costs nothing on x86. Swaps continue the release sequence of the word they replace.
//! - S3: `end_move`, `end_deferred_move` and `arm_remote` release. The calls that clear *moved*
//!   (`claim`, `begin_own_move`, `collect`, `sweep`) acquire, and so does the next `begin_move`. So
//!   the requested deadline is read and written in order, and the owner reads the period that the
//!   adder has written. `set_deferrable` releases the linked deadline to the next `begin_move`.
//! - S4: the owner's `collect` releases when it clears *queued*; `cancel` and `end_move` acquire
//!   when they set the flag. So the owner's use of a node's link happens before the next pusher's.
//!   `arm_remote` needs no acquire: its node comes from a free list (G1 in `slab::page`).
//!
//! # The payload
//!
//! An adder writes the payload before `arm_remote`, the owner before `arm`. From then on the
//! payload belongs to the owner. The owner takes the payload with the transition that ends or
//! claims the timer. After `undo_arm_remote` the adder takes the payload back. An `Idle` node has
//! no payload, so a page of free nodes can be freed at once.
//!
//! The payload of a remotely added timer is `Send`. The thread that cancels the timer also drops
//! its payload, since the owner may sleep for long. This thread makes the timer `Cancelling` with
//! *payload taken*, moves the payload to its own stack, and then makes the timer `Cancelled`. If
//! another thread is moving the timer, the mover takes and drops the payload instead. The swap that
//! sets *payload taken* acquires the adder's writes and the runs of a periodic timer (S2). The swap
//! to `Cancelled` releases the node to the owner's `collect` (S1). If the shard ends between the
//! two swaps, `sweep` leaves the payload to the thread that has taken it.
//!
//! # Models
//!
//! `loom-tests/tests/cancel.rs` (fire, cancel, reuse, links, periodic runs),
//! `loom-tests/tests/reset.rs` (remote resets), `loom-tests/tests/remote_add.rs` (remote adds),
//! `loom-tests/tests/end.rs` (the last drain).

use crate::{
    limits::{GENERATION_MAX, REMOTE_GENERATION},
    util::sync::{AtomicU64, Ordering},
};

const GENERATION_SHIFT: u32 = 9;
const PHASE_MASK: u64 = 7;
const PERIODIC: u64 = 1 << 3;
const QUEUED: u64 = 1 << 4;
const MOVED: u64 = 1 << 5;
const PAYLOAD_TAKEN: u64 = 1 << 6;
const CANCELLED_BY_OWNER: u64 = 1 << 7;
const DEFERRABLE: u64 = 1 << 8;
const _: () = assert!(
    REMOTE_GENERATION | GENERATION_MAX == u64::MAX >> GENERATION_SHIFT,
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

    /// Returns true for a pending one-shot timer without flags that is not private.
    #[inline]
    const fn is_plain_armed(word: u64) -> bool {
        word & ((1 << GENERATION_SHIFT) - 1) == Self::Armed as u64
    }

    /// Returns `word` with this phase and without *deferrable*.
    const fn set_in(self, word: u64) -> u64 {
        (word & !(PHASE_MASK | DEFERRABLE)) | self as u64
    }

    /// Returns the word of an ended timer: it keeps the generation and the flag *queued*.
    const fn idle(word: u64) -> u64 {
        word & (u64::MAX << GENERATION_SHIFT | QUEUED)
    }
}

/// The kind of a new timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// One-shot, and only the owner has a handle, so that ending it needs no swap.
    Private,
    /// One-shot; any thread may have a handle.
    Shared,
    /// Runs repeatedly until it is cancelled; any thread may have a handle.
    Periodic,
}

/// The result of the owner's attempt to fire a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum ClaimOutcome {
    /// The timer is `Running` now. The owner takes the payload and must call `finish` or `rearm`.
    Fires(ClaimedRun),
    /// Another thread has moved the timer. The owner must link it at the new deadline, and claim it
    /// again if it is due.
    Moved { periodic: bool },
    /// Another thread has cancelled the timer or is moving it. Its message is in the mailbox, or
    /// about to be pushed.
    AwaitsMessage,
}

/// Proof that the owner has claimed a timer to run it; contains the timer's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct ClaimedRun(u64);

impl ClaimedRun {
    #[inline]
    pub(crate) fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT
    }

    #[inline]
    pub(crate) fn is_periodic(self) -> bool {
        self.0 & PERIODIC != 0
    }
}

/// The answer of a cancel, available at once on any thread.
///
/// # Examples
///
/// ```
/// use corewheel::{Cancel, local_timer};
/// use std::time::Duration;
///
/// let idle = local_timer().add(Duration::from_secs(30), || println!("close the connection"));
/// match idle.cancel() {
///     Cancel::Cancelled => println!("the callback has not run and never will"),
///     Cancel::Running => println!("it runs at this moment"),
///     Cancel::Ended => println!("it has run, or was cancelled before"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancel {
    /// The callback has not started and never will, even if it was due in a turn in progress.
    Cancelled,
    /// The callback is running at this moment. For a periodic timer: no further run will start.
    Running,
    /// The timer had ended before this call (fired, cancelled, handed back), or the handle is
    /// stale.
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
    /// The timer waits for its deadline, or for the turn that fires it.
    Pending,
    /// The timer's callback is running. A periodic timer is pending again after the run.
    Running,
    /// The timer fired, was cancelled or was handed back, or the handle is stale.
    Ended,
}

/// Whether the node of an ended timer is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Freed {
    /// The node can be reused.
    Now,
    /// The node's message has not been consumed. `collect` will free the node.
    Later,
}

/// Whether the owner can move a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum OwnMove {
    /// The timer is pending, one-shot, and linked in the wheel.
    Fast,
    /// The timer is pending. If `unlinked` is true, it may be in no slot; otherwise it is linked.
    Slow { periodic: bool, unlinked: bool },
    /// The timer has ended or is running, or the handle is stale.
    Refused,
}

/// The meaning of a consumed message.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Collected {
    /// Another thread had cancelled the timer, which is `Idle` now. The payload is present unless
    /// the canceller or a mover has taken it.
    Cancelled { has_payload: bool },
    /// The timer had ended before the owner consumed this message. The node can be reused.
    Freed,
    /// Another thread has moved the timer: the owner must link it at the new deadline.
    Moved { periodic: bool },
    /// Nothing is left to do for this message.
    Nothing,
}

/// The result of the last sweep for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Swept {
    /// The timer was pending: its payload is handed back. If `moved` is true, its deadline is the
    /// requested one.
    HandedBack { moved: bool },
    /// The timer had been cancelled: the owner drops the payload, unless another thread has taken
    /// it.
    Cancelled { has_payload: bool },
    /// There is no payload to take, or the run in progress uses it.
    NoPayload,
}

/// The next step of a remote thread after its swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum FollowUp {
    /// Push the node on the owner's mailbox.
    Push,
    /// Take the payload of the cancelled timer, and then call [`end_move`](StateWord::end_move).
    Take,
    /// Nothing: the owner needs no message, one is queued already, or another thread pushes one.
    Nothing,
}

/// The thread that moves a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    Owner,
    Remote,
}

/// The result of an attempt to move a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum MoveOutcome {
    /// The caller must write the requested deadline and then end the move. If `deferrable` is true
    /// and the new deadline is not before the linked one, the caller first tries
    /// [`end_deferred_move`](StateWord::end_deferred_move).
    Begun { deferrable: bool },
    /// Another thread's move of the timer is in progress. This move is ordered directly before it,
    /// and nothing is left to do.
    Superseded,
    /// The timer has ended or is running, or the handle is stale.
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

    #[inline]
    fn load_relaxed(&self) -> u64 {
        // Relaxed: the value is the owner's own last write, or a later swap confirms it.
        self.0.load(Ordering::Relaxed)
    }
}

/// The owner's operations. They store in phases in which no other thread may write, and swap in all
/// other phases.
impl StateWord {
    /// Arms a new timer in a free node.
    #[inline]
    pub(crate) fn arm(&self, generation: u64, kind: TimerKind) {
        let (phase, periodic) = match kind {
            TimerKind::Private => (Phase::Private, 0),
            TimerKind::Shared => (Phase::Armed, 0),
            TimerKind::Periodic => (Phase::Armed, PERIODIC),
        };
        debug_assert!(self.is_free());
        // Release (S2): a stale handle of the node's previous timer may read this word instead of
        // the `Idle` that `finish` stored.
        self.0.store(phase.set_in((generation << GENERATION_SHIFT) | periodic), Ordering::Release);
    }

    /// Allows other threads to have a handle from now on.
    pub(crate) fn share(&self) {
        let word = self.load_relaxed();
        if Phase::of(word) == Phase::Private {
            // Release (S2): a stale handle may read this word instead of `Idle`.
            self.0.store(Phase::Armed.set_in(word), Ordering::Release);
        }
    }

    /// Tries to fire the timer.
    #[inline]
    pub(crate) fn claim(&self) -> ClaimOutcome {
        let word = self.load_relaxed();
        // The common case: a shared one-shot timer without flags.
        if Phase::is_plain_armed(word) {
            let running = Phase::Running.set_in(word);
            // Relaxed, both: the swap publishes no data, because payload and wheel belong to the
            // owner. A failed swap is retried.
            if self.swap(word, running, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return ClaimOutcome::Fires(ClaimedRun(running));
            }
        } else if Phase::of(word) == Phase::Private {
            let running = Phase::Running.set_in(word);
            // Release (S2): a stale handle may read this word instead of `Idle`. No other thread
            // writes the word of a private timer.
            self.0.store(running, Ordering::Release);
            return ClaimOutcome::Fires(ClaimedRun(running));
        }
        self.claim_slow()
    }

    #[inline(never)]
    fn claim_slow(&self) -> ClaimOutcome {
        loop {
            let word = self.load_relaxed();
            let running = Phase::Running.set_in(word);
            let (to, claim) = match Phase::of(word) {
                Phase::Armed if word & MOVED != 0 => (
                    word & !(MOVED | DEFERRABLE),
                    ClaimOutcome::Moved { periodic: word & PERIODIC != 0 },
                ),
                Phase::Armed => (running, ClaimOutcome::Fires(ClaimedRun(running))),
                // The mover's `end_deferred_move` fails, so the mover sends a message.
                Phase::Moving if word & DEFERRABLE != 0 => {
                    (word & !DEFERRABLE, ClaimOutcome::AwaitsMessage)
                }
                _ => return ClaimOutcome::AwaitsMessage,
            };
            // Acquire (S3): sees the requested deadline. Relaxed: a failed swap is retried.
            if self.swap(word, to, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return claim;
            }
        }
    }

    /// Cancels a timer on the owner's thread. If the cancel wins, the caller must take the payload
    /// at once. The error says why the cancel did not win.
    #[inline]
    pub(crate) fn cancel_own(&self, generation: u64) -> Result<Freed, Cancel> {
        let idle = generation << GENERATION_SHIFT;
        let word = self.load_relaxed();
        // Relaxed, both: the swap publishes no data. A failed swap is retried.
        if word == Phase::Armed.set_in(idle)
            && self.swap(word, idle, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return Ok(Freed::Now);
        }
        if word == Phase::Private.set_in(idle) {
            // Release (S2): a stale handle may read this word instead of an earlier `Idle`. No
            // other thread writes the word of a private timer.
            self.0.store(idle, Ordering::Release);
            return Ok(Freed::Now);
        }
        self.cancel_slow(generation)
    }

    #[inline(never)]
    fn cancel_slow(&self, generation: u64) -> Result<Freed, Cancel> {
        loop {
            let word = self.load_relaxed();
            if word >> GENERATION_SHIFT != generation {
                return Err(Cancel::Ended);
            }
            let (to, answer) = match Phase::of(word) {
                Phase::Armed if word & QUEUED != 0 => (Phase::idle(word), Ok(Freed::Later)),
                Phase::Armed => (Phase::idle(word), Ok(Freed::Now)),
                Phase::Moving => {
                    (Phase::Cancelling.set_in(word) | CANCELLED_BY_OWNER, Ok(Freed::Later))
                }
                Phase::Running if word & PERIODIC != 0 => {
                    (Phase::Stopping.set_in(word) | CANCELLED_BY_OWNER, Err(Cancel::Running))
                }
                Phase::Running | Phase::Stopping => return Err(Cancel::Running),
                Phase::Idle | Phase::Private | Phase::Cancelled | Phase::Cancelling => {
                    return Err(Cancel::Ended);
                }
            };
            // Relaxed, both: the swap publishes no data. A failed swap is retried.
            if self.swap(word, to, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return answer;
            }
        }
    }

    /// Arms a periodic timer again after a run. Returns false if a cancel has forbidden further
    /// runs.
    pub(crate) fn rearm(&self) -> bool {
        // Acquire (S1): the canceller's earlier work happens before the drop of the payload.
        let word = self.0.load(Ordering::Acquire);
        let armed = Phase::Armed.set_in(word);
        // Release (S2): a later cancel or query sees the work of the run. Acquire (S1): the
        // canceller's work happens before the drop of the payload.
        debug_assert!(word & PERIODIC != 0);
        Phase::of(word) == Phase::Running
            && self.swap(word, armed, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// After a failed [`rearm`](Self::rearm), returns true if another thread has stopped the timer.
    pub(crate) fn was_stopped_remotely(&self) -> bool {
        self.load_relaxed() & CANCELLED_BY_OWNER == 0
    }

    /// Ends a run and its timer.
    #[inline]
    pub(crate) fn finish(&self, run: ClaimedRun) -> Freed {
        // No other thread changes the word of a running one-shot timer. A periodic timer may have
        // become `Stopping`.
        let word = if run.is_periodic() { self.load_relaxed() } else { run.0 };
        debug_assert!(word == self.load_relaxed(), "another thread has changed the word");
        // Release (S2): a thread with the answer `Ended` sees the callback's work. A plain store
        // suffices: the only change that another thread may make is to `Stopping`, and that phase
        // ends here too.
        self.0.store(Phase::idle(word), Ordering::Release);
        if word & QUEUED == 0 { Freed::Now } else { Freed::Later }
    }

    /// Consumes the node's message after the owner has taken it out of the mailbox and read its
    /// link.
    #[inline]
    pub(crate) fn collect(&self) -> Collected {
        // Acquire (S1): the mailbox acquires only the pusher's work, not another canceller's.
        let word = self.0.load(Ordering::Acquire);
        match Phase::of(word) {
            Phase::Cancelled => {
                // Release (S2): a stale handle may read this word instead of an earlier `Idle`.
                // Only the owner leaves `Cancelled`.
                self.0.store(Phase::idle(word) & !QUEUED, Ordering::Release);
                if word & CANCELLED_BY_OWNER == 0 {
                    Collected::Cancelled { has_payload: word & PAYLOAD_TAKEN == 0 }
                } else {
                    Collected::Freed
                }
            }
            // AcqRel, Relaxed: as in `collect_slow`.
            Phase::Armed
                if word & MOVED != 0
                    && self
                        .swap(
                            word,
                            without_message_flags(word),
                            Ordering::AcqRel,
                            Ordering::Relaxed,
                        )
                        .is_ok() =>
            {
                Collected::Moved { periodic: word & PERIODIC != 0 }
            }
            _ => self.collect_slow(),
        }
    }

    #[cold]
    #[inline(never)]
    fn collect_slow(&self) -> Collected {
        loop {
            let word = self.load_relaxed();
            let (to, collected) = match Phase::of(word) {
                Phase::Armed if word & MOVED != 0 => (
                    without_message_flags(word),
                    Collected::Moved { periodic: word & PERIODIC != 0 },
                ),
                Phase::Idle => (word & !QUEUED, Collected::Freed),
                Phase::Cancelled => return self.collect(),
                // A mover or canceller in progress pushes the node again. Other phases need
                // nothing.
                _ => (word & !QUEUED, Collected::Nothing),
            };
            // AcqRel: the swap acquires the requested deadline (S3), and releases the owner's use
            // of the link (S4). Relaxed: a failed swap is retried.
            if self.swap(word, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return collected;
            }
        }
    }

    /// Ends the timer of a shard that ends. The mailbox must be closed.
    pub(crate) fn sweep(&self) -> Swept {
        loop {
            let word = self.load_relaxed();
            let swept = match Phase::of(word) {
                // The run in progress will end the timer.
                Phase::Idle | Phase::Running | Phase::Stopping => return Swept::NoPayload,
                // A move in progress does not count, but may have overwritten the requested
                // deadline.
                Phase::Private | Phase::Armed | Phase::Moving => {
                    Swept::HandedBack { moved: word & MOVED != 0 }
                }
                Phase::Cancelled | Phase::Cancelling if word & CANCELLED_BY_OWNER != 0 => {
                    Swept::NoPayload
                }
                Phase::Cancelled | Phase::Cancelling => {
                    Swept::Cancelled { has_payload: word & PAYLOAD_TAKEN == 0 }
                }
            };
            // Acquire: sees the work of a canceller that could not push (S1), and the deadline of a
            // *moved* timer (S3). Relaxed: a failed swap is retried.
            if self.swap(word, Phase::idle(word), Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return swept;
            }
        }
    }

    /// Returns whether the owner may still move the timer. If so, discards the deadline of an
    /// earlier remote reset, and makes a remote reset in progress send a message.
    #[inline]
    pub(crate) fn begin_own_move(&self, generation: u64) -> OwnMove {
        let plain = generation << GENERATION_SHIFT;
        let word = self.load_relaxed();
        if word == Phase::Armed.set_in(plain) || word == Phase::Private.set_in(plain) {
            return OwnMove::Fast;
        }
        self.begin_own_move_slow(generation)
    }

    #[cold]
    #[inline(never)]
    fn begin_own_move_slow(&self, generation: u64) -> OwnMove {
        loop {
            let word = self.load_relaxed();
            let unlinked = Phase::of(word) == Phase::Moving || word & MOVED != 0;
            let yes = OwnMove::Slow { periodic: word & PERIODIC != 0, unlinked };
            let to = match Phase::of(word) {
                _ if word >> GENERATION_SHIFT != generation => return OwnMove::Refused,
                Phase::Armed | Phase::Private => word & !(MOVED | DEFERRABLE),
                // The remote reset takes effect after this one, perhaps at an earlier deadline, so
                // it must send a message.
                Phase::Moving => word & !DEFERRABLE,
                _ => return OwnMove::Refused,
            };
            // Acquire (S3): an earlier remote reset is ordered before this one. Relaxed: a failed
            // swap is retried.
            if to == word || self.swap(word, to, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return yes;
            }
        }
    }

    /// Lets other threads move the timer to a later deadline without a message. The owner has
    /// linked the timer at its requested deadline and stored that deadline as the linked one. Does
    /// nothing if another thread has changed the word since the owner took over that deadline.
    #[inline]
    pub(crate) fn set_deferrable(&self) {
        let word = self.load_relaxed();
        if Phase::is_plain_armed(word) {
            // Release (S3): publishes the linked deadline. Relaxed: a failed swap is not retried.
            let _ = self.swap(word, word | DEFERRABLE, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Returns whether another thread has moved a pending timer to a deadline at which the owner
    /// has not linked it yet. Returns `None` if the timer is not pending.
    pub(crate) fn is_pending_and_moved(&self, generation: u64) -> Option<bool> {
        // Acquire (S3): sees the requested deadline.
        let word = self.0.load(Ordering::Acquire);
        let is_pending = word >> GENERATION_SHIFT == generation
            && matches!(Phase::of(word), Phase::Private | Phase::Armed | Phase::Moving);
        is_pending.then_some(word & MOVED != 0)
    }

    /// Returns true if the timer is periodic, and no cancel has forbidden further runs.
    pub(crate) fn will_run_again(&self, generation: u64) -> bool {
        let word = self.load_relaxed();
        word >> GENERATION_SHIFT == generation
            && word & PERIODIC != 0
            && matches!(Phase::of(word), Phase::Armed | Phase::Moving | Phase::Running)
    }

    /// Returns the generation of the node's timer, if it is pending and the owner added it. Its
    /// payload is then present until the owner takes it.
    pub(crate) fn pending_owner_generation(&self) -> Option<u64> {
        let word = self.load_relaxed();
        let is_pending = matches!(Phase::of(word), Phase::Private | Phase::Armed | Phase::Moving);
        let generation = word >> GENERATION_SHIFT;
        (is_pending && generation & REMOTE_GENERATION == 0).then_some(generation)
    }

    /// Returns the generation of the node's current or last timer.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.load_relaxed() >> GENERATION_SHIFT
    }

    /// Returns true if another thread has cancelled the timer and the owner has not consumed the
    /// message.
    pub(crate) fn is_cancelled_remotely(&self) -> bool {
        let word = self.load_relaxed();
        word & CANCELLED_BY_OWNER == 0
            && matches!(Phase::of(word), Phase::Cancelled | Phase::Cancelling)
    }

    /// Returns true if the node has no timer and no queued message.
    pub(crate) fn is_free(&self) -> bool {
        self.load_relaxed() & (PHASE_MASK | QUEUED) == 0
    }

    /// Returns true if the node has a payload that no run is using.
    #[cfg(feature = "origins")]
    pub(crate) fn has_payload(&self) -> bool {
        let word = self.load_relaxed();
        match Phase::of(word) {
            Phase::Private | Phase::Armed | Phase::Moving => true,
            Phase::Cancelled | Phase::Cancelling => {
                word & (CANCELLED_BY_OWNER | PAYLOAD_TAKEN) == 0
            }
            Phase::Idle | Phase::Running | Phase::Stopping => false,
        }
    }
}

/// The operations of any thread. They swap, and never wait.
impl StateWord {
    /// Arms a new timer in a node that this thread has taken from a free list. The timer is due at
    /// the node's requested deadline. The caller must push the node on the owner's mailbox.
    #[inline]
    pub(crate) fn arm_remote(&self, generation: u64, kind: TimerKind) {
        debug_assert!(self.is_free());
        let flags = QUEUED | MOVED | if kind == TimerKind::Periodic { PERIODIC } else { 0 };
        let word = Phase::Armed.set_in((generation << GENERATION_SHIFT) | flags);
        // Release: publishes the requested deadline, the period and the payload (S3), and a stale
        // handle may read this word instead of `Idle` (S2).
        self.0.store(word, Ordering::Release);
    }

    /// Ends a timer that could not be pushed because the mailbox is closed. No other thread has a
    /// handle. Returns false if the owner's last sweep has ended the timer.
    pub(crate) fn undo_arm_remote(&self) -> bool {
        let word = self.load_relaxed();
        // Release (S2): a stale handle may read this word instead of an earlier `Idle`. Relaxed: a
        // failed swap's value is unused.
        Phase::of(word) == Phase::Armed
            && self
                .swap(word, Phase::idle(word) & !QUEUED, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// Cancels a one-shot timer of the owner from another thread, if the timer is `Armed` without
    /// flags. If this returns true, the caller must push the node.
    #[inline]
    pub(crate) fn try_cancel_fast(&self, generation: u64) -> bool {
        // Tries the likely word without a load. A load before the swap would fetch the cache line
        // twice, once to read and once to write.
        let likely = Phase::Armed.set_in(generation << GENERATION_SHIFT);
        let to = Phase::Cancelled.set_in(likely) | QUEUED;
        debug_assert_eq!(generation & REMOTE_GENERATION, 0);
        // AcqRel (S1, S4): as in `cancel`. Relaxed: a failed swap's value is unused.
        self.swap(likely, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Cancels the timer from another thread than the owner's. Returns the answer, and the caller's
    /// next step.
    pub(crate) fn cancel(&self, generation: u64) -> (Cancel, FollowUp) {
        let mut word = Phase::Armed.set_in(generation << GENERATION_SHIFT);
        loop {
            if word >> GENERATION_SHIFT != generation {
                return (Cancel::Ended, FollowUp::Nothing);
            }
            let (to, answer, next) = match Phase::of(word) {
                Phase::Armed if generation & REMOTE_GENERATION != 0 => (
                    Phase::Cancelling.set_in(word) | PAYLOAD_TAKEN,
                    Cancel::Cancelled,
                    FollowUp::Take,
                ),
                Phase::Armed => {
                    let to = Phase::Cancelled.set_in(word) & !MOVED | QUEUED;
                    (to, Cancel::Cancelled, FollowUp::unless_queued(word))
                }
                Phase::Moving => {
                    (Phase::Cancelling.set_in(word), Cancel::Cancelled, FollowUp::Nothing)
                }
                Phase::Running if word & PERIODIC != 0 => {
                    (Phase::Stopping.set_in(word), Cancel::Running, FollowUp::Nothing)
                }
                Phase::Running | Phase::Stopping => return (Cancel::Running, FollowUp::Nothing),
                _ => return (Cancel::Ended, FollowUp::Nothing),
            };
            // AcqRel: the swap releases this thread's work to the owner's drop of the payload (S1).
            // It acquires the owner's last use of the link (S4), and the earlier runs of a periodic
            // timer (S2). If this thread takes the payload, it also acquires the adder's writes. On
            // failure, Acquire (S2): the answer may become `Ended`.
            match self.swap(word, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(()) => return (answer, next),
                Err(found) => word = found,
            }
        }
    }

    /// Begins a remote move. If the answer is [`MoveOutcome::Begun`], the caller has exclusive use
    /// of the node's requested deadline until it ends the move.
    #[inline]
    pub(crate) fn begin_move(&self, generation: u64) -> MoveOutcome {
        let likely = Phase::Armed.set_in(generation << GENERATION_SHIFT);
        // Acquire, both: as in `begin_move_slow`.
        let begun =
            self.swap(likely, Phase::Moving.set_in(likely), Ordering::Acquire, Ordering::Acquire);
        begun.map_or_else(
            |found| self.begin_move_slow(found, generation),
            |()| MoveOutcome::Begun { deferrable: false },
        )
    }

    #[inline(never)]
    fn begin_move_slow(&self, mut word: u64, generation: u64) -> MoveOutcome {
        loop {
            match Phase::of(word) {
                _ if word >> GENERATION_SHIFT != generation => return MoveOutcome::Refused,
                Phase::Armed => (),
                Phase::Moving => return MoveOutcome::Superseded,
                _ => return MoveOutcome::Refused,
            }
            // Acquire, both: an earlier move's write of the deadline happens before this move's
            // (S3), and after a refusal the caller sees the callback's work (S2).
            let deferrable = word & DEFERRABLE;
            let to = Phase::Moving.set_in(word) | deferrable;
            match self.swap(word, to, Ordering::Acquire, Ordering::Acquire) {
                Ok(()) => return MoveOutcome::Begun { deferrable: deferrable != 0 },
                Err(found) => word = found,
            }
        }
    }

    /// Ends a move to a deadline that is not before the linked one, without a message. Returns
    /// false if the owner has cleared *deferrable*, or if the timer was cancelled or handed back.
    /// Then the caller must call [`end_move`](Self::end_move).
    #[inline]
    pub(crate) fn end_deferred_move(&self) -> bool {
        let word = self.load_relaxed();
        let to = Phase::Armed.set_in(word) | MOVED | DEFERRABLE;
        // Release (S3): publishes the requested deadline. Relaxed: a failed swap's value is unused.
        Phase::of(word) == Phase::Moving
            && word & DEFERRABLE != 0
            && self.swap(word, to, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Ends a move, or a cancel after the canceller has taken the payload. Returns false if the
    /// shard has ended since the move or cancel began. If the timer was cancelled during the move,
    /// the next step of a remote mover may be to take the payload.
    #[inline]
    pub(crate) fn end_move(&self, by: Mover) -> (bool, FollowUp) {
        let word = self.load_relaxed();
        if Phase::of(word) == Phase::Moving {
            let to = Phase::Armed.set_in(word) | MOVED | QUEUED;
            // AcqRel, Relaxed: as in `end_move_slow`.
            if self.swap(word, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return (true, FollowUp::unless_queued(word));
            }
        }
        self.end_move_slow(by)
    }

    #[inline(never)]
    fn end_move_slow(&self, by: Mover) -> (bool, FollowUp) {
        loop {
            // Relaxed: the swap confirms it.
            let word = self.0.load(Ordering::Relaxed);
            let to = match Phase::of(word) {
                Phase::Moving => Phase::Armed.set_in(word) | MOVED | QUEUED,
                Phase::Cancelling
                    if by == Mover::Remote
                        && has_send_payload(word)
                        && word & (PAYLOAD_TAKEN | CANCELLED_BY_OWNER) == 0 =>
                {
                    word | PAYLOAD_TAKEN
                }
                Phase::Cancelling => Phase::Cancelled.set_in(word) & !MOVED | QUEUED,
                _ => return (false, FollowUp::Nothing),
            };
            // AcqRel: the swap releases the deadline (S3), and this thread's use of the payload
            // (S1). If it sets *queued*, it acquires the owner's last use of the link (S4). If it
            // sets *payload taken*, it acquires the payload. Relaxed: a failed swap is retried.
            if self.swap(word, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let takes = to & PAYLOAD_TAKEN != 0 && word & PAYLOAD_TAKEN == 0;
                return (true, if takes { FollowUp::Take } else { FollowUp::unless_queued(word) });
            }
        }
    }

    /// Returns what the timer of this generation is doing.
    pub(crate) fn status(&self, generation: u64) -> TimerStatus {
        // Acquire (S2): after `Ended`, the caller sees what the callback did.
        let word = self.0.load(Ordering::Acquire);
        match Phase::of(word) {
            _ if word >> GENERATION_SHIFT != generation => TimerStatus::Ended,
            Phase::Private | Phase::Armed | Phase::Moving => TimerStatus::Pending,
            Phase::Running | Phase::Stopping => TimerStatus::Running,
            Phase::Idle | Phase::Cancelled | Phase::Cancelling => TimerStatus::Ended,
        }
    }

    /// Returns true if the timer waits for its deadline.
    pub(crate) fn is_pending(&self, generation: u64) -> bool {
        // Relaxed: no other access depends on the answer, which may be outdated at once. The owner
        // sees its own last write.
        let word = self.load_relaxed();
        word >> GENERATION_SHIFT == generation
            && matches!(Phase::of(word), Phase::Armed | Phase::Moving | Phase::Private)
    }

    /// Returns true if the timer's callback runs.
    pub(crate) fn is_running(&self, generation: u64) -> bool {
        // Acquire (S2): a thread that reads the end of the run sees the callback's work.
        let word = self.0.load(Ordering::Acquire);
        word >> GENERATION_SHIFT == generation
            && matches!(Phase::of(word), Phase::Running | Phase::Stopping)
    }
}

/// Returns the word of a moved timer without *queued* and *moved*.
#[inline]
fn without_message_flags(word: u64) -> u64 {
    word & !(QUEUED | MOVED)
}

/// Returns true if another thread added the timer, so that its payload is `Send`.
fn has_send_payload(word: u64) -> bool {
    (word >> GENERATION_SHIFT) & REMOTE_GENERATION != 0
}

#[cfg(all(test, not(loom)))]
mod tests;
