//! An allocator that counts bytes in runs that measure memory.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATED_BYTES: AtomicI64 = AtomicI64::new(0);

pub struct CountingAllocator;

pub fn start_counting() {
    IS_COUNTING.store(true, Ordering::Relaxed);
}

/// Returns the bytes allocated minus the bytes freed since counting started.
pub fn allocated_bytes() -> i64 {
    ALLOCATED_BYTES.load(Ordering::Relaxed)
}

/// Relaxed throughout: the counter orders nothing, and is read on the thread that allocates.
#[inline]
fn count_bytes(allocated: usize, freed: usize) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        // An allocation has at most `isize::MAX` bytes.
        ALLOCATED_BYTES.fetch_add(
            allocated.cast_signed() as i64 - freed.cast_signed() as i64,
            Ordering::Relaxed,
        );
    }
}

// SAFETY: every method forwards its arguments to the system's allocator and returns its result.
// Counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_bytes(layout.size(), 0);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_bytes(layout.size(), 0);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_bytes(size, layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_bytes(0, layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}
