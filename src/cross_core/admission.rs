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
    util::sync::{AtomicU64, Ordering},
};

#[derive(Debug)]
pub(crate) struct AdmissionLimit {
    limit: u32,
    /// The reserved count in the upper half, and the published live count in the lower half. If an
    /// adder read the two one after the other, it could count a timer twice that the owner admits
    /// between the two readings.
    counts: AtomicU64,
}

const RESERVED_ONE: u64 = 1 << 32;

impl AdmissionLimit {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, counts: AtomicU64::new(0) }
    }

    /// Reserves room for a remote timer until [`release`](Self::release) or
    /// [`publish_admission`](Self::publish_admission). Returns false if there is no room.
    /// `cancelled_in_mailbox` returns the number of cancelled timers to subtract from the sum.
    pub(crate) fn try_reserve(&self, cancelled_in_mailbox: impl FnOnce() -> u32) -> bool {
        if self.is_unlimited() {
            return true;
        }
        // Acquire: pairs with `publish`. If the live count no longer includes cancelled timers that
        // the owner has taken out of the mailbox, `cancelled_in_mailbox` does not return them.
        let before = self.counts.fetch_add(RESERVED_ONE, Ordering::Acquire);
        let occupied = (before >> 32) + (before & (RESERVED_ONE - 1));
        let limit = u64::from(self.limit);
        let has_room =
            occupied < limit || occupied.saturating_sub(cancelled_in_mailbox().into()) < limit;
        if !has_room {
            self.release();
        }
        has_room
    }

    /// Reserves room, even beyond the limit, for a remote timer that carries an internal message,
    /// such as a batch of a purgatory.
    pub(crate) fn reserve_beyond_limit(&self) {
        if !self.is_unlimited() {
            // Relaxed: only the counts matter.
            self.counts.fetch_add(RESERVED_ONE, Ordering::Relaxed);
        }
    }

    /// Releases the reservation of a remote timer that the owner has found cancelled, or whose add
    /// has failed.
    pub(crate) fn release(&self) {
        if !self.is_unlimited() {
            // Relaxed: only the counts matter.
            self.counts.fetch_sub(RESERVED_ONE, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn publish_live_count(&self, live: u32) {
        self.publish(live, 0);
    }

    /// Publishes the live count, which now includes an admitted remote timer, and releases the
    /// reservation of this timer.
    pub(crate) fn publish_admission(&self, live: u32) {
        self.publish(live, RESERVED_ONE);
    }

    fn publish(&self, live: u32, released: u64) {
        // Relaxed: only the owner changes the lower half.
        let published = self.counts.load(Ordering::Relaxed) & (RESERVED_ONE - 1);
        let change = u64::from(live).wrapping_sub(published).wrapping_sub(released);
        if change != 0 {
            // Release: publishes the owner's use of the mailbox to `try_reserve`.
            self.counts.fetch_add(change, Ordering::Release);
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
        assert_eq!(admission.counts.load(Ordering::Relaxed), 0);
    }
}
