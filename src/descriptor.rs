//! A file descriptor that is readable when a shard's owner should turn: a timerfd, with the feature
//! `fd` on Linux.

#[cfg(not(all(feature = "fd", any(target_os = "linux", target_os = "android"))))]
#[path = "descriptor/none.rs"]
pub(crate) mod timerfd;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub(crate) mod timerfd;

pub(crate) use self::timerfd::*;
