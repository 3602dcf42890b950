//! `std`'s primitives.

use std::sync::{Mutex, atomic::compiler_fence};
pub(crate) use std::{
    sync::{
        OnceLock as SetOnce,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::{Thread, current as this_thread, park, park_timeout, yield_now},
};

pub(crate) const EPOCH_USES_LOOM: bool = false;

/// Executes a fence. The caller's previous atomic operation must be a read-modify-write, which is a
/// full fence on x86. So a compiler fence suffices there.
#[inline]
pub(crate) fn fence_after_rmw(ordering: Ordering) {
    if cfg!(all(any(target_arch = "x86", target_arch = "x86_64"), not(miri))) {
        compiler_fence(ordering);
    } else {
        fence(ordering);
    }
}

/// A lock that never blocks: an attempt to acquire it fails if it is held.
#[derive(Debug)]
pub(crate) struct TryLock<T>(Mutex<T>);

impl<T> TryLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Calls `action` under the lock. Returns `None` if the lock is held or poisoned.
    pub(crate) fn try_with_lock<R>(&self, action: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_lock().ok().map(|mut value| action(&mut value))
    }
}

/// A value that only one thread at a time uses.
pub(crate) struct Exclusive<T>(T);

#[allow(unsafe_code)]
impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    /// # Safety
    ///
    /// No other thread uses the value while this thread uses the returned reference.
    #[inline]
    pub(crate) unsafe fn get(&self) -> &T {
        &self.0
    }
}

/// Does nothing; loom's version shows loom the memory order of a `crossbeam-epoch` pointer.
#[derive(Debug, Default)]
pub(crate) struct LoomPointerOrdering {}

#[expect(clippy::unused_self, reason = "the interface is that of loom's version")]
impl LoomPointerOrdering {
    #[inline]
    pub(crate) fn order_before_store(&self) {}

    #[inline]
    pub(crate) fn acquire_before_load(&self) {}
}

/// Does nothing; loom's version asserts that no thread reads a value after `forbid_reads`.
#[derive(Debug, Default)]
pub(crate) struct UseAfterFreeCheck {}

#[expect(clippy::unused_self, reason = "the interface is that of loom's version")]
impl UseAfterFreeCheck {
    #[inline]
    pub(crate) fn forbid_reads(&self) {}
}

/// Declares a thread local that is initialized at compile time.
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
        std::thread_local! { $(#[$attribute])* static $name: $type = const { $value }; }
    };
}

pub(crate) use per_thread;
