//! The state word: decides which thread ends a timer.
//!
//! Every timer has one 64-bit word. One change of this word decides how the timer ends: it fires,
//! is cancelled, or is handed back when the shard ends.
//!
//! ```text
//!  63          9      8         7           6            5         4       3     2   0
//! +-------------+-----------+--------+-------------+------------+------+--------+-----+
//! |  generation |postponable|by owner|payload taken|new deadline|queued|periodic|phase|
//! +-------------+-----------+--------+-------------+------------+------+--------+-----+
//! ```
//!
//! The *generation* distinguishes the timers that use a node one after another; `slab` tells how
//! generations are chosen. A timer that another thread has added is a *remote timer*, and one bit
//! of its generation says so. If a handle's generation differs from the word's generation, the
//! handle is stale: its timer has ended.
//!
//! | flag | meaning |
//! |---|---|
//! | *periodic* | the timer repeats; constant while the timer lives |
//! | *queued* | the node has an unconsumed mailbox message, or the thread that set the flag is about to push one |
//! | *new deadline* | a remote add or reset has written a *requested deadline*, which the owner has not yet applied or discarded |
//! | *payload taken* | the timer is cancelled, and the thread that set the flag takes the payload |
//! | *by owner* | the owner has cancelled the timer, and takes the payload at once or after the run in progress |
//! | *postponable* | a remote reset to the [linked deadline](#a-reset-without-a-message) or later needs no message; present only in `Armed` and `Resetting`, never with *queued* |
//!
//! # Phases
//!
//! | phase | meaning | payload |
//! |---|---|---|
//! | `Idle` | ended, or never used | none, or the thread that ended the timer is taking it |
//! | `Private` | pending; no other thread has a handle | the owner's |
//! | `Armed` | pending | the owner's |
//! | `Resetting` | pending; another thread is writing the requested deadline, so the owner must not run the timer | the owner's |
//! | `Running` | the owner runs the callback or returns the payload | the owner's, in use by the run |
//! | `Stopping` | a periodic timer was cancelled during this run, which is its last | the owner's, in use by the run |
//! | `Cancelled` | cancelled; the owner frees the node when it consumes the queued message | the owner's, unless *payload taken*; none if *by owner* |
//! | `Cancelling` | cancelled; the canceller or a resetting thread still uses the node, and then makes the timer `Cancelled` | the owner's, or that thread's if *payload taken*; none if *by owner* |
//!
//! After a timer is armed, other threads use four fields of its node: the state word, the mailbox
//! link, the requested deadline and the linked deadline. Another thread uses the payload only after
//! setting *payload taken*, or undoing its own `arm_remote`. A node is reused only when it is
//! `Idle` and not *queued*.
//!
//! # Transitions
//!
//! Transitions marked *store* are plain stores. All others are compare-and-swaps (*CAS*). The owner
//! makes these transitions:
//!
//! | method | from | to |
//! |---|---|---|
//! | `arm` | `Idle` | `Private`, `Armed` (store) |
//! | `share` | `Private` | `Armed` (store) |
//! | `claim` | `Private` | `Running` (store) |
//! | `claim` | `Armed`, no new deadline | `Running` |
//! | `claim`, `consume_message` | `Armed`, new deadline | no new deadline |
//! | `claim`, `prepare_owner_reset` | `Armed` or `Resetting`, postponable | not postponable |
//! | `prepare_owner_reset` | `Armed` or `Resetting`, new deadline | no new deadline |
//! | `allow_remote_postponing` | `Armed`, no flags | postponable |
//! | `rearm` | `Running`, periodic | `Armed` |
//! | `finish_run` | `Running`, `Stopping` | `Idle` (store) |
//! | `cancel_by_owner`, `cancel_private` | `Private` | `Idle` (store) |
//! | `cancel_by_owner` | `Armed` | `Idle` |
//! | `cancel_by_owner` | `Resetting` | `Cancelling`, by owner |
//! | `cancel_by_owner` | `Running`, periodic | `Stopping`, by owner |
//! | `consume_message` | `Cancelled` | `Idle`, not queued (store) |
//! | `consume_message` | any other, queued | not queued |
//! | `end_at_close` | `Private`, `Armed`, `Resetting`, `Cancelled`, `Cancelling` | `Idle` |
//!
//! Other threads make these transitions:
//!
//! | method | from | to |
//! |---|---|---|
//! | `arm_remote` | `Idle` | `Armed`, queued, new deadline (store) |
//! | `undo_arm_remote` | `Armed`, queued, new deadline | `Idle` |
//! | `cancel_remote`, `try_cancel_remote_fast` | `Armed`, added by the owner | `Cancelled`, queued |
//! | `cancel_remote` | `Armed`, added by another thread | `Cancelling`, payload taken |
//! | `cancel_remote` | `Resetting` | `Cancelling` |
//! | `cancel_remote` | `Running`, periodic | `Stopping` |
//! | `begin_reset` | `Armed` | `Resetting` |
//! | `end_reset_or_cancel` | `Resetting` | `Armed`, queued, new deadline |
//! | `end_reset_without_message` | `Resetting`, postponable | `Armed`, new deadline, postponable |
//! | `end_reset_or_cancel` | `Cancelling`, added and cancelled by other threads, payload not taken | payload taken |
//! | `end_reset_or_cancel` | any other `Cancelling` | `Cancelled`, queued |
//!
//! # Exactly one ending
//!
//! Only the owner writes the word of a `Private` timer. In the other pending phases, each change is
//! a CAS on the whole word, generation included. So of several threads that try to end a pending
//! timer, exactly one succeeds. The CAS from `Running` to `Armed` fails if a cancel has made the
//! timer `Stopping`. The CAS from `Resetting` to `Armed` fails if a cancel has made the timer
//! `Cancelling`.
//!
//! # Four hazards
//!
//! 1. *A node pushed twice.* Only the thread whose change sets *queued* pushes the node, so a node
//!    is in the mailbox at most once. The owner clears *queued* when it consumes the message.
//!    Before clearing *queued*, the owner reads the link, because the next pusher overwrites the
//!    link. A node whose message is queued is not reused, even if its timer has ended.
//! 2. *Duplicate or unlinked entries.* A timer has one wheel entry, which is in at most one slot. A
//!    reset leaves the entry in its slot or relinks it. The entry of a pending or cancelled timer
//!    is in no slot in four cases:
//!
//!    - The owner has not admitted the timer.
//!    - The owner consumed the message about the add while another thread was resetting the timer.
//!    - The owner has cancelled the timer.
//!    - The owner has unlinked the due entry, but failed to claim the timer.
//!
//!    In these cases, the timer is `Resetting`, `Cancelling` or `Cancelled`, or has a *new
//!    deadline*. Before unlinking or relinking the entry of such a timer, the owner checks whether
//!    the entry is in a slot.
//! 3. *Reset from another core.* From the CAS to `Resetting` until the CAS that ends the reset,
//!    only the resetting thread writes the requested deadline. The node is not reused during the
//!    reset: a cancel only makes the timer `Cancelling`, and only the resetting thread then makes
//!    it `Cancelled`. At the shard's end, `end_at_close` also ends `Resetting` and `Cancelling`
//!    timers, but their nodes are not reused. The owner does not fire a `Resetting` timer. The
//!    owner fires a timer with a *new deadline* only after it has applied or discarded the
//!    requested deadline.
//! 4. *The end of the shard.* When the shard ends, a cancelling or resetting thread may have made
//!    its CAS, but not pushed the node yet. The owner first closes the mailbox, and then calls
//!    `end_at_close` for all words, which ends every timer that is not running. The owner hands
//!    back only pending timers, and no `Cancelled` or `Cancelling` timer, even if its node was
//!    never pushed. A push after the closing fails, and the cancelling or resetting thread ignores
//!    the failure. The words are freed after all threads that might read them have unpinned
//!    (`reclaim`).
//!
//! # The order of resets
//!
//! A remote reset takes effect between its two CASes: to `Resetting`, and out of it. A cancel
//! between a reset's CASes is ordered after the reset. A reset that finds the timer `Resetting`
//! writes nothing and returns true: it is ordered directly before the reset in progress, whose
//! deadline takes effect. The owner's reset clears *new deadline*, so it overrides the add and any
//! earlier reset by other threads. A remote reset in progress is ordered after the owner's reset,
//! so the remote deadline takes effect. A resetting thread that stalls delays no other timer.
//!
//! A pending remote timer that the owner has not *admitted* (`slab`) has a *new deadline*, because
//! the owner admits the timer whenever it clears this flag. So the owner's first reset of such a
//! timer clears the flag, and acquires the adder's writes (S3).
//!
//! If the shard ends between a reset's two CASes, the reset returns false, although resets that
//! found the timer `Resetting` may have returned true. After a failed reset, the owner hands the
//! timer back with its old deadline. But if *new deadline* is set, the owner hands the timer back
//! with the requested deadline, which the failed reset may have overwritten.
//!
//! # A reset without a message
//!
//! Most resets only postpone a timer, and the owner need not learn of a postponement until the old
//! deadline. Suppose that the owner applies a remote reset of a one-shot timer to a later tick of
//! the first level. The owner then links the timer at the requested deadline, stores this deadline
//! in the node as the *linked deadline*, and sets *postponable*. While *postponable* is set, a
//! remote reset sends a message only if its deadline is before the linked deadline. A resetting
//! thread that sends no message only writes the requested deadline and sets *new deadline*. At the
//! linked deadline, the owner's `claim` finds *new deadline* set, and the owner applies the
//! requested deadline. Each slot of the first level counts its postponable timers, and the timers
//! that the owner has postponed but left in the slot. If a slot's count is at its limit, the owner
//! sets *postponable* for no further timer of the slot. The limit of the count bounds the work at
//! one tick (P7 in `ARCHITECTURE.md`).
//!
//! The owner clears *postponable* when it claims, resets or cancels the timer. Without
//! *postponable*, the `end_reset_without_message` of a reset in progress fails, and the resetting
//! thread sends a message. If `claim` found the timer `Resetting`, the owner has unlinked the
//! timer, and links it again when it consumes the resetting thread's message.
//!
//! # Orderings, in pairs
//!
//! - S1: a remote canceller's CAS to `Cancelled`, `Cancelling` or `Stopping` releases; the owner's
//!   `consume_message`, `end_at_close` and `rearm` acquire. So everything that the canceller did
//!   before the cancel happens before the owner drops the payload. But `finish_run` does not
//!   acquire: the drop of a payload that `Shard::next_expired` has returned may not see the writes
//!   of a canceller that got [`Cancel::Running`].
//! - S2: the owner's `finish_run` and `rearm` release; `begin_reset`, `cancel_remote` and `status`
//!   acquire. So a thread that gets `Ended` after the timer fired sees the callback's effects. A
//!   thread that cancels a periodic timer sees the effects of the timer's completed runs. A thread
//!   that reads any later value of the word must see the effects of all earlier runs. So every
//!   later plain store of the word releases. A later CAS need not release, because it continues the
//!   release sequence of the value that it replaces. The adder's store in `arm_remote` publishes
//!   the effects that the adder has acquired by taking the free node (G1 in `slab::page`).
//! - S3: `end_reset_or_cancel`, `end_reset_without_message` and `arm_remote` release. `claim`,
//!   `prepare_owner_reset`, `cancel_by_owner`, `consume_message` and `end_at_close` acquire when
//!   they clear *new deadline*. `has_new_deadline_if_pending`, `begin_reset` and `status` always
//!   acquire. So of any two writes of one node's requested deadline, one happens before the other.
//!   The owner reads the latest requested deadline, and the period that the adder wrote.
//!   `allow_remote_postponing` releases the linked deadline to the next `begin_reset`.
//! - S4: the owner's `consume_message` releases when it clears *queued*; `cancel_remote`,
//!   `try_cancel_remote_fast` and `end_reset_or_cancel` acquire when they set the flag. So the
//!   owner's use of a node's link happens before the next pusher's use. `arm_remote` needs no
//!   acquire, because taking a free node acquires (G1).
//!
//! # The payload
//!
//! An adder writes the payload before it calls `arm_remote`, and the owner before it calls `arm`.
//! After the arming, the payload belongs to the owner. After a successful `undo_arm_remote`, the
//! adder takes the payload back. Free nodes have no payload.
//!
//! The payload of a remote timer is `Send`. A remote canceller usually drops a remote timer's
//! payload, because the owner may sleep for a long time. The canceller makes the timer `Cancelling`
//! with *payload taken*, moves the payload to its own stack, and then makes the timer `Cancelled`.
//! If a remote thread is resetting the timer during a remote cancel, the resetting thread drops the
//! payload. The CAS that sets *payload taken* acquires the adder's writes and the effects of a
//! periodic timer's runs (S2). The CAS to `Cancelled` releases the node to the owner's
//! `consume_message` (S1). If the shard ends before the CAS to `Cancelled`, `end_at_close` leaves
//! the payload to the thread that has taken it.
//!
//! # Models
//!
//! `loom-tests/tests/cancel.rs`, `loom-tests/tests/reset.rs`, `loom-tests/tests/remote_add.rs`,
//! `loom-tests/tests/end.rs`.

