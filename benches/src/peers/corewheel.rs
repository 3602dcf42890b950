//! corewheel's three layers: `Wheel`, `Shard` and `local_timer()`.

use std::cell::RefCell;
use std::time::Duration;

use ::corewheel::{
    Cancel, Clock, Config, Key, ManualClock, Shard, TimerHandle, Wheel, When, local_timer,
};

use crate::timers::{Payload, ReportsDeadline, TimerSet, Window};

pub struct CorewheelWheel(Wheel<Payload>);

impl TimerSet for CorewheelWheel {
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

    fn advance_within(&mut self, now: u64, budget: usize, mut on_fire: impl FnMut(Payload)) {
        self.0.advance_within(now, budget).for_each(|(_, payload)| on_fire(payload));
    }

    fn relinked(&self) -> Option<u64> {
        Some(self.0.relinked())
    }
}

impl ReportsDeadline for CorewheelWheel {
    fn next_deadline(&self) -> Option<u64> {
        self.0.next_deadline()
    }

    fn add_in_window(&mut self, deadline: u64, window: Window, payload: Payload) -> Key {
        match window {
            Window::Slack(slack) => self.0.insert_with_slack(deadline, slack, payload),
            Window::Spread(_) => self.add(window.choose_tick(deadline), payload),
        }
    }
}

/// The peer `corewheel-shard`, in virtual time.
pub struct CorewheelShard {
    shard: Shard<Payload>,
    clock: ManualClock,
    now: u64,
}

/// Converts the arguments of `add_in_window` to a `When` at the tick `now`.
fn when(now: u64, deadline: u64, window: Window) -> When {
    let when = When::after(Duration::from_millis(deadline - now));
    match window {
        Window::Slack(ticks) => when.slack(Duration::from_millis(ticks)),
        Window::Spread(ticks) => when.spread(Duration::from_millis(ticks)),
    }
}

impl TimerSet for CorewheelShard {
    type Handle = TimerHandle;

    fn new() -> Self {
        let clock = ManualClock::new();
        let shard = Shard::with_config(Config::new().clock(&clock)).expect("there are few shards");
        Self { shard, clock, now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> TimerHandle {
        self.shard.add(Duration::from_millis(deadline - self.now), payload)
    }

    fn cancel(&mut self, handle: &TimerHandle) -> bool {
        self.shard.cancel(*handle).is_some()
    }

    fn reset(&mut self, handle: &mut TimerHandle, deadline: u64) -> bool {
        self.shard.reset(*handle, Duration::from_millis(deadline - self.now))
    }

    fn advance_within(&mut self, now: u64, budget: usize, mut on_fire: impl FnMut(Payload)) {
        self.now = now;
        self.clock.set(Duration::from_millis(now));
        self.shard.turn_within(budget);
        while let Some(expired) = self.shard.next_expired() {
            on_fire(expired.payload);
        }
    }

    fn prepare_sleep(&mut self) {
        drop(self.shard.prepare_sleep());
    }

    fn relinked(&self) -> Option<u64> {
        Some(self.shard.counts().relinked)
    }
}

impl ReportsDeadline for CorewheelShard {
    fn next_deadline(&self) -> Option<u64> {
        let wait = self.shard.time_until_next()?;
        Some(self.now + wait.as_millis() as u64)
    }

    fn add_in_window(&mut self, deadline: u64, window: Window, payload: Payload) -> TimerHandle {
        self.shard.add(when(self.now, deadline, window), payload)
    }
}

thread_local! {
    static FIRED: RefCell<Vec<Payload>> = const { RefCell::new(Vec::new()) };
}

/// The peer `corewheel-local`, in virtual or real time. A thread can create only one instance.
pub struct CorewheelLocal<C = ManualClock> {
    clock: C,
    now: u64,
}

pub trait LocalClock {
    fn install() -> Self;
    fn set(&self, now: u64);
}

impl LocalClock for ManualClock {
    fn install() -> Self {
        let clock = Self::new();
        Config::new().clock(&clock).install().expect("the thread has no wheel yet");
        local_timer().register_driver();
        clock
    }

    fn set(&self, now: u64) {
        Self::set(self, Duration::from_millis(now));
    }
}

#[derive(Clone, Copy, Debug)]
pub struct RealTime<const FAST: bool>;

impl<const FAST: bool> LocalClock for RealTime<FAST> {
    fn install() -> Self {
        let clock = if FAST { Clock::fast() } else { Clock::monotonic() };
        Config::new().clock(clock).install().expect("the thread has no wheel yet");
        local_timer().register_driver();
        Self
    }

    fn set(&self, _: u64) {}
}

pub(crate) fn note_fired(payload: Payload) {
    FIRED.with_borrow_mut(|fired| fired.push(payload));
}

pub(crate) fn take_fired(on_fire: impl FnMut(Payload)) {
    FIRED.with_borrow_mut(|fired| fired.drain(..).for_each(on_fire));
}

impl<C: LocalClock> TimerSet for CorewheelLocal<C> {
    type Handle = TimerHandle;

    fn new() -> Self {
        // Reserves memory for fired payloads in advance, so that no timed advance grows it.
        FIRED.with_borrow_mut(|fired| fired.reserve(1024));
        Self { clock: C::install(), now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> TimerHandle {
        local_timer().add(Duration::from_millis(deadline - self.now), move || note_fired(payload))
    }

    fn cancel(&mut self, handle: &TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn reset(&mut self, handle: &mut TimerHandle, deadline: u64) -> bool {
        handle.reset(Duration::from_millis(deadline - self.now))
    }

    fn advance_within(&mut self, now: u64, budget: usize, on_fire: impl FnMut(Payload)) {
        self.now = now;
        self.clock.set(now);
        local_timer().turn_within(budget);
        take_fired(on_fire);
    }

    fn prepare_sleep(&mut self) {
        drop(local_timer().prepare_sleep());
    }

    fn relinked(&self) -> Option<u64> {
        Some(local_timer().counts().relinked)
    }
}

impl ReportsDeadline for CorewheelLocal {
    fn next_deadline(&self) -> Option<u64> {
        let wait = local_timer().time_until_next()?;
        Some(self.now + wait.as_millis() as u64)
    }

    fn add_in_window(&mut self, deadline: u64, window: Window, payload: Payload) -> TimerHandle {
        local_timer().add(when(self.now, deadline, window), move || note_fired(payload))
    }
}
