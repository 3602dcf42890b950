//! THE state word: who ends a timer, and everything that follows from it.
//!
//! Every timer has one 64-bit word. Whoever moves it out of `Armed` owns the ending; the loser learns from the failed
//! swap what happened. There is no second flag, no lock and no reference count.
//!
//! ```text
//!  63                                              8    7     6     0
//! +-------------------------------------------------+----------+-------+
//! |                generation (56 bits)             | periodic | phase |
//! +-------------------------------------------------+----------+-------+
//! ```
//!
//! The *generation* names the timer: it comes from a counter of the shard that never repeats, and that the registry
//! carries over to the next shard of the same number. A handle whose generation is not in the word is stale. *Periodic*
//! does not change while a timer lives.
//!
//! # Phases
//!
//! | phase | meaning | payload |
//! |---|---|---|
//! | `Idle` | ended, or never used | none |
//! | `Private` | pending; no other thread can have a handle | the owner's |
//! | `Armed` | pending | the owner's |
//! | `Running` | its callback runs, on the owner's stack | taken out |
//! | `Stopping` | its callback runs, and no further run will start (periodic only) | taken out |
//! | `Cancelled` | a thread has cancelled it ("held"): the owner must not run it, and will free it | the owner's |
//!
//! The payload and the wheel's entry are never touched by another thread, in no phase: what crosses threads is this
//! word and the mailbox link beside it. A node is free for reuse in `Idle` only.
//!
//! # Transitions
//!
//! | from | to | who | method | decides |
//! |---|---|---|---|---|
//! | `Idle` | `Private`, `Armed` | owner | `arm` | |
//! | `Private` | `Armed` | owner | `share` | |
//! | `Private` | `Running`, `Idle` | owner | `claim`, `cancel_own`, `sweep` | a plain store: nobody else can |
//! | `Armed` | `Running` | owner | `claim` | swap: it fires |
//! | `Armed` | `Idle` | owner | `cancel_own`, `sweep` | swap: it is cancelled, or handed back |
//! | `Armed` | `Cancelled` | any thread | `cancel` | swap: it is cancelled |
//! | `Running` | `Stopping` | any thread | `cancel`, `cancel_own` | swap, periodic only: this run is the last |
//! | `Running` | `Armed` | owner | `rearm` | swap, periodic only: it goes on |
//! | `Running` | `Idle` | owner | `finish` | a plain store, one-shot only: nobody else leaves it |
//! | `Stopping` | `Idle` | owner | `finish` | a plain store: nobody else leaves it |
//! | `Cancelled` | `Idle` | owner | `collect`, `sweep` | |
//!
//! # Why exactly once
//!
//! In every phase either one thread alone may write, or all writers swap. `Armed` is left once per arming, because leaving
//! it is a compare-and-swap on the whole word, generation included. A one-shot timer is armed once per generation; so
//! exactly one of fire, cancel and hand back happens. A periodic timer returns to `Armed` by a swap from `Running`, which
//! fails if a cancel has made it `Stopping`.
//!
//! # The four traps
//!
//! 1. *Twice in the mailbox.* A message is pushed only by the winner of `Armed -> Cancelled`, which happens at most
//!    once per generation, and only the owner who has taken that message out of the mailbox leaves `Cancelled`. So
//!    the phase itself says "one message is queued or about to be", a node is in the mailbox at most once, and is not
//!    reused while it is. (The owner reads the link before it gives the index back.)
//! 2. *Leftover entries.* A timer is one entry in the wheel, which is in at most one slot and knows which. Moving
//!    it takes it out of the old one, so no leftover entry can fire a second time. A held node may still be in its slot
//!    or may have been popped from it when its claim failed; `collect` removes it wherever it is.
//! 3. *Reset from another core.* The deadline is the owner's and outside this word, so only the owner moves it: a reset
//!    from elsewhere is refused and moves nothing.
//! 4. *The end.* A canceller may have claimed and not yet pushed when the shard drains for the last time. The owner
//!    first closes the mailbox, by swapping a marker in, and then sweeps all words: what is `Armed` is handed back, what
//!    is `Cancelled` has its canceller, pushed or not. A pusher that meets the marker touches nothing more. The words themselves are freed through epochs, after the last thread that might look has gone.
//!
//! # Orderings, in pairs
//!
//! * S1: the canceller's swap to `Cancelled` or `Stopping` releases; the owner's `sweep` and `rearm` acquire. So what
//!   the canceller did before it cancelled happens before the owner drops the payload. (`collect` needs none of its
//!   own: the mailbox has acquired.)
//! * S2: the owner's `finish` and `rearm` release; `cancel` acquires. So who is told `Ended` after the timer fired sees
//!   what the callback did. The reader may find a later word of the same node instead, so every plain store of the owner
//!   releases (which costs nothing on x86); swaps continue what they replace.
//!
//! # Models
//!
//! `loom-tests/tests/cancel.rs` (fire, cancel, reuse, placement, periodic runs), `loom-tests/tests/end.rs` (the last
//! drain).

