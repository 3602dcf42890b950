//! A file descriptor that is readable when a shard's owner should turn: a timerfd, with the feature
//! `fd` on Linux.

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
mod timerfd;

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub use self::timerfd::TimerFdError;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub(crate) use self::timerfd::{Descriptor, LazyDescriptor};

/// Replaces the descriptor on platforms without one.
#[cfg(not(all(feature = "fd", any(target_os = "linux", target_os = "android"))))]
#[derive(Debug, Default)]
pub(crate) struct LazyDescriptor {}

#[cfg(not(all(feature = "fd", any(target_os = "linux", target_os = "android"))))]
#[expect(clippy::unused_self, reason = "the interface is that of the real one")]
impl LazyDescriptor {
    pub(crate) fn fire(&self) {}
}
