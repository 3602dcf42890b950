//! A timerfd: the kernel's side of a `TimerFd`, and the only file that names `rustix`.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::KernelClock;

/// The furthest that it is armed ahead, 68 years: whoever waits for longer wakes up once for nothing.
const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

/// Becomes readable when it expires, and unreadable when it is armed again: nobody has to read it.
#[derive(Debug)]
pub(crate) struct Descriptor(OwnedFd);

impl Descriptor {
    /// A silent one.
    pub(crate) fn open(clock: KernelClock) -> io::Result<Self> {
        let clock = match clock {
            KernelClock::Monotonic => TimerfdClockId::Monotonic,
            KernelClock::BootTime => TimerfdClockId::Boottime,
        };
        Ok(Self(timerfd_create(clock, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?))
    }

    /// It is readable once that has passed, and not before; `None` means never. On any thread: the last one counts.
    pub(crate) fn arm(&self, after: Option<Duration>) {
        let expires = Itimerspec { it_interval: NEVER, it_value: after.map_or(NEVER, timespec) };
        // The kernel refuses only what is no timerfd and no time.
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &expires).expect("a timerfd can be armed");
    }

    /// It is readable at once. On any thread.
    pub(crate) fn fire(&self) {
        self.arm(Some(Duration::ZERO));
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// To the kernel zero means never.
const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn timespec(after: Duration) -> Timespec {
    Timespec::try_from(after.clamp(Duration::from_nanos(1), LONGEST)).expect("the kernel knows so long a time")
}
