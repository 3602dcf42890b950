//! The operations of any thread on a word: it swaps, and never waits.

use super::{
    BY_OWNER, Cancel, FollowUp, GENERATION_SHIFT, Kind, MOVED, Move, Mover, PAYLOAD_TAKEN,
    PERIODIC, Phase, QUEUED, StateWord, TimerStatus,
};
use crate::{limits::REMOTE_GENERATION, util::sync::Ordering};

impl StateWord {
    /// Arms a new timer in a node that this thread has taken from a free list. The caller must push
    /// the node on the owner's mailbox. The timer is due at the deadline beside the word.
    #[inline]
    pub(crate) fn arm_remote(&self, generation: u64, kind: Kind) {
        debug_assert!(self.is_free());
        let flags = QUEUED | MOVED | if kind == Kind::Periodic { PERIODIC } else { 0 };
        let word = Phase::Armed.set_in((generation << GENERATION_SHIFT) | flags);
        // Release (S3): the deadline beside it, the period, and the payload. (S2): a stale handle
        // may read this word.
        self.0.store(word, Ordering::Release);
    }

    /// Ends a timer that could not be pushed because the mailbox is closed. No other thread has a
    /// handle. Returns false if the owner's last sweep has ended the timer.
    pub(crate) fn disarm_remote(&self) -> bool {
        let word = self.load_relaxed();
        // Release (S2): a stale handle may read this word, as in `arm`. Relaxed: a failure is not
        // read.
        Phase::of(word) == Phase::Armed
            && self
                .swap(word, Phase::idle(word) & !QUEUED, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// Cancels from another thread, if the owner added the timer and no message of it is queued.
    /// If it returns true, the caller must push the node.
    #[inline]
    pub(crate) fn cancel_likely(&self, generation: u64) -> bool {
        // Tries the likely word without a load. A load before the swap would fetch the cache line
        // twice, once to read and once to write.
        let likely = Phase::Armed.set_in(generation << GENERATION_SHIFT);
        let to = Phase::Cancelled.set_in(likely) | QUEUED;
        debug_assert_eq!(generation & REMOTE_GENERATION, 0);
        // AcqRel: as in `cancel`. Relaxed: a failure is not used.
        self.swap(likely, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Cancels from another thread.
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
            // It acquires the link, with which the owner has finished (S4). It acquires the runs of
            // a periodic timer, which may have run again and returned to the same word (S2). If
            // this thread takes the payload, it also acquires the adder's writes. Acquire (S2): the
            // answer may become `Ended`.
            match self.swap(word, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(()) => return (answer, next),
                Err(found) => word = found,
            }
        }
    }

    /// Begins a remote move. If the answer is [`Move::Begun`], the caller has exclusive use of the
    /// deadline beside the word until [`end_move`](Self::end_move).
    #[inline]
    pub(crate) fn begin_move(&self, generation: u64) -> Move {
        let likely = Phase::Armed.set_in(generation << GENERATION_SHIFT);
        // Acquire, both: as in `begin_move_of`.
        let begun =
            self.swap(likely, Phase::Moving.set_in(likely), Ordering::Acquire, Ordering::Acquire);
        begun.map_or_else(|found| self.begin_move_of(found, generation), |()| Move::Begun)
    }

    #[inline(never)]
    fn begin_move_of(&self, mut word: u64, generation: u64) -> Move {
        loop {
            match Phase::of(word) {
                _ if word >> GENERATION_SHIFT != generation => return Move::Refused,
                Phase::Armed => (),
                Phase::Moving => return Move::Superseded,
                _ => return Move::Refused,
            }
            // Acquire (S3): the deadline of an earlier move was written before. A refusal acquires
            // too (S2).
            match self.swap(word, Phase::Moving.set_in(word), Ordering::Acquire, Ordering::Acquire)
            {
                Ok(()) => return Move::Begun,
                Err(found) => word = found,
            }
        }
    }

    /// Ends a move, or a `cancel` whose payload has been taken. Returns false if the shard has
    /// ended since. A remote thread takes the payload, if the timer was cancelled and the payload
    /// may go to another thread.
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
                    if by == Mover::Other
                        && has_send_payload(word)
                        && word & (PAYLOAD_TAKEN | BY_OWNER) == 0 =>
                {
                    word | PAYLOAD_TAKEN
                }
                Phase::Cancelling => Phase::Cancelled.set_in(word) & !MOVED | QUEUED,
                _ => return (false, FollowUp::Nothing),
            };
            // AcqRel: the swap releases the deadline (S3), and this thread's use of the payload,
            // which is over (S1). If it queues the node anew, it acquires the link, with which the
            // owner has finished (S4). If this thread takes the payload, it acquires that too.
            // Relaxed: a failure is read again.
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
        // Relaxed: the answer describes the past, and no other access depends on it; the owner sees
        // its own last write.
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

/// Returns true if another thread has added the timer: its payload may go to any thread.
fn has_send_payload(word: u64) -> bool {
    (word >> GENERATION_SHIFT) & REMOTE_GENERATION != 0
}
