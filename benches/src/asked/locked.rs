//! A wheel behind a lock, with a queue of what is to be run. In virtual time.

use std::{collections::VecDeque, marker::PhantomData, mem, sync::Arc};

use super::{Asker, Owner, Task, ran, tick};
use crate::{
    crossing::Lock,
    timers::{Payload, Timers},
};

/// `mutex-std`, `mutex-parking-lot`, `mutex-linked64`.
#[derive(Debug)]
pub struct Locked<T, L> {
    shared: Arc<Shared<L>>,
    /// Changes places with the one behind the lock.
    to_run: VecDeque<Task>,
    turns: u64,
    timers: PhantomData<fn() -> T>,
}

/// Who asks it.
#[derive(Debug)]
pub struct LockAsker<T, L> {
    shared: Arc<Shared<L>>,
    timers: PhantomData<fn() -> T>,
}

/// Alone in its lines.
#[derive(Debug)]
#[repr(align(128))]
struct Shared<L>(L);

/// What the lock guards.
#[derive(Debug)]
pub struct Guarded<T> {
    timers: T,
    now: u64,
    to_run: VecDeque<Task>,
}

impl<T: Timers, L: Lock<Guarded<T>>> Owner for Locked<T, L> {
    type Asker = LockAsker<T, L>;

    fn new() -> (Self, Self::Asker) {
        let shared =
            Arc::new(Shared(L::new(Guarded { timers: T::new(), now: 0, to_run: VecDeque::new() })));
        let asker = LockAsker { shared: Arc::clone(&shared), timers: PhantomData };
        (Self { shared, to_run: VecDeque::new(), turns: 0, timers: PhantomData }, asker)
    }

    fn turn(&mut self, runs: u64) {
        self.turns += 1;
        let (now, to_run) = (tick(self.turns), &mut self.to_run);
        self.shared.0.with(|guarded| {
            guarded.now = now;
            guarded.timers.advance(now, |payload| unreachable!("{payload:?} is not due"));
            mem::swap(&mut guarded.to_run, to_run);
        });
        self.to_run.drain(..).for_each(Task::run);
        assert_eq!(ran(), runs, "it takes in all");
    }
}

impl<T: Timers, L: Lock<Guarded<T>>> Asker for LockAsker<T, L> {
    type Handle = T::Handle;

    fn add(&mut self, delay: u64, payload: Payload) -> T::Handle {
        self.shared.0.with(|guarded| guarded.timers.add(guarded.now + delay, payload))
    }

    fn reset(&mut self, handle: &mut T::Handle, delay: u64) -> bool {
        self.shared.0.with(|guarded| guarded.timers.reset(handle, guarded.now + delay))
    }

    fn run(&mut self, payload: Payload) {
        let task = Task::new(payload);
        self.shared.0.with(|guarded| guarded.to_run.push_back(task));
    }

    fn cancel(&mut self, handle: T::Handle) -> bool {
        self.shared.0.with(|guarded| guarded.timers.cancel(&handle))
    }
}
