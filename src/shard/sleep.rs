//! An announced sleep.

use std::{fmt, marker::PhantomData, sync::Arc, thread, time::Duration};

use crate::{parker::Announcement, shared::Shared};

/// A sleep that has been announced; from `prepare_sleep`. Dropping it ends the announcement: do so as soon as the sleep is
/// over, and not before. In `poll(local_timer().prepare_sleep().timeout())` it ends before the poll begins; `sleep_with` cannot be misused
/// so. A later announcement takes the place of an earlier one, whose end then ends nothing.
///
/// It belongs to the thread that made it. One made by a [`Shard`](crate::Shard) borrows it, so that no timer can be added
/// unnoticed between the announcement and the sleep.
#[must_use = "the announcement ends when this is dropped: keep it until the sleep is over"]
pub struct PreparedSleep<'shard> {
    /// `None` if the timer has ended: then there is nobody to wake.
    announced: Option<(Arc<Shared>, Announcement)>,
    timeout: Option<Duration>,
    shard: PhantomData<(&'shard (), *const ())>,
}

impl PreparedSleep<'_> {
    /// Announces a sleep until then, in nanoseconds of the clock; `None` means for ever. It is long if no payload may wait for its end.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        until: Option<u64>,
        is_long: bool,
        time_until_next: impl FnOnce() -> Option<Duration>,
    ) -> Self {
        let announced = shared.announce_sleep(until.unwrap_or(u64::MAX), is_long);
        // It is asked also if nobody is to sleep: it says that the loop is on its way.
        let next = time_until_next();
        let timeout = if announced.is_some() { next } else { Some(Duration::ZERO) };
        let announced = announced.map(|announcement| (Arc::clone(shared), announcement));
        Self { announced, timeout, shard: PhantomData }
    }

    /// What an exiting thread gets: not to sleep.
    pub(crate) fn ended() -> Self {
        Self { announced: None, timeout: Some(Duration::ZERO), shard: PhantomData }
    }

    /// How long the owner may sleep: `None` means until it is woken. A poller that counts in coarser units must round up, as
    /// mio does, or the loop spins until the deadline.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Calls `wait` with the timeout. The announcement lasts until that returns.
    pub(crate) fn wait_with<R>(self, wait: impl FnOnce(Option<Duration>) -> R) -> R {
        wait(self.timeout)
    }

    /// Sleeps: [parks](thread::park) this thread until the timeout or until it is woken, and perhaps for a shorter while. Returns at
    /// once if the timeout is zero. For a
    /// loop of nothing but timers; others poll with the [`timeout`](Self::timeout).
    ///
    /// Between the announcement and this the thread must not park for anything else, as waiting for a channel or a lock may: it might
    /// take the wake-up for its own.
    ///
    /// A timer with a wake-up of its own ([`Config::on_wake`](crate::Config::on_wake)) ends the sleep only if that unparks this thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
    /// while !local_timer().is_empty() {
    ///     local_timer().prepare_sleep().park();
    ///     local_timer().turn();
    /// }
    /// ```
    pub fn park(self) {
        self.wait_with(|timeout| match timeout {
            None => thread::park(),
            // The system takes tens of microseconds over a wait of no length.
            Some(Duration::ZERO) => (),
            Some(timeout) => thread::park_timeout(timeout),
        });
    }
}

impl Drop for PreparedSleep<'_> {
    fn drop(&mut self) {
        if let Some((shared, announcement)) = &self.announced {
            shared.parker.awake(announcement);
        }
    }
}

impl fmt::Debug for PreparedSleep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedSleep").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
