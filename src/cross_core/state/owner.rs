//! The owner's operations on a word. They store where no other thread may write, and swap
//! elsewhere.

use super::{
    BY_OWNER, Cancel, Claim, Collected, Freed, GENERATION_SHIFT, Kind, MOVED, Movable,
    PAYLOAD_TAKEN, PERIODIC, PHASE_MASK, Phase, QUEUED, StateWord, Swept,
};
use crate::{limits::REMOTE_GENERATION, util::sync::Ordering};

impl StateWord {
    /// Arms a new timer in a free node.
    #[inline]
    pub(crate) fn arm(&self, generation: u64, kind: Kind) {
        let (phase, periodic) = match kind {
            Kind::Private => (Phase::Private, 0),
            Kind::Shared => (Phase::Armed, 0),
            Kind::Periodic => (Phase::Armed, PERIODIC),
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
            // Release (S2): a stale handle may read this word, as in `arm`.
            self.0.store(Phase::Armed.set_in(word), Ordering::Release);
        }
    }

    /// Tries to fire the timer.
    #[inline]
    pub(crate) fn claim(&self) -> Claim {
        let word = self.load_relaxed();
        let running = Phase::Running.set_in(word);
        match Phase::of(word) {
            Phase::Private => {
                // Release (S2): a stale handle may read this word, as in `arm`; no other thread
                // writes the word of a private timer.
                self.0.store(running, Ordering::Release);
                Claim::Fires
            }
            // Relaxed, both: the swap decides because it is atomic; it guards data of the owner
            // only, and a failure is read again.
            Phase::Armed
                if word & MOVED == 0
                    && self.swap(word, running, Ordering::Relaxed, Ordering::Relaxed).is_ok() =>
            {
                Claim::Fires
            }
            _ => self.claim_slow(),
        }
    }

    #[cold]
    fn claim_slow(&self) -> Claim {
        loop {
            let word = self.load_relaxed();
            let (to, claim) = match Phase::of(word) {
                Phase::Armed if word & MOVED != 0 => {
                    (word & !MOVED, Claim::Moved { periodic: word & PERIODIC != 0 })
                }
                Phase::Armed => (Phase::Running.set_in(word), Claim::Fires),
                _ => return Claim::Held,
            };
            // Acquire (S3): the requested deadline. Relaxed: a failure is read again.
            if self.swap(word, to, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return claim;
            }
        }
    }

    /// Cancels on the owner. If the cancel wins, the caller takes the payload at once; the error
    /// says why it has not won.
    #[inline]
    pub(crate) fn cancel_own(&self, generation: u64) -> Result<Freed, Cancel> {
        let word = self.load_relaxed();
        let likely = Phase::Armed.set_in(generation << GENERATION_SHIFT);
        if word == likely {
            // Relaxed, both: the swap guards data of the owner only, as in `claim`; a failure is
            // read again.
            match self.swap(word, Phase::idle(word), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(()) => return Ok(Freed::Now),
                Err(_) => return self.cancel_slow(generation),
            }
        }
        if word == Phase::Private.set_in(likely) {
            // Release (S2): a stale handle may read this word, as in `arm`; no other thread writes
            // the word of a private timer.
            self.0.store(Phase::idle(word), Ordering::Release);
            return Ok(Freed::Now);
        }
        self.cancel_slow(generation)
    }

    #[cold]
    #[inline(never)]
    fn cancel_slow(&self, generation: u64) -> Result<Freed, Cancel> {
        loop {
            let word = self.load_relaxed();
            if word >> GENERATION_SHIFT != generation {
                return Err(Cancel::Ended);
            }
            let (to, answer) = match Phase::of(word) {
                Phase::Armed if word & QUEUED != 0 => (Phase::idle(word), Ok(Freed::Queued)),
                Phase::Armed => (Phase::idle(word), Ok(Freed::Now)),
                Phase::Moving => (Phase::Cancelling.set_in(word) | BY_OWNER, Ok(Freed::Queued)),
                Phase::Running if word & PERIODIC != 0 => {
                    (Phase::Stopping.set_in(word) | BY_OWNER, Err(Cancel::Running))
                }
                Phase::Running | Phase::Stopping => return Err(Cancel::Running),
                Phase::Idle | Phase::Private | Phase::Cancelled | Phase::Cancelling => {
                    return Err(Cancel::Ended);
                }
            };
            // Relaxed, both: the swap guards data of the owner only, as in `claim`; the owner
            // itself reads `Stopping` in `rearm`.
            if self.swap(word, to, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return answer;
            }
        }
    }

