//! Checks remote adds against a shard's limit of live timers.
//!
//! A remote add is accepted if this sum is below the limit:
//!
//! * The owner's last published *live count*: its number of live timers, excluding up to 1,024
//!   cancelled timers with messages in the backlog (`mailbox::backlog`).
//! * Plus the *reserved count*: the number of remote timers that the owner has not yet admitted.
//! * Minus the number of cancelled timers with a message in the mailbox, at most 1,024.
//!
//! The owner publishes the live count at least in each turn and before each announced sleep. Remote
//! adds may exceed the limit by about the number of timers that the owner has added since its last
//! publication. A shard without a limit publishes no live count and counts no reservations.

use crate::{
    limits::INDEX_MAX,
    util::sync::{AtomicU64, Ordering},
};

/// The limit of a shard's live timers, and the counts to compare with it.
#[derive(Debug)]
pub(crate) struct AdmissionLimit {
    limit: u32,
    /// Packs the reserved count into the upper half, and the published live count into the lower
    /// half. An adder must load both counts at once, so that no admitted timer counts twice.
    counts: AtomicU64,
}

const RESERVATION_UNIT: u64 = 1 << 32;

impl AdmissionLimit {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, counts: AtomicU64::new(0) }
    }

    /// Reserves room for a remote timer. [`release`](Self::release) or [`publish`](Self::publish)
    /// ends the reservation. Returns false if there is no room. `cancelled_in_mailbox` returns the
    /// number of cancelled timers in the mailbox, which use no room. If `beyond_limit` is true,
    /// always succeeds: the timer carries an internal message.
    #[inline]
    pub(crate) fn try_reserve(
        &self,
        beyond_limit: bool,
        cancelled_in_mailbox: impl FnOnce() -> u32,
    ) -> bool {
        if self.is_unlimited() {
            return true;
        }
        // Acquire: pairs with `publish`, so that `cancelled_in_mailbox` counts no timer that the
        // loaded live count already excludes.
        let before = self.counts.fetch_add(RESERVATION_UNIT, Ordering::Acquire);
        let occupied_room = (before >> 32) + (before & (RESERVATION_UNIT - 1));
        let limit = u64::from(self.limit);
        let has_room = beyond_limit
            || occupied_room < limit
            || occupied_room.saturating_sub(cancelled_in_mailbox().into()) < limit;
        if !has_room {
            self.release();
        }
        has_room
    }

    /// Releases the reservation of a remote timer that the owner has found cancelled, or whose add
    /// has failed.
    pub(crate) fn release(&self) {
        if !self.is_unlimited() {
            // Relaxed: the end of a reservation publishes no other data.
            self.counts.fetch_sub(RESERVATION_UNIT, Ordering::Relaxed);
        }
    }

    /// Publishes the live count, and releases the reservations of `admitted` remote timers.
    pub(crate) fn publish(&self, live: u32, admitted: u32) {
        // Relaxed: only the owner changes the lower half.
        let published = self.counts.load(Ordering::Relaxed) & (RESERVATION_UNIT - 1);
        let released = u64::from(admitted) * RESERVATION_UNIT;
        let change = u64::from(live).wrapping_sub(published).wrapping_sub(released);
        if change != 0 {
            // Release: an adder that reads the new live count finds no message in the mailbox that
            // the owner has taken (pairs with `try_reserve`).
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
        admission.publish(1, 0);
        assert_eq!([(); 3].map(|()| admission.try_reserve(false, || 0)), [true, true, false]);
        admission.release();
        assert!(admission.try_reserve(false, || 0));
        admission.publish(2, 0);
        admission.release();
        assert!(!admission.try_reserve(false, || 0));
        admission.publish(1, 0);
        assert!(admission.try_reserve(true, || 0));
        assert!(!admission.try_reserve(false, || 0), "a reservation beyond the limit counts");
        admission.release();
        assert!(admission.try_reserve(false, || 0));
    }

    #[test]
    fn without_a_limit_no_reservations_are_counted() {
        let admission = AdmissionLimit::new(INDEX_MAX);
        assert!((0..100).all(|_| admission.try_reserve(false, || 0)));
        // Relaxed: the test has one thread.
        assert_eq!(admission.counts.load(Ordering::Relaxed), 0);
    }
}
