//! tokio-util's `DelayQueue`. Its keys are plain indices: one whose timer has ended may find another one.

use std::{
    fmt,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio_util::time::{DelayQueue, delay_queue::Key};

use super::tokio_sleep::PausedRuntime;
use crate::timers::{Payload, Timers};

/// `delay-queue`, in virtual time.
pub struct DelayQueuePeer {
    queue: DelayQueue<Payload>,
    runtime: PausedRuntime,
}

/// `delay-queue` by the machine's clock; see [`TokioSleepRealTime`](super::TokioSleepRealTime).
#[derive(Debug)]
pub struct DelayQueueRealTime {
    queue: DelayQueue<Payload>,
    now: u64,
}

fn fire(queue: &mut DelayQueue<Payload>, mut on_fire: impl FnMut(Payload)) {
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(expired)) = queue.poll_expired(&mut context) {
        on_fire(expired.into_inner());
    }
}

impl Timers for DelayQueuePeer {
    type Handle = Key;

    fn new() -> Self {
        // The runtime first: the queue asks it for the time.
        let runtime = PausedRuntime::new();
        Self { queue: DelayQueue::new(), runtime }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Key {
        self.queue.insert_at(payload, self.runtime.instant(deadline))
    }

    fn cancel(&mut self, key: &Key) -> bool {
        self.queue.try_remove(key).is_some()
    }

    fn reset(&mut self, key: &mut Key, deadline: u64) -> bool {
        self.queue.reset_at(key, self.runtime.instant(deadline));
        true
    }

    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.runtime.advance(now);
        fire(&mut self.queue, on_fire);
    }
}

impl Timers for DelayQueueRealTime {
    type Handle = Key;

    fn new() -> Self {
        Self { queue: DelayQueue::new(), now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Key {
        self.queue.insert(payload, Duration::from_millis(deadline - self.now))
    }

    fn cancel(&mut self, key: &Key) -> bool {
        self.queue.try_remove(key).is_some()
    }

    fn reset(&mut self, key: &mut Key, deadline: u64) -> bool {
        self.queue.reset(key, Duration::from_millis(deadline - self.now));
        true
    }

    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.now = now;
        fire(&mut self.queue, on_fire);
    }
}

impl fmt::Debug for DelayQueuePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueuePeer").field("queue", &self.queue).finish_non_exhaustive()
    }
}
