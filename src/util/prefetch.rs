//! Prefetches cache lines.

#![allow(unsafe_code)]

/// Begins to load the first and the last cache line of `value` on x86-64. Does nothing elsewhere.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    let first = core::ptr::from_ref(value).cast::<u8>();
    prefetch_line(first);
    if size_of::<T>() > 8 {
        prefetch_line(first.wrapping_add(size_of::<T>() - 1));
    }
}

#[inline(always)]
fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect that the program can observe, and never faults; SSE is part
    // of x86_64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