    /// Arms a periodic timer again after a run. Returns false if a cancel has forbidden further
    /// runs.
    pub(crate) fn rearm(&self) -> bool {
        // Acquire (S1): the canceller's work before it forbade further runs happens before the drop
        // of the payload.
        let word = self.0.load(Ordering::Acquire);
        let armed = Phase::Armed.set_in(word);
        // Release (S2): a later cancel or query sees the work of the run. Acquire (S1): the
        // canceller's work happens before the drop of the payload.
        debug_assert!(word & PERIODIC != 0);
        Phase::of(word) == Phase::Running
            && self.swap(word, armed, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// Returns true if another thread has forbidden further runs.
    pub(crate) fn was_stopped_elsewhere(&self) -> bool {
        self.load_relaxed() & BY_OWNER == 0
    }

    /// Ends a run and its timer.
    #[inline]
    pub(crate) fn finish(&self) -> Freed {
        let word = self.load_relaxed();
        debug_assert!(match Phase::of(word) {
            Phase::Running => true,
            Phase::Stopping => word & PERIODIC != 0,
            _ => false,
        });
        // Release (S2): a thread with the answer `Ended` sees the callback's work. A plain store:
        // no other thread leaves this phase, except that it may make a running periodic timer
        // `Stopping`, which ends here too.
        self.0.store(Phase::idle(word), Ordering::Release);
        if word & QUEUED == 0 { Freed::Now } else { Freed::Queued }
    }

    /// Collects the node's message after the owner has taken it out of the mailbox and read its
    /// link.
    #[inline]
    pub(crate) fn collect(&self) -> Collected {
        // Acquire (S1): the canceller may be another thread than the pusher.
        let word = self.0.load(Ordering::Acquire);
        match Phase::of(word) {
            Phase::Cancelled => {
                // Release (S2): a stale handle may read this word, as in `arm`; only the owner
                // leaves `Cancelled`.
                self.0.store(Phase::idle(word) & !QUEUED, Ordering::Release);
                if word & BY_OWNER == 0 {
                    Collected::Cancelled { has_payload: word & PAYLOAD_TAKEN == 0 }
                } else {
                    Collected::Freed
                }
            }
            // AcqRel, Relaxed: as in `collect_slow`.
            Phase::Armed
                if word & MOVED != 0
                    && self
                        .swap(word, consumed(word), Ordering::AcqRel, Ordering::Relaxed)
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
                Phase::Armed if word & MOVED != 0 => {
                    (consumed(word), Collected::Moved { periodic: word & PERIODIC != 0 })
                }
                Phase::Idle => (word & !QUEUED, Collected::Freed),
                Phase::Cancelled => return self.collect(),
                // The mover, or the thread that has cancelled the timer, pushes again.
                _ => (word & !QUEUED, Collected::Nothing),
            };
            // AcqRel: the swap acquires the requested deadline (S3), and releases the owner's use
            // of the link (S4). Relaxed: a failure is read again.
            if self.swap(word, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return collected;
            }
        }
    }

    /// Ends the timer with its shard. The mailbox is closed already.
    pub(crate) fn sweep(&self) -> Swept {
        loop {
            let word = self.load_relaxed();
            let swept = match Phase::of(word) {
                // The run in progress ends the timer, if it ever returns.
                Phase::Idle | Phase::Running | Phase::Stopping => return Swept::Idle,
                // A move in progress comes too late; a move that has ended counts.
                Phase::Private | Phase::Armed | Phase::Moving => {
                    Swept::HandedBack { moved: word & MOVED != 0 }
                }
                Phase::Cancelled | Phase::Cancelling if word & BY_OWNER != 0 => Swept::Idle,
                Phase::Cancelled | Phase::Cancelling => {
                    Swept::Cancelled { has_payload: word & PAYLOAD_TAKEN == 0 }
                }
            };
            // Acquire: a canceller that could no longer push has released its claim here (S1), and
            // a mover the deadline (S3). Relaxed: a failure is read again.
            if self.swap(word, Phase::idle(word), Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return swept;
            }
        }
    }

    /// Returns whether the owner may still move the timer. If so, discards an earlier remote
    /// deadline.
    #[inline]
    pub(crate) fn movable(&self, generation: u64) -> Movable {
        let plain = generation << GENERATION_SHIFT;
        let word = self.load_relaxed();
        if word == Phase::Armed.set_in(plain) || word == Phase::Private.set_in(plain) {
            return Movable::Fast;
        }
        self.movable_slow(generation)
    }

    #[cold]
    #[inline(never)]
    fn movable_slow(&self, generation: u64) -> Movable {
        loop {
            let word = self.load_relaxed();
            let unlinked = Phase::of(word) == Phase::Moving || word & MOVED != 0;
            let yes = Movable::Slow { periodic: word & PERIODIC != 0, unlinked };
            match Phase::of(word) {
                _ if word >> GENERATION_SHIFT != generation => return Movable::No,
                Phase::Armed | Phase::Private if !unlinked => return yes,
                // Acquire (S3): the other thread's deadline was before this one's. Relaxed: a
                // failure is read again.
                Phase::Armed
                    if self
                        .swap(word, word & !MOVED, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok() =>
                {
                    return yes;
                }
                Phase::Armed => (),
                // The other thread's reset comes after this one.
                Phase::Moving => return yes,
                _ => return Movable::No,
            }
        }
    }

    /// Returns whether another thread has moved the timer and the owner has not linked it there
    /// yet; `None` if the timer is not pending.
    pub(crate) fn is_pending_and_moved(&self, generation: u64) -> Option<bool> {
        // Acquire (S3): the requested deadline.
        let word = self.0.load(Ordering::Acquire);
        let is_pending = word >> GENERATION_SHIFT == generation
            && matches!(Phase::of(word), Phase::Private | Phase::Armed | Phase::Moving);
        is_pending.then_some(word & MOVED != 0)
    }

    /// Returns true if the timer is periodic.
    pub(crate) fn is_periodic(&self) -> bool {
        self.load_relaxed() & PERIODIC != 0
    }

    /// Returns true if the timer is periodic, and no cancel has forbidden further runs.
    pub(crate) fn will_run_again(&self, generation: u64) -> bool {
        let word = self.load_relaxed();
        word >> GENERATION_SHIFT == generation
            && word & PERIODIC != 0
            && matches!(Phase::of(word), Phase::Armed | Phase::Moving | Phase::Running)
    }

    /// Returns the generation of the pending timer of the owner's that the node has, if it has one:
    /// its payload is there until the owner takes it.
    pub(crate) fn pending_own(&self) -> Option<u64> {
        let word = self.load_relaxed();
        let is_pending = matches!(Phase::of(word), Phase::Private | Phase::Armed | Phase::Moving);
        let generation = word >> GENERATION_SHIFT;
        (is_pending && generation & REMOTE_GENERATION == 0).then_some(generation)
    }

    /// Returns the generation of the node's timer, or of its last one.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.load_relaxed() >> GENERATION_SHIFT
    }

    /// Returns true if another thread has cancelled the timer and the owner has not consumed the
    /// message.
    pub(crate) fn is_held(&self) -> bool {
        let word = self.load_relaxed();
        word & BY_OWNER == 0 && matches!(Phase::of(word), Phase::Cancelled | Phase::Cancelling)
    }

    /// Returns true if no timer has the node, and no message of it is queued.
    pub(crate) fn is_free(&self) -> bool {
        self.load_relaxed() & (PHASE_MASK | QUEUED) == 0
    }

    /// Returns true if the payload of a live timer is in its node.
    #[cfg(feature = "origins")]
    pub(crate) fn has_payload(&self) -> bool {
        let word = self.load_relaxed();
        match Phase::of(word) {
            Phase::Private | Phase::Armed | Phase::Moving => true,
            Phase::Cancelled | Phase::Cancelling => word & (BY_OWNER | PAYLOAD_TAKEN) == 0,
            Phase::Idle | Phase::Running | Phase::Stopping => false,
        }
    }

    #[inline]
    pub(super) fn load_relaxed(&self) -> u64 {
        // Relaxed: the owner's own last write, or another thread's write that a swap or the
        // caller's answer confirms.
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the word of a moved timer after the owner has consumed its message.
#[inline]
fn consumed(word: u64) -> u64 {
    word & !(QUEUED | MOVED)
}
