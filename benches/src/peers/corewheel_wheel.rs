//! corewheel's wheel alone.

use corewheel::{Key, Wheel};

use crate::timers::{Payload, Timers, Waking};

/// `corewheel-wheel`.
#[derive(Debug)]
pub struct CorewheelWheel(Wheel<Payload>);

impl Timers for CorewheelWheel {
    type Handle = Key;

    fn new() -> Self {
        Self(Wheel::new())
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Key {
        self.0.insert(deadline, payload)
    }

    fn cancel(&mut self, key: &Key) -> bool {
        self.0.remove(*key).is_some()
    }

    fn reset(&mut self, key: &mut Key, deadline: u64) -> bool {
        self.0.reset(*key, deadline)
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        self.0.advance(now).for_each(|(_, payload)| on_fire(payload));
    }

    fn advance_within(&mut self, now: u64, budget: usize, mut on_fire: impl FnMut(Payload)) {
        self.0.advance_within(now, budget).for_each(|(_, payload)| on_fire(payload));
    }

    fn touched(&self) -> Option<u64> {
        Some(self.0.touched())
    }
}

impl Waking for CorewheelWheel {
    fn next_deadline(&self) -> Option<u64> {
        self.0.next_deadline()
    }

    fn add_within(&mut self, deadline: u64, slack: u64, payload: Payload) -> Key {
        self.0.insert_within(deadline, slack, payload)
    }
}
