//! What a thread's timer says of itself.

use super::{LocalTimer, inner::Local};
use crate::{gauges::Counts, metrics::ShardMetrics};

impl LocalTimer {
    /// What has become of this thread's timers so far. Cost: some nanoseconds for each message that waits.
    pub fn counts(self) -> Counts {
        Local::with(|local| local.step(|shard| shard.counts())).unwrap_or_default()
    }

    /// What this thread's timer does, and how late its timers fire; see [`metrics`](crate::metrics). `None` in a thread that is
    /// exiting, or that cannot have one.
    pub fn metrics(self) -> Option<ShardMetrics> {
        Local::with(|local| local.step(|shard| shard.metrics())).ok()
    }

    /// Where in the program the live timers were added, and how long ago: for a timer that somebody forgets to cancel. (A
    /// periodic timer is left out during its own run.) Empty in a thread that is exiting. Needs the feature `origins`.
    ///
    /// Cost: some nanoseconds for each timer that was live at once.
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
