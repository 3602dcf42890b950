//! A clock of virtual time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    clock::{Reading, tick::saturating_nanos},
    util::sync::{AtomicU64, Ordering},
};

/// A clock whose virtual time changes only by [`advance`](Self::advance) and [`set`](Self::set).
///
/// All clones of a clock show one virtual time, so one clock can drive many shards. Changing the
/// time fires nothing and wakes no thread: the next turn of each shard fires its due timers. Do not
/// sleep until a deadline of a manual clock: real time does not advance this clock.
///
/// # Examples
///
/// This program retries with back-off for half an hour of virtual time. Each iteration of the loop
/// moves the clock to the next deadline, so that timers added by callbacks fire too:
///
/// ```
/// use corewheel::{Config, ManualClock, local_timer};
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
/// fn retry(attempts: Rc<Cell<u32>>, wait: Duration) {
///     local_timer().add(wait, move || {
///         attempts.set(attempts.get() + 1);
///         if wait < Duration::from_secs(1000) {
///             retry(attempts, wait * 2);
///         }
///     });
/// }
///
/// let clock = ManualClock::new();
/// Config::new().clock(&clock).install()?;
///
/// let attempts = Rc::new(Cell::new(0));
/// retry(Rc::clone(&attempts), Duration::from_secs(1));
/// while let Some(wait) = local_timer().time_until_next() {
///     clock.advance(wait);
///     local_timer().turn();
/// }
/// assert_eq!(attempts.get(), 11);
/// assert_eq!(clock.elapsed(), Duration::from_secs(2047));
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<ManualState>);

/// The state that all clones of a [`ManualClock`] share.
#[derive(Debug)]
struct ManualState {
    /// The instant of creation, at which the virtual time is zero.
    origin: Instant,
    nanos: AtomicU64,
    /// The seed of [`When::spread`](crate::When::spread) for the next wheel that uses this clock.
    next_spread_seed: AtomicU64,
    /// Two distances: from the lower bound of an owner's reading to the true time, and from the
    /// true time to the upper bound. `None` if the clock is exact.
    #[cfg(all(feature = "models", not(loom)))]
    inexactness: Option<[AtomicU64; 2]>,
}

impl ManualClock {
    /// Creates a clock that shows zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::ManualClock;
    /// use std::time::Duration;
    ///
    /// assert_eq!(ManualClock::new().elapsed(), Duration::ZERO);
    /// ```
    pub fn new() -> Self {
        Self::with_spread_seed(0)
    }

