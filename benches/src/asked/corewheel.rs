//! corewheel: a reference to the owner's timer, and plain handles.

use std::time::Duration;

use corewheel::{Cancel, Clock, Config, ShardRef, TimerHandle, local_timer};

use super::{Asker, Owner, note, ran};
use crate::timers::Payload;

/// `corewheel-local` by the machine's clock, or its fast one.
#[derive(Debug)]
pub struct Local<const FAST: bool>(());

impl<const FAST: bool> Owner for Local<FAST> {
    type Asker = ShardRef;

    fn new() -> (Self, ShardRef) {
        let clock = if FAST { Clock::fast() } else { Clock::monotonic() };
        Config::new().clock(clock).install().expect("a new thread");
        (Self(()), local_timer().shard_ref())
    }

    fn turn(&mut self, runs: u64) {
        let before = ran();
        let turn = local_timer().turn();
        assert_eq!(
            (ran(), turn.fired as u64),
            (runs, runs - before),
            "it takes in all, and nothing else is due"
        );
    }

    fn is_settled(&self) -> bool {
        local_timer().counts().queued == 0
    }
}

impl Asker for ShardRef {
    type Handle = TimerHandle;

    fn add(&mut self, delay: u64, payload: Payload) -> TimerHandle {
        ShardRef::add(self, Duration::from_millis(delay), move || {
            unreachable!("{payload:?} is not due")
        })
    }

    fn reset(&mut self, handle: &mut TimerHandle, delay: u64) -> bool {
        handle.reset(Duration::from_millis(delay))
    }

    fn run(&mut self, payload: Payload) {
        ShardRef::run(self, move || note(payload));
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }
}
