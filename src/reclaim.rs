//! When memory that others may look at can go: after the last thread that could have seen it has looked away. The only
//! file that knows `crossbeam_epoch`.
//!
//! A thread that looks is *pinned*, and [`Pinned`] is the proof: what it finds in a [`Published`] or a [`PublishedPointer`]
//! stays until it is pinned no more. What is taken back is let go of when everybody who was pinned at that moment has
//! looked away.
//!
//! # Who frees
//!
//! The work of an epoch is done by whichever thread pins next, a canceller perhaps. So that work frees nothing of ours:
//!
//! * The epoch only marks a page of nodes as unseen. Its owner frees it later (`slab`).
//! * A shard is *buried* by the epoch: handed to the next thread that ends a shard, which frees it with nothing pinned. A
//!   thread that ends a shard while nobody is looking frees that shard's memory itself, at once.
//!
//! The epochs are corewheel's own, not those that `crossbeam_epoch` keeps for everybody: so what another user of that crate
//! defers is never done by a thread that pins here, and who stays pinned there holds nothing up here.
//!
//! Burying is deferred work, which an owner that goes on or a canceller may be doing: it tries a lock, and defers the work once more if
//! somebody has that, so it waits for nobody.

use std::{
    mem::{self, ManuallyDrop},
    ops::Deref,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError, TryLockError},
};

use crossbeam_epoch::{self as epoch, Atomic, Collector, Guard, LocalHandle, Shared};

use crate::{
    limits::FLUSHES,
    sync::{EPOCHS_ARE_LOOMS, Ordering, global, lazy_per_thread},
};

global! {
    static EPOCHS: Collector = Collector::new();
}

lazy_per_thread! {
    static PARTICIPANT: LocalHandle = EPOCHS.register();
}

/// What no other thread can see any more.
static BURIED: Mutex<Vec<Arc<dyn Send + Sync>>> = Mutex::new(Vec::new());

/// While it is there, nothing that this thread finds in a [`Published`] is freed. It should be short: it holds up what all
/// threads want to free.
#[derive(Debug)]
pub(crate) struct Pinned(Guard);

/// Pins this thread.
#[inline]
pub(crate) fn pin() -> Pinned {
    // A thread whose own values are gone already takes part for this once.
    Pinned(PARTICIPANT.try_with(LocalHandle::pin).unwrap_or_else(|_| EPOCHS.register().pin()))
}

/// A place where one thread publishes a value, others look at it without waiting, and the first takes it back.
///
/// It points to what is in the `Arc`, and holds one of its references.
#[derive(Debug)]
pub(crate) struct Published<T>(Atomic<T>);

/// A published value as it is seen by a thread that is pinned.
#[derive(Debug)]
pub(crate) struct Seen<'p, T> {
    /// The place's own reference, borrowed.
    value: ManuallyDrop<Arc<T>>,
    pinned: &'p Pinned,
}

/// A place where any thread publishes a pointer if there is none, and one thread takes it back. It owns nothing.
#[derive(Debug)]
pub(crate) struct PublishedPointer<T>(Atomic<T>);

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self(Atomic::null())
    }
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Shows `value` to all threads. The place is empty before.
    pub(crate) fn publish(&self, value: Arc<T>) {
        // Release: publishes the value to `load`.
        self.0.store(Shared::from(Arc::into_raw(value)), Ordering::Release);
    }

    /// Takes the value back. Threads that are looking may go on; when they are done, some thread passes the reference held
    /// here to `let_go`, which should be quick.
    #[allow(unsafe_code)]
    pub(crate) fn retract(&self, let_go: fn(Arc<T>)) {
        let Pinned(guard) = pin();
        // AcqRel: Acquire, because the value is dropped through this pointer (pairs with the Release of `publish`);
        // Release, so that whoever finds the place empty sees what came before the end (pairs with `load`).
        let old = self.0.swap(Shared::null(), Ordering::AcqRel, &guard);
        if old.is_null() {
            return;
        }
        let let_go = move || {
            // SAFETY: the pointer was made by `publish` from an `Arc`, whose reference the swap has taken out of the place;
            // this runs once. Who loaded the pointer before is pinned in an epoch that ends before this runs.
            let_go(unsafe { Arc::from_raw(old.as_raw()) });
        };
        // SAFETY: the closure may run on another thread: what it captures is an `Arc<T>` in another form, which is `Send`, and
        // a function. It may run after this function: it borrows nothing, and `old` owns a reference to what it points to.
        unsafe { guard.defer_unchecked(let_go) };
    }

    /// Looks at the value, if there is one, pinned meanwhile.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn with<R>(&self, look: impl FnOnce(Option<&Seen<'_, T>>) -> R) -> R {
        let pinned = pin();
        let pointer = self.load(&pinned);
        if pointer.is_null() {
            return look(None);
        }
        // SAFETY: the pointer was made by `publish` from an `Arc`, which is alive: the reference held by the
        // place goes only when this thread is pinned no more (`retract`), or when nobody borrows the place (`drop`). It is not dropped here, so
        // the reference stays the place's.
        let value = ManuallyDrop::new(unsafe { Arc::from_raw(pointer.as_raw()) });
        look(Some(&Seen { value, pinned: &pinned }))
    }

    #[inline]
    fn load<'p>(&self, pinned: &'p Pinned) -> Shared<'p, T> {
        // Acquire: pairs with the Release of `publish`, or of `retract` if the place is empty again.
        self.0.load(Ordering::Acquire, &pinned.0)
    }
}

