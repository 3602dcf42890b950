//! Clocks: the monotonic clock, read directly or through the processor's counter; a clock that also
//! advances while the machine is suspended; and virtual time.
//!
//! # The contract of a clock
//!
//! A clock counts nanoseconds from its origin, and translates an [`Instant`] into that count. If
//! its clock goes backwards, a shard uses the greatest reading so far, until the clock reaches this
//! reading again. [`Counts::clock_regressions`](crate::Counts::clock_regressions) counts the
//! readings that go backwards.
//!
//! A shard reads its clock with a [`ShardClock`]. A reading is a lower and an upper bound on the
//! time. The two bounds are equal, except in an estimate from the processor's counter.

mod counter;
mod estimator;
mod manual;
mod reader;
pub(crate) mod tick;

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
use rustix::time::TimerfdClockId;

pub use self::manual::ManualClock;
pub(crate) use self::{
    estimator::READING_WIDTH_MAX_NANOS,
    reader::{Reading, ShardClock},
};
use crate::{clock::tick::saturating_nanos, util::panics::catch_panic_silently};

/// The clock of a shard.
///
/// All clones of a clock show the same time.
///
/// # Examples
///
/// ```
/// use corewheel::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let manual = ManualClock::new();
/// let clock = Clock::from(&manual);
/// let before = clock.now();
/// manual.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now() - before, Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

// `repr(u8)` stores the enum's tag in a separate byte, because a tag inside the `Instant` would
// make readings slower.
#[derive(Clone, Debug)]
#[repr(u8)]
enum ClockSource {
    /// If `is_fast`, shards read the clock through the processor's counter.
    Monotonic {
        origin: Instant,
        is_fast: bool,
    },
    /// `origin` is the instant of creation, at which `CLOCK_BOOTTIME` showed `nanos_at_origin`.
    BootTime {
        origin: Instant,
        nanos_at_origin: u64,
    },
    Manual(ManualClock),
    Function(FunctionClock),
}

/// See [`Clock::from_fn`].
#[derive(Clone)]
struct FunctionClock {
    origin: Instant,
    /// `None` only during the drop.
    elapsed: Option<Arc<dyn Fn() -> Duration + Send + Sync>>,
}

impl Drop for FunctionClock {
    fn drop(&mut self) {
        // Catches a panic of the function's destructor, because a panic in an exiting thread would
        // end the process.
        catch_panic_silently(|| drop(self.elapsed.take()));
    }
}

