//! An announced sleep.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use crate::{
    cross_core::{parker::SleepId, shared::Shared},
    util::sync::{park, park_timeout},
};

/// A sleep that `prepare_sleep` has announced, so that other threads wake the owner. Dropping this
/// value ends the announcement, so keep the value exactly until the sleep is over. In
/// `let timeout = local_timer().prepare_sleep().timeout();` the announcement ends at the semicolon;
/// `sleep_with` prevents this mistake. A new `PreparedSleep` of the same wheel or shard replaces
/// the old one.
///
/// A `PreparedSleep` cannot be sent to another thread.
///
/// # Examples
///
/// ```
/// use corewheel::{PreparedSleep, local_timer};
/// use std::{thread, time::Duration};
///
/// /// Stands for the wait of a loop, such as a poll.
/// fn wait(sleep: &PreparedSleep<'_>) {
///     sleep.timeout().map_or_else(thread::park, thread::park_timeout);
/// }
///
/// local_timer().add(Duration::from_millis(5), || println!("idle"));
/// while !local_timer().is_empty() {
///     let sleep = local_timer().prepare_sleep();
///     wait(&sleep);
///     drop(sleep);
///     local_timer().turn();
/// }
/// ```
#[must_use = "the announcement ends when this is dropped: keep it until the sleep is over"]
pub struct PreparedSleep<'shard> {
    /// The announcement; `None` if the owner must not sleep, so nothing is announced.
    announced_sleep: Option<(Arc<Shared>, SleepId)>,
    timeout: Option<Duration>,
    shard_borrow: PhantomData<(&'shard (), *const ())>,
}

impl PreparedSleep<'_> {
    /// Announces a sleep until `sleep_end`, in nanoseconds of the clock; `None` means for ever. If
    /// `ends_on_cancel` is true, the sleep ends when another thread first cancels a timer whose
    /// payload the owner must drop. If the owner must not sleep, returns a sleep of zero length.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        sleep_end: Option<u64>,
        ends_on_cancel: bool,
        timeout: Option<Duration>,
    ) -> Self {
        let sleep_id = shared.announce_sleep(sleep_end.unwrap_or(u64::MAX), ends_on_cancel);
        let Some(sleep_id) = sleep_id else { return Self::zero_length() };
        Self {
            announced_sleep: Some((Arc::clone(shared), sleep_id)),
            timeout,
            shard_borrow: PhantomData,
        }
    }

    pub(crate) fn zero_length() -> Self {
        Self { announced_sleep: None, timeout: Some(Duration::ZERO), shard_borrow: PhantomData }
    }

    /// Returns how long the owner may sleep; `None` means until a wake-up. A loop that waits in
    /// whole milliseconds must round this timeout up, as mio does. A loop that rounds down spins
    /// before each deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// assert_eq!(local_timer().prepare_sleep().timeout(), None); // there is nothing to wait for
    /// local_timer().add(Duration::from_millis(5), || println!("idle"));
    /// assert!(local_timer().prepare_sleep().timeout() <= Some(Duration::from_millis(6)));
    /// ```
    #[must_use = "the owner must not wait longer than this"]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// [Parks](std::thread::park) this thread until the timeout or a wake-up. Like any park, this
    /// call may return earlier. Use this method in a loop that only runs timers.
    ///
    /// Between the announcement and this call, the thread must not park for any other reason, such
    /// as a wait for a channel or a lock. Another park could consume the wake-up, so that this
    /// sleep would last too long.
    ///
    /// If [`Config::wake_hook`](crate::Config::wake_hook) sets a hook, a wake-up both calls the
    /// hook and ends this sleep. With a hook, the first `park` of a wheel or shard returns at once.
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
    pub fn park(mut self) {
        // Takes the announcement, so that the drop does not report a park that took long.
        let Some((shared, sleep_id)) = self.announced_sleep.take() else { return };
        // If false, this sleep was announced before the first call of `set_owner_has_parked`. So a
        // wake-up would call the hook, but not unpark this thread, which must not park yet.
        let can_be_unparked = shared.hooks.must_unpark(sleep_id.owner_has_parked());
        if can_be_unparked {
            Self::park_unless_zero(self.timeout);
        }
        shared.parker.clear_announcement(sleep_id);
        if !can_be_unparked {
            shared.parker.set_owner_has_parked();
        }
    }

    /// [Parks](Self::park) this thread, but for at most `longest_timeout`.
    pub(crate) fn park_at_most(mut self, longest_timeout: Duration) {
        self.timeout =
            Some(self.timeout.map_or(longest_timeout, |timeout| timeout.min(longest_timeout)));
        self.park();
    }

    /// Parks this thread, unless the timeout is zero.
    pub(crate) fn park_unless_zero(timeout: Option<Duration>) {
        match timeout {
            None => park(),
            // Does not park, because even a park of zero length would enter the kernel.
            Some(Duration::ZERO) => (),
            Some(timeout) => park_timeout(timeout),
        }
    }
}

impl Drop for PreparedSleep<'_> {
    fn drop(&mut self) {
        if let Some((shared, sleep_id)) = &self.announced_sleep {
            shared.end_sleep(*sleep_id);
        }
    }
}

impl fmt::Debug for PreparedSleep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedSleep").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