impl<T> Drop for Published<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: a pointer that is not null was made by `publish` from an `Arc`; it is turned back into one below, never into
        // the `Box` that an `Owned` stands for.
        let Some(owned) = (unsafe { mem::take(&mut self.0).try_into_owned() }) else { return };
        // SAFETY: nobody else can reach a place that is being dropped.
        let alone = unsafe { epoch::unprotected() };
        let pointer = owned.into_shared(alone).as_raw();
        // SAFETY: as above; the place's reference has been taken out of it.
        drop(unsafe { Arc::from_raw(pointer) });
    }
}

impl<'p, T> Seen<'p, T> {
    pub(crate) fn pinned(&self) -> &'p Pinned {
        self.pinned
    }
}

impl<T> Deref for Seen<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T> Default for PublishedPointer<T> {
    fn default() -> Self {
        Self(Atomic::null())
    }
}

impl<T> PublishedPointer<T> {
    /// Publishes `pointer` if the place is empty. Returns true if it was.
    pub(crate) fn publish_if_empty(&self, pointer: NonNull<T>) -> bool {
        let pinned = pin();
        let new = Shared::from(pointer.as_ptr().cast_const());
        // Release: publishes what the pointer leads to (pairs with `look`). Relaxed: a failure is not looked at.
        let swapped = self.0.compare_exchange(
            Shared::null(),
            new,
            Ordering::Release,
            Ordering::Relaxed,
            &pinned.0,
        );
        swapped.is_ok()
    }

    /// Empties the place. When every thread that is pinned now has unpinned, some thread calls `then` with the pointer. The owner
    /// must not free the target before that.
    #[allow(unsafe_code)]
    pub(crate) fn retract(&self, then: fn(NonNull<T>)) {
        let Pinned(guard) = pin();
        // Release: a thread that finds the place empty sees what came before (pairs with `look`).
        let old = self.0.swap(Shared::null(), Ordering::Release, &guard);
        let Some(old) = NonNull::new(old.as_raw().cast_mut()) else { return };
        let old = SendPointer(old);
        let then = move || {
            let SendPointer(old) = { old };
            then(old);
        };
        // SAFETY: the closure owns a pointer and a function, and borrows nothing, so it may run on another thread and after
        // this function.
        unsafe { guard.defer_unchecked(then) };
    }

    /// Returns the pointer, if there is one. Its target lives as long as the thread is pinned.
    #[inline]
    pub(crate) fn look(&self, pinned: &Pinned) -> Option<NonNull<T>> {
        // Acquire: pairs with the Release of `publish_if_empty`, or of `retract` if the place is empty again.
        let pointer = self.0.load(Ordering::Acquire, &pinned.0);
        NonNull::new(pointer.as_raw().cast_mut())
    }

    /// Takes the pointer, if there is one, for the thread that has the place to itself.
    #[allow(unsafe_code)]
    pub(crate) fn take(&mut self) -> Option<NonNull<T>> {
        // SAFETY: it is turned back into a pointer below, never into the `Box` that an `Owned` stands for.
        let owned = unsafe { mem::take(&mut self.0).try_into_owned() }?;
        // SAFETY: no other thread can reach the place.
        let alone = unsafe { epoch::unprotected() };
        NonNull::new(owned.into_shared(alone).as_raw().cast_mut())
    }
}

/// A pointer that travels to the thread which runs deferred work.
struct SendPointer<T>(NonNull<T>);

/// Hands what this thread has deferred to all threads, and helps the epochs on by one step. So a canceller that does the work of an
/// epoch finds little of it together.
pub(crate) fn help() {
    pin().0.flush();
}

/// Leaves a value that nobody can see any more to the next thread that ends a shard.
pub(crate) fn bury<T: Send + Sync + 'static>(value: Arc<T>) {
    if EPOCHS_ARE_LOOMS {
        // Nothing of one execution of a model may be freed in the next.
        drop(value);
        return;
    }
    match BURIED.try_lock() {
        Ok(mut buried) => buried.push(value),
        Err(TryLockError::Poisoned(buried)) => buried.into_inner().push(value),
        Err(TryLockError::WouldBlock) => pin().0.defer(move || bury(value)),
    }
}

/// Frees what threads have stopped looking at. For a thread that ends a shard.
pub(crate) fn free_garbage() {
    for _ in 0..FLUSHES {
        help();
    }
    let buried = mem::take(&mut *BURIED.lock().unwrap_or_else(PoisonError::into_inner));
    drop(buried);
}

#[cfg(all(test, not(loom)))]
mod tests;
