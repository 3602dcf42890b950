//! tokio-util's `DelayQueue`.

use std::time::Duration;

use corewheel::{Cancel, ManualClock, PreparedSleep, TimerHandle, local_timer};

use crate::{
    Wakes,
    common::{TICK, operations, seeded},
    on_a_core_that_sleeps,
};

/// A thread that has announced its sleep, and what it knows of its timers.
struct Sleeper<'core> {
    clock: &'core ManualClock,
    wakes: &'core Wakes,
    announced: Option<PreparedSleep<'static>>,
    woken: bool,
    live: Vec<(TimerHandle, Duration)>,
}

impl Sleeper<'_> {
    /// Any change of the timers, at times a new sleep or the end of one.
    fn any_operation(&mut self, random: &mut fastrand::Rng) {
        match random.u32(..10) {
            0..3 => self.add(random.u32(..30)),
            3..6 => self.reset(random),
            6..8 => self.cancel(random),
            8 => self.cancel_all(),
            _ => self.sleep_again(),
        }
        self.woken |= self.wakes.take() > 0;
    }

    fn add(&mut self, ticks: u32) {
        let handle = local_timer().add(TICK * ticks, || {});
        self.live.push((handle, self.clock.elapsed() + TICK * ticks));
    }

    /// Also to the present.
    fn reset(&mut self, random: &mut fastrand::Rng) {
        let Some(place) = (!self.live.is_empty()).then(|| random.usize(..self.live.len())) else {
            return;
        };
        let delay = TICK * random.u32(..30);
        let (handle, deadline) = &mut self.live[place];
        assert!(handle.reset(delay));
        *deadline = self.clock.elapsed() + delay;
    }

    fn cancel(&mut self, random: &mut fastrand::Rng) {
        if !self.live.is_empty() {
            let (handle, _) = self.live.swap_remove(random.usize(..self.live.len()));
            assert_eq!(handle.cancel(), Cancel::Cancelled);
        }
    }

    fn cancel_all(&mut self) {
        assert!(self.live.drain(..).all(|(handle, _)| handle.cancel() == Cancel::Cancelled));
    }

    /// The sleep ends; a turn; another begins.
    fn sleep_again(&mut self) {
        self.announced = None;
        self.clock.advance(TICK * 3);
        local_timer().turn();
        let now = self.clock.elapsed();
        self.live.retain(|&(_, deadline)| deadline > now);
        assert_eq!(local_timer().len(), self.live.len());
        self.announced = Some(local_timer().prepare_sleep());
        self.woken = false;
    }

    /// It sleeps at most until the earliest deadline.
    fn assert_wakes_in_time(&self) {
        let earliest = self.live.iter().map(|&(_, deadline)| deadline).min();
        let (Some(earliest), Some(sleep)) = (earliest, &self.announced) else { return };
        let wakes =
            sleep.timeout().is_some_and(|timeout| self.clock.elapsed() + timeout <= earliest);
        assert!(wakes || self.woken, "asleep for {:?}, due at {earliest:?}", sleep.timeout());
    }
}

/// #6752 (the last one removed), #8274 (reset to the present), #8320 (all removed): the task was not woken.
#[test]
fn bug_08_a_change_of_the_timers_left_the_sleeper_asleep() {
    seeded(0..operations(20).min(200), |random| {
        let seed = random.u64(..);
        on_a_core_that_sleeps(|clock, wakes| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut sleeper =
                Sleeper { clock, wakes, announced: None, woken: false, live: Vec::new() };
            for _ in 0..500 {
                sleeper.any_operation(&mut random);
                sleeper.assert_wakes_in_time();
            }
        });
    });
}
