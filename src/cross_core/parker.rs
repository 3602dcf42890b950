//! How a shard's owner sleeps, and how other threads wake it without losing a wake-up.
//!
//! The owner announces its sleep and then checks once more for requests. A requesting thread queues
//! its request and then checks whether the owner sleeps, and until when. Each thread executes a
//! sequentially consistent fence between its two steps. So the owner sees the request, the
//! requesting thread sees the announcement, or both, as in Dekker's algorithm:
//!
//! ```text
//! owner                             requesting thread
//! asleep, until ...                 the request is in the mailbox
//! ---- fence (F1) ----              ---- fence (F2) ----
//! is there a request?               asleep, and for too long? then wake
//! ```
//!
//! If the owner's fence F1 precedes the requesting thread's fence F2 in the total order of fences,
//! the requesting thread sees the announcement. If F2 precedes F1, the owner sees the request and
//! does not sleep. A requesting thread that reads an outdated announcement has executed F2 before
//! the F1 of the next sleep. So the owner sees the request before this next sleep.
//!
//! No wake-up is lost if two threads reset the same timer. Suppose that thread A is about to push a
//! node when thread B writes a new deadline to this node: only A pushes it. After the push and the
//! write, A and B each execute F2, check for a sleeping owner, and read the node's deadline. So the
//! thread that executes F2 last reads B's deadline, and checks for a sleeping owner after A's push.
//!
//! A waking thread clears the announcement only after its call of the wake hook has returned. While
//! the hook runs, other requesting threads still find the announcement, and wake the owner too. So
//! no requesting thread relies on another thread's wake-up, because that thread may stall or its
//! hook may panic. This rule has two exceptions:
//!
//! - A waking thread holds a lock in `hooks` while it copies the owner's thread handle or the
//!   driver task's waker. A second waking thread does not wait for this lock, and relies on the
//!   lock's holder.
//! - If several queued cancels leave payloads to the owner, only the first ends the owner's sleep
//!   (`mailbox`). The later cancellers rely on the first canceller's wake-up.
//!
//! A call of the wake hook between the announcement and the sleep must end the sleep at once, like
//! `unpark` or an eventfd write.
//!
//! If there is a wake hook, the owner's first call of `PreparedSleep::park` sets the flag
//! `OWNER_HAS_PARKED`, and returns at once. The first `park` must not block: the current
//! announcement lacks the flag, so a wake-up would call only the hook, without an unpark. In later
//! announcements, `OWNER_HAS_PARKED` tells a waking thread to unpark the owner too.
//!
//! # Models
//!
//! `loom-tests/tests/sleep.rs`.

use crate::util::sync::{AtomicU64, Ordering, UnmodelledU64, fence, fence_after_rmw};

/// The owner's latest announced sleep.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Parker {
    /// The number of the latest sleep, times 16, plus four flags.
    sleep_word: AtomicU64,
    /// The time at which the most recently announced sleep ends at the latest, in nanoseconds of
    /// the clock.
    sleep_end_nanos: AtomicU64,
    /// The time of the latest wake-up that only unparked the owner, in nanoseconds of the clock.
    pub(crate) unparked_at_nanos: UnmodelledU64,
}

/// Set while the most recently announced sleep is in progress.
const ASLEEP: u64 = 1;
/// Set if a remote cancel that leaves a payload to the owner must wake the owner, because the sleep
/// may outlast `Config::drop_cancelled_within`.
const ENDS_ON_CANCEL: u64 = 2;
/// Set while no loop drives the owner's wheel. While set, the owner counts as asleep for ever, and
/// other threads publish their requested deadlines instead of waking the owner.
const UNDRIVEN: u64 = 4;
/// Set when an owner with a wake hook first parks, and never cleared. Each later wake-up also
/// unparks the owner.
const OWNER_HAS_PARKED: u64 = 8;
const SLEEP_NUMBER_STEP: u64 = 16;

/// Identifies one announced sleep. Ending this sleep does not affect a later sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct SleepId(u64);