use crate::sync::{AtomicU64, Ordering};

const GENERATION_SHIFT: u32 = 8;
const PERIODIC: u64 = 1 << 7;
const PHASE_MASK: u64 = PERIODIC - 1;
const _: () = assert!(crate::limits::GENERATION_MAX == u64::MAX >> GENERATION_SHIFT, "the parts fill the word");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Idle,
    Private,
    Armed,
    Running,
    Stopping,
    Cancelled,
}

impl Phase {
    #[inline]
    const fn of(word: u64) -> Self {
        match word & PHASE_MASK {
            0 => Self::Idle,
            1 => Self::Private,
            2 => Self::Armed,
            3 => Self::Running,
            4 => Self::Stopping,
            5 => Self::Cancelled,
            _ => unreachable!(),
        }
    }

    /// `word` with this phase instead of its own.
    const fn in_place_of(self, word: u64) -> u64 {
        (word & !PHASE_MASK) | self as u64
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
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Claim {
    /// It is `Running` now: the owner takes the payload and must `finish` or `rearm`.
    Fires,
    /// A canceller was first; its message is in the mailbox or on the way.
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

/// Whether a timer can be moved.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Movable {
    /// It is pending.
    Yes { periodic: bool },
    /// It has ended, is running, or the handle is stale.
    No,
}

/// What the last sweep finds.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Swept {
    /// It was pending: its payload is handed back.
    HandedBack,
    /// It had been cancelled: its payload is dropped.
    Cancelled,
    /// No payload is left here.
    Idle,
}

/// The word of one node.
#[derive(Debug)]
pub(crate) struct StateWord(AtomicU64);

impl Default for StateWord {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

/// The owner's side.
impl StateWord {
    /// A new timer takes the node.
    #[inline]
    pub(crate) fn arm(&self, generation: u64, kind: Kind) {
        let (phase, periodic) = match kind {
            Kind::Private => (Phase::Private, 0),
            Kind::Shared => (Phase::Armed, 0),
            Kind::Periodic => (Phase::Armed, PERIODIC),
        };
        debug_assert_eq!(self.own_phase(), Phase::Idle);
        // Release (S2): a stale handle of the node's timer before may read this word instead of the `Idle` that `finish` left.
        self.0.store(phase.in_place_of((generation << GENERATION_SHIFT) | periodic), Ordering::Release);
    }

    /// From now on other threads may have a handle.
    pub(crate) fn share(&self) {
        let word = self.own_word();
        if Phase::of(word) == Phase::Private {
            // Release (S2): as in `arm`.
            self.0.store(Phase::Armed.in_place_of(word), Ordering::Release);
        }
    }

    /// Tries to fire the timer.
    #[inline]
    pub(crate) fn claim(&self) -> Claim {
        let word = self.own_word();
        let running = Phase::Running.in_place_of(word);
        match Phase::of(word) {
            Phase::Private => {
                // Release (S2): as in `arm`; nobody else writes the word of a private timer.
                self.0.store(running, Ordering::Release);
                Claim::Fires
            }
            // Relaxed, both: the swap decides by being one; what it guards is the owner's own, and a failure is
            // followed by the mailbox, which acquires.
            Phase::Armed if self.swap(word, running, Ordering::Relaxed, Ordering::Relaxed).is_ok() => Claim::Fires,
            _ => Claim::Held,
        }
    }

    /// Cancels on the owner. If it is `Cancelled`, nothing is queued and the payload can be taken at once.
    #[inline]
    #[must_use]
    pub(crate) fn cancel_own(&self, generation: u64) -> Cancel {
        let word = self.own_word();
        if word >> GENERATION_SHIFT != generation {
            return Cancel::Ended;
        }
        match Phase::of(word) {
            Phase::Private => {
                // Release (S2): as in `arm`; nobody else writes the word of a private timer.
                self.0.store(Phase::Idle.in_place_of(word), Ordering::Release);
                Cancel::Cancelled
            }
            Phase::Armed => {
                let idle = Phase::Idle.in_place_of(word);
                // Relaxed, both: as in `claim`; a failure means that another thread has cancelled.
                match self.swap(word, idle, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(()) => Cancel::Cancelled,
                    Err(_) => Cancel::Ended,
                }
            }
            Phase::Running => {
                if word & PERIODIC != 0 {
                    let stopping = Phase::Stopping.in_place_of(word);
                    // Relaxed, both: the owner itself reads it in `rearm`, and another thread can only have done the same.
                    let _ = self.swap(word, stopping, Ordering::Relaxed, Ordering::Relaxed);
                }
                Cancel::Running
            }
            Phase::Stopping => Cancel::Running,
            Phase::Idle | Phase::Cancelled => Cancel::Ended,
        }
    }

