//! A callback on its way from one thread to another: a place for one, in which it is put by one thread and from which it is
//! taken by another, without a lock and without waiting.
//!
//! Whose turn it is, the node beside it says (`guests`); so a parcel is never asked for by two threads at the same time. It
//! does not rely on that: a word of its own says whether it is empty, full, or in somebody's hands, and a thread that comes at the wrong
//! time is refused.

#![allow(unsafe_code)]

use crate::{
    callback::{Callback, Once},
    origin::Origin,
    sync::{AtomicU32, Ordering, UnsafeCell},
};

const EMPTY: u32 = 0;
const IN_HANDS: u32 = 1;
const FULL: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Parcel {
    state: AtomicU32,
    /// Accessed only by the thread that has made the state `IN_HANDS`.
    callback: UnsafeCell<Option<Sent>>,
}

/// A callback that may go to another thread, and where it was sent.
pub(crate) struct Sent {
    callback: Once,
    origin: Origin,
}

// SAFETY: the callback was made of a closure that is `Send` (`Sent::new`), and of nothing else; its origin is in static memory that
// nobody writes, if it is anywhere.
unsafe impl Send for Sent {}

// SAFETY: what is inside is reached only through `put` and `take`, by one thread at a time, and is `Send`.
unsafe impl Sync for Parcel {}

impl Sent {
    pub(crate) fn new<F: FnOnce() + Send + 'static>(origin: Origin, callback: F) -> Self {
        Self { callback: Once::new(callback), origin }
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// For the thread where it has come to.
    pub(crate) fn into_callback(self) -> Callback {
        self.callback.into()
    }

    /// The closure that it was made of, if that is an `F`.
    pub(crate) fn into_inner<F: FnOnce() + Send + 'static>(self) -> Option<F> {
        self.callback.into_inner()
    }
}

impl Default for Parcel {
    fn default() -> Self {
        Self { state: AtomicU32::new(EMPTY), callback: UnsafeCell::new(None) }
    }
}

impl Parcel {
    /// Puts a callback in, if the parcel is empty; else it comes back.
    pub(crate) fn put(&self, callback: Sent) -> Result<(), Sent> {
        // Acquire: the thread that took the last callback is done with the cell (its Release of `EMPTY`). Relaxed: nothing
        // is read after a failure.
        if self
            .state
            .compare_exchange(EMPTY, IN_HANDS, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return Err(callback);
        }
        self.callback.with_mut(|cell| {
            // SAFETY: the swap above made this thread the only one that may use the cell, until the store below.
            unsafe { *cell = Some(callback) }
        });
        // Release: publishes the callback to `take`.
        self.state.store(FULL, Ordering::Release);
        Ok(())
    }

    /// Takes the callback out, if there is one.
    pub(crate) fn take(&self) -> Option<Sent> {
        // Acquire: the callback, from the Release of `put`. Relaxed: nothing is read after a failure.
        if self
            .state
            .compare_exchange(FULL, IN_HANDS, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return None;
        }
        let callback = self.callback.with_mut(|cell| {
            // SAFETY: as in `put`.
            unsafe { (*cell).take() }
        });
        // Release: the cell is free for the next `put`.
        self.state.store(EMPTY, Ordering::Release);
        callback
    }
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sent").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;
    use crate::callback::Kind;

    #[test]
    fn a_callback_comes_out_once_and_runs_on_another_thread() {
        let (parcel, ran) = (Parcel::default(), Arc::new(()));
        assert!(parcel.take().is_none());
        let captured = Arc::clone(&ran);
        assert!(parcel.put(Sent::new(Origin::caller(), move || drop(captured))).is_ok());
        assert!(parcel.put(Sent::new(Origin::caller(), || ())).is_err(), "there is one in it");
        thread::scope(|scope| {
            scope.spawn(|| {
                let Some(Kind::Once(once)) = parcel.take().map(|sent| sent.into_callback().kind())
                else {
                    panic!("it was sent once")
                };
                once.run();
                assert!(parcel.take().is_none());
            });
        });
        assert_eq!(Arc::strong_count(&ran), 1);
    }

    /// Nothing else does here: Miri reports an access to the cell that is not ordered.
    #[test]
    fn it_orders_who_puts_and_who_takes() {
        let parcel = Parcel::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3 {
                    let mut sent = Sent::new(Origin::caller(), || ());
                    while let Err(refused) = parcel.put(sent) {
                        sent = refused;
                        thread::yield_now();
                    }
                }
            });
            let mut taken = 0;
            while taken < 3 {
                match parcel.take() {
                    Some(_) => taken += 1,
                    None => thread::yield_now(),
                }
            }
        });
    }

    #[test]
    fn what_was_not_taken_is_dropped_with_the_parcel() {
        let (parcel, kept) = (Parcel::default(), Arc::new(()));
        let captured = Arc::clone(&kept);
        assert!(parcel.put(Sent::new(Origin::caller(), move || drop(captured))).is_ok());
        drop(parcel);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