impl fmt::Debug for FunctionClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionClock").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Clock {
    /// Returns the machine's monotonic clock, which [`Instant::now`] reads.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Clock, Config, local_timer};
    ///
    /// Config::new().clock(Clock::monotonic()).install()?; // the default
    /// assert!(local_timer().is_empty());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn monotonic() -> Self {
        Self(ClockSource::Monotonic { origin: Instant::now(), is_fast: false })
    }

    /// Returns the machine's monotonic clock, read through the processor's time-stamp counter.
    ///
    /// In a busy loop, most readings read only the counter, which costs less than reading the
    /// monotonic clock. A timer is not early unless the counter fails, and fires at most about 10
    /// us later than with the monotonic clock.
    ///
    /// Use this clock in a loop that reads the clock more than once every 10 us. Each turn, and
    /// each add or reset by the owner, reads the clock. In a loop that reads the clock less often,
    /// readings cost more than with the monotonic clock. Do not use the fast clock with ticks of
    /// about 10 us or less, because timers could fire a tick or more late.
    ///
    /// The fast clock needs `x86_64`, Linux, and an invariant counter that the kernel's own clock
    /// uses. The file `/sys/devices/system/clocksource/clocksource0/current_clocksource`, if
    /// readable, must contain `tsc`. In virtual machines, `current_clocksource` often contains
    /// `kvm-clock`; an administrator can write `tsc` to this file. On other machines, this function
    /// returns the monotonic clock, and [`is_fast`](Self::is_fast) returns false.
    ///
    /// # Why it can be trusted
    ///
    /// A shard first measures the counter's rate for at least two milliseconds. After the
    /// measurement, the shard uses the counter only in the 13 us after a reading of the monotonic
    /// clock. The estimates allow for changes of the monotonic clock's rate, which the kernel
    /// limits to 11 %.
    ///
    /// The counters of all cores must agree and never stop. The kernel checks the counters, because
    /// its own clock depends on them. If the counter contradicts the clock, the shard measures the
    /// counter's rate again. After repeated contradictions, the shard reads only the monotonic
    /// clock.
    ///
    /// An error of the counter lasts at most until the next reading of the monotonic clock. If the
    /// counter runs ahead, timers may fire up to 10 us early. If the counter falls behind by a time
    /// t, new timers may fire up to t early.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Clock, Config};
    ///
    /// let clock = Clock::fast();
    /// if !clock.is_fast() {
    ///     println!("no fast clock here: this is the monotonic one");
    /// }
    /// Config::new().clock(clock).install()?;
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn fast() -> Self {
        Self(ClockSource::Monotonic { origin: Instant::now(), is_fast: counter::is_usable() })
    }

    /// Returns a clock that, on Linux and Android, also advances while the machine is suspended.
    ///
    /// The clock is `CLOCK_BOOTTIME` on Linux and Android if it can be read, and
    /// [`Clock::monotonic`] otherwise. A reading costs about as much as a reading of the monotonic
    /// clock.
    ///
    /// The timeout of a poll or a park does not advance during a suspension, so a loop may sleep
    /// too long. Call `turn` when the machine resumes or at regular intervals, or wait for a
    /// `TimerFd` (feature `fd`), which follows this clock.
    ///
    /// The instants of this clock are ahead of [`Instant::now`] by the length of all suspensions
    /// since the clock was created. So compute deadlines from [`now`](Self::now).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Clock, Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().clock(Clock::boot_time()).install()?;
    /// local_timer().add(Duration::from_secs(3600), || println!("the lease has ended"));
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn boot_time() -> Self {
        let read_both_clocks = |_| {
            let origin = Instant::now();
            let nanos_at_origin = boot_time_nanos()?;
            Some((origin.elapsed(), ClockSource::BootTime { origin, nanos_at_origin }))
        };
        // Reads both clocks four times, and uses the two readings with the least time between them,
        // because the thread may be interrupted between two readings.
        let quickest_reading = (0..4).filter_map(read_both_clocks).min_by_key(|(took, _)| *took);
        quickest_reading.map_or_else(Self::monotonic, |(_, source)| Self(source))
    }

    /// Returns a clock of your own, such as the clock of a simulator. This clock shows the instant
    /// `origin` plus `elapsed()`.
    ///
    /// Any thread may call `elapsed`. `elapsed` must not block, panic or use corewheel, and its
    /// result must never decrease. If this clock stops or jumps, corewheel does not wake a loop
    /// that sleeps in real time.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Clock, Config, local_timer};
    /// use std::{sync::atomic::{AtomicU64, Ordering}, time::{Duration, Instant}};
    ///
    /// static SIMULATED_MILLIS: AtomicU64 = AtomicU64::new(0);
    /// let elapsed = || Duration::from_millis(SIMULATED_MILLIS.load(Ordering::Relaxed));
    /// Config::new().clock(Clock::from_fn(Instant::now(), elapsed)).install()?;
    ///
    /// local_timer().add(Duration::from_secs(30), || println!("thirty simulated seconds later"));
    /// SIMULATED_MILLIS.store(30_000, Ordering::Relaxed);
    /// assert_eq!(local_timer().turn().fired, 1);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn from_fn(
        origin: Instant,
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self(ClockSource::Function(FunctionClock { origin, elapsed: Some(Arc::new(elapsed)) }))
    }

    /// Returns true if this is [`Clock::fast`] and the machine supports it.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::Clock;
    ///
    /// assert!(!Clock::monotonic().is_fast());
    /// println!("fast clock: {}", Clock::fast().is_fast());
    /// ```
    pub fn is_fast(&self) -> bool {
        matches!(self.0, ClockSource::Monotonic { is_fast: true, .. })
    }

    /// Returns the current time of this clock. Even a fast clock returns the exact time.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Clock, ManualClock};
    /// use std::time::Duration;
    ///
    /// let manual = ManualClock::new();
    /// let clock = Clock::from(&manual);
    /// let before = clock.now();
    /// manual.advance(Duration::from_secs(1));
    /// assert_eq!(clock.now() - before, Duration::from_secs(1));
    /// ```
    pub fn now(&self) -> Instant {
        self.instant_at(self.nanos())
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.0, ClockSource::Manual(_) | ClockSource::Function(_))
    }

    /// Returns a seed for [`When::spread`](crate::When::spread). A real clock gives random seeds,
    /// so that processes that start together spread differently. A virtual clock gives the same
    /// seeds in each run.
    pub(crate) fn next_spread_seed(&self) -> u64 {
        match &self.0 {
            ClockSource::Manual(manual) => manual.next_spread_seed(),
            ClockSource::Function(_) => 0,
            _ => RandomState::new().hash_one(()),
        }
    }

    /// Returns true if a shard's readings of this clock may be inexact.
    pub(crate) fn is_inexact(&self) -> bool {
        match &self.0 {
            #[cfg(all(feature = "models", not(loom)))]
            ClockSource::Manual(manual) => manual.is_inexact(),
            _ => self.is_fast(),
        }
    }

    /// Returns the kernel clock that this clock reads; `None` if its time is virtual.
    #[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
    pub(crate) fn timerfd_clock_id(&self) -> Option<TimerfdClockId> {
        match self.0 {
            ClockSource::Monotonic { .. } => Some(TimerfdClockId::Monotonic),
            ClockSource::BootTime { .. } => Some(TimerfdClockId::Boottime),
            ClockSource::Manual(_) | ClockSource::Function(_) => None,
        }
    }

    /// Returns the exact nanoseconds since the origin.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        if let ClockSource::Manual(manual) = &self.0 { manual.nanos() } else { self.nanos_slow() }
    }

    #[inline(never)]
    fn nanos_slow(&self) -> u64 {
        match &self.0 {
            ClockSource::Monotonic { origin, .. } => saturating_nanos(origin.elapsed()),
            // The kernel clock was readable when this clock was created, so it is readable now.
            ClockSource::BootTime { nanos_at_origin, .. } => {
                boot_time_nanos().map_or(0, |nanos| nanos.saturating_sub(*nanos_at_origin))
            }
            ClockSource::Manual(manual) => manual.nanos(),
            ClockSource::Function(function) => {
                // The function may call `process::exit`, which drops the thread's wheel. Scoped
                // threads may still use the function's captures, which this clone keeps alive.
                let FunctionClock { elapsed, .. } = &function.clone();
                elapsed.as_ref().map_or(0, |elapsed| saturating_nanos(elapsed()))
            }
        }
    }

    /// Returns the reading at `instant`; zero for an instant before the origin.
    pub(crate) fn nanos_at(&self, instant: Instant) -> u64 {
        saturating_nanos(instant.saturating_duration_since(self.origin()))
    }

    /// Converts a reading of `other` to a reading of this clock.
    pub(crate) fn convert_nanos_from(&self, other: &Self, nanos: u64) -> u64 {
        match (&self.0, &other.0) {
            // Subtracts the origins, which are times of `CLOCK_BOOTTIME`, because a conversion
            // through an `Instant` would miss suspensions between the creations of both clocks.
            (
                ClockSource::BootTime { nanos_at_origin: own_origin, .. },
                ClockSource::BootTime { nanos_at_origin: other_origin, .. },
            ) => nanos.saturating_add(*other_origin).saturating_sub(*own_origin),
            // Reads `other` first, so that the result is late by the time between the two readings,
            // and never early.
            (ClockSource::BootTime { .. }, _) | (_, ClockSource::BootTime { .. }) => {
                let remaining = nanos.saturating_sub(other.nanos());
                self.nanos().saturating_add(remaining)
            }
            _ => self.nanos_at(other.instant_at(nanos)),
        }
    }

    /// Returns the instant at which this clock shows `nanos`. For a boot-time clock, the conversion
    /// ignores suspensions of the machine.
    pub(crate) fn instant_at(&self, nanos: u64) -> Instant {
        self.origin() + Duration::from_nanos(nanos)
    }

    /// Returns the instant at which this clock shows zero.
    #[inline]
    pub(crate) fn origin(&self) -> Instant {
        match &self.0 {
            ClockSource::Monotonic { origin, .. } | ClockSource::BootTime { origin, .. } => *origin,
            ClockSource::Manual(manual) => manual.origin(),
            ClockSource::Function(function) => function.origin,
        }
    }
}

