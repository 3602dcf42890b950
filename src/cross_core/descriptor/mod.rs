//! The timerfd of a shard, which becomes readable when the owner must call `turn`.

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
mod timerfd;

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub use self::timerfd::*;

/// Replaces `timerfd::LazyDescriptor` in builds without the timerfd.
#[cfg(not(all(feature = "fd", any(target_os = "linux", target_os = "android"))))]
#[derive(Debug, Default)]
pub(crate) struct LazyDescriptor {}

#[cfg(not(all(feature = "fd", any(target_os = "linux", target_os = "android"))))]
#[expect(clippy::unused_self, reason = "the interface of `timerfd::LazyDescriptor`")]
impl LazyDescriptor {
    pub(crate) fn is_open(&self) -> bool {
        false
    }

    pub(crate) fn trigger(&self) {}
}
