//! Prefetches cache lines.

#![allow(unsafe_code)]

/// Begins to load the first and the last cache line of `value` on x86-64, to be written. Does
/// nothing elsewhere.
///
/// If another core has written a line, a load followed by a write would fetch the line twice: to
/// share it, and then to own it.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    let first_byte = core::ptr::from_ref(value).cast::<u8>();
    prefetch_line(first_byte);
    if size_of::<T>() > 8 {
        prefetch_line(first_byte.wrapping_add(size_of::<T>() - 1));
    }
}

#[inline(always)]
fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect that the program can observe, and never faults. An x86-64
    // processor without PREFETCHW executes it as a no-op. `_mm_prefetch` emits PREFETCHW only if
    // the compiler may assume that the processor has this instruction.
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) address.addr(),
            options(nomem, nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
