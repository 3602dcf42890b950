//! The kernel's clock that a timerfd counts by.

use super::{Clock, Source};

/// A clock of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelClock {
    Monotonic,
    BootTime,
}

impl Clock {
    /// Returns the kernel's clock behind this one; `None` if its time is virtual.
    pub(crate) fn of_the_kernel(&self) -> Option<KernelClock> {
        match self.0 {
            Source::Monotonic { .. } | Source::Fast { .. } => Some(KernelClock::Monotonic),
            Source::BootTime { .. } => Some(KernelClock::BootTime),
            Source::Manual(_) => None,
        }
    }
}