    /// Creates a clock that shows zero. The first wheel of this clock seeds
    /// [`When::spread`](crate::When::spread) with `seed`, the second wheel with `seed + 1`, and so
    /// on.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, Shard, When};
    /// use std::time::Duration;
    ///
    /// let first_deadline = |seed| {
    ///     let config = Config::new().clock(&ManualClock::with_spread_seed(seed));
    ///     let mut shard = Shard::with_config(config)?;
    ///     shard.add(When::after(Duration::ZERO).spread(Duration::from_secs(3_600)), ());
    ///     Ok::<_, corewheel::ConfigError>(shard.time_until_next())
    /// };
    /// assert_eq!(first_deadline(1)?, first_deadline(1)?);
    /// assert_ne!(first_deadline(1)?, first_deadline(2)?);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn with_spread_seed(seed: u64) -> Self {
        Self(Arc::new(ManualState {
            origin: Instant::now(),
            nanos: AtomicU64::new(0),
            next_spread_seed: AtomicU64::new(seed),
            #[cfg(all(feature = "models", not(loom)))]
            inexactness: None,
        }))
    }

    /// Creates a clock that gives the owners of shards only bounds on the time, as
    /// [`Clock::fast`](crate::Clock::fast) does. Until the first call of [`blur`](Self::blur), the
    /// bounds are equal.
    #[cfg(all(feature = "models", not(loom)))]
    #[doc(hidden)]
    pub fn inexact() -> Self {
        let [nanos, next_spread_seed] = Default::default();
        let (origin, inexactness) = (Instant::now(), Some(Default::default()));
        Self(Arc::new(ManualState { origin, nanos, next_spread_seed, inexactness }))
    }

    /// Sets the bounds that an [`inexact`](Self::inexact) clock gives, at most 10 us apart: the
    /// time minus `before`, and the time plus `after`.
    #[cfg(all(feature = "models", not(loom)))]
    #[doc(hidden)]
    pub fn blur(&self, before: Duration, after: Duration) {
        for (distance, duration) in self.0.inexactness.iter().flatten().zip([before, after]) {
            // Relaxed: the simulator runs one thread at a time.
            distance.store(saturating_nanos(duration), Ordering::Relaxed);
        }
    }

    /// Moves the clock forward, to at most 584 years after its start.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::ManualClock;
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// clock.advance(Duration::from_secs(2));
    /// clock.advance(Duration::from_secs(3));
    /// assert_eq!(clock.elapsed(), Duration::from_secs(5));
    /// ```
    pub fn advance(&self, by: Duration) {
        let by = saturating_nanos(by);
        // Release: pairs with the load in `nanos`. A thread that loads the new time also sees this
        // thread's earlier writes. Relaxed: a failed attempt only returns the value for the next
        // attempt.
        let _ = self
            .0
            .nanos
            .fetch_update(Ordering::Release, Ordering::Relaxed, |now| Some(now.saturating_add(by)));
    }

    /// Sets the virtual time since the clock was created. The new time may be earlier than the old
    /// one, to simulate a faulty clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::ManualClock;
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// clock.advance(Duration::from_secs(100));
    /// clock.set(Duration::from_secs(40)); // a minute back
    /// assert_eq!(clock.elapsed(), Duration::from_secs(40));
    /// ```
    pub fn set(&self, since_start: Duration) {
        // Release: pairs with the load in `nanos`. A thread that loads the new time also sees this
        // thread's earlier writes.
        self.0.nanos.store(saturating_nanos(since_start), Ordering::Release);
    }

    /// Returns the virtual time since the clock was created.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::ManualClock;
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// clock.clone().advance(Duration::from_secs(7)); // a clone is the same clock
    /// assert_eq!(clock.elapsed(), Duration::from_secs(7));
    /// ```
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    /// Returns the virtual time as an instant.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, local_timer};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// Config::new().clock(&clock).install()?;
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(local_timer().now(), clock.now());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn now(&self) -> Instant {
        self.origin() + self.elapsed()
    }

    #[inline]
    pub(super) fn nanos(&self) -> u64 {
        // Acquire: pairs with the Release of `advance` and `set`.
        self.0.nanos.load(Ordering::Acquire)
    }

    /// Reads the clock for the owner of a shard.
    #[inline]
    pub(super) fn reading(&self) -> Reading {
        let nanos = self.nanos();
        #[cfg(all(feature = "models", not(loom)))]
        if let Some(inexactness) = &self.0.inexactness {
            // Relaxed: the simulator runs one thread at a time.
            let [before, after] =
                inexactness.each_ref().map(|distance| distance.load(Ordering::Relaxed));
            return Reading { min: nanos.saturating_sub(before), max: nanos.saturating_add(after) };
        }
        Reading::exact(nanos)
    }

    /// Returns true if a shard's readings of this clock may be inexact.
    #[cfg(all(feature = "models", not(loom)))]
    pub(super) fn is_inexact(&self) -> bool {
        self.0.inexactness.is_some()
    }

    pub(super) fn next_spread_seed(&self) -> u64 {
        // Relaxed: no other data depends on the seed.
        self.0.next_spread_seed.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn origin(&self) -> Instant {
        self.0.origin
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_can_be_set_back_and_saturates() {
        let clock = ManualClock::new();
        clock.advance(Duration::MAX);
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.elapsed(), Duration::from_nanos(u64::MAX));
        clock.set(Duration::from_secs(1));
        assert_eq!(clock.elapsed(), Duration::from_secs(1));
    }
}