use crate::{
    limits::{OWNER_GENERATION_MAX, REMOTE_GENERATION_BIT},
    util::sync::{AtomicU64, Ordering},
};

const GENERATION_SHIFT: u32 = 9;
const PHASE_MASK: u64 = 7;
const PERIODIC: u64 = 1 << 3;
const QUEUED: u64 = 1 << 4;
/// Set by a remote add or reset, until the owner applies or discards the requested deadline.
const NEW_DEADLINE: u64 = 1 << 5;
const PAYLOAD_TAKEN: u64 = 1 << 6;
const CANCELLED_BY_OWNER: u64 = 1 << 7;
const POSTPONABLE: u64 = 1 << 8;
const FLAGS_MASK: u64 = (1 << GENERATION_SHIFT) - 1 - PHASE_MASK;
const _: () = assert!(
    REMOTE_GENERATION_BIT | OWNER_GENERATION_MAX == u64::MAX >> GENERATION_SHIFT,
    "the parts fill the word"
);

/// The phase of a timer: the lowest three bits of the state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Idle,
    Private,
    Armed,
    Resetting,
    Running,
    Stopping,
    Cancelled,
    Cancelling,
}

impl Phase {
    #[inline]
    const fn from_word(word: u64) -> Self {
        match word & PHASE_MASK {
            0 => Self::Idle,
            1 => Self::Private,
            2 => Self::Armed,
            3 => Self::Resetting,
            4 => Self::Running,
            5 => Self::Stopping,
            6 => Self::Cancelled,
            _ => Self::Cancelling,
        }
    }

