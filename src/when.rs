//! The time arguments of adds and resets.

use std::time::{Duration, Instant};

use crate::{
    clock::tick::saturating_nanos,
    util::sync::{AtomicU64, Ordering},
};

/// When a timer is due: after a delay or at an instant, optionally with slack or spread.
///
/// `add`, `add_local` and `reset` take an `impl Into<When>`. A [`Duration`] counts from the clock
/// reading of the call. An [`Instant`] is a time of the wheel's clock; see
/// [`LocalTimer::now`](crate::LocalTimer::now).
///
/// # Deadlines
///
/// The deadline is rounded up to a tick, so a timer is never early. Without slack or spread, a
/// timer with a zero delay or a past instant fires in the next turn. A turn never fires a timer
/// that one of its callbacks adds; see [`turn`](crate::LocalTimer::turn).
///
/// Most timeouts need not be exact:
///
/// * [`slack`](Self::slack) lets timers share ticks, so that one wake-up of the loop serves many
///   timers. Use slack for cache entries, statistics and keep-alives.
/// * [`spread`](Self::spread) spreads out timers that are added together. Use spread for reconnects
///   and retries, which a thousand clients would otherwise do at once.
///
/// If a `When` has both slack and spread, the slack begins at the deadline that the spread has
/// delayed.
///
/// # Examples
///
/// ```
/// use corewheel::{When, local_timer};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// local_timer().add(second, || println!("after a delay"));
/// local_timer().add(local_timer().now() + second, || println!("at an instant"));
/// let roughly = When::after(60 * second).slack(second);
/// let flush = local_timer().add(roughly, || println!("within a second after a minute"));
/// assert!(flush.reset(roughly));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    pub(crate) deadline: RequestedTime,
    pub(crate) slack: Duration,
    pub(crate) spread_range: Duration,
}

/// The requested deadline of a timer, without slack and spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedTime {
    After(Duration),
    At(Instant),
    /// A time of the wheel's clock in nanoseconds, possibly in the past.
    AtNanos(u64),
}

impl When {
    #[inline]
    const fn exact(deadline: RequestedTime) -> Self {
        Self { deadline, slack: Duration::ZERO, spread_range: Duration::ZERO }
    }

    /// Returns a deadline that is `delay` after the clock reading of the add or reset.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::When;
    /// use std::time::Duration;
    ///
    /// assert_eq!(When::after(Duration::from_secs(5)), Duration::from_secs(5).into());
    /// ```
    #[inline]
    pub const fn after(delay: Duration) -> Self {
        Self::exact(RequestedTime::After(delay))
    }

    /// Returns a deadline at `instant` of the wheel's clock.
    ///
    /// # Examples
    ///
    /// All timeouts that one iteration of a loop adds count from the same instant:
    ///
    /// ```
    /// use corewheel::{When, local_timer};
    /// use std::time::{Duration, Instant};
    ///
    /// let now = Instant::now();
    /// local_timer().turn_at(now);
    /// local_timer().add(When::at(now + Duration::from_secs(5)), || println!("5 s after the turn"));
    /// ```
    #[inline]
    pub const fn at(instant: Instant) -> Self {
        Self::exact(RequestedTime::At(instant))
    }

    #[inline]
    pub(crate) const fn at_nanos(nanos: u64) -> Self {
        Self::exact(RequestedTime::AtNanos(nanos))
    }

    /// Lets the wheel postpone the deadline by up to `slack`.
    ///
    /// Of the future ticks within the slack, the wheel chooses the one divisible by the largest
    /// power of two. So timers with slack often share ticks.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{When, local_timer};
    /// use std::time::Duration;
    ///
    /// // A cache entry may live half a second longer than it must.
    /// let expiry = When::after(Duration::from_secs(60)).slack(Duration::from_millis(500));
    /// local_timer().add(expiry, || println!("expired"));
    /// ```
    #[inline]
    #[must_use]
    pub const fn slack(self, slack: Duration) -> Self {
        Self { slack, ..self }
    }

    /// Delays the timer by a fraction of `range`. Each add or reset uses a different fraction.
    ///
    /// So timers that are added together usually fire at different ticks, spread almost evenly over
    /// the range. The first fraction is random, unless time is virtual: the wheels of a
    /// [`ManualClock`](crate::ManualClock) get the same fractions in each run of a test.
    ///
    /// The fractions are not independent random numbers: each fraction of a wheel is the wheel's
    /// previous fraction plus a constant, modulo one. For an election, or contention between a few
    /// parties, draw the delay from your own random numbers.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{When, local_timer};
    /// use std::time::Duration;
    ///
    /// // All clients lost their connection at once, and must not all come back at once.
    /// let reconnect = When::after(Duration::from_secs(1)).spread(Duration::from_secs(4));
    /// for client in 0..1000 {
    ///     local_timer().add(reconnect, move || println!("client {client}"));
    /// }
    /// ```
    #[inline]
    #[must_use]
    pub const fn spread(self, range: Duration) -> Self {
        Self { spread_range: range, ..self }
    }

    /// Returns the delay if this is only a delay, without slack or spread.
    #[inline]
    pub(crate) fn as_delay(self) -> Option<Duration> {
        match self {
            Self {
                deadline: RequestedTime::After(delay),
                slack: Duration::ZERO,
                spread_range: Duration::ZERO,
            } => Some(delay),
            _ => None,
        }
    }
}

impl From<Duration> for When {
    /// Converts a delay; see [`When::after`].
    #[inline]
    fn from(delay: Duration) -> Self {
        Self::exact(RequestedTime::After(delay))
    }
}

impl From<Instant> for When {
    /// Converts an instant of the wheel's clock; see [`When::at`].
    #[inline]
    fn from(instant: Instant) -> Self {
        Self::at(instant)
    }
}

/// A shard's sequence of fractions for spread. Holds the next fraction, in units of 2^-64.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct SpreadSequence(AtomicU64);

impl SpreadSequence {
    /// Creates a sequence. The first fraction is `seed` times the square root of two, modulo one,
    /// so that the fractions of consecutive seeds are far apart.
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x6A09_E667_F3BC_C908)))
    }

    /// Advances the sequence, and returns the delay of a timer with the spread `range`.
    ///
    /// Multiples of the golden ratio, modulo one (Weyl's sequence), fill the range almost evenly.
    pub(crate) fn next_delay_nanos(&self, range: Duration) -> u64 {
        // A timer without a spread does not advance the sequence. If each timer advanced the
        // sequence, the fractions of every 55th timer would be almost equal, because 55 is a
        // Fibonacci number.
        if range.is_zero() {
            return 0;
        }
        // Relaxed: no other data depends on the fraction. The addition is atomic, so no two timers
        // get the same fraction.
        let fraction = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let offset = (u128::from(fraction) * u128::from(saturating_nanos(range))) >> 64;
        u64::try_from(offset).unwrap_or(u64::MAX)
    }
}
