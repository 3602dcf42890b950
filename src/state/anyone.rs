//! What any thread does with a word: it swaps, and never waits.

use super::{
    Cancel, GENERATION_SHIFT, GONE, MOVED, Move, Mover, Next, PERIODIC, Phase, QUEUED, StateWord,
    TAKEN,
};
use crate::{limits::REMOTE_GENERATION, sync::Ordering};

impl StateWord {
    /// A new timer takes a node that this thread has taken from a free list. The caller must push the node on the owner's mailbox;
    /// the timer is due when it has said beside the word.
    pub(crate) fn arm_remote(&self, generation: u64) {
        debug_assert!(self.is_free());
        let word = Phase::Armed.in_place_of((generation << GENERATION_SHIFT) | QUEUED | MOVED);
        // Release (S3): the deadline beside it, and the payload. (S2): as in `arm`.
        self.0.store(word, Ordering::Release);
    }

    /// Ends a timer that could not be pushed because the mailbox is closed. No other thread has a handle. Returns false if the
    /// owner's last sweep has ended the timer.
    pub(crate) fn disarm_remote(&self) -> bool {
        let word = self.own_word();
        // Release (S2): as in `arm`. Relaxed: a failure is not looked at.
        Phase::of(word) == Phase::Armed
            && self
                .swap(word, Phase::idle(word) & !QUEUED, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// Cancels from another thread.
    #[inline]
    pub(crate) fn cancel(&self, generation: u64) -> (Cancel, Next) {
        // The likely word is tried unseen: a look before would fetch the line twice, to read and then to write.
        let mut word = Phase::Armed.in_place_of(generation << GENERATION_SHIFT);
        loop {
            if word >> GENERATION_SHIFT != generation {
                return (Cancel::Ended, Next::Nothing);
            }
            let (to, answer, next) = match Phase::of(word) {
                Phase::Armed if generation & REMOTE_GENERATION != 0 => {
                    (Phase::Withdrawn.in_place_of(word) | GONE, Cancel::Cancelled, Next::Take)
                }
                Phase::Armed => {
                    let to = Phase::Cancelled.in_place_of(word) & !MOVED | QUEUED;
                    (to, Cancel::Cancelled, Next::unless_queued(word))
                }
                Phase::Moving => {
                    (Phase::Withdrawn.in_place_of(word), Cancel::Cancelled, Next::Nothing)
                }
                Phase::Running if word & PERIODIC != 0 => {
                    (Phase::Stopping.in_place_of(word), Cancel::Running, Next::Nothing)
                }
                Phase::Running | Phase::Stopping => return (Cancel::Running, Next::Nothing),
                _ => return (Cancel::Ended, Next::Nothing),
            };
            // AcqRel: Release (S1), what this thread did comes before the owner drops the payload; Acquire (S4), the owner is done with
            // the link, and (S2), a periodic timer may have run before, and come back to the same word since it was looked at; also what
            // the adder wrote, if this thread takes the payload. Acquire (S2): the answer may become `Ended`.
            match self.swap(word, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(()) => return (answer, next),
                Err(found) => word = found,
            }
        }
    }

    /// Begins to move a timer from another thread. If the answer is [`Move::Begun`], the caller has the deadline beside the
    /// word to itself until [`end_move`](Self::end_move).
    pub(crate) fn begin_move(&self, generation: u64) -> Move {
        let mut word = Phase::Armed.in_place_of(generation << GENERATION_SHIFT);
        loop {
            match Phase::of(word) {
                _ if word >> GENERATION_SHIFT != generation => return Move::Refused,
                Phase::Armed => (),
                Phase::Moving => return Move::Overtaken,
                _ => return Move::Refused,
            }
            // Acquire (S3): the deadline of a move before this one was written before. And (S2) for a refusal.
            match self.swap(
                word,
                Phase::Moving.in_place_of(word),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(()) => return Move::Begun,
                Err(found) => word = found,
            }
        }
    }

    /// Ends what `begin_move` began, or a `cancel` whose payload has been taken. False if the shard has ended meanwhile. A thread
    /// that is not the owner takes the payload, if the timer was cancelled and the payload may go to another thread.
    pub(crate) fn end_move(&self, by: Mover) -> (bool, Next) {
        loop {
            // Relaxed: met by the swap.
            let word = self.0.load(Ordering::Relaxed);
            let to = match Phase::of(word) {
                Phase::Moving => Phase::Armed.in_place_of(word) | MOVED | QUEUED,
                Phase::Withdrawn
                    if by == Mover::Other && is_sent(word) && word & (GONE | TAKEN) == 0 =>
                {
                    word | GONE
                }
                Phase::Withdrawn => Phase::Cancelled.in_place_of(word) & !MOVED | QUEUED,
                _ => return (false, Next::Nothing),
            };
            // AcqRel: Release (S3), the deadline, and (S1), this thread is done with the payload; Acquire (S4), the owner is done with
            // the link, if this queues the node anew, and the payload, if this thread takes it. Relaxed: a failure is looked at again.
            if self.swap(word, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let takes = to & GONE != 0 && word & GONE == 0;
                return (true, if takes { Next::Take } else { Next::unless_queued(word) });
            }
        }
    }

    /// Whether the timer waits for its deadline.
    pub(crate) fn is_pending(&self, generation: u64) -> bool {
        // Relaxed: the answer is about the past, and nothing hangs on it; the owner sees its own last word.
        let word = self.0.load(Ordering::Relaxed);
        word >> GENERATION_SHIFT == generation
            && matches!(Phase::of(word), Phase::Armed | Phase::Moving | Phase::Private)
    }

    /// Whether its callback runs.
    pub(crate) fn is_running(&self, generation: u64) -> bool {
        // Acquire (S2): who is told that it is over sees what the callback did.
        let word = self.0.load(Ordering::Acquire);
        word >> GENERATION_SHIFT == generation
            && matches!(Phase::of(word), Phase::Running | Phase::Stopping)
    }
}

/// Returns true if another thread has added the timer: its payload may go to any thread.
fn is_sent(word: u64) -> bool {
    (word >> GENERATION_SHIFT) & REMOTE_GENERATION != 0
}
