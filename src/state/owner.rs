//! What the owner does with a word. It writes plainly where nobody else may write, and swaps elsewhere.

use super::{
    Cancel, Claim, Collected, Freed, GENERATION_SHIFT, GONE, Kind, MOVED, Movable, PERIODIC,
    PHASE_MASK, Phase, QUEUED, StateWord, Swept, TAKEN,
};
use crate::sync::Ordering;

impl StateWord {
    /// A new timer takes the node.
    #[inline]
    pub(crate) fn arm(&self, generation: u64, kind: Kind) {
        let (phase, periodic) = match kind {
            Kind::Private => (Phase::Private, 0),
            Kind::Shared => (Phase::Armed, 0),
            Kind::Periodic => (Phase::Armed, PERIODIC),
        };
        debug_assert!(self.is_free());
        // Release (S2): a stale handle of the node's timer before may read this word instead of the `Idle` that `finish` left.
        self.0.store(
            phase.in_place_of((generation << GENERATION_SHIFT) | periodic),
            Ordering::Release,
        );
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
            // looked at again.
            Phase::Armed
                if word & MOVED == 0
                    && self.swap(word, running, Ordering::Relaxed, Ordering::Relaxed).is_ok() =>
            {
                Claim::Fires
            }
            _ => self.claim_otherwise(),
        }
    }

    #[cold]
    fn claim_otherwise(&self) -> Claim {
        loop {
            let word = self.own_word();
            let (to, claim) = match Phase::of(word) {
                Phase::Armed if word & MOVED != 0 => {
                    (word & !MOVED, Claim::Moved { periodic: word & PERIODIC != 0 })
                }
                Phase::Armed => (Phase::Running.in_place_of(word), Claim::Fires),
                _ => return Claim::Held,
            };
            // Acquire (S3): the deadline that was asked for. Relaxed: a failure is looked at again.
            if self.swap(word, to, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return claim;
            }
        }
    }

    /// Cancels on the owner. If that is won, the payload can be taken at once; the error is why it was not.
    #[inline]
    pub(crate) fn cancel_own(&self, generation: u64) -> Result<Freed, Cancel> {
        let word = self.own_word();
        let likely = Phase::Armed.in_place_of(generation << GENERATION_SHIFT);
        if word == likely {
            // Relaxed, both: as in `claim`; a failure is looked at again.
            match self.swap(word, Phase::idle(word), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(()) => return Ok(Freed::Now),
                Err(_) => return self.cancel_otherwise(generation),
            }
        }
        if word == Phase::Private.in_place_of(likely) {
            // Release (S2): as in `arm`; nobody else writes the word of a private timer.
            self.0.store(Phase::idle(word), Ordering::Release);
            return Ok(Freed::Now);
        }
        self.cancel_otherwise(generation)
    }

    #[cold]
    #[inline(never)]
    fn cancel_otherwise(&self, generation: u64) -> Result<Freed, Cancel> {
        loop {
            let word = self.own_word();
            if word >> GENERATION_SHIFT != generation {
                return Err(Cancel::Ended);
            }
            let (to, answer) = match Phase::of(word) {
                Phase::Armed if word & QUEUED != 0 => (Phase::idle(word), Ok(Freed::Queued)),
                Phase::Armed => (Phase::idle(word), Ok(Freed::Now)),
                Phase::Moving => (Phase::Withdrawn.in_place_of(word) | TAKEN, Ok(Freed::Queued)),
                Phase::Running if word & PERIODIC != 0 => {
                    (Phase::Stopping.in_place_of(word) | TAKEN, Err(Cancel::Running))
                }
                Phase::Running | Phase::Stopping => return Err(Cancel::Running),
                Phase::Idle | Phase::Private | Phase::Cancelled | Phase::Withdrawn => {
                    return Err(Cancel::Ended);
                }
            };
            // Relaxed, both: as in `claim`; the owner itself reads `Stopping` in `rearm`.
            if self.swap(word, to, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return answer;
            }
        }
    }

    /// A periodic timer goes on after a run; false if a cancel has forbidden it.
    pub(crate) fn rearm(&self) -> bool {
        // Acquire (S1): who forbade further runs did so before the payload is dropped.
        let word = self.0.load(Ordering::Acquire);
        let armed = Phase::Armed.in_place_of(word);
        // Release (S2): who cancels or asks from now on sees what the run did. Acquire (S1): as above.
        debug_assert!(word & PERIODIC != 0);
        Phase::of(word) == Phase::Running
            && self.swap(word, armed, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// Whether it was another thread that has forbidden further runs.
    pub(crate) fn was_stopped_elsewhere(&self) -> bool {
        self.own_word() & TAKEN == 0
    }

    /// The run is over and the timer with it.
    #[inline]
    pub(crate) fn finish(&self) -> Freed {
        let word = self.own_word();
        let periodic = word & PERIODIC != 0;
        debug_assert_eq!(Phase::of(word), if periodic { Phase::Stopping } else { Phase::Running });
        // Release (S2): who is told `Ended` sees what the callback did. A plain store: nobody else leaves this phase.
        self.0.store(Phase::idle(word), Ordering::Release);
        if word & QUEUED == 0 { Freed::Now } else { Freed::Queued }
    }

    /// The owner has taken the node's message out of the mailbox, and read its link.
    #[inline]
    pub(crate) fn collect(&self) -> Collected {
        // Acquire (S1): who cancelled need not be who pushed.
        let word = self.0.load(Ordering::Acquire);
        if Phase::of(word) == Phase::Cancelled {
            // Release (S2): as in `arm`; only the owner leaves `Cancelled`.
            self.0.store(Phase::idle(word) & !QUEUED, Ordering::Release);
            return if word & TAKEN == 0 {
                Collected::Cancelled { has_payload: word & GONE == 0 }
            } else {
                Collected::Freed
            };
        }
        self.collect_otherwise()
    }

    #[cold]
    fn collect_otherwise(&self) -> Collected {
        loop {
            let word = self.own_word();
            let periodic = word & PERIODIC != 0;
            let (to, collected) = match Phase::of(word) {
                Phase::Armed if word & MOVED != 0 => {
                    (word & !(QUEUED | MOVED), Collected::Moved { periodic })
                }
                Phase::Idle => (word & !QUEUED, Collected::Freed),
                Phase::Cancelled => return self.collect(),
                // Who is moving it, or has withdrawn it for who does, pushes again.
                _ => (word & !QUEUED, Collected::Nothing),
            };
            // AcqRel: Acquire (S3), the deadline that was asked for; Release (S4), what was done to the link. Relaxed: a failure is looked at
            // again.
            if self.swap(word, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return collected;
            }
        }
    }

    /// The shard ends, and so does the timer. The mailbox is closed already.
    pub(crate) fn sweep(&self) -> Swept {
        loop {
            let word = self.own_word();
            let swept = match Phase::of(word) {
                // A run in progress finishes by itself, if at all.
                Phase::Idle | Phase::Running | Phase::Stopping => return Swept::Idle,
                // A move that is under way comes too late; one that was done before it counts.
                Phase::Private | Phase::Armed | Phase::Moving => {
                    Swept::HandedBack { moved: word & MOVED != 0 }
                }
                Phase::Cancelled | Phase::Withdrawn if word & TAKEN != 0 => Swept::Idle,
                Phase::Cancelled | Phase::Withdrawn => {
                    Swept::Cancelled { has_payload: word & GONE == 0 }
                }
            };
            // Acquire: a canceller that could not push any more has released its claim here (S1), and who has moved the timer the
            // deadline (S3). Relaxed: a failure is looked at again.
            if self.swap(word, Phase::idle(word), Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return swept;
            }
        }
    }

    /// Whether the owner may still move the timer. If so, what another thread had asked for before is over.
    #[inline]
    pub(crate) fn movable(&self, generation: u64) -> Movable {
        let plain = generation << GENERATION_SHIFT;
        let word = self.own_word();
        if word == Phase::Armed.in_place_of(plain) || word == Phase::Private.in_place_of(plain) {
            return Movable::Plainly;
        }
        self.movable_otherwise(generation)
    }

    #[cold]
    #[inline(never)]
    fn movable_otherwise(&self, generation: u64) -> Movable {
        loop {
            let word = self.own_word();
            let astray = Phase::of(word) == Phase::Moving || word & MOVED != 0;
            let yes = Movable::Otherwise { periodic: word & PERIODIC != 0, astray };
            match Phase::of(word) {
                _ if word >> GENERATION_SHIFT != generation => return Movable::No,
                Phase::Armed | Phase::Private if !astray => return yes,
                // Acquire (S3): the other thread's deadline was before this one's. Relaxed: a failure is looked at again.
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

    /// Whether another thread has cancelled it and the owner has not met that.
    pub(crate) fn is_held(&self) -> bool {
        let word = self.own_word();
        word & TAKEN == 0 && matches!(Phase::of(word), Phase::Cancelled | Phase::Withdrawn)
    }

    /// Whether no timer has the node, and no message of it is to come.
    pub(crate) fn is_free(&self) -> bool {
        self.own_word() & (PHASE_MASK | QUEUED) == 0
    }

    /// Whether the payload of a timer that has not ended is in its node.
    #[cfg(feature = "origins")]
    pub(crate) fn has_payload(&self) -> bool {
        let word = self.own_word();
        match Phase::of(word) {
            Phase::Private | Phase::Armed | Phase::Moving => true,
            Phase::Cancelled | Phase::Withdrawn => word & (TAKEN | GONE) == 0,
            Phase::Idle | Phase::Running | Phase::Stopping => false,
        }
    }

    pub(super) fn own_word(&self) -> u64 {
        // Relaxed: the owner's own last write, or another thread's that is met by a swap or by what its reader says.
        self.0.load(Ordering::Relaxed)
    }
}
