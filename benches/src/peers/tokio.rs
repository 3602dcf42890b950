//! tokio's `Sleep` and tokio-util's `DelayQueue`.
//!
//! Each sleep is polled once when it is added, and pinned in a reused slot, so that the steady
//! state allocates nothing. In virtual time the sleep's waker enqueues the slot, as a task's waker
//! enqueues the task. In real time the waker does nothing, and an elapsed sleep stays until it is
//! cancelled.
//!
//! The keys of `DelayQueue` are plain indices, so a stale key may find another timer.

use std::cell::RefCell;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ::tokio::runtime::{Builder, Runtime};
use ::tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::table::Handle;
use crate::timers::{Payload, TimerSet};

/// The time of tokio's timers: virtual, or real in the runtime of the current task.
struct Time<const VIRTUAL: bool> {
    /// The runtime whose virtual clock `advance` moves.
    runtime: Option<&'static Runtime>,
    start: Instant,
    now: u64,
}

impl<const VIRTUAL: bool> Time<VIRTUAL> {
    fn new() -> Self {
        let runtime = VIRTUAL.then(|| {
            let mut builder = Builder::new_current_thread();
            let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
            // Leaked, so that the thread never leaves the runtime.
            let runtime: &'static Runtime = Box::leak(Box::new(runtime));
            mem::forget(runtime.enter());
            runtime
        });
        Self { runtime, start: Instant::now(), now: 0 }
    }

    fn instant(&self, tick: u64) -> Instant {
        if VIRTUAL {
            self.start + Duration::from_millis(tick)
        } else {
            Instant::now() + Duration::from_millis(tick - self.now)
        }
    }

    fn advance(&mut self, now: u64) {
        if let Some(runtime) = self.runtime {
            runtime.block_on(tokio::time::advance(Duration::from_millis(now - self.now)));
        }
        self.now = now;
    }
}

/// The peer `tokio-sleep`, in virtual or real time.
pub struct TokioSleep<const VIRTUAL: bool = true> {
    time: Time<VIRTUAL>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

thread_local! {
    /// The slots whose wakers were called. Thread-local, because the driver runs on the thread that
    /// adds.
    static WOKEN: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

struct SlotWaker(u32);

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        WOKEN.with_borrow_mut(|woken| woken.push(self.0));
    }
}

struct Slot {
    sleep: SleepBox,
    waker: Waker,
    payload: Payload,
    /// Odd while the timer is live.
    generation: u32,
}

impl<const VIRTUAL: bool> TokioSleep<VIRTUAL> {
    fn end(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.sleep.set(None);
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }
}

impl<const VIRTUAL: bool> TimerSet for TokioSleep<VIRTUAL> {
    type Handle = Handle;

    const IN_TASK: bool = !VIRTUAL;

    fn new() -> Self {
        Self { time: Time::new(), slots: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let sleep = sleep_until(self.time.instant(deadline));
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.slots.len() as u32;
            let waker =
                if VIRTUAL { Arc::new(SlotWaker(index)).into() } else { Waker::noop().clone() };
            self.slots.push(Slot { sleep: Box::pin(None), waker, payload: [0; 3], generation: 0 });
            index
        });
        let slot = &mut self.slots[index as usize];
        slot.sleep.set(Some(sleep));
        slot.payload = payload;
        slot.generation = slot.generation.wrapping_add(1);
        poll_once(&mut slot.sleep, &slot.waker);
        Handle { index, generation: slot.generation }
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let live = self.slots[handle.index as usize].generation == handle.generation;
        if live {
            self.end(handle.index);
        }
        live
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let deadline = self.time.instant(deadline);
        let slot = &mut self.slots[handle.index as usize];
        let live = slot.generation == handle.generation;
        if let Some(sleep) = slot.sleep.as_mut().as_pin_mut()
            && live
        {
            sleep.reset(deadline);
        }
        live
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        self.time.advance(now);
        while VIRTUAL && let Some(index) = WOKEN.with_borrow_mut(Vec::pop) {
            let slot = &self.slots[index as usize];
            if slot.sleep.as_ref().as_pin_ref().is_some_and(|sleep| sleep.is_elapsed()) {
                self.end(index);
                on_fire(self.slots[index as usize].payload);
            }
        }
    }
}

/// Pinned memory that is reused for `Sleep`s.
pub type SleepBox = Pin<Box<Option<Sleep>>>;

fn poll_once(boxed: &mut SleepBox, waker: &Waker) {
    if let Some(sleep) = boxed.as_mut().as_pin_mut() {
        let _: Poll<()> = sleep.poll(&mut Context::from_waker(waker));
    }
}

/// Puts a sleep in a free or new box, and registers it by a poll.
pub(crate) fn register_sleep(free: &mut Vec<SleepBox>, sleep: Sleep) -> SleepBox {
    let mut boxed = free.pop().unwrap_or_else(|| Box::pin(None));
    boxed.set(Some(sleep));
    poll_once(&mut boxed, Waker::noop());
    boxed
}

/// Drops the sleep in a box; returns false if it had elapsed.
pub(crate) fn drop_sleep(boxed: &mut SleepBox) -> bool {
    let was_live = boxed.as_ref().as_pin_ref().is_some_and(|sleep| !sleep.is_elapsed());
    boxed.set(None);
    was_live
}

/// The peer `delay-queue`, in virtual or real time.
pub struct DelayQueuePeer<const VIRTUAL: bool = true> {
    queue: DelayQueue<Payload>,
    time: Time<VIRTUAL>,
}

impl<const VIRTUAL: bool> TimerSet for DelayQueuePeer<VIRTUAL> {
    type Handle = Key;

    const IN_TASK: bool = !VIRTUAL;

    fn new() -> Self {
        // The time is created first, because the queue needs its runtime.
        let time = Time::new();
        Self { queue: DelayQueue::new(), time }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Key {
        self.queue.insert_at(payload, self.time.instant(deadline))
    }

    fn cancel(&mut self, key: &Key) -> bool {
        self.queue.try_remove(key).is_some()
    }

    fn reset(&mut self, key: &mut Key, deadline: u64) -> bool {
        self.queue.reset_at(key, self.time.instant(deadline));
        true
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        self.time.advance(now);
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
            on_fire(expired.into_inner());
        }
    }
}
