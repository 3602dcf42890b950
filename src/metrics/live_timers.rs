//! Reports the live timers, grouped by the call site that added them.

use std::{cmp::Reverse, collections::HashMap, fmt, panic::Location, time::Duration};

use crate::cross_core::call_site::TimerOrigin;

/// The live timers of a shard, grouped by the call site that added them. `{}` prints a table.
///
/// Returned by
/// [`LocalTimer::live_timers_by_call_site`](crate::LocalTimer::live_timers_by_call_site) and
/// [`Shard::live_timers_by_call_site`](crate::Shard::live_timers_by_call_site). Needs the feature
/// `origins`. A call site that leaks timers usually has the most live timers, or the oldest.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// for _ in 0..3 {
///     local_timer().add(Duration::from_secs(30), || ()); // leaked
/// }
/// let report = local_timer().live_timers_by_call_site();
/// println!("{report}");
/// assert_eq!(report.by_live_count()[0].live, 3);
/// assert_eq!(report.by_age().len(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LiveTimersByCallSite {
    sorted_by_live_count: Vec<CallSiteTimers>,
}

/// A call site, and the live timers that it added.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// local_timer().add(Duration::from_secs(30), || ());
/// let report = local_timer().live_timers_by_call_site();
/// let call_site = report.by_live_count()[0];
/// assert_eq!((call_site.live, call_site.location.file()), (1, file!()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSiteTimers {
    /// Where the program added the timers. For a sleep or a timeout, where the program created the
    /// future.
    pub location: &'static Location<'static>,
    /// The number of live timers.
    pub live: usize,
    /// The age of the oldest live timer. A reset does not change a timer's age. The age of a
    /// remotely added timer counts from the turn that consumed the add.
    pub oldest_age: Duration,
}

impl LiveTimersByCallSite {
    pub(crate) fn new(live_timers: impl Iterator<Item = TimerOrigin>, now: u64) -> Self {
        let mut call_sites = HashMap::new();
        for (location, added_at) in live_timers.filter_map(TimerOrigin::location_and_add_time) {
            let age = Duration::from_nanos(now.saturating_sub(added_at));
            let new_call_site = CallSiteTimers { location, live: 0, oldest_age: Duration::ZERO };
            let call_site = call_sites.entry(location).or_insert(new_call_site);
            call_site.live += 1;
            call_site.oldest_age = call_site.oldest_age.max(age);
        }
        let mut call_sites: Vec<_> = call_sites.into_values().collect();
        call_sites.sort_by_key(|it| Reverse((it.live, it.oldest_age, it.location)));
        Self { sorted_by_live_count: call_sites }
    }

    /// Returns the call sites, the one with the most live timers first.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_secs(30), || ());
    /// let report = local_timer().live_timers_by_call_site();
    /// let call_site = report.by_live_count()[0];
    /// println!("{} live timers from {}", call_site.live, call_site.location);
    /// ```
    pub fn by_live_count(&self) -> &[CallSiteTimers] {
        &self.sorted_by_live_count
    }

    /// Returns the call sites, the one with the oldest live timer first.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_secs(30), || ());
    /// let report = local_timer().live_timers_by_call_site();
    /// let call_site = report.by_age()[0];
    /// println!("a timer from {} is {:?} old", call_site.location, call_site.oldest_age);
    /// ```
    pub fn by_age(&self) -> Vec<CallSiteTimers> {
        let mut call_sites = self.sorted_by_live_count.clone();
        call_sites.sort_by_key(|call_site| Reverse(call_site.oldest_age));
        call_sites
    }
}

impl fmt::Display for LiveTimersByCallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10}  {:>12}  added at", "live", "oldest")?;
        self.sorted_by_live_count.iter().try_for_each(
            |CallSiteTimers { location, live, oldest_age }| {
                writeln!(f, "{live:>10}  {:>10.3} s  {location}", oldest_age.as_secs_f64())
            },
        )
    }
}
