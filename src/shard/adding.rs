//! Adding to a shard.

use std::time::{Duration, Instant};

use super::{Message, Shard, steps::Due};
use crate::{
    cross_core::{handle::TimerHandle, origin::Origin, slab::Ready, state::Kind},
    error::{AddError, AddErrorReason},
};

impl<T> Shard<T> {
    /// Adds a timer that is due `delay` from a clock reading taken in this call. It fires in the
    /// first turn at or after that moment, rounded up to a tick, and never in a pass that has
    /// begun. A zero delay fires in the next turn; a delay beyond 584 years never fires.
    ///
    /// Cost: constant, one reading of the clock; it allocates when it needs another page of memory,
    /// for 512 timers.
    ///
    /// # Panics
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add(&mut self, delay: Duration, payload: T) -> TimerHandle {
        AddError::or_panic(self.try_add(delay, payload))
    }

    /// Adds a timer that is due `delay` from now, and returns an error where [`add`](Self::add)
    /// panics.
    ///
    /// # Errors
    ///
    /// If the shard has been drained, has reached its limit of live timers
    /// ([`Config::limit`](crate::Config::limit), at most 2^25 - 1), or has added 2^56 timers. The
    /// error carries the payload back.
    #[track_caller]
    pub fn try_add(&mut self, delay: Duration, payload: T) -> Result<TimerHandle, AddError<T>> {
        let due = Due::at(self.due_after(delay));
        self.insert_or_refuse(due, payload, Origin::caller())
    }

    /// Adds a timer that is due at `instant` of the shard's clock (see [`now`](Self::now)). An
    /// `instant` in the past is due by the next tick. See [`add`](Self::add) for the rest.
    ///
    /// # Panics
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add_at(&mut self, instant: Instant, payload: T) -> TimerHandle {
        AddError::or_panic(self.try_add_at(instant, payload))
    }

    /// Adds a timer that is due at `instant`, and returns an error where [`add_at`](Self::add_at)
    /// panics.
    ///
    /// # Errors
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_at(&mut self, instant: Instant, payload: T) -> Result<TimerHandle, AddError<T>> {
        let due = Due::at(self.clock.nanos_at(instant));
        self.insert_or_refuse(due, payload, Origin::caller())
    }

    /// Adds a timer that may fire at any tick from `delay` to `delay + slack` from now. Timers with
    /// slack share ticks, so that one wake-up of the loop serves many of them; see
    /// [`Wheel::insert_within`](crate::Wheel::insert_within). A reset makes the deadline exact. See
    /// [`add`](Self::add) for the rest.
    ///
    /// # Panics
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add_within(&mut self, delay: Duration, slack: Duration, payload: T) -> TimerHandle {
        AddError::or_panic(self.try_add_within(delay, slack, payload))
    }

    /// Adds a timer with slack, and returns an error where [`add_within`](Self::add_within) panics.
    ///
    /// # Errors
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_within(
        &mut self,
        delay: Duration,
        slack: Duration,
        payload: T,
    ) -> Result<TimerHandle, AddError<T>> {
        let due = Due::within(self.nanos_after(delay), slack);
        self.insert_or_refuse(due, payload, Origin::caller())
    }

    /// Adds a timer that is due between `delay` and `delay + range` from now, each at another
    /// moment: timers that are added together do not fire together. The moments follow a sequence
    /// that fills the range evenly for any number of timers. A reset makes the deadline exact. See
    /// [`add`](Self::add) for the rest.
    ///
    /// # Panics
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn add_spread(&mut self, delay: Duration, range: Duration, payload: T) -> TimerHandle {
        AddError::or_panic(self.try_add_spread(delay, range, payload))
    }

    /// Adds a spread timer, and returns an error where [`add_spread`](Self::add_spread) panics.
    ///
    /// # Errors
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    #[track_caller]
    pub fn try_add_spread(
        &mut self,
        delay: Duration,
        range: Duration,
        payload: T,
    ) -> Result<TimerHandle, AddError<T>> {
        let nanos = self.nanos_spread(delay, range);
        self.insert_or_refuse(Due::at(nanos), payload, Origin::caller())
    }

    fn insert_or_refuse(
        &mut self,
        due: Due,
        payload: T,
        origin: Origin,
    ) -> Result<TimerHandle, AddError<T>> {
        let mut payload = Some(Ready(payload));
        let added =
            self.make_room().and_then(|()| self.insert(due, Kind::Shared, origin, &mut payload));
        added.map_err(|reason| {
            let Ready(payload) = payload.expect("a refused payload stays");
            AddError::new(reason, payload)
        })
    }

    /// Drops timers that other threads have cancelled, until there is room for another timer.
    #[inline]
    fn make_room(&mut self) -> Result<(), AddErrorReason> {
        while let Some(reason) = self.refusal() {
            match self.next_cancelled(|node| Some(node.take_payload())) {
                Some(Message::Cancelled(payload)) => self.shared.hooks.isolate_drop(payload),
                _ => return Err(reason),
            }
        }
        Ok(())
    }
}