    /// Returns `word` with its phase changed to `self`, and without the flag *postponable*.
    const fn set_in_word(self, word: u64) -> u64 {
        (word & !(PHASE_MASK | POSTPONABLE)) | self as u64
    }

    /// Returns `word` in the phase `Idle`, without flags except *queued*.
    const fn make_idle(word: u64) -> u64 {
        word & (u64::MAX << GENERATION_SHIFT | QUEUED)
    }
}

/// The kind of a timer that the owner arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// A one-shot timer for which only the owner has a handle, so ending it needs no CAS.
    Private,
    /// A one-shot timer for which any thread may have a handle.
    Shared,
    /// A periodic timer for which any thread may have a handle.
    Periodic,
}

/// The result of the owner's attempt to fire a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum ClaimOutcome {
    /// The timer is `Running`, and the owner may use the payload. Unless `rearm` succeeds, the
    /// owner must call `finish_run` after the run.
    Claimed(ClaimedRun),
    /// Another thread has reset the timer. The owner must link the timer at its requested deadline,
    /// or claim it again if that deadline is due.
    NewDeadline { is_periodic: bool },
    /// Another thread has cancelled the timer or is resetting it. A message is queued or will be
    /// pushed.
    AwaitsMessage,
}

/// Proof that the owner has claimed a timer. Contains the timer's state word after the claim.
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

/// The result of a cancel, such as [`TimerHandle::cancel`](crate::TimerHandle::cancel).
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
    /// The callback of a one-shot timer has not started and never will. A periodic timer will not
    /// run again.
    Cancelled,
    /// The callback is running. If the timer is periodic, the run in progress is the last.
    Running,
    /// The timer had already ended: it had fired, or was cancelled or handed back.
    Ended,
}

/// The state of a timer, as [`TimerHandle::status`](crate::TimerHandle::status) returns it.
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
    /// The callback is running. Unless cancelled, a periodic timer is pending again after the run.
    Running,
    /// The timer has ended: it has fired, or was cancelled or handed back.
    Ended,
}

/// Tells when the node of an ended timer can be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum FreeWhen {
    /// The caller frees the node.
    Now,
    /// The owner frees the node when it consumes the node's message.
    OnMessage,
}

/// The meaning of a consumed message.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum ConsumedMessage {
    /// Another thread had cancelled the timer, which is `Idle` now. If `has_payload` is false,
    /// another thread has taken the payload.
    Cancelled { has_payload: bool },
    /// The timer had already fired, or the owner had already cancelled it. The caller frees the
    /// node.
    AlreadyEnded,
    /// The owner must link the timer at its requested deadline.
    NewDeadline { is_periodic: bool },
    /// Another thread is resetting the timer, and will push the node again.
    ResetInProgress { is_periodic: bool },
    /// The message requires no action.
    Nothing,
}

