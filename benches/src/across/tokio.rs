//! tokio's `Sleep`, each pinned in a place that is used again: the allocator has no part in it.

use std::time::Duration;

use ::tokio::runtime::{Builder, Handle, Runtime};
use ::tokio::task::yield_now;
use ::tokio::time::{Instant, sleep};
use rtrb::{Consumer, Producer, RingBuffer};

use super::{IN_FLIGHT, Owner, Remote, Requests, Turned, note, noted};
use crate::peers::{self, Place};
use crate::timers::Payload;

/// `tokio-threads`, `tokio-alt`: registered in one worker by a first poll and dropped in another.
/// The drop itself says nothing; `is_elapsed`, asked before, is the answer. Places go back to their
/// owner by a ring.
pub struct TokioDrop {
    free: Vec<Place>,
    emptied: Consumer<Place>,
}

pub struct Dropper {
    emptied: Vec<Place>,
    to_owner: Producer<Place>,
}

impl Owner for TokioDrop {
    type Handle = Place;
    type Remote = Dropper;

    fn new(_: usize) -> (Self, Dropper) {
        let (to_owner, emptied) = RingBuffer::new(IN_FLIGHT);
        (Self { free: Vec::new(), emptied }, Dropper { emptied: Vec::new(), to_owner })
    }

    fn add(&mut self, delay: Duration, _: Payload) -> Place {
        peers::put(&mut self.free, sleep(delay))
    }

    fn turn(&mut self, _: usize, _: impl FnMut(Payload)) -> Turned {
        let count = self.emptied.slots();
        self.free.extend(self.emptied.read_chunk(count).expect("they are there"));
        Turned { collected: count, is_behind: false }
    }
}

impl Remote for Dropper {
    type Handle = Place;

    fn cancel(&mut self, mut place: Place) -> bool {
        let was_live = peers::empty(&mut place);
        self.emptied.push(place);
        was_live
    }

    fn send(&mut self) {
        let chunk =
            self.to_owner.write_chunk_uninit(self.emptied.len()).expect("room for all in flight");
        chunk.fill_from_iter(self.emptied.drain(..));
    }
}

/// `tokio-sleep`: a current-thread runtime that another thread enters. Its sleeps are registered
/// with the owner's driver, and its tasks run there.
pub struct Entered {
    runtime: Runtime,
    own: Entering,
}

pub struct Entering {
    runtime: Handle,
    free: Vec<Place>,
}

impl Owner for Entered {
    type Handle = Place;
    type Remote = Entering;

    fn new(_: usize) -> (Self, Entering) {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let [own, other] = [runtime.handle(), runtime.handle()]
            .map(|handle| Entering { runtime: handle.clone(), free: Vec::new() });
        (Self { runtime, own }, other)
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> Place {
        self.own.add(delay, payload)
    }

    /// Runs tasks until none is left.
    fn turn(&mut self, _: usize, _: impl FnMut(Payload)) -> Turned {
        self.runtime.block_on(async {
            let mut before = None;
            while before.replace(noted()) != Some(noted()) {
                yield_now().await;
            }
        });
        Turned { collected: 0, is_behind: false }
    }
}

impl Remote for Entering {
    type Handle = Place;

    fn cancel(&mut self, mut place: Place) -> bool {
        let was_live = peers::empty(&mut place);
        self.free.push(place);
        was_live
    }
}

impl Requests for Entering {
    fn add(&mut self, delay: Duration, _: Payload) -> Place {
        let _entered = self.runtime.enter();
        peers::put(&mut self.free, sleep(delay))
    }

    fn reset(&mut self, place: &mut Place, delay: Duration) -> bool {
        let Some(mut sleep) = place.as_mut().as_pin_mut() else { return false };
        let was_live = !sleep.is_elapsed();
        sleep.as_mut().reset(Instant::now() + delay);
        was_live
    }

    fn run(&mut self, payload: Payload) {
        drop(self.runtime.spawn(async move { note(payload) }));
    }
}
