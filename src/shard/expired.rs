//! Expired timers, as `Shard` returns them.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::cross_core::handle::TimerHandle;

/// A timer that has expired, from [`Shard::next_expired`](crate::Shard::next_expired) or
/// [`Shard::next_expiry`](crate::Shard::next_expiry).
///
/// # Examples
///
/// ```
/// use corewheel::{Config, ManualClock, Shard};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
/// let idle = shard.add(Duration::from_secs(30), "connection 17");
/// clock.advance(Duration::from_secs(31));
/// shard.turn();
/// let expired = shard.next_expired().expect("it is due");
/// assert_eq!((expired.handle, expired.payload), (idle, "connection 17"));
/// assert_eq!(expired.lateness(), Duration::from_secs(1));
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Expired<T> {
    /// The handle that the add returned. The handle is stale, unless the timer is periodic and
    /// continues.
    pub handle: TimerHandle,
    /// The payload passed to the add, or a reference to it.
    pub payload: T,
    pub(super) expiry_times: ExpiryTimes,
}

/// The deadline of a timer, and the beginning of the turn in which it expired, in nanoseconds after
/// `clock_origin`.
#[derive(Clone, Copy)]
pub(super) struct ExpiryTimes {
    /// The instant at which the shard's clock shows zero.
    pub(super) clock_origin: Instant,
    pub(super) due: u64,
    pub(super) turn_start: u64,
}

impl<P> Expired<P> {
    /// Returns the deadline of the timer, rounded up to a tick. For a timer with
    /// [slack](crate::When::slack), returns the tick that the shard chose within the slack.
    ///
    /// If the owner processed the add or reset after the deadline, the result may be later than the
    /// deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// let start = shard.now();
    /// shard.add(Duration::from_secs(30), "idle");
    /// clock.advance(Duration::from_secs(31));
    /// shard.turn();
    /// let expired = shard.next_expired().expect("it is due");
    /// assert_eq!(expired.deadline(), start + Duration::from_secs(30));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn deadline(&self) -> Instant {
        self.expiry_times.clock_origin + Duration::from_nanos(self.expiry_times.due)
    }

    /// Returns the time from [`deadline`](Self::deadline) to the beginning of the turn in which the
    /// timer expired.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// shard.add(Duration::from_secs(30), "idle");
    /// clock.advance(Duration::from_secs(31));
    /// shard.turn();
    /// let expired = shard.next_expired().expect("it is due");
    /// assert_eq!(expired.lateness(), Duration::from_secs(1));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn lateness(&self) -> Duration {
        Duration::from_nanos(self.expiry_times.turn_start.saturating_sub(self.expiry_times.due))
    }
}

impl<P: fmt::Debug> fmt::Debug for Expired<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expired")
            .field("handle", &self.handle)
            .field("payload", &self.payload)
            .field("deadline", &self.deadline())
            .field("lateness", &self.lateness())
            .finish()
    }
}

/// An expiry of a one-shot or periodic timer, from
/// [`Shard::next_expiry`](crate::Shard::next_expiry).
///
/// The timer of a [`Periodic`](Self::Periodic) expiry is already pending again. A periodic timer
/// continues even if the loop ignores its expiry or panics.
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
    /// The timer has ended, and the caller owns its payload. The timer was one-shot, or another
    /// thread has cancelled it during `next_expiry`.
    Ended(Expired<T>),
    /// The timer is periodic and pending again. The caller borrows its payload.
    Periodic(Expired<&'shard mut T>),
}

impl<T> Expiry<'_, T> {
    /// Returns the expiry with a reference to its payload, for a loop that treats one-shot and
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
    ///     println!("{} was late by {:?}", expired.payload, expired.lateness());
    /// }
    /// assert_eq!(shard.iter().map(|(.., payload)| *payload).collect::<Vec<_>>(), [1]);
    /// ```
    pub fn as_mut(&mut self) -> Expired<&mut T> {
        let (handle, payload, expiry_times) = match self {
            Self::Ended(expired) => (expired.handle, &mut expired.payload, expired.expiry_times),
            Self::Periodic(expired) => {
                (expired.handle, &mut *expired.payload, expired.expiry_times)
            }
        };
        Expired { handle, payload, expiry_times }
    }
}