impl Parker {
    /// Announces a sleep that ends at `sleep_end` at the latest. After `announce_sleep`, the owner
    /// must check for requests once more.
    pub(crate) fn announce_sleep(&self, sleep_end: u64, ends_on_cancel: bool) -> SleepId {
        self.begin_sleep(sleep_end, if ends_on_cancel { ENDS_ON_CANCEL } else { 0 })
    }

    /// Records that no loop drives the owner's wheel. The owner must check for requests after this
    /// call, because a requesting thread that does not see `UNDRIVEN` publishes no deadline. Only
    /// the owner calls this.
    pub(crate) fn set_undriven(&self) {
        let _ = self.begin_sleep(u64::MAX, UNDRIVEN);
    }

    #[inline]
    fn begin_sleep(&self, sleep_end: u64, flag: u64) -> SleepId {
        // Relaxed: the swap below publishes `sleep_end_nanos`.
        self.sleep_end_nanos.store(sleep_end, Ordering::Relaxed);
        // Relaxed: only the owner changes the number of the sleep. Other threads only clear
        // `ASLEEP`.
        let kept_bits =
            self.sleep_word.load(Ordering::Relaxed) & !(ASLEEP | ENDS_ON_CANCEL | UNDRIVEN);
        let announcement = kept_bits + SLEEP_NUMBER_STEP + ASLEEP + flag;
        // Release: publishes `sleep_end_nanos` to `sleeps_past`. A waking thread that ends an
        // earlier sleep cannot clear this announcement, because its compare-and-swap expects the
        // earlier word.
        self.sleep_word.swap(announcement, Ordering::Release);
        // SeqCst (F1): the announcement comes before the owner's check for requests.
        fence(Ordering::SeqCst);
        SleepId(announcement)
    }

    /// Records that a loop drives the owner's wheel. Only the owner calls this.
    pub(crate) fn set_driven(&self) {
        // Both `Relaxed`: if a requesting thread still reads `UNDRIVEN`, its fence F2 comes before
        // the fence F1 of the owner's next announcement. So the owner sees that thread's request
        // before its next sleep.
        let previous_word = self.sleep_word.load(Ordering::Relaxed);
        if previous_word & UNDRIVEN != 0 {
            self.sleep_word.store(previous_word & !(ASLEEP | UNDRIVEN), Ordering::Relaxed);
        }
    }

    /// Sets [`OWNER_HAS_PARKED`], so that each wake-up from a later sleep unparks the owner. Only
    /// the owner calls this. The [`SleepId`] of an announced sleep no longer matches, so
    /// `clear_announcement` does nothing, which at worst causes spurious wake-ups.
    pub(crate) fn set_owner_has_parked(&self) {
        // Relaxed: the next announcement publishes the flag.
        self.sleep_word.fetch_or(OWNER_HAS_PARKED, Ordering::Relaxed);
    }

    pub(crate) fn owner_has_parked(&self) -> bool {
        // Relaxed: the owner calls this, and only the owner sets the flag.
        self.sleep_word.load(Ordering::Relaxed) & OWNER_HAS_PARKED != 0
    }

    pub(crate) fn is_undriven(&self) -> bool {
        // Relaxed: a report of an overdue timer may come a little early or late, or advise for
        // another kind of wheel.
        self.sleep_word.load(Ordering::Relaxed) & UNDRIVEN != 0
    }

    /// Returns false if no loop drives the owner's wheel, or if the owner has never called
    /// `announce_sleep` or `set_undriven`.
    pub(crate) fn loop_announces_sleeps(&self) -> bool {
        // Relaxed: a report of waiting requests may come a little early or late.
        let sleep_word = self.sleep_word.load(Ordering::Relaxed);
        sleep_word >= SLEEP_NUMBER_STEP && sleep_word & UNDRIVEN == 0
    }

    /// Marks a sleep as ended. Returns false if it has already ended, or the owner has announced a
    /// later one. The caller is the owner, or has woken the owner.
    pub(crate) fn clear_announcement(&self, SleepId(announcement): SleepId) -> bool {
        // Relaxed: a thread that still reads `ASLEEP` only causes a spurious wake-up. Release: `wake`
        // has stored `unparked_at_nanos`, which `unparked_at` reads.
        let cleared = self.sleep_word.compare_exchange(
            announcement,
            announcement & !ASLEEP,
            Ordering::Release,
            Ordering::Relaxed,
        );
        cleared.is_ok()
    }

