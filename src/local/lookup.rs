//! Reads and changes timers of this thread by their handles.

use std::time::{Duration, Instant};

use super::{LocalTimer, inner::Local, local_timer};
use crate::{
    cross_core::{
        callback::Callback,
        handle::{LocalHandle, TimerHandle},
    },
    shard::Shard,
};

impl LocalTimer {
    /// Returns the deadline of a pending timer of this thread, rounded up to a tick. Of a periodic
    /// timer it is the next run.
    ///
    /// Returns `None` if the timer is running or has ended, or the handle is of another thread's
    /// wheel. While another thread moves the timer, this is the old deadline or the new one.
    ///
    /// Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let idle = local_timer().add(Duration::from_secs(30), || println!("close the connection"));
    /// let deadline = local_timer().deadline(idle).expect("it is pending");
    /// assert!(deadline >= local_timer().now() + Duration::from_secs(29));
    /// idle.cancel();
    /// assert_eq!(local_timer().deadline(idle), None);
    /// ```
    pub fn deadline(self, handle: TimerHandle) -> Option<Instant> {
        look(handle, |shard| shard.deadline(handle))
    }

    /// Returns the time until the [`deadline`](Self::deadline) of a pending timer of this thread;
    /// zero if it has elapsed.
    ///
    /// Returns `None` if the timer is running or has ended, or the handle is of another thread's
    /// wheel. Cost: constant, one reading of the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, ManualClock, local_timer};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// Config::new().clock(&clock).install()?;
    /// let request = local_timer().add(Duration::from_secs(5), || println!("too slow"));
    /// clock.advance(Duration::from_secs(2));
    /// // Pass on to the next server what is left of the time:
    /// assert_eq!(local_timer().time_left(request), Some(Duration::from_secs(3)));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn time_left(self, handle: TimerHandle) -> Option<Duration> {
        look(handle, |shard| shard.time_left(handle))
    }

    /// Changes the period of a periodic timer of this thread, also from inside its callback.
    ///
    /// The next run stays where it is, unless this is called during a run: then the next run is one
    /// new period after the deadline of this one. [`TimerHandle::reset`] moves the next run. A
    /// period shorter than a tick, zero included, counts as a tick.
    ///
    /// Returns false if the timer has ended or is not periodic, or the handle is of another
    /// thread's wheel. Cost: constant, no clock, no lock, no allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// let heartbeat = local_timer().add_periodic(Duration::from_secs(1), || println!("alive"));
    /// // The connection is idle: less often, from now on.
    /// assert!(local_timer().set_period(heartbeat, Duration::from_secs(30)));
    /// assert!(heartbeat.reset(Duration::from_secs(30)));
    /// ```
    #[must_use = "a timer that is not periodic, or has ended, keeps no period"]
    pub fn set_period(self, handle: TimerHandle, period: Duration) -> bool {
        Local::with(|local| local.step(|shard| shard.set_period(handle, period))).unwrap_or(false)
    }
}

impl LocalHandle {
    /// Returns the deadline of the timer if it is pending. See [`LocalTimer::deadline`].
    pub fn deadline(self) -> Option<Instant> {
        local_timer().deadline(self.handle())
    }

    /// Returns the time until the deadline if the timer is pending; zero if it has elapsed. See
    /// [`LocalTimer::time_left`].
    pub fn time_left(self) -> Option<Duration> {
        local_timer().time_left(self.handle())
    }
}

/// Looks at a timer of this thread's wheel, if it is pending.
fn look<R>(handle: TimerHandle, look: impl FnOnce(&mut Shard<Callback>) -> Option<R>) -> Option<R> {
    let looked = Local::with(|local| {
        local.step(|shard| if shard.is_pending_own(handle) { look(shard) } else { None })
    });
    looked.ok().flatten()
}