/// The result of [`StateWord::end_at_close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum CloseOutcome {
    /// The timer was pending, and is handed back, with its requested deadline if `has_new_deadline`
    /// is true.
    HandedBack { has_new_deadline: bool },
    /// Another thread had cancelled the timer. The owner drops the payload, unless another thread
    /// has taken it.
    Cancelled { has_payload: bool },
    /// The node has no payload, or a run in progress uses the payload.
    NoPayload,
}

/// The next step of a thread whose CAS has cancelled or reset a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum StepAfterCancelOrReset {
    /// Push the node onto the owner's mailbox.
    Push,
    /// Take the payload, and then call [`end_reset_or_cancel`](StateWord::end_reset_or_cancel).
    TakePayload,
    /// Do nothing: no message is needed, or a message is queued or will be pushed.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum BeginResetOutcome {
    /// The caller must write the requested deadline and then end the reset. If `is_postponable` is
    /// true and the new deadline is not before the linked deadline, the caller first tries
    /// [`end_reset_without_message`](StateWord::end_reset_without_message).
    Begun { is_postponable: bool },
    /// Another thread is resetting the timer. The caller's reset is complete: it is ordered
    /// directly before the reset in progress.
    Superseded,
    /// The timer has ended or is running.
    Refused,
}

impl StepAfterCancelOrReset {
    #[inline]
    fn push_unless_queued(word: u64) -> Self {
        if word & QUEUED == 0 { Self::Push } else { Self::Nothing }
    }
}

/// A timer's 64-bit word: generation, flags and phase.
#[derive(Debug, Default)]
pub(crate) struct StateWord(AtomicU64);

impl StateWord {
    /// Performs a CAS on the word, with orderings that each caller justifies.
    #[inline]
    fn cas(
        &self,
        old_word: u64,
        new_word: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<(), u64> {
        self.0.compare_exchange(old_word, new_word, success, failure).map(drop)
    }

    #[inline]
    fn load_relaxed(&self) -> u64 {
        // Relaxed: the caller confirms the value by a CAS, or reads no data published with the
        // value.
        self.0.load(Ordering::Relaxed)
    }
}

/// The owner's operations. These operations use plain stores only where no other thread changes the
/// word, or where overwriting another thread's change is harmless.
impl StateWord {
    /// Arms a new timer in a free node.
    #[inline]
    pub(crate) fn arm(&self, generation: u64, kind: TimerKind) {
        let (phase, periodic_flag) = match kind {
            TimerKind::Private => (Phase::Private, 0),
            TimerKind::Shared => (Phase::Armed, 0),
            TimerKind::Periodic => (Phase::Armed, PERIODIC),
        };
        debug_assert!(self.is_free());
        // Release (S2): publishes the effects of this node's earlier callbacks.
        self.0.store(
            phase.set_in_word((generation << GENERATION_SHIFT) | periodic_flag),
            Ordering::Release,
        );
    }

    /// Makes a private timer `Armed`, so that other threads may have a handle. Does nothing if the
    /// node has no pending private timer of this generation.
    pub(crate) fn share(&self, generation: u64) {
        let idle_word = generation << GENERATION_SHIFT;
        if self.load_relaxed() == Phase::Private.set_in_word(idle_word) {
            // Release (S2): a thread with a stale handle sees the effects of this node's earlier
            // callbacks.
            self.0.store(Phase::Armed.set_in_word(idle_word), Ordering::Release);
        }
    }

    /// Makes the timer `Running`, unless another thread has reset or cancelled it, or is resetting
    /// it.
    #[inline]
    pub(crate) fn claim(&self) -> ClaimOutcome {
        let word = self.load_relaxed();
        if word & (PHASE_MASK | FLAGS_MASK) == Phase::Armed as u64 {
            let running_word = Phase::Running.set_in_word(word);
            // Both `Relaxed`: the CAS publishes no data, because payload and wheel belong to the
            // owner. A failed CAS is retried.
            if self.cas(word, running_word, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return ClaimOutcome::Claimed(ClaimedRun(running_word));
            }
        } else if Phase::from_word(word) == Phase::Private {
            let running_word = Phase::Running.set_in_word(word);
            // Release (S2): publishes the effects of this node's earlier callbacks. A plain store
            // suffices: no other thread writes the word of a private timer.
            self.0.store(running_word, Ordering::Release);
            return ClaimOutcome::Claimed(ClaimedRun(running_word));
        }
        self.claim_slow()
    }

    #[inline(never)]
    fn claim_slow(&self) -> ClaimOutcome {
        loop {
            let word = self.load_relaxed();
            let running_word = Phase::Running.set_in_word(word);
            let (new_word, outcome) = match Phase::from_word(word) {
                Phase::Armed if word & NEW_DEADLINE != 0 => (
                    word & !(NEW_DEADLINE | POSTPONABLE),
                    ClaimOutcome::NewDeadline { is_periodic: word & PERIODIC != 0 },
                ),
                Phase::Armed => (running_word, ClaimOutcome::Claimed(ClaimedRun(running_word))),
                // Clearing *postponable* makes the resetting thread send a message.
                Phase::Resetting if word & POSTPONABLE != 0 => {
                    (word & !POSTPONABLE, ClaimOutcome::AwaitsMessage)
                }
                _ => return ClaimOutcome::AwaitsMessage,
            };
            // Acquire (S3): sees the requested deadline. Relaxed: a failed CAS is retried.
            if self.cas(word, new_word, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return outcome;
            }
        }
    }

