//! When memory that others may look at can go: after the last thread that could have seen it has looked away. The only
//! file that knows `crossbeam_epoch`.
//!
//! Garbage of an epoch is taken out by whichever thread pins next, a canceller perhaps. So what it does there is only to
//! bury: to hand the memory on to the next thread that ends a shard, which frees it with nothing pinned. A thread that
//! ends a shard while nobody is looking frees that shard's memory itself, at once.
//!
//! The burial ground is a `SegQueue`: its pushes are rare, and who waits in `pop` for a stalled push ends a shard.

use std::sync::Arc;

use crossbeam_epoch::{self as epoch, Atomic, Owned, Shared};
use crossbeam_queue::SegQueue;

use crate::{limits::FLUSHES, sync::Ordering};

/// What no other thread can see any more.
static BURIED: SegQueue<Box<dyn Send + Sync>> = SegQueue::new();

/// A place where one thread publishes a value, others look at it without waiting, and the first takes it back.
#[derive(Debug)]
pub(crate) struct Published<T>(Atomic<Arc<T>>);

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self(Atomic::null())
    }
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Shows `value` to all threads. The place is empty before.
    pub(crate) fn publish(&self, value: Arc<T>) {
        // Release: publishes the value to `with`.
        self.0.store(Owned::new(value), Ordering::Release);
    }

    /// Takes the value back. Threads that are looking may go on; the reference held here goes when they are done.
    #[allow(unsafe_code)]
    pub(crate) fn retract(&self) {
        let guard = epoch::pin();
        // AcqRel: Acquire, because the value is dropped through this pointer (pairs with the Release of `publish`);
        // Release, so that whoever finds the place empty sees what came before the end.
        let old = self.0.swap(Shared::null(), Ordering::AcqRel, &guard);
        if !old.is_null() {
            let bury = move || {
                // SAFETY: the pointer was made by `publish` from an `Owned`, and the swap has taken it out of the only place
                // it was reachable from; who loaded it before is pinned in an epoch that ends before this runs, once.
                let owned = unsafe { old.into_owned() };
                BURIED.push(owned.into_box());
            };
            // SAFETY: the closure may run on another thread: what it captures is a pointer to an `Arc<T>`, which is `Send`.
            // It may run after this function: it borrows nothing, and `old` owns what it points to.
            unsafe { guard.defer_unchecked(bury) };
        }
        drop(guard);
        free_garbage();
    }

    /// Looks at the value, if there is one. Nothing that `look` sees is freed meanwhile; it should be short.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn with<R>(&self, look: impl FnOnce(Option<&Arc<T>>) -> R) -> R {
        let guard = epoch::pin();
        // Acquire: pairs with the Release of `publish`.
        let shared = self.0.load(Ordering::Acquire, &guard);
        // SAFETY: a pointer that is not null was made by `publish` from an `Owned`, so it is aligned and points to a live
        // value, which `retract` destroys only after this guard's epoch has ended; nobody gets it mutably.
        let value = unsafe { shared.as_ref() };
        look(value)
    }
}

/// Frees what threads have stopped looking at.
fn free_garbage() {
    for _ in 0..FLUSHES {
        epoch::pin().flush();
    }
    while let Some(buried) = BURIED.pop() {
        drop(buried);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_shows_what_is_published_until_it_is_retracted() {
        let place = Published::default();
        assert_eq!(place.with(|value| value.map(|value| **value)), None);
        place.publish(Arc::new(5));
        assert_eq!(place.with(|value| value.map(|value| **value)), Some(5));
        place.retract();
        place.retract();
        assert_eq!(place.with(|value| value.map(|value| **value)), None);
    }

    #[test]
    fn what_is_retracted_is_freed_when_nobody_looks() {
        let (place, value) = (Published::default(), Arc::new(()));
        // Other tests pin now and then; what is not freed by one end is by a later one.
        let freed = (0..100_000).any(|_| {
            place.publish(Arc::clone(&value));
            place.retract();
            Arc::strong_count(&value) == 1
        });
        assert!(freed);
    }
}
