use std::time::{Duration, Instant};

pub type Payload = [u64; 3];

pub fn payload(connection: usize) -> Payload {
    [connection as u64; 3]
}

pub fn connection(payload: Payload) -> usize {
    payload[0] as usize
}

/// Panics. Serves as the callback of turns in which no timer is due.
pub fn panic_not_due(payload: Payload) {
    unreachable!("{payload:?} is not due");
}

/// A set of timers in which time is a tick number. Every `deadline` is later than the tick of the
/// latest [`advance`](Self::advance).
pub trait TimerSet: Sized {
    type Handle: Clone;

    /// True if a load must run in a task of the peer's runtime and yield between batches.
    const IN_TASK: bool = false;

    /// Creates an empty set at tick 0.
    fn new() -> Self;

    /// Adds a timer. In virtual time, an exact peer fires the timer in the first `advance` that
    /// reaches `deadline`.
    fn add(&mut self, deadline: u64, payload: Payload) -> Self::Handle;

    /// Cancels a timer; returns false if it had ended.
    fn cancel(&mut self, handle: &Self::Handle) -> bool;

    /// Moves a timer, perhaps to a new handle; returns false if it had ended.
    fn reset(&mut self, handle: &mut Self::Handle, deadline: u64) -> bool;

    /// Advances to `now` and fires the due timers. A peer implements this method or
    /// [`advance_within`](Self::advance_within).
    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.advance_within(now, usize::MAX, on_fire);
    }

    /// Advances; a peer with budgets touches at most `budget` entries, and the next call continues.
    fn advance_within(&mut self, now: u64, budget: usize, on_fire: impl FnMut(Payload)) {
        let _ = budget;
        self.advance(now, on_fire);
    }

    /// Announces a sleep, before which some peers free memory.
    fn prepare_sleep(&mut self) {}

    /// Returns how often a pass has moved an entry to another slot, if the peer counts this.
    fn relinked(&self) -> Option<u64> {
        None
    }
}

/// A peer in real time: each add and each advance reads the clock.
pub struct InRealTime<T> {
    timers: T,
    start: Instant,
    /// The tick of the latest `advance`. The delay of an add is its deadline minus this tick.
    now: u64,
}

impl<T: TimerSet> TimerSet for InRealTime<T> {
    type Handle = T::Handle;

    fn new() -> Self {
        Self { timers: T::new(), start: Instant::now(), now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> T::Handle {
        let delay = Duration::from_millis(deadline - self.now);
        let deadline_tick = (self.start.elapsed() + delay).as_nanos().div_ceil(1_000_000);
        self.timers.add(u64::try_from(deadline_tick).expect("a short run"), payload)
    }

    fn cancel(&mut self, handle: &T::Handle) -> bool {
        self.timers.cancel(handle)
    }

    fn reset(&mut self, _: &mut T::Handle, _: u64) -> bool {
        unreachable!("no workload in real time resets timers")
    }

    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.now = now;
        let elapsed = u64::try_from(self.start.elapsed().as_millis());
        self.timers.advance(elapsed.expect("a short run"), on_fire);
    }
}

/// How much later than its deadline a timer may fire.
#[derive(Clone, Copy, Debug)]
pub enum Window {
    /// Up to this number of ticks later, so that timers share a turn.
    Slack(u64),
    /// Up to this number of ticks later, so that timers have different ticks.
    Spread(u64),
}

impl Window {
    /// Chooses a tick for a peer without windows: for slack the one with the most trailing zeros,
    /// for spread a random one.
    pub(crate) fn choose_tick(self, deadline: u64) -> u64 {
        match self {
            Self::Slack(slack) => roundest(deadline, deadline + slack),
            Self::Spread(range) => deadline + fastrand::u64(..=range),
        }
    }
}

/// Timers that report their next deadline, so that a loop can sleep.
pub trait ReportsDeadline: TimerSet {
    /// Returns the first tick at which the peer has work; `None` without timers.
    fn next_deadline(&self) -> Option<u64>;

    /// Adds a timer with a window that begins at `deadline`.
    fn add_in_window(&mut self, deadline: u64, window: Window, payload: Payload) -> Self::Handle {
        self.add(window.choose_tick(deadline), payload)
    }
}

/// Returns the tick from `from` to `to` with the most trailing zeros. `from` must not be 0.
fn roundest(from: u64, to: u64) -> u64 {
    let zeros = ((from - 1) ^ to).ilog2();
    to >> zeros << zeros
}

#[cfg(test)]
mod tests {
    use super::roundest;

    #[test]
    fn the_roundest_tick_has_the_most_trailing_zeros() {
        for from in 1..100_u64 {
            for to in from..200 {
                let most = (from..=to).max_by_key(|tick| tick.trailing_zeros()).expect("not empty");
                assert_eq!(roundest(from, to), most, "{from} to {to}");
            }
        }
    }
}
