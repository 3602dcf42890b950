//! corewheel's shard: wheel, state words, mailbox and clock.

use std::time::Duration;

use corewheel::{Config, ManualClock, Shard, TimerHandle};

use crate::timers::{Payload, Timers, Waking};

/// `corewheel-shard`, in virtual time.
#[derive(Debug)]
pub struct CorewheelShard {
    shard: Shard<Payload>,
    clock: ManualClock,
    now: u64,
}

impl CorewheelShard {
    fn delay(&self, deadline: u64) -> Duration {
        Duration::from_millis(deadline - self.now)
    }

    fn set_clock(&mut self, now: u64) {
        self.now = now;
        self.clock.set(Duration::from_millis(now));
    }
}

impl Timers for CorewheelShard {
    type Handle = TimerHandle;

    fn new() -> Self {
        let clock = ManualClock::new();
        let shard = Shard::with_config(Config::new().clock(&clock)).expect("there are few shards");
        Self { shard, clock, now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> TimerHandle {
        self.shard.add(self.delay(deadline), payload)
    }

    fn cancel(&mut self, handle: &TimerHandle) -> bool {
        self.shard.cancel(*handle).is_some()
    }

    fn reset(&mut self, handle: &mut TimerHandle, deadline: u64) -> bool {
        self.shard.reset(*handle, self.delay(deadline))
    }

    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.advance_within(now, usize::MAX, on_fire);
    }

    fn advance_within(&mut self, now: u64, budget: usize, mut on_fire: impl FnMut(Payload)) {
        self.set_clock(now);
        self.shard.turn_within(budget);
        while let Some(expired) = self.shard.next_expired() {
            on_fire(expired.payload);
        }
    }

    fn touched(&self) -> Option<u64> {
        Some(self.shard.counts().touched)
    }
}

impl Waking for CorewheelShard {
    fn next_deadline(&self) -> Option<u64> {
        let wait = self.shard.time_until_next()?;
        Some(self.now + wait.as_millis() as u64)
    }

    fn add_within(&mut self, deadline: u64, slack: u64, payload: Payload) -> TimerHandle {
        self.shard.add_within(self.delay(deadline), Duration::from_millis(slack), payload)
    }

    fn add_spread(&mut self, deadline: u64, range: u64, payload: Payload) -> TimerHandle {
        self.shard.add_spread(self.delay(deadline), Duration::from_millis(range), payload)
    }
}
