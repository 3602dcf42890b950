//! The bugs that other timer systems have shipped, each as a test of corewheel. `doc/history.md`
//! lists all of them under the same numbers, and says of those without a test here why they cannot
//! happen.
//!
//! A test's name says what went wrong, its comment in which system. All but a few run in virtual
//! time. A failed assertion in a callback is caught like any panic (P6), so `on_a_core` checks the
//! count of panics at the end.
#![cfg(feature = "std")]
#![allow(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

#[path = "../model/mod.rs"]
mod model;
#[path = "../common/operation.rs"]
mod operation;
#[path = "../common/support.rs"]
mod support;

mod batch;
mod cancel;
mod end;
mod ours;
mod purgatory;
mod sleep;
mod wheel;

use std::{
    cell::RefCell,
    rc::Rc,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use corewheel::{Cancel, ShardRef, TimerHandle, local_timer};
use model::common::{self, TICK, on_a_thread};
use support::{
    Counter, CountsDrop, HOUR, TOO_LONG, WAKE_BACKLOG, assert_sound, cancel_elsewhere,
    counting_wakes, expired, never, on_a_core, shard_by, turn_after,
};

/// Runs `test` on a new thread; fails if it hangs.
fn ends_soon(test: impl FnOnce() + Send + 'static) {
    let (end, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        end.send(()).expect("somebody waits");
    });
    assert_ne!(ended.recv_timeout(TOO_LONG), Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    thread.join().expect("no assertion failed");
}

// ---- callbacks and handles

/// A counter, and a callback that counts its runs.
fn counter() -> (Counter, impl Fn() + Clone + Send + Sync + 'static) {
    let runs = Counter::default();
    let run = runs.callback();
    (runs, run)
}

/// The two ways to cancel.
const CANCELS: [fn(TimerHandle) -> Cancel; 2] = [TimerHandle::cancel, cancel_elsewhere];

/// The two ways to reset.
const RESETS: [fn(TimerHandle, Duration) -> bool; 2] = [TimerHandle::reset, reset_elsewhere];

fn reset_elsewhere(handle: TimerHandle, delay: Duration) -> bool {
    on_a_thread(|| handle.reset(delay))
}

fn add_elsewhere(
    to: &ShardRef,
    delay: Duration,
    callback: impl FnOnce() + Send + 'static,
) -> TimerHandle {
    on_a_thread(|| to.add(delay, callback))
}

/// A remote request may need a turn to be consumed.
fn turn_twice() -> usize {
    local_timer().turn().fired + local_timer().turn().fired
}

/// Adds `timers` timers that are due in a tick and whose callbacks count their drops in `drops`.
/// The first that runs calls `act` with the handles of all that are pending, the others with none.
fn add_batch(timers: usize, drops: &Counter, act: impl Fn(Vec<TimerHandle>) + Clone + 'static) {
    let handles = Rc::new(RefCell::new(Vec::<TimerHandle>::new()));
    for _ in 0..timers {
        let (all, act, held) = (Rc::clone(&handles), act.clone(), drops.on_drop());
        let handle = local_timer().add(TICK, move || {
            let _held = held;
            act(all.take().into_iter().filter(|other| other.is_pending()).collect());
        });
        handles.borrow_mut().push(handle);
    }
}

/// Adds `timers` timers that are due in a tick, of which the first that runs cancels all others.
fn add_batch_that_is_cancelled(timers: usize, cancel: fn(TimerHandle) -> Cancel) -> Counter {
    let drops = Counter::default();
    add_batch(timers, &drops, move |others| {
        assert_eq!(others.len(), timers - 1);
        assert!(others.into_iter().all(|other| cancel(other) == Cancel::Cancelled));
        assert_sound(local_timer().counts());
    });
    drops
}

// ---- sleepers

/// Timers that are far away, and that a sleeping owner is woken for when all of them are cancelled.
fn add_debt() -> Vec<TimerHandle> {
    (0..WAKE_BACKLOG).map(|_| local_timer().add(HOUR, never)).collect()
}

/// Not on a scoped thread, because waiting for one would use up the token of `unpark`.
fn cancel_on_a_thread(handles: Vec<TimerHandle>) -> JoinHandle<()> {
    thread::spawn(move || {
        assert!(handles.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
    })
}
