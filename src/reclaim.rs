//! When memory that others may look at can go: after the last thread that could have seen it has looked away. The only
//! file that knows `crossbeam_epoch`.

use std::sync::Arc;

use crossbeam_epoch::{self as epoch, Atomic, Owned, Shared};

use crate::sync::Ordering;

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

    /// Takes the value back. Threads that are looking may go on; the last reference goes when they are done.
    #[allow(unsafe_code)]
    pub(crate) fn retract(&self) {
        let guard = epoch::pin();
        // AcqRel: Acquire, because the value is dropped through this pointer (pairs with the Release of `publish`);
        // Release, so that whoever finds the place empty sees what came before the end.
        let old = self.0.swap(Shared::null(), Ordering::AcqRel, &guard);
        if !old.is_null() {
            // SAFETY: the pointer was made by `publish` from an `Owned`, and the swap has taken it out of the only place
            // it was reachable from, once; who loaded it before is pinned in an epoch that ends before it is destroyed.
            unsafe { guard.defer_destroy(old) };
        }
        guard.flush();
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
}
