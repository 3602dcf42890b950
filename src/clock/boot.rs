//! The clock that counts time in suspension: `CLOCK_BOOTTIME`, which only Linux has.

/// Nanoseconds since the machine was started; `None` where that cannot be asked. miri has no such clock.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
#[allow(unsafe_code)]
pub(super) fn nanos() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the answer, and nobody else's.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    (answer == 0).then(|| u64::try_from(nanos).ok()).flatten()
}

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
pub(super) fn nanos() -> Option<u64> {
    None
}
