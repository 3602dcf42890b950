//! Each timer has its place beside it, and when it was added.

use std::{cmp::Reverse, collections::HashMap, fmt, panic::Location, time::Duration};

/// Where a timer was added.
#[derive(Clone, Copy, Debug)]
pub struct Origin(&'static Location<'static>);

impl Origin {
    /// The caller of the function that asks, which has to be `#[track_caller]` itself.
    #[inline]
    #[track_caller]
    pub(crate) fn caller() -> Self {
        Self(Location::caller())
    }
}

/// Where a timer was added, and when. Meaningless in a node without a timer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added(Option<(Origin, u64)>);

impl Added {
    /// The timer was added when the clock showed what `now` says.
    #[inline]
    pub(crate) fn new(origin: Origin, now: impl FnOnce() -> u64) -> Self {
        Self(Some((origin, now())))
    }

    /// Returns the same place with the time that `now` returns.
    pub(crate) fn at(self, now: impl FnOnce() -> u64) -> Self {
        Self(self.0.map(|(origin, _)| (origin, now())))
    }
}

/// The live timers of a shard by where in the program they were added; from
/// [`LocalTimer::live_report`](crate::LocalTimer::live_report) and [`Shard::live_report`](crate::Shard::live_report). Needs the
/// feature `origins`.
///
/// A timer that a program forgets to cancel, and adds again and again, is the first line of it, or has the oldest timer. Shown with
/// `{}`, it is a table.
#[derive(Clone, Debug, Default)]
pub struct LiveReport {
    places: Vec<LivePlace>,
}

/// A place in the program, and the live timers that were added there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LivePlace {
    /// The call that added them; of a sleep or a timeout, the one that made the future.
    pub location: &'static Location<'static>,
    /// How many live timers were added there.
    pub live: usize,
    /// How long ago the oldest of them was added, whether it was moved since or not. (One from another core counts from when
    /// the owner took it in.)
    pub oldest: Duration,
}

impl LiveReport {
    /// Returns the report on these timers when the clock shows `now`.
    pub(crate) fn new(live: impl Iterator<Item = Added>, now: u64) -> Self {
        let mut places = HashMap::new();
        for (Origin(location), nanos) in live.filter_map(|Added(added)| added) {
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

    /// The places, the one with the most live timers first.
    pub fn most_frequent(&self) -> &[LivePlace] {
        &self.places
    }

    /// The places, the one with the oldest timer first.
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
