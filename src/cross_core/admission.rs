//! Checks remote adds against a shard's limit of live timers.
//!
//! The owner checks its own adds against its exact count of live timers. A remote add is accepted
//! if this sum is below the limit:
//!
//! * the owner's last published live count, which omits up to 1,024 cancelled timers whose messages
//!   are in the backlog (`mailbox::backlog`),
//! * plus the *reserved count*: the remote timers that the owner has not yet admitted (`slab`),
//! * minus up to 1,024 cancelled timers whose messages are in the mailbox.
//!
//! The owner publishes its count in each turn, at each admission of a remote timer, and when its
//! loop announces a sleep or calls `time_until_next`. From the announcement to the next turn, and
//! before the loop begins, the owner also publishes after each cancel. In a wheel of
//! `Timers::per_worker`, the owner publishes after each add and cancel. Remote adds may exceed the
//! limit by about the number of timers that the owner has added since its last publication. Without
//! a limit, nothing is published and no reservations are counted.

use crate::{
    limits::INDEX_MAX,
    util::sync::{AtomicU32, Ordering},
};

#[derive(Debug)]
pub(crate) struct AdmissionLimit {
    limit: u32,
    published_live_count: AtomicU32,
    reserved_count: AtomicU32,
}

impl AdmissionLimit {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, published_live_count: AtomicU32::new(0), reserved_count: AtomicU32::new(0) }
    }

    /// Reserves room for a remote timer until [`release`](Self::release). Returns false if there is
    /// no room. `cancelled_in_mailbox` returns the number of cancelled timers to subtract from
    /// the sum.
    pub(crate) fn try_reserve(&self, cancelled_in_mailbox: impl FnOnce() -> u32) -> bool {
        if self.is_unlimited() {
            return true;
        }
        // Acquire: pairs with `release`, so that `published_live_count`, read next, includes every
        // admitted timer that `reserved_count` no longer includes.
        let reserved_count = self.reserved_count.fetch_add(1, Ordering::Acquire);
        // Relaxed: the Acquire above orders this load.
        let occupied =
            reserved_count.saturating_add(self.published_live_count.load(Ordering::Relaxed));
        let has_room =
            occupied < self.limit || occupied.saturating_sub(cancelled_in_mailbox()) < self.limit;
        if !has_room {
            self.release();
        }
        has_room
    }

    /// Reserves room, even beyond the limit, for a remote timer that carries an internal message,
    /// such as a batch of a purgatory.
    pub(crate) fn reserve_beyond_limit(&self) {
        if !self.is_unlimited() {
            // Relaxed: only the count matters, and no other data is read with it.
            self.reserved_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Releases the reservation of a remote timer that the owner has admitted or found cancelled,
    /// or whose add has failed.
    pub(crate) fn release(&self) {
        if !self.is_unlimited() {
            // Release: publishes `published_live_count` to `try_reserve`.
            self.reserved_count.fetch_sub(1, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn publish_live_count(&self, live: u32) {
        // Both `Relaxed`: only the owner writes the count. After an admission, the Release in
        // `release` publishes it.
        if self.published_live_count.load(Ordering::Relaxed) != live {
            self.published_live_count.store(live, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is_unlimited(&self) -> bool {
        self.limit >= INDEX_MAX
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_accepted_up_to_the_limit() {
        let admission = AdmissionLimit::new(3);
        admission.publish_live_count(1);
        assert_eq!([(); 3].map(|()| admission.try_reserve(|| 0)), [true, true, false]);
        admission.release();
        assert!(admission.try_reserve(|| 0));
        admission.publish_live_count(2);
        admission.release();
        assert!(!admission.try_reserve(|| 0));
        admission.publish_live_count(1);
        admission.reserve_beyond_limit();
        assert!(!admission.try_reserve(|| 0), "a reservation beyond the limit counts");
        admission.release();
        assert!(admission.try_reserve(|| 0));
    }

    #[test]
    fn without_a_limit_no_reservations_are_counted() {
        let admission = AdmissionLimit::new(INDEX_MAX);
        assert!((0..100).all(|_| admission.try_reserve(|| 0)));
        // Relaxed: one thread.
        assert_eq!(admission.reserved_count.load(Ordering::Relaxed), 0);
    }
}