/// Reads `CLOCK_BOOTTIME`, which also advances while the machine is suspended. Returns `None` if
/// this clock cannot be read.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
#[allow(unsafe_code)]
fn boot_time_nanos() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes and not shared.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    (result == 0).then(|| u64::try_from(nanos).ok()).flatten()
}

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
fn boot_time_nanos() -> Option<u64> {
    None
}

impl Default for Clock {
    /// Returns the monotonic clock.
    fn default() -> Self {
        Self::monotonic()
    }
}

impl From<ManualClock> for Clock {
    fn from(manual: ManualClock) -> Self {
        Self(ClockSource::Manual(manual))
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Self {
        Self::from(manual.clone())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nanos_round_trip_through_instants() {
        let manual = ManualClock::new();
        manual.set(Duration::from_nanos(1_234_567_891));
        for clock in [Clock::monotonic(), Clock::fast(), Clock::boot_time(), Clock::from(manual)] {
            let nanos = clock.nanos();
            assert_eq!(clock.nanos_at(clock.instant_at(nanos)), nanos);
            assert!(clock.now() >= clock.instant_at(nanos));
        }
    }

    #[test]
    fn a_boot_time_clock_advances() {
        let (clock, start) = (Clock::boot_time(), Instant::now());
        std::thread::sleep(Duration::from_millis(2));
        let elapsed = start.elapsed();
        assert!(Duration::from_nanos(clock.nanos()) >= elapsed);
        assert!(
            cfg!(any(miri, not(target_os = "linux")))
                || matches!(clock.0, ClockSource::BootTime { .. })
        );
    }

    /// The machine was suspended for eight hours between the creation of the two clocks.
    #[test]
    fn boot_time_deadlines_convert_across_suspensions() {
        const HOUR: u64 = 3_600_000_000_000;
        let origin = Instant::now();
        let [early, late] = [HOUR, 9 * HOUR]
            .map(|nanos_at_origin| Clock(ClockSource::BootTime { origin, nanos_at_origin }));
        assert_eq!(late.convert_nanos_from(&early, 9 * HOUR), HOUR);
        assert_eq!(early.convert_nanos_from(&late, HOUR), 9 * HOUR);
        assert_eq!(late.convert_nanos_from(&early, HOUR), 0, "before its origin");
        let monotonic = Clock::monotonic();
        assert_eq!(monotonic.convert_nanos_from(&monotonic.clone(), HOUR), HOUR);
        let boot_time = Clock::boot_time();
        let (before, converted) =
            (boot_time.nanos(), boot_time.convert_nanos_from(&monotonic, monotonic.nanos() + HOUR));
        assert!((before + HOUR - 1_000_000..=boot_time.nanos() + HOUR).contains(&converted));
    }

    #[test]
    fn instants_before_the_origin_read_as_zero() {
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(Clock::monotonic().nanos_at(before), 0);
    }

    #[test]
    fn the_largest_time_is_a_valid_instant() {
        let clock = Clock::monotonic();
        assert!(clock.instant_at(u64::MAX) > clock.now());
    }
}
