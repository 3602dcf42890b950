//! The cancellable wheel of `hierarchical_hash_wheel_timer`: a hash map by id, and four levels of
//! 256 slots. A cancelled timer's entry stays until its slot is due. A reset cancels the timer and
//! adds it again with its id.

use std::rc::Rc;
use std::time::Duration;

use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::{
    CancellableTimerEntry, QuadWheelWithOverflow,
};

use crate::timers::{Payload, TimerSet};

pub struct HashWheel {
    wheel: QuadWheelWithOverflow<Entry>,
    now: u64,
    next_id: u64,
}

/// An entry of the wheel. The handle shares it, because a reset needs the payload.
#[derive(Debug)]
pub struct Entry {
    id: u64,
    payload: Payload,
}

impl CancellableTimerEntry for Entry {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.id
    }
}

impl HashWheel {
    fn insert(&mut self, deadline: u64, id: u64, payload: Payload) -> Rc<Entry> {
        let entry = Rc::new(Entry { id, payload });
        let delay = Duration::from_millis(deadline - self.now);
        self.wheel.insert_ref_with_delay(Rc::clone(&entry), delay).expect("later than now");
        entry
    }
}

impl TimerSet for HashWheel {
    type Handle = Rc<Entry>;

    fn new() -> Self {
        Self { wheel: QuadWheelWithOverflow::new(), now: 0, next_id: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Rc<Entry> {
        self.next_id += 1;
        self.insert(deadline, self.next_id, payload)
    }

    fn cancel(&mut self, handle: &Rc<Entry>) -> bool {
        self.wheel.cancel(&handle.id).is_ok()
    }

    fn reset(&mut self, handle: &mut Rc<Entry>, deadline: u64) -> bool {
        let live = self.cancel(handle);
        if live {
            *handle = self.insert(deadline, handle.id, handle.payload);
        }
        live
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        while self.now < now {
            match self.wheel.can_skip() {
                Skip::Empty => self.now = now,
                Skip::Millis(ticks) if self.now + u64::from(ticks) <= now => {
                    self.wheel.skip(ticks);
                    self.now += u64::from(ticks);
                }
                _ => {
                    self.now += 1;
                    self.wheel.tick().into_iter().for_each(|entry| on_fire(entry.payload));
                }
            }
        }
    }
}
