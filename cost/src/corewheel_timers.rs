//! corewheel's three layers behind the trait of the benches. A wheel and a shard store a number of
//! 8 bytes; `local_timer` stores a callback that captures 24 bytes, like the payload of the peers.

use std::{hint::black_box, time::Duration};

use corewheel::{
    Cancel, Config, Key, LocalTimer, ManualClock, Shard, TimerHandle, Wheel, local_timer,
};

use crate::timers::{Payload, TimerSet};

pub(crate) struct WheelTimers(Wheel<u64>);

impl TimerSet for WheelTimers {
    type Handle = Key;

    fn new() -> Self {
        Self(Wheel::new())
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Key {
        self.0.insert(deadline, payload[0])
    }

    fn cancel(&mut self, key: &Key) -> bool {
        self.0.remove(*key).is_some()
    }

    fn reset(&mut self, key: &mut Key, deadline: u64) -> bool {
        self.0.reset(*key, deadline)
    }

    #[inline]
    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        for (_, id) in self.0.advance(now) {
            on_fire([id; 3]);
        }
    }
}

pub(crate) struct ShardTimers {
    shard: Shard<u64>,
    clock: ManualClock,
    now: u64,
}

impl TimerSet for ShardTimers {
    type Handle = TimerHandle;

    fn new() -> Self {
        let clock = ManualClock::new();
        let shard = Shard::with_config(Config::new().clock(&clock)).expect("few shards");
        Self { shard, clock, now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> TimerHandle {
        self.shard.add(Duration::from_millis(deadline - self.now), payload[0])
    }

    fn cancel(&mut self, handle: &TimerHandle) -> bool {
        self.shard.cancel(*handle).is_some()
    }

    fn reset(&mut self, handle: &mut TimerHandle, deadline: u64) -> bool {
        self.shard.reset(*handle, Duration::from_millis(deadline - self.now))
    }

    #[inline]
    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        self.now = now;
        self.clock.set(Duration::from_millis(now));
        self.shard.turn();
        while let Some(expired) = self.shard.next_expired() {
            on_fire([expired.payload; 3]);
        }
    }
}

pub(crate) struct LocalTimers {
    timer: LocalTimer,
    clock: ManualClock,
    now: u64,
}

impl TimerSet for LocalTimers {
    type Handle = TimerHandle;

    fn new() -> Self {
        let clock = ManualClock::new();
        Config::new().clock(&clock).install().expect("the first timer of this thread");
        local_timer().register_driver();
        Self { timer: local_timer(), clock, now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> TimerHandle {
        let delay = Duration::from_millis(deadline - self.now);
        self.timer.add(delay, move || _ = black_box(payload))
    }

    fn cancel(&mut self, handle: &TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn reset(&mut self, handle: &mut TimerHandle, deadline: u64) -> bool {
        handle.reset(Duration::from_millis(deadline - self.now))
    }

    /// Runs due callbacks. Callbacks return no payloads, so the closure is not called.
    #[inline]
    fn advance(&mut self, now: u64, _: impl FnMut(Payload)) {
        self.now = now;
        self.clock.set(Duration::from_millis(now));
        self.timer.turn();
    }
}
