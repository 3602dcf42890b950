//! The timers that a drained wheel hands back.

use std::{fmt, time::Instant};

use crate::cross_core::{callback::Callback, handle::TimerHandle};

/// A timer that was pending when its thread's wheel was drained, returned by
/// [`LocalTimer::drain`](crate::LocalTimer::drain). Dropping a `DrainedTimer` drops the callback.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// local_timer().add(Duration::from_secs(30), || println!("close the connection"));
/// for timer in local_timer().drain() {
///     println!("due at {:?}, run now:", timer.deadline());
///     timer.run();
/// }
/// ```
#[must_use = "dropping it drops the callback"]
pub struct DrainedTimer {
    pub(super) handle: TimerHandle,
    pub(super) deadline: Instant,
    pub(super) callback: Callback,
}

impl DrainedTimer {
    /// Returns the handle of the timer. The handle is stale, but still identifies the timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::{collections::HashMap, time::Duration};
    ///
    /// let flush = local_timer().add(Duration::from_secs(30), || println!("flush"));
    /// let names = HashMap::from([(flush, "the flush")]);
    /// for timer in local_timer().drain() {
    ///     println!("{} was pending", names[&timer.handle()]);
    /// }
    /// ```
    pub fn handle(&self) -> TimerHandle {
        self.handle
    }

    /// Returns the deadline that the timer had at the drain, rounded up to a tick.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_secs(30), || ());
    /// let now = local_timer().now();
    /// assert!(local_timer().drain()[0].deadline() > now);
    /// ```
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Runs the callback, only once even if the timer is periodic. During the run, the timer counts
    /// as ended. A panic of the callback propagates to the caller. Does nothing if the timer
    /// belongs to a dropped [`ReusableTimer`](crate::ReusableTimer).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{DrainedTimer, local_timer};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let is_flushed = Rc::new(Cell::new(false));
    /// let flushes = Rc::clone(&is_flushed);
    /// local_timer().add_periodic(Duration::from_secs(1), move || flushes.set(true));
    /// local_timer().drain().into_iter().for_each(DrainedTimer::run);
    /// assert!(is_flushed.get());
    /// ```
    pub fn run(self) {
        self.callback.call_and_drop();
    }
}

impl fmt::Debug for DrainedTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainedTimer")
            .field("handle", &self.handle)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
