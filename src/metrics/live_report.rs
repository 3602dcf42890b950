//! The report of the live timers, by the code that added them.

use std::{cmp::Reverse, collections::HashMap, fmt, panic::Location, time::Duration};

use crate::cross_core::call_site::CreationRecord;

/// The live timers of a shard, by the call site that added them. `{}` prints a table.
///
/// [`LocalTimer::live_report`](crate::LocalTimer::live_report) and
/// [`Shard::live_report`](crate::Shard::live_report) return it. Needs the feature `origins`. A call
/// site that leaks timers usually has the most live timers, or the oldest timer.
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
/// let report = local_timer().live_report();
/// println!("{report}");
/// assert_eq!(report.most_frequent()[0].live, 3);
/// assert_eq!(report.oldest().len(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LiveReport {
    places: Vec<LivePlace>,
}

/// A call site in the program, and the live timers that it added.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::time::Duration;
///
/// local_timer().add(Duration::from_secs(30), || ());
/// let report = local_timer().live_report();
/// let place = report.most_frequent()[0];
/// assert_eq!((place.live, place.location.file()), (1, file!()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LivePlace {
    /// The call site of the add. For a sleep or a timeout, the place where its future was created.
    pub location: &'static Location<'static>,
    /// The number of live timers that this call site added.
    pub live: usize,
    /// The age of the oldest of these timers, regardless of resets. The age of a remote timer
    /// counts from the moment at which the owner consumed the add.
    pub oldest: Duration,
}

impl LiveReport {
    pub(crate) fn new(live: impl Iterator<Item = CreationRecord>, now: u64) -> Self {
        let mut places = HashMap::new();
        for (location, nanos) in live.filter_map(CreationRecord::get) {
            let place = places.entry(location).or_insert(LivePlace {
                location,
                live: 0,
                oldest: Duration::ZERO,
            });
            place.live += 1;
            place.oldest = place.oldest.max(Duration::from_nanos(now.saturating_sub(nanos)));
        }
        let mut places: Vec<_> = places.into_values().collect();
        places.sort_by_key(|place| Reverse((place.live, place.oldest, place.location)));
        Self { places }
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
    /// let report = local_timer().live_report();
    /// let place = report.most_frequent()[0];
    /// println!("{} live timers from {}", place.live, place.location);
    /// ```
    pub fn most_frequent(&self) -> &[LivePlace] {
        &self.places
    }

    /// Returns the call sites, the one with the oldest timer first.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_secs(30), || ());
    /// let report = local_timer().live_report();
    /// let place = report.oldest()[0];
    /// println!("a timer from {} is {:?} old", place.location, place.oldest);
    /// ```
    pub fn oldest(&self) -> Vec<LivePlace> {
        let mut places = self.places.clone();
        places.sort_by_key(|place| Reverse(place.oldest));
        places
    }
}

impl fmt::Display for LiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10}  {:>12}  added at", "live", "oldest")?;
        self.places.iter().try_for_each(|LivePlace { location, live, oldest }| {
            writeln!(f, "{live:>10}  {:>10.3} s  {location}", oldest.as_secs_f64())
        })
    }
}
