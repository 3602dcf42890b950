//! Adding to a shard.

use std::time::Duration;

use super::{Due, Message, Shard};
use crate::{
    cross_core::{handle::TimerHandle, origin::Origin, slab::Ready, state::Kind},
    error::{AddError, AddErrorReason},
    when::When,
};

impl<T> Shard<T> {
    /// Adds a timer that is due after a delay, at an instant, or roughly then; see [`When`]. It
    /// fires in the first turn at or after that moment, rounded up to a tick, and never in a pass
    /// that has begun. A zero delay fires in the next turn; a delay beyond 584 years never fires.
    ///
    /// Cost: constant, one reading of the clock; it allocates when it needs another page of memory,
    /// for 4,096 timers.
    ///
    /// # Panics
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Shard, When};
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add(Duration::from_secs(30), "idle");
    /// shard.add(When::after(Duration::from_secs(1)).spread(Duration::from_secs(4)), "reconnect");
    /// ```
    #[track_caller]
    pub fn add(&mut self, when: impl Into<When>, payload: T) -> TimerHandle {
        AddError::or_panic(self.try_add(when, payload))
    }

    /// Adds a timer, and returns an error where [`add`](Self::add) panics.
    ///
    /// # Errors
    ///
    /// If the shard has been drained, has reached its limit of live timers
    /// ([`Config::limit`](crate::Config::limit), at most 2^25 - 1), or has added 2^56 timers. The
    /// error carries the payload back.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Shard};
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::with_config(Config::new().limit(1))?;
    /// shard.add(Duration::from_secs(30), "first");
    /// let refused = shard.try_add(Duration::from_secs(30), "second").expect_err("it is full");
    /// assert_eq!(refused.into_inner(), "second");
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[track_caller]
    pub fn try_add(
        &mut self,
        when: impl Into<When>,
        payload: T,
    ) -> Result<TimerHandle, AddError<T>> {
        let when = when.into();
        let due = match when.delay() {
            Some(delay) => Due::at(self.due_after(delay)),
            None => self.due_roughly(when),
        };
        self.insert_or_refuse(due, Kind::Shared, payload, Origin::caller())
    }

    /// Adds a timer that expires every `period` until it is cancelled, for the first time one period
    /// from now. [`next_expiry`](Self::next_expiry) lends its payload at each expiry.
    ///
    /// Expiries keep to their schedule: for any tick, the period does not drift. Those that were
    /// missed because the loop came late are skipped. A period shorter than a tick, zero included,
    /// counts as a tick. [`set_period`](Self::set_period) changes the period, and
    /// [`reset`](Self::reset) moves the next expiry.
    ///
    /// Cost: constant, one reading of the clock. It allocates another page of memory for 4,096
    /// timers, and 16 bytes for each place of a page up to its last periodic timer.
    ///
    /// # Panics
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Expiry, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// let heartbeat = shard.add_periodic(Duration::from_secs(1), ["connection 1", "connection 2"]);
    /// clock.advance(Duration::from_secs(1));
    /// shard.turn();
    /// while let Some(Expiry::Periodic(expired)) = shard.next_expiry() {
    ///     for connection in expired.payload {
    ///         println!("ping {connection}");
    ///     }
    /// }
    /// assert_eq!(shard.cancel(heartbeat), Some(["connection 1", "connection 2"]));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[track_caller]
    pub fn add_periodic(&mut self, period: Duration, payload: T) -> TimerHandle {
        AddError::or_panic(self.try_add_periodic(period, payload))
    }

    /// Adds a periodic timer, and returns an error where [`add_periodic`](Self::add_periodic)
    /// panics.
    ///
    /// # Errors
    ///
    /// If the shard is full or has been drained; see [`try_add`](Self::try_add). The error carries
    /// the payload back.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, Shard};
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::with_config(Config::new().limit(0))?;
    /// let refused = shard.try_add_periodic(Duration::from_secs(1), "heartbeat");
    /// assert_eq!(refused.expect_err("it is full").into_inner(), "heartbeat");
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    #[track_caller]
    pub fn try_add_periodic(
        &mut self,
        period: Duration,
        payload: T,
    ) -> Result<TimerHandle, AddError<T>> {
        let due = self.due_every(period);
        self.insert_or_refuse(due, Kind::Periodic, payload, Origin::caller())
    }

    fn insert_or_refuse(
        &mut self,
        due: Due,
        kind: Kind,
        payload: T,
        origin: Origin,
    ) -> Result<TimerHandle, AddError<T>> {
        let mut payload = Some(Ready(payload));
        let added = self.make_room().and_then(|()| self.insert(due, kind, origin, &mut payload));
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
