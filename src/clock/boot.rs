//! The clock that also advances while the machine is suspended: `CLOCK_BOOTTIME`, on Linux and
//! Android.

/// Returns the nanoseconds since the machine started, or `None` if the clock cannot be read.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
#[allow(unsafe_code)]
pub(super) fn nanos() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes and not shared.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    (result == 0).then(|| u64::try_from(nanos).ok()).flatten()
}

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
pub(super) fn nanos() -> Option<u64> {
    None
}