    /// A periodic timer goes on after a run; false if a cancel has forbidden it.
    pub(crate) fn rearm(&self) -> bool {
        // Acquire (S1): who forbade further runs did so before the payload is dropped.
        let word = self.0.load(Ordering::Acquire);
        let armed = Phase::Armed.in_place_of(word);
        // Release (S2): who cancels or asks from now on sees what the run did. Acquire (S1): as above.
        debug_assert!(word & PERIODIC != 0);
        Phase::of(word) == Phase::Running && self.swap(word, armed, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// The run is over and the timer with it.
    #[inline]
    pub(crate) fn finish(&self) {
        let word = self.own_word();
        let periodic = word & PERIODIC != 0;
        debug_assert_eq!(Phase::of(word), if periodic { Phase::Stopping } else { Phase::Running });
        // Release (S2): who is told `Ended` sees what the callback did. A plain store: nobody else leaves this phase.
        self.0.store(Phase::Idle.in_place_of(word), Ordering::Release);
    }

    /// The owner has taken the node's message out of the mailbox.
    pub(crate) fn collect(&self) {
        let word = self.own_word();
        debug_assert_eq!(Phase::of(word), Phase::Cancelled);
        // Release (S2): as in `arm`; only the owner leaves `Cancelled`.
        self.0.store(Phase::Idle.in_place_of(word), Ordering::Release);
    }

    /// The shard ends, and so does the timer. The mailbox is closed already.
    pub(crate) fn sweep(&self) -> Swept {
        // Acquire (S1): a canceller that could not push any more has released its claim here.
        let word = self.0.load(Ordering::Acquire);
        let idle = Phase::Idle.in_place_of(word);
        match Phase::of(word) {
            // Relaxed: the owner takes the payload itself. Acquire (S1): the claim that came in between, as above.
            Phase::Armed if self.swap(word, idle, Ordering::Relaxed, Ordering::Acquire).is_ok() => Swept::HandedBack,
            // A run in progress has its payload on the stack, and finishes by itself.
            Phase::Idle | Phase::Running | Phase::Stopping => Swept::Idle,
            phase => {
                // Release (S2): as in `arm`; only the owner leaves `Private` and `Cancelled`.
                self.0.store(idle, Ordering::Release);
                if phase == Phase::Private { Swept::HandedBack } else { Swept::Cancelled }
            }
        }
    }

    /// Whether the owner may still move the timer.
    #[inline]
    pub(crate) fn movable(&self, generation: u64) -> Movable {
        let word = self.own_word();
        match (Self::waits(word, generation), word & PERIODIC != 0) {
            (false, _) => Movable::No,
            (true, periodic) => Movable::Yes { periodic },
        }
    }

    /// Whether no timer has the node.
    pub(crate) fn is_idle(&self) -> bool {
        self.own_phase() == Phase::Idle
    }

    fn own_word(&self) -> u64 {
        // Relaxed: the owner's own last write, or another thread's that changes the phase only and is met by a swap or
        // by what its reader says.
        self.0.load(Ordering::Relaxed)
    }

    fn own_phase(&self) -> Phase {
        Phase::of(self.own_word())
    }
}

/// Any thread's side.
impl StateWord {
    /// Cancels from another thread. If it is `Cancelled`, the caller must push the node on the owner's mailbox.
    #[inline]
    #[must_use]
    pub(crate) fn cancel(&self, generation: u64) -> Cancel {
        // The likely word is tried unseen: a look before would fetch the line twice, to read and then to write.
        let mut word = Phase::Armed.in_place_of(generation << GENERATION_SHIFT);
        loop {
            if word >> GENERATION_SHIFT != generation {
                return Cancel::Ended;
            }
            let (to, answer) = match Phase::of(word) {
                Phase::Armed => (Phase::Cancelled, Cancel::Cancelled),
                Phase::Running if word & PERIODIC != 0 => (Phase::Stopping, Cancel::Running),
                Phase::Running | Phase::Stopping => return Cancel::Running,
                Phase::Idle | Phase::Private | Phase::Cancelled => return Cancel::Ended,
            };
            // Release (S1): what this thread did comes before the owner drops the payload. Acquire (S2): the answer
            // may become `Ended`.
            match self.swap(word, to.in_place_of(word), Ordering::Release, Ordering::Acquire) {
                Ok(()) => return answer,
                Err(found) => word = found,
            }
        }
    }

    /// Whether the timer waits for its deadline.
    pub(crate) fn is_pending(&self, generation: u64) -> bool {
        // Relaxed: the answer is about the past, and nothing hangs on it; the owner sees its own last word.
        Self::waits(self.0.load(Ordering::Relaxed), generation)
    }

    fn waits(word: u64, generation: u64) -> bool {
        word >> GENERATION_SHIFT == generation && matches!(Phase::of(word), Phase::Armed | Phase::Private)
    }

    /// The orderings are the caller's; it says why.
    #[inline]
    fn swap(&self, from: u64, to: u64, success: Ordering, failure: Ordering) -> Result<(), u64> {
        self.0.compare_exchange(from, to, success, failure).map(drop)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
