use std::time::Duration;

use corewheel::{Cancel, Shard, ShardRef, TimerHandle, local_timer};

use super::{Owner, Remote, Requests, Resets, Sleeping, TurnResult, count_run};
use crate::peers::{self, LocalClock, RealTime};
use crate::timers::{Payload, panic_not_due};

/// The peer `corewheel-local`, in real time; with the fast clock if `FAST`.
pub struct Local<const FAST: bool>(());

impl<const FAST: bool> Owner for Local<FAST> {
    type Handle = TimerHandle;
    type Remote = ShardRef;

    fn new(_: usize) -> (Self, ShardRef) {
        RealTime::<FAST>::install();
        (Self(()), local_timer().shard_ref())
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> TimerHandle {
        local_timer().add(delay, move || peers::note_fired(payload))
    }

    fn turn(&mut self, budget: usize, on_fire: impl FnMut(Payload)) -> TurnResult {
        let turn = local_timer().turn_within(budget);
        peers::take_fired(on_fire);
        TurnResult { collected: turn.collected, is_behind: turn.behind }
    }
}

impl<const FAST: bool> Resets for Local<FAST> {
    fn reset(&mut self, handle: &mut TimerHandle, delay: Duration) -> bool {
        handle.reset(delay)
    }
}

impl<const FAST: bool> Sleeping for Local<FAST> {
    const HAS_BUDGET: bool = true;

    fn sleep(&self) {
        local_timer().prepare_sleep().park();
    }
}

impl Remote for ShardRef {
    type Handle = TimerHandle;

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }
}

impl Requests for ShardRef {
    fn add(&mut self, delay: Duration, payload: Payload) -> TimerHandle {
        Self::add(self, delay, move || panic_not_due(payload))
    }

    fn reset(&mut self, handle: &mut TimerHandle, delay: Duration) -> bool {
        handle.reset(delay)
    }

    fn run(&mut self, payload: Payload) {
        Self::run(self, move || count_run(payload));
    }
}

/// The peer `corewheel-shard`, in real time.
pub struct LocalShard {
    shard: Shard<Payload>,
    live: usize,
}

impl Owner for LocalShard {
    type Handle = TimerHandle;
    type Remote = ();

    fn new(_: usize) -> (Self, ()) {
        (Self { shard: Shard::new(), live: 0 }, ())
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> TimerHandle {
        self.live += 1;
        self.shard.add(delay, payload)
    }

    fn turn(&mut self, budget: usize, mut on_fire: impl FnMut(Payload)) -> TurnResult {
        self.shard.turn_within(budget);
        while let Some(expired) = self.shard.next_expired() {
            self.live -= 1;
            on_fire(expired.payload);
        }
        let collected = self.live - self.shard.len();
        self.live = self.shard.len();
        TurnResult { collected, is_behind: self.shard.is_behind() }
    }
}

impl Resets for LocalShard {
    fn reset(&mut self, handle: &mut TimerHandle, delay: Duration) -> bool {
        self.shard.reset(*handle, delay)
    }
}

/// Needs no state, because a handle contains the number of its shard.
impl Remote for () {
    type Handle = TimerHandle;

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }
}
