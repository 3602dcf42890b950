//! corewheel's `local_timer()`: callbacks that capture the payload.

use std::{cell::RefCell, time::Duration};

use corewheel::{Cancel, Clock, Config, ManualClock, TimerHandle, local_timer};

use crate::timers::{Payload, Timers, Waking};

thread_local! {
    /// What the callbacks bring.
    static FIRED: RefCell<Vec<Payload>> = const { RefCell::new(Vec::new()) };
}

/// `corewheel-local`, in virtual time. A thread can have one, once.
#[derive(Debug)]
pub struct CorewheelLocal {
    clock: ManualClock,
    now: u64,
}

/// `corewheel-local` by the machine's clock, or its fast one. A thread can have one, once.
#[derive(Debug)]
pub struct CorewheelLocalRealTime<const FAST: bool> {
    now: u64,
}

/// Installs the thread's timer, and room for what fires: growing it is not the timer's doing.
fn install(config: Config) {
    config.install().expect("a new thread");
    FIRED.with_borrow_mut(|fired| fired.reserve(1024));
}

fn add(delay: u64, payload: Payload) -> TimerHandle {
    local_timer().add(Duration::from_millis(delay), move || note(payload))
}

fn note(payload: Payload) {
    FIRED.with_borrow_mut(|fired| fired.push(payload));
}

fn turn(budget: usize, on_fire: impl FnMut(Payload)) {
    local_timer().turn_within(budget);
    FIRED.with_borrow_mut(|fired| fired.drain(..).for_each(on_fire));
}

impl Timers for CorewheelLocal {
    type Handle = TimerHandle;

    fn new() -> Self {
        let clock = ManualClock::new();
        install(Config::new().clock(&clock));
        Self { clock, now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> TimerHandle {
        add(deadline - self.now, payload)
    }

    fn cancel(&mut self, handle: &TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn reset(&mut self, handle: &mut TimerHandle, deadline: u64) -> bool {
        handle.reset(Duration::from_millis(deadline - self.now))
    }

    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.advance_within(now, usize::MAX, on_fire);
    }

    fn advance_within(&mut self, now: u64, budget: usize, on_fire: impl FnMut(Payload)) {
        self.now = now;
        self.clock.set(Duration::from_millis(now));
        turn(budget, on_fire);
    }

    fn touched(&self) -> Option<u64> {
        Some(local_timer().counts().touched)
    }
}

impl Waking for CorewheelLocal {
    fn next_deadline(&self) -> Option<u64> {
        let wait = local_timer().time_until_next()?;
        Some(self.now + wait.as_millis() as u64)
    }

    fn add_within(&mut self, deadline: u64, slack: u64, payload: Payload) -> TimerHandle {
        let [delay, slack] = [deadline - self.now, slack].map(Duration::from_millis);
        local_timer().add_within(delay, slack, move || note(payload))
    }

    fn add_spread(&mut self, deadline: u64, range: u64, payload: Payload) -> TimerHandle {
        let [delay, range] = [deadline - self.now, range].map(Duration::from_millis);
        local_timer().add_spread(delay, range, move || note(payload))
    }
}

impl<const FAST: bool> Timers for CorewheelLocalRealTime<FAST> {
    type Handle = TimerHandle;

    fn new() -> Self {
        install(Config::new().clock(if FAST { Clock::fast() } else { Clock::monotonic() }));
        Self { now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> TimerHandle {
        add(deadline - self.now, payload)
    }

    fn cancel(&mut self, handle: &TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn reset(&mut self, handle: &mut TimerHandle, deadline: u64) -> bool {
        handle.reset(Duration::from_millis(deadline - self.now))
    }

    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.now = now;
        turn(usize::MAX, on_fire);
    }
}
