//! Records which call added each timer, to find timers that are never cancelled. Without the
//! feature `origins`, the types are empty.
#![cfg_attr(
    not(feature = "origins"),
    allow(unused_variables, clippy::unused_self, reason = "the types are empty")
)]

#[cfg(feature = "origins")]
use std::panic::Location;

/// The call that added a timer.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "futures"), allow(unreachable_pub, reason = "for a sealed trait"))]
pub struct CallSite(#[cfg(feature = "origins")] &'static Location<'static>);

impl CallSite {
    /// Returns the place from which the calling function was called. The calling function must be
    /// `#[track_caller]`.
    #[inline]
    #[cfg_attr(feature = "origins", track_caller)]
    pub(crate) fn caller() -> Self {
        Self(
            #[cfg(feature = "origins")]
            Location::caller(),
        )
    }
}

/// Records which call added a timer, and when. If another thread adds the timer, the time is when
/// the owner admits the timer (`slab`). In a node without a timer, the record has no meaning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimerOrigin(#[cfg(feature = "origins")] Option<(CallSite, u64)>);

impl TimerOrigin {
    #[inline]
    pub(crate) fn new(call_site: CallSite, now: impl FnOnce() -> u64) -> Self {
        Self(
            #[cfg(feature = "origins")]
            Some((call_site, now())),
        )
    }

    /// Returns a copy of the record, with `now` as the time of the add.
    pub(crate) fn with_add_time(self, now: u64) -> Self {
        Self(
            #[cfg(feature = "origins")]
            self.0.map(|(call_site, _)| (call_site, now)),
        )
    }

    #[cfg(feature = "origins")]
    pub(crate) fn location_and_add_time(self) -> Option<(&'static Location<'static>, u64)> {
        self.0.map(|(CallSite(location), nanos)| (location, nanos))
    }
}