    /// If another thread has ended this sleep, and the owner has announced no later sleep, returns
    /// the time of the wake-up.
    pub(crate) fn unparked_at(&self, SleepId(announcement): SleepId) -> Option<u64> {
        // Acquire: sees the time that the thread stored before it cleared the announcement.
        let is_latest = self.sleep_word.load(Ordering::Acquire) == announcement & !ASLEEP;
        // Relaxed: the load above has acquired the time.
        is_latest.then(|| self.unparked_at_nanos.load(Ordering::Relaxed))
    }

    /// Returns the owner's sleep in progress, if any. The caller must have executed the fence F2,
    /// or own the wheel.
    pub(crate) fn sleep_in_progress(&self) -> Option<SleepId> {
        // Relaxed: the owner sees its own announcement. In a requesting thread, F2 orders this load
        // after the request.
        SleepId::from_sleep_word(self.sleep_word.load(Ordering::Relaxed))
    }

    /// Executes the fence F2, and returns the owner's sleep in progress, if any. The caller must
    /// have queued a request, and must wake the owner from the returned sleep.
    pub(crate) fn sleep_in_progress_with_fence(&self) -> Option<SleepId> {
        // SeqCst (F2): the caller's request comes before the check for a sleep.
        fence(Ordering::SeqCst);
        self.sleep_in_progress()
    }

    /// Returns the owner's sleep in progress, if any. The caller has requested a deadline, and must
    /// wake an owner that [sleeps past](Self::sleeps_past) the deadline.
    ///
    /// The caller's last atomic operation must be the read-modify-write that made the request: on
    /// x86, this operation serves as the fence F2. A request that failed because the shard has
    /// ended needs no fence and no wake-up.
    #[inline]
    pub(crate) fn sleep_in_progress_after_rmw(&self) -> Option<SleepId> {
        // SeqCst (F2): the caller's request comes before the check for a sleep.
        fence_after_rmw(Ordering::SeqCst);
        // Acquire: makes `sleeps_past` read the end of the loaded sleep or of a later sleep. The
        // end of a later sleep is harmless: the owner sees the request before that sleep begins.
        SleepId::from_sleep_word(self.sleep_word.load(Ordering::Acquire))
    }

    /// Returns true if the announced sleep may last beyond `deadline`. The caller must have called
    /// [`sleep_in_progress_after_rmw`](Self::sleep_in_progress_after_rmw) before.
    pub(crate) fn sleeps_past(&self, deadline: u64) -> bool {
        // Relaxed: the Acquire load in `sleep_in_progress_after_rmw` has made `sleep_end_nanos`
        // visible.
        deadline < self.sleep_end_nanos.load(Ordering::Relaxed)
    }
}

impl SleepId {
    /// Returns true if no loop drives the owner's wheel.
    pub(crate) fn is_undriven(self) -> bool {
        self.0 & UNDRIVEN != 0
    }

    /// Returns true if a wake-up from this sleep must unpark the owner despite a wake hook.
    pub(crate) fn owner_has_parked(self) -> bool {
        self.0 & OWNER_HAS_PARKED != 0
    }

    /// Returns true if a remote cancel that leaves a payload to the owner must end the sleep.
    pub(crate) fn ends_on_cancel(self) -> bool {
        self.0 & ENDS_ON_CANCEL != 0
    }

