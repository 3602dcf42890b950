//! Reports about a thread's wheel.

use super::{LocalTimer, inner::Local};
use crate::{gauges::Counts, metrics::ShardMetrics};

impl LocalTimer {
    /// Returns the counts of this thread's timers so far. Cost: some nanoseconds for each queued
    /// message.
    pub fn counts(self) -> Counts {
        Local::with(|local| local.step(|shard| shard.counts())).unwrap_or_default()
    }

    /// Returns the activity of this thread's wheel and the lateness of its timers; see
    /// [`metrics`](crate::metrics). Returns `None` in an exiting thread and in a thread that cannot
    /// have a wheel.
    pub fn metrics(self) -> Option<ShardMetrics> {
        Local::with(|local| local.step(|shard| shard.metrics())).ok()
    }

    /// Returns where in the program the live timers were added, and their ages, to find a timer
    /// without a cancel. A periodic timer is left out during its own run. Empty in an exiting
    /// thread. Needs the feature `origins`.
    ///
    /// Cost: some nanoseconds for each timer of the largest number of live timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// for _ in 0..100 {
    ///     local_timer().add(Duration::from_secs(3_600), || ());
    /// }
    /// local_timer().add(Duration::from_secs(1), || ());
    /// let report = local_timer().live_report();
    /// println!("{report}"); // 100 of them in the first line, and where
    /// assert_eq!(report.most_frequent()[0].live, 100);
    /// ```
    #[cfg(feature = "origins")]
    pub fn live_report(self) -> crate::metrics::LiveReport {
        Local::with(|local| local.step(|shard| shard.live_report())).unwrap_or_default()
    }
}
