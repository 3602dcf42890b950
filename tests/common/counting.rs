//! A global allocator that counts the bytes of all threads, and the calls of each thread.
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicI64, Ordering},
};

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static ALLOCATED_BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// The numbers of this thread's allocations and frees.
    static CALLS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

fn record(allocated_bytes: usize, freed_bytes: usize) {
    let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    ALLOCATED_BYTES.fetch_add(signed(allocated_bytes) - signed(freed_bytes), Ordering::Relaxed);
    // A thread whose locals are destroyed is not counted.
    let _ = CALLS.try_with(|calls| {
        let (allocated, freed) = calls.get();
        calls.set((allocated + u64::from(allocated_bytes > 0), freed + u64::from(freed_bytes > 0)));
    });
}

// The default methods call these two, so a reallocation counts as both.
//
// SAFETY: every method passes its arguments on to the system's allocator and returns its result.
// The counting allocates nothing, since the thread's counter needs neither lazy initialization nor
// a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size(), 0);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        record(0, layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

pub(crate) fn allocated_bytes() -> i64 {
    ALLOCATED_BYTES.load(Ordering::Relaxed)
}

/// Returns the numbers of this thread's allocations and frees during `run`.
pub(crate) fn allocator_calls(run: impl FnOnce()) -> (u64, u64) {
    let before = CALLS.get();
    run();
    let after = CALLS.get();
    (after.0 - before.0, after.1 - before.1)
}
