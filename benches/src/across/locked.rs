//! The peers `mutex-...`: timers and a queue of closures, all behind one lock.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Owner, Remote, Requests, Resets, Sleeping, Task, TickClock, Turned, count_run};
use crate::timers::{Payload, ReportsDeadline, TimerSet};

pub struct Locked<T: Shareable, L: Lock> {
    shared: Arc<Shared<T, L>>,
    /// Swapped with the queue behind the lock, so that closures run after the lock is released.
    to_run: VecDeque<Task>,
}

#[repr(align(128))]
pub struct Shared<T: Shareable, L: Lock> {
    guarded: L::Of<LockedState<T>>,
    ticks: TickClock,
}

struct LockedState<T> {
    timers: T,
    /// Calls of `cancel` since the last turn.
    cancelled: usize,
    to_run: VecDeque<Task>,
}

pub trait Shareable: TimerSet<Handle: Send> + Send + 'static {}

impl<T: TimerSet<Handle: Send> + Send + 'static> Shareable for T {}

pub trait Lock: Sized + 'static {
    type Of<T: Send + 'static>: Send + Sync + From<T> + 'static;

    fn with<T: Send + 'static, R>(lock: &Self::Of<T>, act: impl FnOnce(&mut T) -> R) -> R;
}

pub enum Std {}

impl Lock for Std {
    type Of<T: Send + 'static> = std::sync::Mutex<T>;

    fn with<T: Send + 'static, R>(lock: &Self::Of<T>, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut lock.lock().expect("no panic under the lock"))
    }
}

pub enum ParkingLot {}

impl Lock for ParkingLot {
    type Of<T: Send + 'static> = parking_lot::Mutex<T>;

    fn with<T: Send + 'static, R>(lock: &Self::Of<T>, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut lock.lock())
    }
}

impl<T: Shareable, L: Lock> Owner for Locked<T, L> {
    type Handle = T::Handle;
    type Remote = Arc<Shared<T, L>>;

    fn new(_: usize) -> (Self, Self::Remote) {
        let guarded = LockedState { timers: T::new(), cancelled: 0, to_run: VecDeque::new() };
        let shared = Arc::new(Shared { guarded: guarded.into(), ticks: TickClock(Instant::now()) });
        (Self { shared: Arc::clone(&shared), to_run: VecDeque::new() }, shared)
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> T::Handle {
        self.shared.add(delay, payload)
    }

    fn turn(&mut self, _: usize, on_fire: impl FnMut(Payload)) -> Turned {
        let now = self.shared.ticks.now();
        let collected = L::with(&self.shared.guarded, |guarded| {
            guarded.timers.advance(now, on_fire);
            if !guarded.to_run.is_empty() {
                mem::swap(&mut guarded.to_run, &mut self.to_run);
            }
            mem::take(&mut guarded.cancelled)
        });
        self.to_run.drain(..).for_each(|task| task());
        Turned { collected, is_behind: false }
    }
}

impl<T: Shareable, L: Lock> Resets for Locked<T, L> {
    fn reset(&mut self, handle: &mut T::Handle, delay: Duration) -> bool {
        self.shared.reset(handle, delay)
    }
}

impl<T: ReportsDeadline + Shareable, L: Lock> Sleeping for Locked<T, L> {
    fn sleep(&self) {
        let next = L::with(&self.shared.guarded, |guarded| guarded.timers.next_deadline());
        self.shared.ticks.park_until(next);
    }
}

impl<T: Shareable, L: Lock> Remote for Arc<Shared<T, L>> {
    type Handle = T::Handle;

    fn cancel(&mut self, handle: T::Handle) -> bool {
        L::with(&self.guarded, |guarded| {
            guarded.cancelled += 1;
            guarded.timers.cancel(&handle)
        })
    }
}

impl<T: Shareable, L: Lock> Requests for Arc<Shared<T, L>> {
    fn add(&mut self, delay: Duration, payload: Payload) -> T::Handle {
        let deadline = self.ticks.deadline(delay);
        L::with(&self.guarded, |guarded| guarded.timers.add(deadline, payload))
    }

    fn reset(&mut self, handle: &mut T::Handle, delay: Duration) -> bool {
        let deadline = self.ticks.deadline(delay);
        L::with(&self.guarded, |guarded| guarded.timers.reset(handle, deadline))
    }

    fn run(&mut self, payload: Payload) {
        let task: Task = Box::new(move || count_run(payload));
        L::with(&self.guarded, |guarded| guarded.to_run.push_back(task));
    }
}
