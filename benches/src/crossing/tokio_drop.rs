//! tokio's `Sleep`, registered in one worker by a first poll and dropped in the other, by the machine's clock. The
//! drop itself says nothing; `is_elapsed`, asked before, is the answer. Each `Sleep` is pinned in a place that goes
//! back to its owner by a ring and is used again, so that the allocator has no part in it.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use rtrb::{Consumer, Producer, RingBuffer};
use tokio::time::{Sleep, sleep};

use super::{Crossing, IN_FLIGHT};
use crate::timers::Payload;

/// Where a `Sleep` is, or was.
pub type Place = Pin<Box<Option<Sleep>>>;

/// `tokio-threads`, `tokio-alt`.
#[derive(Debug)]
pub struct TokioDrop {
    free: Vec<Place>,
    emptied: Vec<Place>,
    to_other: Producer<Place>,
    from_other: Consumer<Place>,
}

impl Crossing for TokioDrop {
    type Handle = Place;
    type Seed = (Producer<Place>, Consumer<Place>);

    fn seeds(_: usize) -> [Self::Seed; 2] {
        let [(to_first, of_first), (to_second, of_second)] =
            [(); 2].map(|()| RingBuffer::new(IN_FLIGHT));
        [(to_second, of_first), (to_first, of_second)]
    }

    fn new((to_other, from_other): Self::Seed) -> Self {
        Self { free: Vec::new(), emptied: Vec::new(), to_other, from_other }
    }

    fn add(&mut self, delay: u64, _: Payload) -> Place {
        let mut place = self.free.pop().unwrap_or_else(|| Box::pin(None));
        place.set(Some(sleep(Duration::from_millis(delay))));
        if let Some(sleep) = place.as_mut().as_pin_mut() {
            // It is not due yet: registering it is what the poll is for.
            let _: Poll<()> = sleep.poll(&mut Context::from_waker(Waker::noop()));
        }
        place
    }

    fn cancel(&mut self, mut place: Place) -> bool {
        let was_live = place.as_ref().as_pin_ref().is_some_and(|sleep| !sleep.is_elapsed());
        place.set(None);
        self.emptied.push(place);
        was_live
    }

    fn send(&mut self) {
        let chunk =
            self.to_other.write_chunk_uninit(self.emptied.len()).expect("room for all in flight");
        chunk.fill_from_iter(self.emptied.drain(..));
    }

    fn turn(&mut self) -> u64 {
        let count = self.from_other.slots();
        self.free.extend(self.from_other.read_chunk(count).expect("they are there"));
        count as u64
    }
}