    fn from_sleep_word(sleep_word: u64) -> Option<Self> {
        (sleep_word & ASLEEP != 0).then_some(Self(sleep_word))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sleep_that_ends_on_cancel(parker: &Parker) -> Option<SleepId> {
        parker.sleep_in_progress_with_fence().filter(|sleep| sleep.ends_on_cancel())
    }

    /// Returns the sleep in progress if it ends after `deadline`.
    fn sleep_past(parker: &Parker, deadline: u64) -> Option<SleepId> {
        parker.sleep_in_progress_after_rmw().filter(|_| parker.sleeps_past(deadline))
    }

    #[test]
    fn every_requester_wakes_until_one_wake_up_has_ended() {
        let parker = Parker::default();
        assert_eq!(parker.sleep_in_progress_with_fence(), None);
        let announcement = parker.announce_sleep(0, false);
        let woken = parker.sleep_in_progress_with_fence().expect("it sleeps");
        assert_eq!(
            parker.sleep_in_progress_with_fence(),
            Some(woken),
            "the first wake-up may be unfinished"
        );
        parker.clear_announcement(woken);
        assert_eq!(
            (parker.sleep_in_progress_with_fence(), parker.sleep_in_progress()),
            (None, None)
        );
        parker.clear_announcement(announcement);
        assert_eq!(parker.sleep_in_progress(), None);
    }

    #[test]
    fn a_cancel_interrupts_only_a_sleep_that_ends_on_cancel() {
        let parker = Parker::default();
        assert_eq!(sleep_that_ends_on_cancel(&parker), None);
        for ends_on_cancel in [true, false, true] {
            let announcement = parker.announce_sleep(0, ends_on_cancel);
            assert!(parker.sleep_in_progress_with_fence().is_some());
            assert_eq!(sleep_that_ends_on_cancel(&parker).is_some(), ends_on_cancel);
            parker.clear_announcement(announcement);
            assert_eq!(
                (sleep_that_ends_on_cancel(&parker), parker.sleep_in_progress()),
                (None, None)
            );
        }
    }

    #[test]
    fn only_an_earlier_deadline_wakes_the_owner() {
        let parker = Parker::default();
        assert_eq!(sleep_past(&parker, 0), None);
        let _announcement = parker.announce_sleep(100, false);
        assert_eq!([100, 101].map(|deadline| sleep_past(&parker, deadline)), [None; 2]);
        let woken = sleep_past(&parker, 99).expect("the deadline is earlier");
        parker.clear_announcement(woken);
        assert_eq!(sleep_past(&parker, 98), None);
    }

    #[test]
    fn an_undriven_owner_counts_as_asleep_forever() {
        let parker = Parker::default();
        assert!(!parker.is_undriven());
        parker.set_undriven();
        let sleep = sleep_past(&parker, u64::MAX - 1).expect("the sleep has no end");
        assert!(sleep.is_undriven() && parker.is_undriven());
        assert_eq!(sleep_that_ends_on_cancel(&parker), None);
        parker.set_driven();
        assert_eq!((parker.sleep_in_progress_with_fence(), parker.is_undriven()), (None, false));
        parker.set_undriven();
        let announcement = parker.announce_sleep(100, false);
        assert!(!parker.is_undriven() && sleep_past(&parker, 100).is_none());
        parker.set_undriven();
        parker.clear_announcement(announcement);
        assert!(parker.is_undriven(), "only an earlier sleep has ended");
    }

    #[test]
    fn later_sleeps_of_an_owner_that_has_parked_say_so() {
        let parker = Parker::default();
        let before = parker.announce_sleep(7, false);
        parker.clear_announcement(before);
        parker.set_owner_has_parked();
        let after = parker.announce_sleep(7, true);
        assert_eq!([before, after].map(SleepId::owner_has_parked), [false, true]);
        assert_eq!(parker.sleep_in_progress(), Some(after));
        parker.clear_announcement(after);
        assert_eq!((parker.sleep_in_progress(), parker.owner_has_parked()), (None, true));
    }

    #[test]
    fn the_end_of_a_sleep_does_not_end_a_later_one() {
        let parker = Parker::default();
        let first = parker.announce_sleep(7, false);
        let second = parker.announce_sleep(7, false);
        parker.clear_announcement(first);
        assert_eq!(parker.sleep_in_progress(), Some(second));
        parker.clear_announcement(second);
        assert_eq!(
            (parker.sleep_in_progress(), parker.sleep_in_progress_with_fence()),
            (None, None)
        );
    }
}
