//! A `Wheel`, a `Shard` and a thread's wheel behind one trait.
#![allow(dead_code, reason = "no test uses all of it")]

use std::{hint::black_box, time::Duration, time::Instant};

use corewheel::{Cancel, Key, ManualClock, Shard, TimerHandle, Wheel, local_timer};

use crate::common::{TICK, in_virtual_time, manual_shard};

const PAYLOAD: [u64; 3] = [7; 3];

/// Bytes that the feature `origins` adds to each timer.
const ORIGIN_BYTES: i64 = if cfg!(feature = "origins") { 16 } else { 0 };

#[derive(Clone, Copy)]
pub(crate) enum Handle {
    Key(Key),
    Timer(TimerHandle),
}

impl Handle {
    fn key(self) -> Key {
        let Self::Key(key) = self else { unreachable!("a handle of a wheel") };
        key
    }

    pub(crate) fn timer(self) -> TimerHandle {
        let Self::Timer(timer) = self else { unreachable!("a handle of a shard") };
        timer
    }
}

pub(crate) struct PassResult {
    pub(crate) fired: usize,
    /// Timers that other threads cancelled and the owner collected.
    pub(crate) collected: usize,
    pub(crate) relinked: usize,
    pub(crate) behind: bool,
}

pub(crate) trait TimerSet {
    fn max_bytes_per_timer(&self) -> i64 {
        96 + ORIGIN_BYTES
    }
    fn add(&mut self, ticks: u32) -> Handle;
    fn reset(&mut self, handle: Handle, ticks: u32) -> bool;
    /// Returns whether the timer was live.
    fn cancel(&mut self, handle: Handle) -> bool;
    /// Advances the clock and makes one pass within the budget.
    fn pass(&mut self, ticks: u32, budget: usize) -> PassResult;
    /// Prepares a sleep. Before a long sleep, a shard frees surplus memory.
    fn prepare_sleep(&mut self) {}
    fn live(&self) -> usize;
}

pub(crate) type MakeTimers<'a> = &'a dyn Fn() -> Box<dyn TimerSet>;

pub(crate) fn for_each_kind(test: impl Fn(MakeTimers<'_>) + Sync) {
    test(&|| Box::<WheelTimers>::default());
    for_each_shard(test);
}

pub(crate) fn for_each_shard(test: impl Fn(MakeTimers<'_>) + Sync) {
    test(&|| Box::new(ShardTimers::new()));
    in_virtual_time(|clock| test(&|| Box::new(ThreadTimers(clock.clone()))));
}

fn to_usize(entries: u64) -> usize {
    usize::try_from(entries).expect("few")
}

#[derive(Default)]
struct WheelTimers {
    wheel: Wheel<[u64; 3]>,
    latest: u64,
}

impl TimerSet for WheelTimers {
    fn max_bytes_per_timer(&self) -> i64 {
        64
    }

    fn add(&mut self, ticks: u32) -> Handle {
        Handle::Key(self.wheel.insert(self.wheel.now() + u64::from(ticks), PAYLOAD))
    }

    fn reset(&mut self, handle: Handle, ticks: u32) -> bool {
        self.wheel.reset(handle.key(), self.wheel.now() + u64::from(ticks))
    }

    fn cancel(&mut self, handle: Handle) -> bool {
        let value = self.wheel.remove(handle.key());
        assert!(value.is_none_or(|value| value == PAYLOAD));
        value.is_some()
    }

    fn pass(&mut self, ticks: u32, budget: usize) -> PassResult {
        let (before, mut fired) = (self.wheel.relinked(), 0);
        for (deadline, _) in self.wheel.advance_within(self.wheel.now() + u64::from(ticks), budget)
        {
            assert!(deadline >= self.latest, "out of order");
            self.latest = deadline;
            fired += 1;
        }
        let relinked = to_usize(self.wheel.relinked() - before);
        PassResult { fired, collected: 0, relinked, behind: self.wheel.is_behind() }
    }

    fn live(&self) -> usize {
        self.wheel.len()
    }
}

struct ShardTimers {
    shard: Shard<[u64; 3]>,
    clock: ManualClock,
    latest: Option<Instant>,
}

impl ShardTimers {
    fn new() -> Self {
        let (shard, clock) = manual_shard();
        Self { shard, clock, latest: None }
    }
}

impl TimerSet for ShardTimers {
    fn add(&mut self, ticks: u32) -> Handle {
        Handle::Timer(self.shard.add(TICK * ticks, PAYLOAD))
    }

    fn reset(&mut self, handle: Handle, ticks: u32) -> bool {
        self.shard.reset(handle.timer(), TICK * ticks)
    }

    fn cancel(&mut self, handle: Handle) -> bool {
        self.shard.cancel(handle.timer()).is_some()
    }

    fn pass(&mut self, ticks: u32, budget: usize) -> PassResult {
        let (before, mut fired) = (self.shard.counts(), 0);
        self.clock.advance(TICK * ticks);
        self.shard.turn_within(budget);
        while let Some(expired) = self.shard.next_expired() {
            assert!(self.latest.is_none_or(|latest| expired.deadline() >= latest), "out of order");
            self.latest = Some(expired.deadline());
            fired += 1;
        }
        let (after, behind) = (self.shard.counts(), self.shard.is_behind());
        assert!(!behind || self.shard.time_until_next() == Some(Duration::ZERO));
        let collected = to_usize(after.cancelled - before.cancelled);
        let relinked = to_usize(after.relinked - before.relinked);
        PassResult { fired, collected, relinked, behind }
    }

    fn prepare_sleep(&mut self) {
        drop(self.shard.prepare_sleep());
    }

    fn live(&self) -> usize {
        self.shard.len()
    }
}

struct ThreadTimers(ManualClock);

impl TimerSet for ThreadTimers {
    fn add(&mut self, ticks: u32) -> Handle {
        let captured = PAYLOAD;
        Handle::Timer(local_timer().add(TICK * ticks, move || _ = black_box(captured)))
    }

    fn reset(&mut self, handle: Handle, ticks: u32) -> bool {
        handle.timer().reset(TICK * ticks)
    }

    fn cancel(&mut self, handle: Handle) -> bool {
        handle.timer().cancel() == Cancel::Cancelled
    }

    fn pass(&mut self, ticks: u32, budget: usize) -> PassResult {
        self.0.advance(TICK * ticks);
        let turn = local_timer().turn_within(budget);
        assert!(!turn.behind || local_timer().time_until_next() == Some(Duration::ZERO));
        let (relinked, behind) = (to_usize(turn.relinked), turn.behind);
        PassResult { fired: turn.fired, collected: turn.collected, relinked, behind }
    }

    fn prepare_sleep(&mut self) {
        drop(local_timer().prepare_sleep());
    }

    fn live(&self) -> usize {
        local_timer().len()
    }
}
