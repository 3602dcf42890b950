//! corewheel: a plain handle cancels from anywhere.

use std::time::Duration;

use corewheel::{Cancel, Clock, Config, ManualClock, Shard, TimerHandle, local_timer};

use super::{Crossing, tick};
use crate::timers::Payload;

/// `corewheel-local` by the machine's clock, or its fast one.
#[derive(Debug)]
pub struct Local<const FAST: bool>(());

impl<const FAST: bool> Crossing for Local<FAST> {
    type Handle = TimerHandle;
    type Seed = ();

    fn seeds(_: usize) -> [(); 2] {
        [(), ()]
    }

    fn new((): ()) -> Self {
        let clock = if FAST { Clock::fast() } else { Clock::monotonic() };
        Config::new().clock(clock).install().expect("a new thread");
        Self(())
    }

    fn add(&mut self, delay: u64, payload: Payload) -> TimerHandle {
        local_timer()
            .add(Duration::from_millis(delay), move || unreachable!("{payload:?} is not due"))
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn turn(&mut self) -> u64 {
        let turn = local_timer().turn();
        assert_eq!(turn.fired, 0, "nothing is due");
        turn.collected as u64
    }
}

/// `corewheel-shard`, in virtual time.
#[derive(Debug)]
pub struct LocalShard {
    shard: Shard<Payload>,
    clock: ManualClock,
    added: u64,
    live: usize,
}

impl Crossing for LocalShard {
    type Handle = TimerHandle;
    type Seed = ();

    fn seeds(_: usize) -> [(); 2] {
        [(), ()]
    }

    fn new((): ()) -> Self {
        let clock = ManualClock::new();
        let shard = Shard::with_config(Config::new().clock(&clock)).expect("there are few shards");
        Self { shard, clock, added: 0, live: 0 }
    }

    fn add(&mut self, delay: u64, payload: Payload) -> TimerHandle {
        self.added += 1;
        self.live += 1;
        self.shard.add(Duration::from_millis(delay), payload)
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn turn(&mut self) -> u64 {
        self.clock.set(Duration::from_millis(tick(self.added)));
        self.shard.turn();
        let expired = self.shard.next_expired();
        assert!(expired.is_none(), "nothing is due");
        // Not by its counts, which would look at all that waits.
        let before = std::mem::replace(&mut self.live, self.shard.len());
        (before - self.live) as u64
    }
}
