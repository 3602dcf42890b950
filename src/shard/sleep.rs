//! An announced sleep.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use crate::shared::Shared;

/// An announced sleep; from `prepare_sleep`. Dropping it ends the announcement: do so as soon as the sleep is over.
///
/// A thread announces one sleep at a time.
#[must_use = "the announcement ends when this is dropped: keep it until the sleep is over"]
pub struct Sleep<'shard> {
    shared: Arc<Shared>,
    timeout: Option<Duration>,
    /// The shard cannot be changed through `&mut` meanwhile, and the announcement is the owner's.
    shard: PhantomData<(&'shard (), *const ())>,
}

impl Sleep<'_> {
    /// Announces first and looks at the timers afterwards, so that nothing falls between.
    pub(crate) fn new(shared: &Arc<Shared>, time_until_next: impl FnOnce() -> Option<Duration>) -> Self {
        let may_sleep = shared.announce_sleep();
        let timeout = if may_sleep { time_until_next() } else { Some(Duration::ZERO) };
        Self { shared: Arc::clone(shared), timeout, shard: PhantomData }
    }

    /// How long the owner may sleep: `None` means until it is woken. Ask once, and round up where the poller counts in
    /// coarser units, or the loop spins until the deadline.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.shared.parker.awake();
    }
}

impl fmt::Debug for Sleep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
