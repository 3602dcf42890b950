//! One wheel for both cores behind one lock, as where all cores share a timer. Each add and each cancel takes the
//! lock; memory is free at once. In virtual time.

use std::{fmt::Debug, sync::Arc};

use super::{Crossing, tick};
use crate::timers::{Payload, Timers};

/// `mutex-std`, `mutex-parking-lot`, `mutex-linked64`.
#[derive(Debug)]
pub struct Locked<T, L> {
    shared: Arc<Shared<L>>,
    end: usize,
    taken_in: u64,
    timers: std::marker::PhantomData<fn() -> T>,
}

/// Alone in its lines: the lock, and what it guards.
#[derive(Debug)]
#[repr(align(128))]
pub struct Shared<L>(L);

/// What the lock guards.
#[derive(Debug)]
pub struct Guarded<T> {
    timers: T,
    added: u64,
    /// How many timers of each end have been cancelled.
    cancelled: [u64; 2],
}

/// A lock of some kind.
pub trait Lock<T>: Debug + Send + Sync + 'static {
    /// Around the value.
    fn new(value: T) -> Self;

    /// With the lock taken.
    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R;
}

impl<T: Debug + Send + 'static> Lock<T> for std::sync::Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock().expect("nobody panics"))
    }
}

impl<T: Debug + Send + 'static> Lock<T> for parking_lot::Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock())
    }
}

impl<T: Timers, L: Lock<Guarded<T>>> Crossing for Locked<T, L>
where
    T::Handle: Send + 'static,
{
    type Handle = T::Handle;
    type Seed = (Arc<Shared<L>>, usize);

    fn seeds(_: usize) -> [Self::Seed; 2] {
        let guarded = Guarded { timers: T::new(), added: 0, cancelled: [0; 2] };
        let shared = Arc::new(Shared(L::new(guarded)));
        [(Arc::clone(&shared), 0), (shared, 1)]
    }

    fn new((shared, end): Self::Seed) -> Self {
        Self { shared, end, taken_in: 0, timers: std::marker::PhantomData }
    }

    fn add(&mut self, delay: u64, payload: Payload) -> T::Handle {
        self.shared.0.with(|guarded| {
            guarded.added += 1;
            guarded.timers.add(tick(guarded.added) + delay, payload)
        })
    }

    fn cancel(&mut self, handle: T::Handle) -> bool {
        self.shared.0.with(|guarded| {
            guarded.cancelled[1 - self.end] += 1;
            guarded.timers.cancel(&handle)
        })
    }

    fn turn(&mut self) -> u64 {
        let cancelled = self.shared.0.with(|guarded| {
            guarded
                .timers
                .advance(tick(guarded.added), |payload| unreachable!("{payload:?} is not due"));
            guarded.cancelled[self.end]
        });
        let before = std::mem::replace(&mut self.taken_in, cancelled);
        cancelled - before
    }
}
