//! Checks remote adds against a shard's limit of live timers.
//!
//! The *occupied room* is the sum of two numbers:
//!
//! * The owner's last published *live count*: its number of live timers, excluding up to 1,024
//!   cancelled timers with messages in the backlog (`mailbox::backlog`).
//! * The number of remote timers that the owner has not yet admitted. An adder reserves room for
//!   each of them.
//!
//! The admission of a timer does not change the sum: the owner adds one to its record of the
//! published live count, without an atomic operation. A remote add is accepted if the occupied
//! room, minus the number of cancelled timers with a message in the mailbox, at most 1,024, is
//! below the limit.
//!
//! The owner publishes the live count at least in each turn and before each announced sleep. Remote
//! adds may exceed the limit by about the number of timers that the owner has added since its last
//! publication. A shard without a limit publishes no live count and reserves no room.

use crate::{
    limits::INDEX_MAX,
    util::sync::{AtomicU64, Ordering},
};

/// The limit of a shard's live timers, and the occupied room to compare with it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct AdmissionLimit {
    limit: u32,
    occupied_room: AtomicU64,
}

impl AdmissionLimit {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, occupied_room: AtomicU64::new(0) }
    }

    /// Reserves room for a remote timer, until the owner admits the timer or the caller calls
    /// [`release_reservation`](Self::release_reservation). Returns false if there is no room.
    /// `cancelled_in_mailbox` returns the number of cancelled timers in the mailbox, which use no
    /// room. If `ignores_limit` is true, always succeeds: the timer carries an internal message.
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
        // that the loaded sum already excludes.
        let occupied_room = self.occupied_room.fetch_add(1, Ordering::Acquire);
        let limit = u64::from(self.limit);
        let has_room = ignores_limit
            || occupied_room < limit
            || occupied_room.saturating_sub(cancelled_in_mailbox().into()) < limit;
        if !has_room {
            self.release_reservation();
        }
        has_room
    }

    /// Releases the room of a remote timer whose add has failed.
    pub(crate) fn release_reservation(&self) {
        if !self.is_unlimited() {
            // Relaxed: the end of a reservation publishes no other data.
            self.occupied_room.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Replaces the published live count by `live_count`. `published_live_count` is the last
    /// published live count plus the number of remote timers admitted since.
    pub(crate) fn publish_live_count(&self, published_live_count: u64, live_count: u64) {
        if live_count != published_live_count {
            let change = live_count.wrapping_sub(published_live_count);
            // Release: an adder that reads the new sum finds no message in the mailbox that the
            // owner has taken (pairs with `try_reserve_room`).
            self.occupied_room.fetch_add(change, Ordering::Release);
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
        admission.publish_live_count(0, 1);
        assert_eq!([(); 3].map(|()| admission.try_reserve_room(false, || 0)), [true, true, false]);
        admission.release_reservation();
        assert!(admission.try_reserve_room(false, || 0));
        admission.publish_live_count(1, 2);
        admission.release_reservation();
        assert!(!admission.try_reserve_room(false, || 0));
        admission.publish_live_count(2, 1);
        assert!(admission.try_reserve_room(true, || 0));
        assert!(!admission.try_reserve_room(false, || 0), "a reservation beyond the limit counts");
        admission.release_reservation();
        assert!(admission.try_reserve_room(false, || 0));
    }

    #[test]
    fn without_a_limit_no_room_is_reserved() {
        let admission = AdmissionLimit::new(INDEX_MAX);
        assert!((0..100).all(|_| admission.try_reserve_room(false, || 0)));
        // Relaxed: the test has one thread.
        assert_eq!(admission.occupied_room.load(Ordering::Relaxed), 0);
    }
}
