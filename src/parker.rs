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
//! A request may be a new deadline of a node whose message another thread has queued, and perhaps not pushed yet. Then both look for
//! a sleeper: the thread that wrote the deadline, with that; and the one that pushes, with the deadline that stands there after its
//! own F2. So each deadline is held against the sleep by a thread that looks when the message can be found.
//!
//! A thread that wakes ends the sleep when its call has returned, and not before: others that ask in between find it announced, and
//! wake as well. So nobody relies on a thread that has been told to wake and does not come to it, or whose hook panics. (But for the two instructions
//! in which it has the lock of the default wake-up, see `hooks`.)
//!
//! The wake itself must be one that a sleep begun later also notices: `unpark`,
//! a write to an eventfd and a `mio::Waker` all are.
//!
//! # Models
//!
//! `loom-tests/tests/sleep.rs`.

use crate::sync::{AtomicU64, Ordering, fence};

/// How many sleeps have been announced, times four; odd while the last one lasts, and whether that is long.
#[derive(Debug)]
pub(crate) struct Parker {
    announced: AtomicU64,
    /// Until when the last one lasts at most, in nanoseconds of the clock.
    until: AtomicU64,
}

const ASLEEP: u64 = 1;
/// No payload may wait for the end of this sleep.
const LONG: u64 = 2;
const ONE: u64 = 4;

/// One announcement: a later one is not ended by the end of this one.
#[derive(Debug)]
pub(crate) struct Announcement(u64);

/// An announced sleep that somebody must end: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Asleep(u64);

impl Default for Parker {
    fn default() -> Self {
        Self { announced: AtomicU64::new(0), until: AtomicU64::new(0) }
    }
}

impl Parker {
    /// The owner announces that it is going to sleep, until then at most; afterwards it must look for requests once more.
    pub(crate) fn announce(&self, until: u64, is_long: bool) -> Announcement {
        // Relaxed: the announcement publishes it.
        self.until.store(until, Ordering::Relaxed);
        // Relaxed: the owner alone counts, and others only end a sleep.
        let before = self.announced.load(Ordering::Relaxed) & !(ASLEEP | LONG);
        let number = before + ONE + ASLEEP + if is_long { LONG } else { 0 };
        // Release: publishes `until` to `must_wake_before`. A swap, so that a waker of an earlier sleep comes before it or
        // not at all.
        self.announced.swap(number, Ordering::Release);
        // SeqCst (F1): the announcement comes before the owner's last look.
        fence(Ordering::SeqCst);
        Announcement(number)
    }

    /// The owner is awake again, unless it has announced another sleep meanwhile.
    pub(crate) fn awake(&self, announcement: &Announcement) {
        self.end(announcement.0);
    }

    /// Whoever was told to wake the owner from that sleep has done so.
    pub(crate) fn was_woken(&self, asleep: Asleep) {
        self.end(asleep.0);
    }

    fn end(&self, number: u64) {
        // Relaxed, both: a waker that still sees it asleep wakes it once for nothing; a failure is a wake or a later sleep.
        let _ = self.announced.compare_exchange(
            number,
            number & !ASLEEP,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// The sleep that is announced. For the owner.
    pub(crate) fn asleep(&self) -> Option<Asleep> {
        // Relaxed: the owner's own announcement, or a waker that has ended it.
        Asleep::of(self.announced.load(Ordering::Relaxed))
    }

    /// For a thread whose request is in place: the sleep from which it must wake the owner.
    pub(crate) fn must_wake(&self) -> Option<Asleep> {
        // SeqCst (F2): the request comes before this look.
        fence(Ordering::SeqCst);
        self.asleep()
    }

    /// The same, if the sleep is long.
    pub(crate) fn must_wake_from_long(&self) -> Option<Asleep> {
        self.must_wake().filter(|asleep| asleep.0 & LONG != 0)
    }

    /// The same, if the owner sleeps beyond the moment that `deadline` then says.
    pub(crate) fn must_wake_before(&self, deadline: impl FnOnce() -> u64) -> Option<Asleep> {
        // SeqCst (F2): the request comes before this look.
        fence(Ordering::SeqCst);
        // Acquire: `until` is that of this sleep, or of a later one, before which the owner has seen the request.
        let asleep = Asleep::of(self.announced.load(Ordering::Acquire))?;
        // Relaxed: published by the announcement, which was acquired above.
        (deadline() < self.until.load(Ordering::Relaxed)).then_some(asleep)
    }
}

impl Asleep {
    fn of(announced: u64) -> Option<Self> {
        (announced & ASLEEP != 0).then_some(Self(announced))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_wakes_until_somebody_has() {
        let parker = Parker::default();
        assert_eq!(parker.must_wake(), None);
        let announcement = parker.announce(0, false);
        let told = parker.must_wake().expect("it sleeps");
        assert_eq!(parker.must_wake(), Some(told), "the first may not have come to it yet");
        parker.was_woken(told);
        assert_eq!((parker.must_wake(), parker.asleep()), (None, None));
        parker.awake(&announcement);
        assert_eq!(parker.asleep(), None);
    }

    #[test]
    fn a_payload_wakes_from_a_long_sleep_only() {
        let parker = Parker::default();
        assert_eq!(parker.must_wake_from_long(), None);
        for is_long in [true, false, true] {
            let announcement = parker.announce(0, is_long);
            assert!(parker.must_wake().is_some());
            assert_eq!(parker.must_wake_from_long().is_some(), is_long);
            parker.awake(&announcement);
            assert_eq!((parker.must_wake_from_long(), parker.asleep()), (None, None));
        }
    }

    #[test]
    fn only_what_is_earlier_wakes() {
        let parker = Parker::default();
        assert_eq!(parker.must_wake_before(|| 0), None);
        let _announcement = parker.announce(100, false);
        assert_eq!([100, 101].map(|deadline| parker.must_wake_before(|| deadline)), [None; 2]);
        let told = parker.must_wake_before(|| 99).expect("it is earlier");
        parker.was_woken(told);
        assert_eq!(parker.must_wake_before(|| 98), None);
    }

    #[test]
    fn the_end_of_a_sleep_does_not_end_a_later_one() {
        let parker = Parker::default();
        let first = parker.announce(7, false);
        let told = parker.must_wake().expect("it sleeps");
        let second = parker.announce(7, false);
        parker.awake(&first);
        parker.was_woken(told);
        assert!(parker.asleep().is_some_and(|asleep| asleep != told));
        parker.awake(&second);
        assert_eq!((parker.asleep(), parker.must_wake()), (None, None));
    }
}
