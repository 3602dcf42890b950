//! An allocator that counts while counting is on. In timed runs it costs one branch per call, for
//! all peers alike.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicI64 = AtomicI64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, counted.
pub struct Counting;

/// Counts from now on, from zero.
pub fn start_counting() {
    COUNTING.store(true, Ordering::Relaxed);
}

pub fn allocations() -> i64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Bytes that are allocated now and were not when counting started.
pub fn bytes() -> i64 {
    BYTES.load(Ordering::Relaxed)
}

/// Relaxed throughout: the counters order nothing, and are read on the thread that allocates.
#[inline]
fn count(allocations: i64, grown: usize, shrunk: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
        // No object is greater than `isize::MAX`.
        BYTES
            .fetch_add(grown.cast_signed() as i64 - shrunk.cast_signed() as i64, Ordering::Relaxed);
    }
}

// SAFETY: every method passes its arguments on to the system's allocator and returns what that
// returned; the counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size, layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, 0, layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}
