//! tokio's `Sleep`s, pinned in reused boxes, so that adds allocate nothing in the steady state.

use std::time::Duration;

use ::tokio::runtime::{Builder, Handle, Runtime};
use ::tokio::task::yield_now;
use ::tokio::time::{Instant, sleep};
use rtrb::{Consumer, Producer, RingBuffer};

use super::{IN_FLIGHT, Owner, Remote, Requests, TurnResult, count_run, counted_runs};
use crate::peers::{self, SleepBox};
use crate::timers::Payload;

/// The peers `tokio-threads` and `tokio-alt`: one task registers a sleep by a poll, and another
/// task drops it. A cancel returns `!is_elapsed()`, read before the drop. The boxes of dropped
/// sleeps return to the owner through a ring.
pub struct TokioTaskOwner {
    free_boxes: Vec<SleepBox>,
    empty_boxes: Consumer<SleepBox>,
}

pub struct Dropper {
    empty_boxes: Vec<SleepBox>,
    to_owner: Producer<SleepBox>,
}

impl Owner for TokioTaskOwner {
    type Handle = SleepBox;
    type Remote = Dropper;

    fn new(_: usize) -> (Self, Dropper) {
        let (to_owner, empty_boxes) = RingBuffer::new(IN_FLIGHT);
        (
            Self { free_boxes: Vec::new(), empty_boxes },
            Dropper { empty_boxes: Vec::new(), to_owner },
        )
    }

    fn add(&mut self, delay: Duration, _: Payload) -> SleepBox {
        peers::register_sleep(&mut self.free_boxes, sleep(delay))
    }

    fn turn(&mut self, _: usize, _: impl FnMut(Payload)) -> TurnResult {
        let count = self.empty_boxes.slots();
        self.free_boxes
            .extend(self.empty_boxes.read_chunk(count).expect("`count` boxes are in the ring"));
        TurnResult { collected: count, is_behind: false }
    }
}

impl Remote for Dropper {
    type Handle = SleepBox;

    fn cancel(&mut self, mut boxed: SleepBox) -> bool {
        let was_live = peers::drop_sleep(&mut boxed);
        self.empty_boxes.push(boxed);
        was_live
    }

    fn return_boxes(&mut self) {
        let chunk = self
            .to_owner
            .write_chunk_uninit(self.empty_boxes.len())
            .expect("room for all in flight");
        chunk.fill_from_iter(self.empty_boxes.drain(..));
    }
}

/// The peer `tokio-sleep`: a current-thread runtime that another thread enters, to register sleeps
/// with the owner's driver and to spawn tasks on the owner.
pub struct EnteredRuntimeOwner {
    runtime: Runtime,
    own_remote: EnteredRuntimeRemote,
}

pub struct EnteredRuntimeRemote {
    runtime: Handle,
    free_boxes: Vec<SleepBox>,
}

impl Owner for EnteredRuntimeOwner {
    type Handle = SleepBox;
    type Remote = EnteredRuntimeRemote;

    fn new(_: usize) -> (Self, EnteredRuntimeRemote) {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let [own_remote, other_remote] = [runtime.handle(), runtime.handle()]
            .map(|handle| EnteredRuntimeRemote { runtime: handle.clone(), free_boxes: Vec::new() });
        (Self { runtime, own_remote }, other_remote)
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> SleepBox {
        self.own_remote.add(delay, payload)
    }

    /// Yields until no more requested closures run.
    fn turn(&mut self, _: usize, _: impl FnMut(Payload)) -> TurnResult {
        self.runtime.block_on(async {
            let mut count_before = None;
            while count_before.replace(counted_runs()) != Some(counted_runs()) {
                yield_now().await;
            }
        });
        TurnResult { collected: 0, is_behind: false }
    }
}

impl Remote for EnteredRuntimeRemote {
    type Handle = SleepBox;

    fn cancel(&mut self, mut boxed: SleepBox) -> bool {
        let was_live = peers::drop_sleep(&mut boxed);
        self.free_boxes.push(boxed);
        was_live
    }
}

impl Requests for EnteredRuntimeRemote {
    fn add(&mut self, delay: Duration, _: Payload) -> SleepBox {
        let _entered = self.runtime.enter();
        peers::register_sleep(&mut self.free_boxes, sleep(delay))
    }

    fn reset(&mut self, boxed: &mut SleepBox, delay: Duration) -> bool {
        let Some(mut sleep) = boxed.as_mut().as_pin_mut() else { return false };
        let was_live = !sleep.is_elapsed();
        sleep.as_mut().reset(Instant::now() + delay);
        was_live
    }

    fn run(&mut self, payload: Payload) {
        drop(self.runtime.spawn(async move { count_run(payload) }));
    }
}
