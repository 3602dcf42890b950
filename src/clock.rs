//! What time it is: the machine's monotonic clock, the same read by way of the processor's counter, a clock that goes on
//! while the machine is suspended, or virtual time that a test moves by hand.
//!
//! # The contract of a clock
//!
//! A clock counts nanoseconds from an origin of its own and can translate an [`Instant`] into that count. It need
//! not be monotonic: a shard holds the latest reading it has seen, so a clock that goes back stands still for its
//! timers until it has caught up, and [`Counts::clock_regressions`](crate::Counts::clock_regressions) tells. Readings
//! saturate after 2^64 nanoseconds, 584 years after the origin.
//!
//! A shard does not read the clock but has a [`Reader`] for it, whose readings are intervals: the fast clock knows
//! where the time lies, not what it is.

mod boot;
mod counter;
mod follower;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub(crate) mod kernel;
mod manual;
mod reader;

use std::time::{Duration, Instant};

pub use self::manual::ManualClock;
pub(crate) use self::reader::{Reader, Reading};
use crate::tick::saturating_nanos;

/// The clock of a shard.
///
/// Cloning gives the same clock: shards that share one agree on the time.
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
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Monotonic {
        origin: Instant,
    },
    /// The monotonic clock, which readers follow by the counter.
    Fast {
        origin: Instant,
    },
    /// The instant of creation stands for what the clock showed then.
    BootTime {
        origin: Instant,
        shown: u64,
    },
    Manual(ManualClock),
}

impl Clock {
    /// The machine's monotonic clock: what [`Instant::now`] reads. A reading costs about 25 ns.
    pub fn monotonic() -> Self {
        Self(Source::Monotonic { origin: Instant::now() })
    }

    /// The machine's monotonic clock, read by way of the processor's time-stamp counter. A reading costs what reading that
    /// counter costs, 10 ns where the monotonic clock's costs 25, and says only where the time lies: in an interval at most
    /// 10 us wide, 4 us on average. Adding and resetting use its later end, turns the earlier one, so a timer is still never
    /// early, and fires up to 10 us later than with the monotonic clock.
    ///
    /// Use it where a loop adds, resets or turns more than once in ten microseconds. At less than that every reading looks at
    /// the monotonic clock after all and costs both, about 30 ns more. Do not use it for ticks near 10 us and below.
    ///
    /// There is one on `x86_64` under Linux, if the counter is invariant and is what the kernel takes its own time from:
    /// `/sys/devices/system/clocksource/clocksource0/current_clocksource` says `tsc` (in virtual machines it often says
    /// `kvm-clock`, and can be changed) or cannot be read. Elsewhere this is the monotonic clock;
    /// [`is_fast`](Self::is_fast) tells.
    ///
    /// # What it rests on
    ///
    /// Each shard looks at the monotonic clock once in some 13 us and believes the counter in between. The counter's rate is
    /// learned from such looks: until then, for the first milliseconds, readings are monotonic ones. The interval allows for
    /// a clock that the kernel steers by up to 11 %, the most it does.
    ///
    /// The counters of all cores must agree and never stand still. The kernel watches over that, because its own clock would
    /// be wrong otherwise. A counter that jumps out of those 13 us (another machine, a suspension) is not believed; if it no
    /// longer fits the clock, its rate is learned again, and a shard goes back to monotonic readings for good when that
    /// keeps happening. What can only be noticed at the next look is a counter that goes wrong and still shows a time within those
    /// 13 us. If it is ahead, timers may fire up to 10 us early; if it fell behind, what is added then may be early by as
    /// much as it fell behind.
    pub fn fast() -> Self {
        let origin = Instant::now();
        Self(if counter::is_usable() {
            Source::Fast { origin }
        } else {
            Source::Monotonic { origin }
        })
    }

    /// A monotonic clock that goes on while the machine is suspended (`CLOCK_BOOTTIME` of Linux; elsewhere this is the
    /// monotonic clock): a lease of an hour ends an hour later, also on a machine that slept for most of it. A reading
    /// costs about as much as the monotonic clock's.
    ///
    /// It moves timers, not the sleep of the loop: a poll or a park that was given a timeout takes it as time awake. Turn
    /// when the machine resumes, or at least every so often; or wait for a `TimerFd` (feature `fd`), which counts as this clock
    /// does.
    ///
    /// Instants of this clock (from [`now`](Self::now), and of deadlines) are ahead of [`Instant::now`] by the
    /// time that the machine was suspended since the clock was made.
    pub fn boot_time() -> Self {
        let origin = Instant::now();
        Self(
            boot::nanos()
                .map_or(Source::Monotonic { origin }, |shown| Source::BootTime { origin, shown }),
        )
    }

    /// Whether this is [`Clock::fast`] on a machine that has what it takes.
    pub fn is_fast(&self) -> bool {
        matches!(self.0, Source::Fast { .. })
    }