    /// Cancels a timer on the owner's thread. If the result is `Ok`, the caller must take, drop or
    /// forget the payload before the node is freed. If no pending timer was cancelled, the error is
    /// [`Cancel::Running`] or [`Cancel::Ended`].
    #[inline]
    pub(crate) fn cancel_by_owner(&self, generation: u64) -> Result<FreeWhen, Cancel> {
        let idle_word = generation << GENERATION_SHIFT;
        let word = self.load_relaxed();
        // Both `Relaxed`: the CAS publishes no data. A failed CAS is retried.
        if word == Phase::Armed.set_in_word(idle_word)
            && self.cas(word, idle_word, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return Ok(FreeWhen::Now);
        }
        if self.cancel_private(generation) {
            return Ok(FreeWhen::Now);
        }
        self.cancel_by_owner_slow(generation)
    }

    /// Cancels a private timer. Returns false if the node has no pending private timer of this
    /// generation. If the result is true, the caller must take, drop or forget the payload before
    /// the node is freed.
    #[inline]
    pub(crate) fn cancel_private(&self, generation: u64) -> bool {
        let idle_word = generation << GENERATION_SHIFT;
        let is_pending = self.load_relaxed() == Phase::Private.set_in_word(idle_word);
        if is_pending {
            // Release (S2): publishes the effects of this node's earlier callbacks. A plain store
            // suffices: no other thread writes the word of a private timer.
            self.0.store(idle_word, Ordering::Release);
        }
        is_pending
    }

    #[inline(never)]
    fn cancel_by_owner_slow(&self, generation: u64) -> Result<FreeWhen, Cancel> {
        loop {
            let word = self.load_relaxed();
            if word >> GENERATION_SHIFT != generation {
                return Err(Cancel::Ended);
            }
            let (new_word, answer) = match Phase::from_word(word) {
                Phase::Armed if word & QUEUED != 0 => {
                    (Phase::make_idle(word), Ok(FreeWhen::OnMessage))
                }
                Phase::Armed => (Phase::make_idle(word), Ok(FreeWhen::Now)),
                Phase::Resetting => (
                    Phase::Cancelling.set_in_word(word) | CANCELLED_BY_OWNER,
                    Ok(FreeWhen::OnMessage),
                ),
                Phase::Running if word & PERIODIC != 0 => {
                    (Phase::Stopping.set_in_word(word) | CANCELLED_BY_OWNER, Err(Cancel::Running))
                }
                Phase::Running | Phase::Stopping => return Err(Cancel::Running),
                Phase::Idle | Phase::Private | Phase::Cancelled | Phase::Cancelling => {
                    return Err(Cancel::Ended);
                }
            };
            // Acquire (S3): a remote reset's write of the requested deadline happens before the
            // node's next timer overwrites that deadline. Relaxed: a failed CAS is retried.
            if self.cas(word, new_word, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return answer;
            }
        }
    }

    /// Arms a periodic timer again after a run. Returns an error if the timer was cancelled during
    /// the run. The error is true if another thread, not the owner, has cancelled the timer.
    pub(crate) fn rearm(&self) -> Result<(), bool> {
        let running_word = Phase::Running.set_in_word(self.load_relaxed());
        debug_assert!(running_word & PERIODIC != 0);
        // Release (S2): a later cancel or query sees the effects of the run. On failure, Acquire
        // (S1): the canceller's writes happen before the owner drops the payload.
        self.cas(
            running_word,
            Phase::Armed.set_in_word(running_word),
            Ordering::Release,
            Ordering::Acquire,
        )
        .map_err(|word| word & CANCELLED_BY_OWNER == 0)
    }

    /// Ends the timer after its last run.
    #[inline]
    pub(crate) fn finish_run(&self, run: ClaimedRun) -> FreeWhen {
        // Other threads do not change the word of a running one-shot timer, but may have made a
        // periodic timer `Stopping`.
        let word = if run.is_periodic() { self.load_relaxed() } else { run.0 };
        debug_assert!(run.is_periodic() || word == self.load_relaxed(), "a one-shot run changed");
        // Release (S2): a thread that gets `Ended` sees the callback's effects. A plain store
        // suffices: it overwrites at most another thread's change from `Running` to `Stopping`.
        self.0.store(Phase::make_idle(word), Ordering::Release);
        if word & QUEUED == 0 { FreeWhen::Now } else { FreeWhen::OnMessage }
    }

    /// Consumes the node's message. The owner must already have taken the message and read the
    /// node's link.
    #[inline]
    pub(crate) fn consume_message(&self) -> ConsumedMessage {
        // Acquire (S1): sees the canceller's writes. Taking the message has acquired the pusher's
        // writes, but the pusher and the canceller may be different threads.
        let word = self.0.load(Ordering::Acquire);
        // AcqRel, Relaxed: as in `consume_message_slow`.
        if word & (PHASE_MASK | NEW_DEADLINE) == Phase::Armed as u64 | NEW_DEADLINE
            && self
                .cas(word, word & !(QUEUED | NEW_DEADLINE), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            return ConsumedMessage::NewDeadline { is_periodic: word & PERIODIC != 0 };
        }
        if word & PHASE_MASK != Phase::Cancelled as u64 {
            return self.consume_message_slow();
        }
        // Release (S2): publishes the effects of this node's earlier callbacks. A plain store
        // suffices: only the owner changes a `Cancelled` word.
        self.0.store(Phase::make_idle(word) & !QUEUED, Ordering::Release);
        if word & CANCELLED_BY_OWNER == 0 {
            ConsumedMessage::Cancelled { has_payload: word & PAYLOAD_TAKEN == 0 }
        } else {
            ConsumedMessage::AlreadyEnded
        }
    }

