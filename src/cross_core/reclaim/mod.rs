//! Decides when shared memory can be freed: after every thread that could have seen it has
//! unpinned. Only this module uses `crossbeam_epoch`.
//!
//! A thread must be *pinned* while it uses a value that it found in an [`EpochArc`] or an
//! [`EpochPointer`]. A [`Pinned`] proves that its thread is pinned. A retracted value is released
//! once all threads that were pinned at the retraction have unpinned.
//!
//! # Which thread frees
//!
//! The release of a retracted value is *deferred work*: `crossbeam_epoch` runs the release later,
//! on any thread that pins. Cancellers pin too, and should not spend time on freeing memory. So
//! deferred work frees neither pages of nodes nor shards:
//!
//! * Deferred work marks a page of nodes as reclaimable. The owner frees the marked page later
//!   (module `slab`). If the shard ends before the owner frees the page, a thread that later ends
//!   another shard frees it.
//! * Deferred work moves the registry's reference to a shard to `GARBAGE`. The next thread that
//!   ends a shard drops all references in `GARBAGE`, usually even the reference to the shard that
//!   it has just ended.
//!
//! corewheel has its own epoch collector, so that other users of `crossbeam_epoch` cannot delay
//! corewheel's freeing of memory, and corewheel never runs their deferred work.
//!
//! The move to `GARBAGE` needs a lock. If another thread holds the lock, the move is deferred
//! again, so that deferred work never waits.

use std::{
    mem,
    ops::Deref,
    ptr::NonNull,
    sync::{Arc, Mutex, TryLockError},
};

use crossbeam_epoch::{self as epoch, Atomic, Collector, Guard, LocalHandle, Shared};

use crate::{
    limits::EPOCH_ADVANCE_TRIES,
    util::sync::{EPOCH_USES_LOOM, Ordering, global, lazy_per_thread, lock},
};

global! {
    static COLLECTOR: Collector = Collector::new();
}

lazy_per_thread! {
    static PARTICIPANT: LocalHandle = COLLECTOR.register();
}

/// Retracted values that no pinned thread uses any more.
static GARBAGE: Mutex<Vec<Arc<dyn Send + Sync>>> = Mutex::new(Vec::new());

/// Proof that this thread is pinned: no value that the thread finds in an [`EpochArc`] or
/// [`EpochPointer`] is freed. Keep a `Pinned` only briefly, because it delays the release of all
/// retracted values.
#[derive(Debug)]
pub(crate) struct Pinned(Guard);

#[inline]
pub(crate) fn pin() -> Pinned {
    // If the exiting thread has destroyed `PARTICIPANT`, registers a participant for this `Pinned`
    // only.
    Pinned(PARTICIPANT.try_with(LocalHandle::pin).unwrap_or_else(|_| COLLECTOR.register().pin()))
}

/// A cell for a pointer. Any thread may publish a pointer in an empty cell. Only the target's owner
/// retracts the pointer.
#[derive(Debug)]
pub(crate) struct EpochPointer<T>(Atomic<T>);

/// A cell for a value in an `Arc`. One thread at a time publishes or retracts the value, and any
/// thread reads it. The cell owns one reference to the value, which only [`retract`](Self::retract)
/// releases.
#[derive(Debug)]
pub(crate) struct EpochArc<T>(EpochPointer<T>);

/// A published value, borrowed by a pinned thread.
#[derive(Debug)]
pub(crate) struct Protected<'p, T> {
    /// Points to the value in its `Arc`. A `&T` does not suffice, because `to_arc` changes the
    /// reference counts, which are outside the `T`.
    pointer: NonNull<T>,
    pub(crate) pinned: &'p Pinned,
}

impl<T: Send + Sync + 'static> EpochArc<T> {
    #[cfg(not(crossbeam_loom))]
    pub(crate) const fn empty_array<const N: usize>() -> [Self; N] {
        [const { Self(EpochPointer(Atomic::null())) }; N]
    }

    #[cfg(crossbeam_loom)]
    pub(crate) fn empty_array<const N: usize>() -> [Self; N] {
        std::array::from_fn(|_| Self(EpochPointer::default()))
    }

    /// Publishes `value` in the cell, which must be empty.
    pub(crate) fn publish(&self, value: Arc<T>) {
        let pointer = NonNull::new(Arc::into_raw(value).cast_mut()).expect("an `Arc` is not null");
        let was_empty = self.0.publish_if_empty(pointer);
        debug_assert!(was_empty);
    }

    /// Retracts the value, if there is one. When every currently pinned thread has unpinned,
    /// deferred work calls `release_ref` with the reference that the cell owned. `release_ref` must
    /// be fast, because even a canceller may run it.
    #[allow(unsafe_code)]
    pub(crate) fn retract(&self, release_ref: fn(Arc<T>)) {
        self.0.retract(move |pointer| {
            // SAFETY: `publish` made the pointer from an `Arc`, and the cell's reference now
            // belongs to this closure. Every thread that loaded the pointer has unpinned.
            release_ref(unsafe { Arc::from_raw(pointer.as_ptr()) });
        });
    }

    /// Returns the value, if any.
    #[inline]
    pub(crate) fn get<'p>(&self, pinned: &'p Pinned) -> Option<Protected<'p, T>> {
        let pointer = self.0.load(pinned)?;
        Some(Protected { pointer, pinned })
    }
}

