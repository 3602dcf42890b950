//! Sleeping and being woken, without ever missing it.
//!
//! The owner announces its sleep and then looks once more whether something is asked of it; whoever asks something
//! that cannot wait does it first and then looks whether the owner sleeps, and until when. Between the two steps of each
//! stands a sequentially consistent fence, so at least one of them sees the other (Dekker's argument):
//!
//! ```text
//! owner                             asking thread
//! asleep, until ...                 the request is in the mailbox
//! ---- fence (F1) ----              ---- fence (F2) ----
//! is there a request?               asleep, and for too long? then wake
//! ```
//!
//! If F1 comes first in the fences' total order, the asking thread sees the sleeper and wakes it; otherwise the owner
//! sees the request and does not sleep. If it has been awake in between and sleeps again until another moment, its F1 for
//! that comes after F2 if the asking thread saw the sleep before, so again it sees the request.
//!
//! A request may be a deadline beside a node that is in the mailbox already, or on its way there by another thread. Then the
//! one that asks looks as well; and the one that pushes looks at the deadline that stands there after its own F2, so the
//! earliest one that is asked for by then is seen by it or its asker sees the sleeper.
//!
//! The wake itself must be one that a sleep begun later also notices: `unpark`,
//! a write to an eventfd and a `mio::Waker` all are.
//!
//! # Models
//!
//! `loom-tests/tests/sleep.rs`.

use crate::sync::{AtomicU64, Ordering, fence};

/// How many sleeps have been announced, times two; odd while the last one lasts.
#[derive(Debug)]
pub(crate) struct Parker {
    announced: AtomicU64,
    /// Until when the last one lasts at most, in nanoseconds of the clock.
    until: AtomicU64,
}

const ASLEEP: u64 = 1;

/// One announcement: a later one is not ended by the end of this one.
#[derive(Debug)]
pub(crate) struct Announcement(u64);

impl Default for Parker {
    fn default() -> Self {
        Self { announced: AtomicU64::new(0), until: AtomicU64::new(0) }
    }
}

impl Parker {
    /// The owner announces that it is going to sleep, until then at most; afterwards it must look for requests once more.
    pub(crate) fn announce(&self, until: u64) -> Announcement {
        // Relaxed: the announcement publishes it.
        self.until.store(until, Ordering::Relaxed);
        // Relaxed: the owner alone counts, and others only end a sleep.
        let number = (self.announced.load(Ordering::Relaxed) | ASLEEP) + 2;
        // Release: publishes `until` to `must_wake_before`. A swap, so that a waker of an earlier sleep comes before it or
        // not at all.
        self.announced.swap(number, Ordering::Release);
        // SeqCst (F1): the announcement comes before the owner's last look.
        fence(Ordering::SeqCst);
        Announcement(number)
    }

    /// The owner is awake again, unless it has announced another sleep meanwhile.
    pub(crate) fn awake(&self, announcement: &Announcement) {
        let Announcement(number) = *announcement;
        // Relaxed, both: a waker that still sees it asleep wakes it once for nothing; a failure is a wake or a later sleep.
        let _ = self.announced.compare_exchange(number, number & !ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Who was to wake the owner could not: the next one who asks shall try. Afterwards the caller must look for requests of those
    /// who have found it awake meanwhile.
    pub(crate) fn was_not_woken(&self) {
        // Relaxed: an owner that is awake is woken once for nothing.
        self.announced.fetch_or(ASLEEP, Ordering::Relaxed);
        // SeqCst (as F1): that comes before the caller's look.
        fence(Ordering::SeqCst);
    }

    /// Whether a sleep is announced. For the owner.
    pub(crate) fn is_asleep(&self) -> bool {
        // Relaxed: the owner's own announcement, or a waker that has ended it.
        self.announced.load(Ordering::Relaxed) & ASLEEP != 0
    }

    /// For a thread whose request is in place: whether it must wake the owner. One of several is told so.
    pub(crate) fn must_wake(&self) -> bool {
        // SeqCst (F2): the request comes before this look.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence; the swap only picks one waker.
        self.is_asleep() && self.announced.fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0
    }

    /// The same, if the owner sleeps beyond the moment that `deadline` then says.
    pub(crate) fn must_wake_before(&self, deadline: impl FnOnce() -> u64) -> bool {
        // SeqCst (F2): the request comes before this look.
        fence(Ordering::SeqCst);
        // Acquire: `until` is that of this sleep, or of a later one, before which the owner has seen the request.
        if self.announced.load(Ordering::Acquire) & ASLEEP == 0 {
            return false;
        }
        // Relaxed: published by the announcement, which was acquired above.
        if deadline() >= self.until.load(Ordering::Relaxed) {
            return false;
        }
        // Relaxed: as in `must_wake`.
        self.announced.fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_wakes() {
        let parker = Parker::default();
        assert!(!parker.must_wake());
        let announcement = parker.announce(0);
        assert!(parker.is_asleep());
        assert!(parker.must_wake());
        assert!(!parker.must_wake());
        parker.awake(&announcement);
        assert!(!parker.is_asleep());
    }

    #[test]
    fn only_what_is_earlier_wakes() {
        let parker = Parker::default();
        assert!(!parker.must_wake_before(|| 0));
        let _announcement = parker.announce(100);
        assert!(!parker.must_wake_before(|| 101) && !parker.must_wake_before(|| 100));
        assert!(parker.must_wake_before(|| 99));
        assert!(!parker.must_wake_before(|| 98));
    }

    #[test]
    fn the_end_of_a_sleep_does_not_end_a_later_one() {
        let parker = Parker::default();
        let first = parker.announce(7);
        let second = parker.announce(7);
        parker.awake(&first);
        assert!(parker.is_asleep());
        parker.awake(&second);
        assert!(!parker.is_asleep());
        assert!(!parker.must_wake());
    }
}