    #[cold]
    #[inline(never)]
    fn consume_message_slow(&self) -> ConsumedMessage {
        loop {
            let word = self.load_relaxed();
            let (new_word, consumed_message) = match Phase::from_word(word) {
                Phase::Armed if word & NEW_DEADLINE != 0 => (
                    word & !(QUEUED | NEW_DEADLINE),
                    ConsumedMessage::NewDeadline { is_periodic: word & PERIODIC != 0 },
                ),
                Phase::Idle => (word & !QUEUED, ConsumedMessage::AlreadyEnded),
                Phase::Cancelled => return self.consume_message(),
                Phase::Resetting => (
                    word & !QUEUED,
                    ConsumedMessage::ResetInProgress { is_periodic: word & PERIODIC != 0 },
                ),
                // A `Cancelling` timer needs no action yet: another thread will push its node
                // again. In other phases, the message needs no action.
                _ => (word & !QUEUED, ConsumedMessage::Nothing),
            };
            // AcqRel: the CAS acquires the requested deadline (S3), and releases the owner's use of
            // the link (S4). Relaxed: a failed CAS is retried.
            if self.cas(word, new_word, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return consumed_message;
            }
        }
    }

    /// Ends a timer because its shard ends, unless the timer is running. The mailbox must be
    /// closed.
    pub(crate) fn end_at_close(&self) -> CloseOutcome {
        loop {
            let word = self.load_relaxed();
            let outcome = match Phase::from_word(word) {
                // A running timer ends when its run ends.
                Phase::Idle | Phase::Running | Phase::Stopping => return CloseOutcome::NoPayload,
                // At the shard's end, a remote reset in progress fails, but may have overwritten
                // the requested deadline.
                Phase::Private | Phase::Armed | Phase::Resetting => {
                    CloseOutcome::HandedBack { has_new_deadline: word & NEW_DEADLINE != 0 }
                }
                Phase::Cancelled | Phase::Cancelling if word & CANCELLED_BY_OWNER != 0 => {
                    CloseOutcome::NoPayload
                }
                Phase::Cancelled | Phase::Cancelling => {
                    CloseOutcome::Cancelled { has_payload: word & PAYLOAD_TAKEN == 0 }
                }
            };
            // Acquire: sees the writes of a canceller whose message never reached the owner (S1),
            // and the requested deadline (S3). Relaxed: a failed CAS is retried.
            if self.cas(word, Phase::make_idle(word), Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return outcome;
            }
        }
    }

    /// Returns true only if the timer is pending, one-shot and linked in the wheel, so that the
    /// owner's reset needs no [`prepare_owner_reset`](Self::prepare_owner_reset).
    #[inline]
    pub(crate) fn is_linked_one_shot(&self, generation: u64) -> bool {
        let idle_word = generation << GENERATION_SHIFT;
        let word = self.load_relaxed();
        word == Phase::Armed.set_in_word(idle_word) || word == Phase::Private.set_in_word(idle_word)
    }

    /// Prepares the owner's reset: discards the deadline of an earlier remote reset, and makes a
    /// remote reset in progress send a message. Returns whether the timer is periodic, or `None` if
    /// the timer has ended or is running. The timer may be in no slot, which the caller must check
    /// before relinking it.
    pub(crate) fn prepare_owner_reset(&self, generation: u64) -> Option<bool> {
        loop {
            let word = self.load_relaxed();
            let new_word = match Phase::from_word(word) {
                _ if word >> GENERATION_SHIFT != generation => return None,
                // A remote reset in progress is ordered after this reset, and may have an earlier
                // deadline. Clearing *postponable* makes the remote thread send a message.
                Phase::Armed | Phase::Private | Phase::Resetting => {
                    word & !(NEW_DEADLINE | POSTPONABLE)
                }
                _ => return None,
            };
            // Acquire (S3): an earlier remote reset is ordered before this reset. If the owner has
            // not admitted the timer, the owner sees the adder's writes. Relaxed: a failed CAS is
            // retried.
            if new_word == word
                || self.cas(word, new_word, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Some(word & PERIODIC != 0);
            }
        }
    }