impl<T> Protected<'_, T> {
    #[allow(unsafe_code)]
    pub(crate) fn to_arc(&self) -> Arc<T> {
        // SAFETY: `publish` made the pointer from an `Arc`, which is alive (see `deref`).
        unsafe { Arc::increment_strong_count(self.pointer.as_ptr()) };
        // SAFETY: the pointer is from an `Arc`. The new `Arc` owns the reference that the increment
        // above has added.
        unsafe { Arc::from_raw(self.pointer.as_ptr()) }
    }
}

impl<T> Deref for Protected<'_, T> {
    type Target = T;

    #[inline]
    #[allow(unsafe_code)]
    fn deref(&self) -> &T {
        // SAFETY: `EpochArc::publish` made the pointer from an `Arc`, which is alive. `retract`
        // releases the cell's reference only after this thread has unpinned.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> Default for EpochPointer<T> {
    fn default() -> Self {
        Self(Atomic::null())
    }
}

impl<T> EpochPointer<T> {
    /// If the cell is empty, publishes `pointer` and returns true.
    pub(crate) fn publish_if_empty(&self, pointer: NonNull<T>) -> bool {
        let pinned = pin();
        let new_pointer = Shared::from(pointer.as_ptr().cast_const());
        // AcqRel: publishes the target of the pointer (pairs with `load`), and acquires what the
        // owner wrote before it emptied the cell (pairs with `retract`). Relaxed: the value that a
        // failed compare-and-swap returns is unused.
        self.0
            .compare_exchange(
                Shared::null(),
                new_pointer,
                Ordering::AcqRel,
                Ordering::Relaxed,
                &pinned.0,
            )
            .is_ok()
    }

    /// Empties the cell. If the cell had a pointer, deferred work calls `release` with the pointer
    /// when every currently pinned thread has unpinned. The target must live until the call of
    /// `release`.
    #[allow(unsafe_code)]
    pub(crate) fn retract(&self, release: impl FnOnce(NonNull<T>) + Send + 'static) {
        let Pinned(epoch_guard) = pin();
        // AcqRel. Acquire: the publisher's writes to the target happen before `release`, which may
        // free the target (pairs with `publish_if_empty`). Release: a thread that finds the cell
        // empty sees this thread's earlier writes (pairs with `load`).
        let old_pointer = self.0.swap(Shared::null(), Ordering::AcqRel, &epoch_guard);
        let Some(old_pointer) = NonNull::new(old_pointer.as_raw().cast_mut()) else { return };
        let release = move || release(old_pointer);
        // SAFETY: the closure may run later and on another thread, because `release` is `Send` and
        // `'static`, and `old_pointer` is only a pointer.
        unsafe { epoch_guard.defer_unchecked(release) };
    }

    /// Returns the pointer, if any. The pointer's target lives until the thread unpins.
    #[inline]
    pub(crate) fn load(&self, pinned: &Pinned) -> Option<NonNull<T>> {
        // Acquire: pairs with the Release of `publish_if_empty` or, if the cell is empty, of
        // `retract`.
        let pointer = self.0.load(Ordering::Acquire, &pinned.0);
        NonNull::new(pointer.as_raw().cast_mut())
    }

    #[allow(unsafe_code)]
    pub(crate) fn take_pointer(&mut self) -> Option<NonNull<T>> {
        // SAFETY: `self` is borrowed mutably, so no other thread can reach the cell.
        let guard = unsafe { epoch::unprotected() };
        // Relaxed: the borrow of the cell is exclusive.
        NonNull::new(self.0.swap(Shared::null(), Ordering::Relaxed, guard).as_raw().cast_mut())
    }
}

/// Hands this thread's deferred work to all threads, tries to advance the epoch by one step, and
/// runs some deferred work that is ready.
pub(crate) fn advance_epoch() {
    pin().0.flush();
}

/// Stores a reference to a retracted value in `GARBAGE`. No pinned thread may still use the value.
pub(crate) fn move_to_garbage<T: Send + Sync + 'static>(value: Arc<T>) {
    if EPOCH_USES_LOOM {
        // `GARBAGE` outlives an execution of a loom model, and the next execution must not free the
        // values of an earlier one.
        drop(value);
        return;
    }
    match GARBAGE.try_lock() {
        Ok(mut garbage) => garbage.push(value),
        Err(TryLockError::Poisoned(garbage)) => garbage.into_inner().push(value),
        Err(TryLockError::WouldBlock) => pin().0.defer(move || move_to_garbage(value)),
    }
}

/// Tries [`EPOCH_ADVANCE_TRIES`] times to advance the epoch, and drops all references in `GARBAGE`.
pub(crate) fn free_garbage() {
    for _ in 0..EPOCH_ADVANCE_TRIES {
        advance_epoch();
    }
    let garbage = mem::take(&mut *lock(&GARBAGE));
    drop(garbage);
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
