//! Loom's primitives, and wrappers that show loom how code uses other primitives: the memory order
//! that code relies on, whether a lock is held, and accesses that must be exclusive.

use std::{
    sync::{Mutex, OnceLock},
    time::Duration,
};

use loom::cell::UnsafeCell;
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence, fence as fence_after_rmw},
    thread::{Thread, current as this_thread, park, yield_now},
};

/// Parks without a timeout, because no time passes in a model.
pub(crate) fn park_timeout(_: Duration) {
    park();
}

/// True if `crossbeam-epoch` uses loom's atomics, so that loom sees its pointers.
pub(crate) const EPOCH_USES_LOOM: bool = cfg!(crossbeam_loom);

/// A lock that never blocks. A flag beside the `Mutex` shows loom whether the lock is held. Loom
/// does not see the memory order of the `Mutex`; no code relies on that order.
#[derive(Debug)]
pub(crate) struct TryLock<T> {
    value: Mutex<T>,
    is_locked: AtomicBool,
}

impl<T> TryLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), is_locked: AtomicBool::new(false) }
    }

    /// Calls `action` under the lock. Returns `None` if the lock is held or poisoned.
    pub(crate) fn try_with_lock<R>(&self, action: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Relaxed: no code relies on the lock's memory order. A swap would not suffice: loom would
        // let threads read the swap's `true` even after the release of the lock.
        let lock_attempt =
            self.is_locked.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed);
        lock_attempt.ok()?;
        let result = self.value.try_lock().ok().map(|mut value| action(&mut value));
        // Relaxed: no code relies on the lock's memory order.
        self.is_locked.store(false, Ordering::Relaxed);
        result
    }
}

/// A value that only one thread at a time uses. Loom checks only the calls of `get`, so a caller
/// must stop using the returned reference before its next atomic operation.
pub(crate) struct Exclusive<T> {
    value: T,
    access_check: UnsafeCell<()>,
}

#[allow(unsafe_code)]
impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, access_check: UnsafeCell::new(()) }
    }

    /// # Safety
    ///
    /// No other thread uses the value while this thread uses the returned reference.
    pub(crate) unsafe fn get(&self) -> &T {
        self.access_check.with_mut(|_| ());
        &self.value
    }
}

/// A value that is set once and then visible to all threads. `is_set` models the memory order of
/// the `OnceLock` for loom.
#[derive(Debug)]
pub(crate) struct SetOnce<T> {
    value: OnceLock<T>,
    is_set: AtomicBool,
}

impl<T> SetOnce<T> {
    pub(crate) fn new() -> Self {
        Self { value: OnceLock::new(), is_set: AtomicBool::new(false) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire: the guarantee of `OnceLock::get`; pairs with the Release of `get_or_init`.
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.value.get()
    }

    pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let value = self.value.get_or_init(init);
        // Release: the guarantee of `OnceLock::get_or_init`; pairs with the Acquire of `get`.
        self.is_set.store(true, Ordering::Release);
        value
    }
}

/// Shows loom the memory order of a `crossbeam-epoch` pointer, if loom does not see the pointer. A
/// thread that reads the pointer after a change also sees the writes before that change.
///
/// Callers access the pointer immediately after `order_before_store` or `acquire_before_load`. Loom
/// switches threads only before its own operations, so the caller's access uses the newest pointer.
/// The read-modify-writes of `change_count` read its newest value too.
#[derive(Debug, Default)]
pub(crate) struct LoomPointerOrdering {
    change_count: AtomicU32,
}

impl LoomPointerOrdering {
    pub(crate) fn order_before_store(&self) {
        if !EPOCH_USES_LOOM {
            // AcqRel: the ordering of the pointer's swap or compare-and-swap; pairs with the
            // Acquire in `acquire_before_load`, and with other calls of `order_before_store`.
            self.change_count.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn acquire_before_load(&self) {
        if !EPOCH_USES_LOOM {
            // Acquire: imitates the pointer's Acquire load, which loom does not see; pairs with the
            // Release in `order_before_store`.
            self.change_count.fetch_add(0, Ordering::Acquire);
        }
    }
}

/// If [`EPOCH_USES_LOOM`] is true, asserts that no thread reads a value after `forbid_reads`.
#[derive(Debug, Default)]
pub(crate) struct UseAfterFreeCheck {
    reads_forbidden: AtomicBool,
}

impl UseAfterFreeCheck {
    /// Asserts that `forbid_reads` has not been called. Called at the end of each read.
    pub(crate) fn assert_read_allowed(&self) {
        if EPOCH_USES_LOOM {
            // Relaxed: the assertion orders nothing. A read that happens before `forbid_reads`
            // cannot see the store of `forbid_reads`.
            assert!(
                !self.reads_forbidden.load(Ordering::Relaxed),
                "a value was read after its release"
            );
        }
    }

    pub(crate) fn forbid_reads(&self) {
        if EPOCH_USES_LOOM {
            // Relaxed: publishes nothing, see `assert_read_allowed`.
            self.reads_forbidden.store(true, Ordering::Relaxed);
        }
    }
}

/// Declares a global that is initialized by its first use in each execution of a model.
#[cfg(crossbeam_loom)]
macro_rules! global {
    (static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! { static ref $name: $type = $value; }
    };
}

/// Declares a thread local that is initialized by its first use.
#[cfg(crossbeam_loom)]
macro_rules! lazy_per_thread {
    (static $name:ident: $type:ty = $value:expr;) => {
        loom::thread_local! { static $name: $type = $value; }
    };
}

/// Declares a thread local for each thread of a model.
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
        loom::thread_local! { $(#[$attribute])* static $name: $type = $value; }
    };
}

pub(crate) use per_thread;
#[cfg(crossbeam_loom)]
pub(crate) use {global, global as const_static, lazy_per_thread};
