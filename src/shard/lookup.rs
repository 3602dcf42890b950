//! What the owner learns of a timer by its handle.

use std::time::{Duration, Instant};

use super::Shard;
use crate::handle::TimerHandle;

impl<T> Shard<T> {
    /// Returns the deadline of a pending timer of this shard, rounded up to a tick.
    ///
    /// Returns `None` if the timer has ended, or the handle is of another shard. While another
    /// thread moves the timer, this is the old deadline or the new one.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Shard;
    /// use std::time::Duration;
    ///
    /// let mut shard = Shard::new();
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// let deadline = shard.deadline(lease).expect("it is pending");
    /// assert!(deadline >= shard.now() + Duration::from_secs(29));
    /// shard.cancel(lease);
    /// assert_eq!(shard.deadline(lease), None);
    /// ```
    pub fn deadline(&self, handle: TimerHandle) -> Option<Instant> {
        self.due_own(handle).map(|nanos| self.clock.instant_at(nanos))
    }

    /// Returns the time until the deadline of a pending timer of this shard; zero if it has come.
    ///
    /// Returns `None` if the timer has ended, or the handle is of another shard. Cost: constant,
    /// one reading of the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut shard = Shard::with_config(Config::new().clock(&clock))?;
    /// let lease = shard.add(Duration::from_secs(30), "lease");
    /// clock.advance(Duration::from_secs(10));
    /// assert_eq!(shard.time_left(lease), Some(Duration::from_secs(20)));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn time_left(&self, handle: TimerHandle) -> Option<Duration> {
        let nanos = self.due_own(handle)?;
        let now = self.clock.nanos().max(self.latest.lo);
        Some(Duration::from_nanos(nanos.saturating_sub(now)))
    }

    /// Returns the deadline of a pending timer in nanoseconds of the clock, rounded up to a tick.
    fn due_own(&self, handle: TimerHandle) -> Option<u64> {
        let index = handle.index();
        if handle.shard() != self.number || !self.nodes.knows(index) {
            return None;
        }
        if self.nodes.state(index).is_pending_and_moved(handle.generation())? {
            Some(self.tick.round_up(self.nodes.requested(index).read()))
        } else {
            Some(self.due_nanos(index))
        }
    }
}
