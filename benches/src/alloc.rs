//! An allocator that counts bytes in runs that measure memory.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicI64 = AtomicI64::new(0);

pub struct Counting;

pub fn start_counting() {
    COUNTING.store(true, Ordering::Relaxed);
}

/// Returns the bytes allocated minus the bytes freed since counting started.
pub fn bytes() -> i64 {
    BYTES.load(Ordering::Relaxed)
}

/// Relaxed throughout: the counter orders nothing, and is read on the thread that allocates.
#[inline]
fn count(grown: usize, shrunk: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        // An allocation has at most `isize::MAX` bytes.
        BYTES
            .fetch_add(grown.cast_signed() as i64 - shrunk.cast_signed() as i64, Ordering::Relaxed);
    }
}

// SAFETY: every method forwards its arguments to the system's allocator and returns its result.
// Counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}
