//! The peers `mutex-...`: timers and a queue of closures, all behind one lock.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Owner, Remote, Requests, Resets, Sleeping, Task, TickClock, TurnResult, count_run};
use crate::timers::{Payload, ReportsDeadline, TimerSet};

pub struct Locked<T: Shareable, L: Lock> {
    shared: Arc<Shared<T, L>>,
    /// Swapped with the queue behind the lock, so that closures run after the lock is released.
    queued_closures: VecDeque<Task>,
}

#[repr(align(128))]
pub struct Shared<T: Shareable, L: Lock> {
    state: L::Mutex<LockedState<T>>,
    ticks: TickClock,
}

struct LockedState<T> {
    timers: T,
    /// Calls of `cancel` since the last turn.
    cancel_count: usize,
    queued_closures: VecDeque<Task>,
}

pub trait Shareable: TimerSet<Handle: Send> + Send + 'static {}

impl<T: TimerSet<Handle: Send> + Send + 'static> Shareable for T {}

pub trait Lock: Sized + 'static {
    type Mutex<T: Send + 'static>: Send + Sync + From<T> + 'static;

    fn with<T: Send + 'static, R>(lock: &Self::Mutex<T>, act: impl FnOnce(&mut T) -> R) -> R;
}

pub enum Std {}

impl Lock for Std {
    type Mutex<T: Send + 'static> = std::sync::Mutex<T>;

    fn with<T: Send + 'static, R>(lock: &Self::Mutex<T>, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut lock.lock().expect("no panic under the lock"))
    }
}

pub enum ParkingLot {}

impl Lock for ParkingLot {
    type Mutex<T: Send + 'static> = parking_lot::Mutex<T>;

    fn with<T: Send + 'static, R>(lock: &Self::Mutex<T>, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut lock.lock())
    }
}

impl<T: Shareable, L: Lock> Owner for Locked<T, L> {
    type Handle = T::Handle;
    type Remote = Arc<Shared<T, L>>;

    fn new(_: usize) -> (Self, Self::Remote) {
        let state =
            LockedState { timers: T::new(), cancel_count: 0, queued_closures: VecDeque::new() };
        let shared = Arc::new(Shared { state: state.into(), ticks: TickClock(Instant::now()) });
        (Self { shared: Arc::clone(&shared), queued_closures: VecDeque::new() }, shared)
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> T::Handle {
        self.shared.add(delay, payload)
    }

    fn turn(&mut self, _: usize, on_fire: impl FnMut(Payload)) -> TurnResult {
        let now = self.shared.ticks.now();
        let collected = L::with(&self.shared.state, |state| {
            state.timers.advance(now, on_fire);
            if !state.queued_closures.is_empty() {
                mem::swap(&mut state.queued_closures, &mut self.queued_closures);
            }
            mem::take(&mut state.cancel_count)
        });
        self.queued_closures.drain(..).for_each(|task| task());
        TurnResult { collected, is_behind: false }
    }
}

impl<T: Shareable, L: Lock> Resets for Locked<T, L> {
    fn reset(&mut self, handle: &mut T::Handle, delay: Duration) -> bool {
        self.shared.reset(handle, delay)
    }
}

impl<T: ReportsDeadline + Shareable, L: Lock> Sleeping for Locked<T, L> {
    fn sleep(&self) {
        let next = L::with(&self.shared.state, |state| state.timers.next_deadline());
        self.shared.ticks.park_until(next);
    }
}

impl<T: Shareable, L: Lock> Remote for Arc<Shared<T, L>> {
    type Handle = T::Handle;

    fn cancel(&mut self, handle: T::Handle) -> bool {
        L::with(&self.state, |state| {
            state.cancel_count += 1;
            state.timers.cancel(&handle)
        })
    }
}

impl<T: Shareable, L: Lock> Requests for Arc<Shared<T, L>> {
    fn add(&mut self, delay: Duration, payload: Payload) -> T::Handle {
        let deadline = self.ticks.deadline(delay);
        L::with(&self.state, |state| state.timers.add(deadline, payload))
    }

    fn reset(&mut self, handle: &mut T::Handle, delay: Duration) -> bool {
        let deadline = self.ticks.deadline(delay);
        L::with(&self.state, |state| state.timers.reset(handle, deadline))
    }

    fn run(&mut self, payload: Payload) {
        let task: Task = Box::new(move || count_run(payload));
        L::with(&self.state, |state| state.queued_closures.push_back(task));
    }
}
