//! The operations that corewheel and its peers, which are other timers, have in common, all on one
//! thread. Time advances only in the operations that call `advance`.

use std::hint::black_box;

use fastrand::Rng;

use crate::timers::{TimerSet, panic_not_due, payload};

const SEED: u64 = 1;
/// The number of warm-up operations, which the difference of two runs excludes.
pub(crate) const WARM_UP: usize = 2_000;
/// The ticks between consecutive timers of `fire_add`: each of 1,000 timers fires once a second.
pub(crate) const TICKS_BETWEEN_TIMERS: u64 = 1;

/// Draws random timers and delays.
pub(crate) struct Draws {
    rng: Rng,
    live: usize,
}

impl Draws {
    pub(crate) fn new(live: usize) -> Self {
        Self { rng: Rng::with_seed(SEED), live }
    }

    pub(crate) fn index(&mut self) -> usize {
        self.rng.usize(..self.live)
    }

    /// Returns the index of each timer once, in random order.
    pub(crate) fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.live).collect();
        self.rng.shuffle(&mut order);
        order
    }

    /// Draws a delay of 1 to 60 s, in ticks of a millisecond.
    pub(crate) fn delay(&mut self) -> u64 {
        self.rng.u64(1_000..60_000)
    }

    /// Draws a delay of 1 to 60 s, or, for `far_percent` of the timers, of 2 to 60 minutes.
    fn delay_or_far(&mut self, far_percent: u32) -> u64 {
        if far_percent != 0 && self.rng.u32(..100) < far_percent {
            self.rng.u64(120_000..3_600_000)
        } else {
            self.delay()
        }
    }
}

/// Draws an index and a delay, to count the instructions of the harness itself.
pub(crate) fn empty(live: usize, iterations: usize) {
    let mut draws = Draws::new(live);
    let mut handles = vec![0; live];
    for _ in 0..WARM_UP + iterations {
        let id = draws.index();
        handles[id] = black_box(handles[id] ^ draws.delay());
    }
}

pub(crate) fn cancel_add<T: TimerSet, const FAR_PERCENT: u32>(live: usize, iterations: usize) {
    let (mut timers, mut draws) = (T::new(), Draws::new(live));
    let mut handles: Vec<T::Handle> =
        (0..live).map(|id| timers.add(draws.delay_or_far(FAR_PERCENT), payload(id))).collect();
    for _ in 0..WARM_UP + iterations {
        let id = draws.index();
        assert!(timers.cancel(&handles[id]));
        handles[id] = timers.add(draws.delay_or_far(FAR_PERCENT), payload(id));
    }
}

/// Moves a random timer, about as often to an earlier deadline as to a later one.
pub(crate) fn reset<T: TimerSet>(live: usize, iterations: usize) {
    let (mut timers, mut draws) = (T::new(), Draws::new(live));
    let mut handles: Vec<T::Handle> =
        (0..live).map(|id| timers.add(draws.delay(), payload(id))).collect();
    for _ in 0..WARM_UP + iterations {
        let id = draws.index();
        let delay = draws.delay();
        assert!(timers.reset(&mut handles[id], delay));
    }
}

/// Advances by one tick in which no timer is due. All timers are due in the minute after the run.
pub(crate) fn idle_turn<T: TimerSet>(live: usize, iterations: usize) {
    let (mut timers, mut draws) = (T::new(), Draws::new(live));
    let ticks = (WARM_UP + iterations) as u64;
    for id in 0..live {
        black_box(timers.add(ticks + draws.delay(), payload(id)));
    }
    for now in 1..=ticks {
        timers.advance(now, panic_not_due);
    }
}

/// Advances to the next deadline, and adds the fired timer again, due after all other timers.
pub(crate) fn fire_add<T: TimerSet>(live: usize, iterations: usize) {
    let mut timers = T::new();
    for id in 0..live {
        black_box(timers.add(TICKS_BETWEEN_TIMERS * (id as u64 + 1), payload(id)));
    }
    for turn in 1..=(WARM_UP + iterations) as u64 {
        let mut fired = None;
        timers.advance(TICKS_BETWEEN_TIMERS * turn, |payload| fired = Some(payload));
        let payload = fired.expect("each turn fires one timer");
        black_box(timers.add(TICKS_BETWEEN_TIMERS * (turn + live as u64), payload));
    }
}
