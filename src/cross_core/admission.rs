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
    reserved_and_live_counts: AtomicU64,
}

const RESERVATION_UNIT: u64 = 1 << 32;

impl AdmissionLimit {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, reserved_and_live_counts: AtomicU64::new(0) }
    }

    /// Reserves room for a remote timer. [`release_reservation`](Self::release_reservation) or
    /// [`publish_live_count`](Self::publish_live_count) ends the reservation. Returns false if
    /// there is no room. `cancelled_in_mailbox` returns the number of cancelled timers in the
    /// mailbox, which use no room. If `ignores_limit` is true, always succeeds: the timer carries
    /// an internal message.
    #[inline]
    pub(crate) fn try_reserve_room(
        &self,
        ignores_limit: bool,
        cancelled_in_mailbox: impl FnOnce() -> u32,
    ) -> bool {
        if self.is_unlimited() {
            return true;
        }
        // Acquire: pairs with `publish_live_count`, so that `cancelled_in_mailbox` counts no timer
        // that the loaded live count already excludes.
        let counts_before =
            self.reserved_and_live_counts.fetch_add(RESERVATION_UNIT, Ordering::Acquire);
        let occupied_room = (counts_before >> 32) + (counts_before & (RESERVATION_UNIT - 1));
        let limit = u64::from(self.limit);
        let has_room = ignores_limit
            || occupied_room < limit
            || occupied_room.saturating_sub(cancelled_in_mailbox().into()) < limit;
        if !has_room {
            self.release_reservation();
        }
        has_room
    }

    /// Releases the reservation of a remote timer that the owner has found cancelled, or whose add
    /// has failed.
    pub(crate) fn release_reservation(&self) {
        if !self.is_unlimited() {
            // Relaxed: the end of a reservation publishes no other data.
            self.reserved_and_live_counts.fetch_sub(RESERVATION_UNIT, Ordering::Relaxed);
        }
    }

    /// Publishes the live count, and releases the reservations of `admitted_count` remote timers.
    pub(crate) fn publish_live_count(&self, live_count: u32, admitted_count: u32) {
        // Relaxed: only the owner changes the lower half.
        let published_live_count =
            self.reserved_and_live_counts.load(Ordering::Relaxed) & (RESERVATION_UNIT - 1);
        let released_reservations = u64::from(admitted_count) * RESERVATION_UNIT;
        let counts_change = u64::from(live_count)
            .wrapping_sub(published_live_count)
            .wrapping_sub(released_reservations);
        if counts_change != 0 {
            // Release: an adder that reads the new live count finds no message in the mailbox that
            // the owner has taken (pairs with `try_reserve_room`).
            self.reserved_and_live_counts.fetch_add(counts_change, Ordering::Release);
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
        admission.publish_live_count(1, 0);
        assert_eq!([(); 3].map(|()| admission.try_reserve_room(false, || 0)), [true, true, false]);
        admission.release_reservation();
        assert!(admission.try_reserve_room(false, || 0));
        admission.publish_live_count(2, 0);
        admission.release_reservation();
        assert!(!admission.try_reserve_room(false, || 0));
        admission.publish_live_count(1, 0);
        assert!(admission.try_reserve_room(true, || 0));
        assert!(!admission.try_reserve_room(false, || 0), "a reservation beyond the limit counts");
        admission.release_reservation();
        assert!(admission.try_reserve_room(false, || 0));
    }

    #[test]
    fn without_a_limit_no_reservations_are_counted() {
        let admission = AdmissionLimit::new(INDEX_MAX);
        assert!((0..100).all(|_| admission.try_reserve_room(false, || 0)));
        // Relaxed: the test has one thread.
        assert_eq!(admission.reserved_and_live_counts.load(Ordering::Relaxed), 0);
    }
}