    /// Lets other threads postpone the timer without a message. The owner must have linked the
    /// timer, and stored the linked deadline. Does nothing unless the word is `Armed` without
    /// flags.
    #[inline]
    pub(crate) fn allow_remote_postponing(&self) {
        let word = self.load_relaxed();
        if word & (PHASE_MASK | FLAGS_MASK) == Phase::Armed as u64 {
            // Release (S3): publishes the linked deadline. Relaxed: a failed CAS only leaves
            // *postponable* unset.
            let _ = self.cas(word, word | POSTPONABLE, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Returns whether a pending timer has the flag *new deadline*, or `None` if the timer is not
    /// pending.
    pub(crate) fn has_new_deadline_if_pending(&self, generation: u64) -> Option<bool> {
        // Acquire (S3): sees the requested deadline.
        let word = self.0.load(Ordering::Acquire);
        let is_pending = word >> GENERATION_SHIFT == generation
            && matches!(Phase::from_word(word), Phase::Private | Phase::Armed | Phase::Resetting);
        is_pending.then_some(word & NEW_DEADLINE != 0)
    }

    /// Returns true if the timer is periodic and will run again, unless a later call ends it.
    pub(crate) fn will_run_again(&self, generation: u64) -> bool {
        let word = self.load_relaxed();
        word >> GENERATION_SHIFT == generation
            && word & PERIODIC != 0
            && matches!(Phase::from_word(word), Phase::Armed | Phase::Resetting | Phase::Running)
    }

    /// Returns the generation of the node's timer, if the timer is pending and was added by the
    /// owner. The payload of an owner-added timer is in the node until the owner takes it.
    pub(crate) fn pending_owner_added_generation(&self) -> Option<u64> {
        let word = self.load_relaxed();
        let is_pending =
            matches!(Phase::from_word(word), Phase::Private | Phase::Armed | Phase::Resetting);
        let generation = word >> GENERATION_SHIFT;
        (is_pending && generation & REMOTE_GENERATION_BIT == 0).then_some(generation)
    }

    /// Returns the generation of the node's current or most recent timer.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.load_relaxed() >> GENERATION_SHIFT
    }

    /// Returns true if another thread has cancelled the timer, and the owner has not consumed the
    /// message about it.
    pub(crate) fn has_unconsumed_remote_cancel(&self) -> bool {
        let word = self.load_relaxed();
        word & CANCELLED_BY_OWNER == 0
            && matches!(Phase::from_word(word), Phase::Cancelled | Phase::Cancelling)
    }

    /// Returns true if the node has no timer and no queued message.
    pub(crate) fn is_free(&self) -> bool {
        self.load_relaxed() & (PHASE_MASK | QUEUED) == 0
    }

    /// Returns true if the node has a payload that no run is using.
    #[cfg(feature = "origins")]
    pub(crate) fn has_payload(&self) -> bool {
        let word = self.load_relaxed();
        match Phase::from_word(word) {
            Phase::Private | Phase::Armed | Phase::Resetting => true,
            Phase::Cancelled | Phase::Cancelling => {
                word & (CANCELLED_BY_OWNER | PAYLOAD_TAKEN) == 0
            }
            Phase::Idle | Phase::Running | Phase::Stopping => false,
        }
    }
}

/// The operations of any thread, which never block.
impl StateWord {
    /// Arms a new timer, due at the requested deadline, in a free node that this thread has taken.
    /// The caller must push the node onto the owner's mailbox.
    #[inline]
    pub(crate) fn arm_remote(&self, generation: u64, is_periodic: bool) {
        debug_assert!(self.is_free());
        let flags = QUEUED | NEW_DEADLINE | if is_periodic { PERIODIC } else { 0 };
        let word = Phase::Armed.set_in_word((generation << GENERATION_SHIFT) | flags);
        // Release (S3): publishes the requested deadline, the period and the payload. Release (S2):
        // publishes the effects of this node's earlier callbacks.
        self.0.store(word, Ordering::Release);
    }

    /// Ends a timer whose node could not be pushed, because the mailbox is closed. Returns false if
    /// `end_at_close` has ended the timer. Also returns false if a thread that guessed the handle
    /// (`TimerHandle::from_bits`) has cancelled or is resetting the timer.
    pub(crate) fn undo_arm_remote(&self) -> bool {
        let word = self.load_relaxed();
        // Both `Relaxed`: the CAS publishes no data, and continues the release sequence of
        // `arm_remote` (S2). The value of a failed CAS is unused.
        Phase::from_word(word) == Phase::Armed
            && self
                .cas(word, Phase::make_idle(word) & !QUEUED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Tries to cancel an owner-added timer from a remote thread. Returns false unless the state
    /// word is `Armed` without flags. If the result is true, the caller must push the node.
    #[inline]
    pub(crate) fn try_cancel_remote_fast(&self, generation: u64) -> bool {
        // Does not load the word first: a load and a CAS would fetch the cache line twice, to read
        // and then to write.
        let likely_word = Phase::Armed.set_in_word(generation << GENERATION_SHIFT);
        let new_word = Phase::Cancelled.set_in_word(likely_word) | QUEUED;
        debug_assert_eq!(generation & REMOTE_GENERATION_BIT, 0);
        // AcqRel: this thread's earlier writes happen before the owner drops the payload (S1). The
        // owner's last use of the link happens before this thread's use (S4). Relaxed: the value of
        // a failed CAS is unused.
        self.cas(likely_word, new_word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Cancels the timer from a remote thread. Returns the result, and the caller's next step.
    pub(crate) fn cancel_remote(&self, generation: u64) -> (Cancel, StepAfterCancelOrReset) {
        let mut word = Phase::Armed.set_in_word(generation << GENERATION_SHIFT);
        loop {
            if word >> GENERATION_SHIFT != generation {
                return (Cancel::Ended, StepAfterCancelOrReset::Nothing);
            }
            let (new_word, answer, next_step) = match Phase::from_word(word) {
                Phase::Armed if generation & REMOTE_GENERATION_BIT != 0 => (
                    Phase::Cancelling.set_in_word(word) | PAYLOAD_TAKEN,
                    Cancel::Cancelled,
                    StepAfterCancelOrReset::TakePayload,
                ),
                Phase::Armed => {
                    let new_word = Phase::Cancelled.set_in_word(word) & !NEW_DEADLINE | QUEUED;
                    (new_word, Cancel::Cancelled, StepAfterCancelOrReset::push_unless_queued(word))
                }
                Phase::Resetting => (
                    Phase::Cancelling.set_in_word(word),
                    Cancel::Cancelled,
                    StepAfterCancelOrReset::Nothing,
                ),
                Phase::Running if word & PERIODIC != 0 => (
                    Phase::Stopping.set_in_word(word),
                    Cancel::Running,
                    StepAfterCancelOrReset::Nothing,
                ),
                Phase::Running | Phase::Stopping => {
                    return (Cancel::Running, StepAfterCancelOrReset::Nothing);
                }
                _ => return (Cancel::Ended, StepAfterCancelOrReset::Nothing),
            };
            // AcqRel: this thread's earlier writes happen before the owner drops the payload (S1).
            // The owner's last use of the link (S4), and a periodic timer's earlier runs (S2),
            // happen before this thread's next operations. If this thread takes the payload, the
            // CAS also acquires the adder's writes. On failure, Acquire (S2): after `Ended`, the
            // caller sees the callback's effects.
            match self.cas(word, new_word, Ordering::AcqRel, Ordering::Acquire) {
                Ok(()) => return (answer, next_step),
                Err(newer_word) => word = newer_word,
            }
        }
    }

    /// Begins a reset. After [`BeginResetOutcome::Begun`], no other thread writes the node's
    /// requested deadline until the caller ends the reset.
    #[inline]
    pub(crate) fn begin_reset(&self, generation: u64) -> BeginResetOutcome {
        // `likely_word` is the word of a timer that was reset without a message, before the owner
        // applies the new deadline.
        let word_without_phase = generation << GENERATION_SHIFT | NEW_DEADLINE;
        let [likely_word, new_word] = [Phase::Armed, Phase::Resetting]
            .map(|phase| phase.set_in_word(word_without_phase) | POSTPONABLE);
        // Both `Acquire`: as in `begin_reset_slow`.
        match self.cas(likely_word, new_word, Ordering::Acquire, Ordering::Acquire) {
            Ok(()) => BeginResetOutcome::Begun { is_postponable: true },
            Err(newer_word) => self.begin_reset_slow(newer_word, generation),
        }
    }

    #[inline(never)]
    fn begin_reset_slow(&self, mut word: u64, generation: u64) -> BeginResetOutcome {
        loop {
            match Phase::from_word(word) {
                _ if word >> GENERATION_SHIFT != generation => return BeginResetOutcome::Refused,
                Phase::Armed => (),
                Phase::Resetting => return BeginResetOutcome::Superseded,
                _ => return BeginResetOutcome::Refused,
            }
            // Both `Acquire`: an earlier reset's write of the deadline happens before this reset's
            // write (S3). After a refused reset, the caller sees the effects of the timer's
            // callback (S2).
            let postponable_flag = word & POSTPONABLE;
            let new_word = Phase::Resetting.set_in_word(word) | postponable_flag;
            match self.cas(word, new_word, Ordering::Acquire, Ordering::Acquire) {
                Ok(()) => {
                    return BeginResetOutcome::Begun { is_postponable: postponable_flag != 0 };
                }
                Err(newer_word) => word = newer_word,
            }
        }
    }

    /// Returns true if the timer that the caller is resetting is periodic.
    pub(crate) fn is_periodic(&self) -> bool {
        self.load_relaxed() & PERIODIC != 0
    }

    /// Tries to end a reset without a message. The new deadline must not be before the linked
    /// deadline. If the result is false, the caller must call
    /// [`end_reset_or_cancel`](Self::end_reset_or_cancel).
    #[inline]
    pub(crate) fn end_reset_without_message(&self) -> bool {
        let word = self.load_relaxed();
        let new_word = Phase::Armed.set_in_word(word) | NEW_DEADLINE | POSTPONABLE;
        // Release (S3): publishes the requested deadline. Relaxed: the value of a failed CAS is
        // unused.
        Phase::from_word(word) == Phase::Resetting
            && word & POSTPONABLE != 0
            && self.cas(word, new_word, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Ends a reset, or a cancel in which this thread has taken the payload. Returns the next step,
    /// or `None` if the shard has ended since the reset or cancel began.
    #[inline]
    pub(crate) fn end_reset_or_cancel(&self) -> Option<StepAfterCancelOrReset> {
        let word = self.load_relaxed();
        if Phase::from_word(word) == Phase::Resetting {
            let new_word = Phase::Armed.set_in_word(word) | NEW_DEADLINE | QUEUED;
            // AcqRel, Relaxed: as in `end_reset_or_cancel_slow`.
            if self.cas(word, new_word, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(StepAfterCancelOrReset::push_unless_queued(word));
            }
        }
        self.end_reset_or_cancel_slow()
    }

    #[inline(never)]
    fn end_reset_or_cancel_slow(&self) -> Option<StepAfterCancelOrReset> {
        loop {
            let word = self.load_relaxed();
            let new_word = match Phase::from_word(word) {
                Phase::Resetting => Phase::Armed.set_in_word(word) | NEW_DEADLINE | QUEUED,
                // If another thread added the timer, its payload is `Send`.
                Phase::Cancelling
                    if (word >> GENERATION_SHIFT) & REMOTE_GENERATION_BIT != 0
                        && word & (PAYLOAD_TAKEN | CANCELLED_BY_OWNER) == 0 =>
                {
                    word | PAYLOAD_TAKEN
                }
                Phase::Cancelling => Phase::Cancelled.set_in_word(word) & !NEW_DEADLINE | QUEUED,
                _ => return None,
            };
            // AcqRel: the CAS releases the deadline (S3), and this thread's use of the payload
            // (S1). A CAS that sets *queued* acquires the owner's last use of the link (S4). A CAS
            // that sets *payload taken* acquires the payload. Relaxed: a failed CAS is retried.
            if self.cas(word, new_word, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let takes_payload = new_word & PAYLOAD_TAKEN != 0 && word & PAYLOAD_TAKEN == 0;
                let next_step = StepAfterCancelOrReset::push_unless_queued(word);
                return Some(if takes_payload {
                    StepAfterCancelOrReset::TakePayload
                } else {
                    next_step
                });
            }
        }
    }

    pub(crate) fn status(&self, generation: u64) -> TimerStatus {
        // Acquire (S2): after `Ended`, the caller sees the callback's effects.
        // Acquire (S3): orders the adder's write of the period before this thread's write in
        // `Engine::set_period`. A handle from `TimerHandle::from_bits` synchronizes with the adder
        // only by this Acquire.
        let word = self.0.load(Ordering::Acquire);
        match Phase::from_word(word) {
            _ if word >> GENERATION_SHIFT != generation => TimerStatus::Ended,
            Phase::Private | Phase::Armed | Phase::Resetting => TimerStatus::Pending,
            Phase::Running | Phase::Stopping => TimerStatus::Running,
            Phase::Idle | Phase::Cancelled | Phase::Cancelling => TimerStatus::Ended,
        }
    }

    pub(crate) fn is_pending(&self, generation: u64) -> bool {
        // Relaxed: the answer may be outdated at once, and orders no other access.
        let word = self.load_relaxed();
        // If the word has this generation, the XOR leaves only phase and flags. The pending phases
        // have consecutive values: `Private`, `Armed`, `Resetting`.
        let phase_and_flags = word ^ generation << GENERATION_SHIFT;
        (Phase::Private as u64..=Phase::Resetting as u64).contains(&(phase_and_flags & !FLAGS_MASK))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