    /// What time it is by this clock: exact, also by the fast one.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::Monotonic { .. } | Source::Fast { .. } => Instant::now(),
            Source::BootTime { .. } => self.instant_at(self.nanos()),
            Source::Manual(manual) => manual.now(),
        }
    }

    /// Whether it may show less than before.
    #[inline]
    pub(crate) fn may_go_back(&self) -> bool {
        matches!(self.0, Source::Manual(_))
    }

    /// What a shard reads this clock with.
    pub(crate) fn reader(&self) -> Reader {
        Reader::new(self.is_fast())
    }

    /// Nanoseconds since the origin, exact.
    pub(crate) fn nanos(&self) -> u64 {
        match &self.0 {
            Source::Monotonic { origin } | Source::Fast { origin } => {
                saturating_nanos(origin.elapsed())
            }
            // A clock that answered once goes on answering.
            Source::BootTime { shown, .. } => {
                boot::nanos().map_or(0, |nanos| nanos.saturating_sub(*shown))
            }
            Source::Manual(manual) => manual.nanos(),
        }
    }

    /// The reading this clock shows at `instant`; zero if that was before the origin.
    pub(crate) fn nanos_at(&self, instant: Instant) -> u64 {
        saturating_nanos(instant.saturating_duration_since(self.origin()))
    }

    /// What this clock shows when `other` shows `nanos`.
    pub(crate) fn nanos_of(&self, other: &Self, nanos: u64) -> u64 {
        match (&self.0, &other.0) {
            // Both count from the machine's start. (An `Instant` does not say what was slept through in between.)
            (Source::BootTime { shown: here, .. }, Source::BootTime { shown: there, .. }) => {
                nanos.saturating_add(*there).saturating_sub(*here)
            }
            // What is left of it; later by what passes between the two readings.
            (Source::BootTime { .. }, _) | (_, Source::BootTime { .. }) => {
                let left = nanos.saturating_sub(other.nanos());
                self.nanos().saturating_add(left)
            }
            _ => self.nanos_at(other.instant_at(nanos)),
        }
    }

    /// The instant at which this clock shows `nanos`.
    pub(crate) fn instant_at(&self, nanos: u64) -> Instant {
        let origin = self.origin();
        // On a platform whose `Instant` cannot hold 584 years, a year from the origin stands for "out of sight".
        origin
            .checked_add(Duration::from_nanos(nanos))
            .unwrap_or_else(|| origin + Duration::from_secs(365 * 86_400))
    }

    fn origin(&self) -> Instant {
        match &self.0 {
            Source::Monotonic { origin }
            | Source::Fast { origin }
            | Source::BootTime { origin, .. } => *origin,
            Source::Manual(manual) => manual.origin(),
        }
    }
}

impl Default for Clock {
    /// The monotonic clock.
    fn default() -> Self {
        Self::monotonic()
    }
}

impl From<ManualClock> for Clock {
    fn from(manual: ManualClock) -> Self {
        Self(Source::Manual(manual))
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
    fn nanos_and_instants_agree() {
        let manual = ManualClock::new();
        manual.set(Duration::from_nanos(1_234_567_891));
        for clock in [Clock::monotonic(), Clock::fast(), Clock::boot_time(), Clock::from(manual)] {
            let nanos = clock.nanos();
            assert_eq!(clock.nanos_at(clock.instant_at(nanos)), nanos);
            assert!(clock.now() >= clock.instant_at(nanos));
        }
    }

    #[test]
    fn boot_time_passes() {
        let (clock, begun) = (Clock::boot_time(), Instant::now());
        std::thread::sleep(Duration::from_millis(2));
        let passed = begun.elapsed();
        assert!(Duration::from_nanos(clock.nanos()) >= passed);
        assert!(
            cfg!(any(miri, not(target_os = "linux"))) || matches!(clock.0, Source::BootTime { .. })
        );
    }

    /// Between the making of the two the machine was suspended for eight hours.
    #[test]
    fn a_suspension_between_two_clocks_changes_no_deadline() {
        const HOUR: u64 = 3_600_000_000_000;
        let origin = Instant::now();
        let [early, late] = [HOUR, 9 * HOUR].map(|shown| Clock(Source::BootTime { origin, shown }));
        assert_eq!(late.nanos_of(&early, 9 * HOUR), HOUR);
        assert_eq!(early.nanos_of(&late, HOUR), 9 * HOUR);
        assert_eq!(late.nanos_of(&early, HOUR), 0, "before it was made");
        let monotonic = Clock::monotonic();
        assert_eq!(monotonic.nanos_of(&monotonic.clone(), HOUR), HOUR);
        let boot = Clock::boot_time();
        let (before, there) = (boot.nanos(), boot.nanos_of(&monotonic, monotonic.nanos() + HOUR));
        assert!(
            (before + HOUR - 1_000_000..=boot.nanos() + HOUR).contains(&there),
            "an hour is left"
        );
    }

    #[test]
    fn instants_before_the_origin_are_its_zero() {
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(Clock::monotonic().nanos_at(before), 0);
    }

    #[test]
    fn the_end_of_time_is_an_instant() {
        let clock = Clock::monotonic();
        assert!(clock.instant_at(u64::MAX) > clock.now());
    }
}
