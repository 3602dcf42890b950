//! An expired timer, as a loop receives it.

use std::time::{Duration, Instant};

use crate::cross_core::handle::TimerHandle;

/// A timer whose deadline has elapsed; from [`Shard::next_expired`](crate::Shard::next_expired), or
/// from [`Shard::next_expiry`](crate::Shard::next_expiry) as part of an [`Expiry`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Expired<T> {
    /// The handle that the add returned. It is stale now, unless this is a run of a periodic timer.
    pub handle: TimerHandle,
    /// The payload passed to the add, or a reference to it.
    pub payload: T,
    /// The deadline of the timer, rounded up to a tick. If it had elapsed when the timer was added
    /// or moved, this may be later, at most the time of the last turn. A remote request counts from
    /// when the owner consumes it.
    pub deadline: Instant,
    /// How long after that the turn began.
    pub lateness: Duration,
}

impl<P> Expired<P> {
    /// Returns the same expiry with another payload.
    pub(super) fn with<Q>(self, payload: Q) -> Expired<Q> {
        let Self { handle, deadline, lateness, .. } = self;
        Expired { handle, payload, deadline, lateness }
    }
}

/// An expiry of a one-shot or periodic timer; from
/// [`Shard::next_expiry`](crate::Shard::next_expiry).
///
/// A periodic timer is pending for its next run already. So dropping the expiry does nothing, and
/// forgetting it, or a panic while it is there, loses nothing.
///
/// # Examples
///
/// ```
/// use corewheel::{Config, Expiry, ManualClock, Shard};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
/// shard.add_periodic(Duration::from_secs(1), String::from("heartbeat"));
/// shard.add(Duration::from_secs(1), String::from("idle"));
///
/// clock.advance(Duration::from_secs(1));
/// shard.turn();
/// while let Some(expiry) = shard.next_expiry() {
///     match expiry {
///         Expiry::Ended(expired) => assert_eq!(expired.payload, "idle"),
///         Expiry::Periodic(expired) => assert_eq!(expired.payload, "heartbeat"),
///     }
/// }
/// assert_eq!(shard.len(), 1);
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[derive(Debug)]
pub enum Expiry<'shard, T> {
    /// The timer has ended, and its payload is the caller's. It was a one-shot timer, or another
    /// thread cancelled a periodic one while this expiry was being taken: there is no further one.
    Ended(Expired<T>),
    /// The timer is periodic and expires again. Its payload is lent.
    Periodic(Expired<&'shard mut T>),
}

impl<T> Expiry<'_, T> {
    /// Returns the expiry with a reference to the payload, for a loop that treats one-shot and
    /// periodic timers alike.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// shard.add_periodic(Duration::from_millis(1), 0);
    /// shard.add(Duration::ZERO, 100);
    /// # std::thread::sleep(Duration::from_millis(3));
    /// shard.turn();
    /// while let Some(mut expiry) = shard.next_expiry() {
    ///     let expired = expiry.as_mut();
    ///     *expired.payload += 1;
    ///     println!("{} was late by {:?}", expired.payload, expired.lateness);
    /// }
    /// assert_eq!(shard.iter().map(|(.., payload)| *payload).collect::<Vec<_>>(), [1]);
    /// ```
    pub fn as_mut(&mut self) -> Expired<&mut T> {
        match *self {
            Self::Ended(Expired { handle, ref mut payload, deadline, lateness }) => {
                Expired { handle, payload, deadline, lateness }
            }
            Self::Periodic(Expired { handle, ref mut payload, deadline, lateness }) => {
                Expired { handle, payload, deadline, lateness }
            }
        }
    }
}
