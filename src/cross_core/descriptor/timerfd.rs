//! The timerfd behind a `TimerFd`.
//!
//! Arming the timerfd is a system call, so the owner does not arm it again for the same deadline. A
//! thread that wakes the owner calls `trigger`, which replaces the armed deadline. The call of
//! `trigger` may come after the owner's sleep has ended. So `arm` checks whether `trigger` was
//! called since the previous arming.
//!
//! Each call of `trigger` increments `triggers_begun` when it begins, and `triggers_ended` when it
//! ends. If no call of `trigger` is in progress when the owner arms a deadline, the deadline stays
//! armed until the next call begins.

use std::{
    error::Error,
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::{
    error::AddErrorReason,
    util::sync::{AtomicU64, Ordering, SetOnce},
};

/// The longest time from arming the descriptor to its expiry: 68 years.
const ARM_DURATION_MAX: Duration = Duration::from_secs(i32::MAX as u64);

/// The value of `armed_deadline` while no deadline is armed.
const NO_DEADLINE_ARMED: u64 = u64::MAX;

/// The value of `triggers_begun_when_armed` if a call of `trigger` was in progress when the owner
/// armed the descriptor.
const TRIGGER_IN_PROGRESS: u64 = u64::MAX;

/// A timerfd: a file descriptor that becomes readable when its timer expires. Arming the timerfd
/// makes it unreadable, so the owner need not read it.
#[derive(Debug)]
pub(crate) struct TimerDescriptor {
    timerfd: OwnedFd,
    triggers_begun: AtomicU64,
    triggers_ended: AtomicU64,
    /// Only the owner uses `armed_deadline` and `triggers_begun_when_armed`.
    armed_deadline: AtomicU64,
    triggers_begun_when_armed: AtomicU64,
}

/// The descriptor of a shard, opened when first needed. A thread that wakes the owner sees the
/// descriptor if the owner opened it before the fence F1 of the sleep (module `parker`).
#[derive(Debug, Default)]
pub(crate) struct LazyDescriptor(pub(crate) SetOnce<Arc<TimerDescriptor>>);

impl LazyDescriptor {
    pub(crate) fn is_open(&self) -> bool {
        self.0.get().is_some()
    }

    pub(crate) fn trigger(&self) {
        if let Some(descriptor) = self.0.get() {
            descriptor.trigger();
        }
    }
}

impl TimerDescriptor {
    /// Opens a disarmed descriptor.
    pub(crate) fn open(clock: TimerfdClockId) -> io::Result<Self> {
        Ok(Self {
            timerfd: timerfd_create(clock, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
            triggers_begun: AtomicU64::new(0),
            triggers_ended: AtomicU64::new(0),
            armed_deadline: AtomicU64::new(NO_DEADLINE_ARMED),
            triggers_begun_when_armed: AtomicU64::new(0),
        })
    }

    /// Arms the descriptor for `deadline`, in nanoseconds of the owner's clock, unless it is still
    /// armed for `deadline`. `time_left` returns the time from now to the deadline. If `deadline`
    /// and the result of `time_left` are `None`, disarms the descriptor.
    pub(crate) fn arm(&self, deadline: Option<u64>, time_left: impl FnOnce() -> Option<Duration>) {
        let deadline = deadline.unwrap_or(NO_DEADLINE_ARMED);
        let trigger_count = self.trigger_count_unless_triggering();
        // Both `Relaxed`: only the owner uses the two fields loaded here.
        let is_armed_for_deadline = deadline == self.armed_deadline.load(Ordering::Relaxed);
        if is_armed_for_deadline
            && trigger_count == Some(self.triggers_begun_when_armed.load(Ordering::Relaxed))
        {
            return;
        }
        self.set_expiry(time_left());
        // Both `Relaxed`: only the owner uses the two fields stored here. Stores the count from
        // before `set_expiry`: a call of `trigger` since then may have replaced `deadline`.
        self.triggers_begun_when_armed
            .store(trigger_count.unwrap_or(TRIGGER_IN_PROGRESS), Ordering::Relaxed);
        self.armed_deadline.store(deadline, Ordering::Relaxed);
    }

    /// Makes the descriptor readable, until a thread reads it or the owner arms it again. Any
    /// thread may call this.
    pub(crate) fn trigger(&self) {
        // Relaxed: the kernel's lock orders this increment before the effect of `timerfd_settime`.
        self.triggers_begun.fetch_add(1, Ordering::Relaxed);
        self.set_expiry(Some(Duration::ZERO));
        // Release: a thread that sees this increment also sees the increment of `triggers_begun`;
        // pairs with the Acquire of `trigger_count_unless_triggering`.
        self.triggers_ended.fetch_add(1, Ordering::Release);
    }

    /// Returns the value of `triggers_begun`, or `None` if a call of `trigger` is in progress.
    fn trigger_count_unless_triggering(&self) -> Option<u64> {
        // Acquire: pairs with the Release of `trigger`, so that `triggers_begun` is at least
        // `triggers_ended`.
        let triggers_ended = self.triggers_ended.load(Ordering::Acquire);
        // Relaxed: this load may miss a call of `trigger` that has just begun. If `arm` leaves the
        // expiry unchanged, the missed `trigger` makes the descriptor readable. If `arm` sets a new
        // expiry, it may replace the expiry of the missed `trigger`. So the owner checks for
        // requests after `arm`.
        let triggers_begun = self.triggers_begun.load(Ordering::Relaxed);
        (triggers_begun == triggers_ended).then_some(triggers_begun)
    }

    fn set_expiry(&self, delay: Option<Duration>) {
        let expiry =
            Itimerspec { it_interval: DISARMED, it_value: delay.map_or(DISARMED, timespec) };
        // `timerfd_settime` fails only for an invalid time, or for a descriptor that is no timerfd.
        timerfd_settime(&self.timerfd, TimerfdTimerFlags::empty(), &expiry)
            .expect("a timerfd can be armed");
    }
}

impl AsFd for TimerDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timerfd.as_fd()
    }
}

