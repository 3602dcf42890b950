//! A current-thread runtime of tokio, entered by another thread: what is slept there is registered with the owner's driver, and
//! what is spawned runs there. By the machine's clock. Each `Sleep` is pinned in a place that is used again, so that the allocator
//! has no part in it.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::yield_now,
    time::{Instant, Sleep, sleep},
};

use super::{Asker, Owner, note, ran};
use crate::{crossing::Place, timers::Payload};

/// `tokio-sleep`.
#[derive(Debug)]
pub struct Entered(Runtime);

/// Who asks it.
#[derive(Debug)]
pub struct EnteredAsker {
    runtime: Handle,
    free: Vec<Place>,
}

impl Owner for Entered {
    type Asker = EnteredAsker;

    fn new() -> (Self, EnteredAsker) {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let asker = EnteredAsker { runtime: runtime.handle().clone(), free: Vec::new() };
        (Self(runtime), asker)
    }

    fn turn(&mut self, runs: u64) {
        self.0.block_on(async {
            yield_now().await;
            while ran() < runs {
                yield_now().await;
            }
        });
    }
}

/// It is not due yet: registering it is what the poll is for.
fn register(sleep: Pin<&mut Sleep>) {
    let _: Poll<()> = sleep.poll(&mut Context::from_waker(Waker::noop()));
}

impl Asker for EnteredAsker {
    type Handle = Place;

    fn add(&mut self, delay: u64, _: Payload) -> Place {
        let mut place = self.free.pop().unwrap_or_else(|| Box::pin(None));
        let entered = self.runtime.enter();
        place.set(Some(sleep(Duration::from_millis(delay))));
        drop(entered);
        if let Some(sleep) = place.as_mut().as_pin_mut() {
            register(sleep);
        }
        place
    }

    fn reset(&mut self, place: &mut Place, delay: u64) -> bool {
        let Some(mut sleep) = place.as_mut().as_pin_mut() else { return false };
        let was_live = !sleep.is_elapsed();
        sleep.as_mut().reset(Instant::now() + Duration::from_millis(delay));
        was_live
    }

    fn run(&mut self, payload: Payload) {
        drop(self.runtime.spawn(async move { note(payload) }));
    }

    fn cancel(&mut self, mut place: Place) -> bool {
        let was_live = place.as_ref().as_pin_ref().is_some_and(|sleep| !sleep.is_elapsed());
        place.set(None);
        self.free.push(place);
        was_live
    }
}