/// An expiry of zero disarms a timerfd.
const DISARMED: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn timespec(delay: Duration) -> Timespec {
    Timespec::try_from(delay.clamp(Duration::from_nanos(1), ARM_DURATION_MAX))
        .expect("the kernel accepts such a duration")
}

/// The reason why a thread's wheel has no file descriptor.
///
/// # Examples
///
/// ```
/// use corewheel::{Config, ManualClock, TimerFdError, local_timer};
///
/// Config::new().clock(ManualClock::new()).install().unwrap();
/// assert!(matches!(local_timer().timer_fd(), Err(TimerFdError::VirtualTime)));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum TimerFdError {
    /// The wheel's time is virtual ([`ManualClock`](crate::ManualClock) or
    /// [`Clock::from_fn`](crate::Clock::from_fn)), so the kernel cannot wait for it.
    VirtualTime,
    /// The thread has no wheel; the [`AddErrorReason`] says why.
    NoWheel(AddErrorReason),
    /// The system refused a descriptor, for example because too many files are open.
    Io(io::Error),
}

impl fmt::Display for TimerFdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VirtualTime => f.write_str("no file descriptor can follow virtual time"),
            Self::NoWheel(reason) => write!(f, "no wheel: {reason}"),
            Self::Io(_) => f.write_str("the system refused a timer descriptor"),
        }
    }
}

impl Error for TimerFdError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::VirtualTime | Self::NoWheel(_) => None,
        }
    }
}

impl From<TimerFdError> for io::Error {
    fn from(error: TimerFdError) -> Self {
        match error {
            TimerFdError::Io(error) => error,
            TimerFdError::VirtualTime => Self::new(io::ErrorKind::Unsupported, error),
            TimerFdError::NoWheel(reason) => Self::new(reason.io_kind(), error),
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    fn remaining(descriptor: &TimerDescriptor) -> Duration {
        let time_left =
            rustix::time::timerfd_gettime(&descriptor.timerfd).expect("a timerfd").it_value;
        Duration::try_from(time_left).expect("not negative")
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_descriptor_is_not_rearmed_for_the_same_deadline() {
        let descriptor = TimerDescriptor::open(TimerfdClockId::Monotonic).expect("a descriptor");
        descriptor.arm(Some(7), || Some(MINUTE));
        descriptor.arm(Some(7), || unreachable!("armed for this deadline"));
        assert!(remaining(&descriptor) > MINUTE / 2);
        descriptor.arm(None, || None);
        descriptor.arm(None, || unreachable!("already disarmed"));
        assert_eq!(remaining(&descriptor), Duration::ZERO);
    }

    #[test]
    fn a_descriptor_is_rearmed_after_a_trigger() {
        let descriptor = TimerDescriptor::open(TimerfdClockId::Monotonic).expect("a descriptor");
        descriptor.arm(Some(7), || Some(MINUTE));
        descriptor.trigger();
        assert!(remaining(&descriptor) < MINUTE / 2);
        descriptor.arm(Some(7), || Some(MINUTE));
        assert!(remaining(&descriptor) > MINUTE / 2);
    }

    #[test]
    fn a_descriptor_is_rearmed_while_a_trigger_is_in_progress() {
        let descriptor = TimerDescriptor::open(TimerfdClockId::Monotonic).expect("a descriptor");
        descriptor.triggers_begun.fetch_add(1, Ordering::Relaxed);
        for _ in 0..3 {
            descriptor.arm(Some(7), || Some(MINUTE));
            // Imitates the system call that `trigger` makes.
            descriptor.set_expiry(Some(Duration::ZERO));
            descriptor.arm(Some(7), || Some(MINUTE));
            assert!(remaining(&descriptor) > MINUTE / 2);
        }
        descriptor.triggers_ended.fetch_add(1, Ordering::Relaxed);
        descriptor.arm(Some(7), || Some(MINUTE));
        descriptor.arm(Some(7), || unreachable!("armed for this deadline"));
    }
}
