//! Adapters of the peers for workloads in which other threads reach an owner's timers.
//!
//! An [`Owner`] adds timers, a [`Remote`] cancels them, and the owner then collects them. Each add
//! and reset reads the real clock, before it takes any lock. `corewheel-local-fast` reads
//! corewheel's fast clock.

mod channel;
mod corewheel;
mod floor;
mod locked;
mod tokio;

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use crate::timers::Payload;

pub use self::channel::Channel;
pub use self::corewheel::{Local, LocalShard};
pub use self::floor::FloorOwner;
pub use self::locked::{Lock, Locked, ParkingLot, Shareable, Std};
pub use self::tokio::{EnteredRuntimeOwner, TokioTaskOwner};

/// The maximum number of timers handed over and not yet collected.
pub const IN_FLIGHT: usize = 4096;

/// The number of timers that are handed over together.
pub const BATCH: usize = 64;

pub trait Owner: Sized {
    type Handle: Send + 'static;
    type Remote: Remote<Handle = Self::Handle> + 'static;

    /// Creates an owner on the calling thread. `floor` has a fixed capacity: `timers + IN_FLIGHT`.
    fn new(timers: usize) -> (Self, Self::Remote);

    fn add(&mut self, delay: Duration, payload: Payload) -> Self::Handle;

    /// Fires due timers and consumes remote requests. `budget` limits the requests that the peers
    /// `channel` and corewheel consume, and the entries that corewheel fires or moves. Other peers
    /// ignore `budget`.
    fn turn(&mut self, budget: usize, on_fire: impl FnMut(Payload)) -> TurnResult;
}

#[derive(Clone, Copy, Debug)]
pub struct TurnResult {
    pub collected: usize,
    /// True if the turn may have left work for the next one.
    pub is_behind: bool,
}

pub trait Resets: Owner {
    /// Moves a timer; returns false if it has ended.
    fn reset(&mut self, handle: &mut Self::Handle, delay: Duration) -> bool;
}

pub trait Sleeping: Owner {
    const HAS_BUDGET: bool = false;

    /// Sleeps until the next deadline or a wake-up.
    fn sleep(&self);
}

pub trait Remote: Send {
    type Handle;

    /// Cancels a timer; returns false if it had ended. A peer whose requests have no reply returns
    /// true; its owner asserts that the timer was live.
    fn cancel(&mut self, handle: Self::Handle) -> bool;

    /// Sends the boxes of cancelled timers back to the owner, for peers that reuse them.
    fn return_boxes(&mut self) {}
}

pub trait Requests: Remote {
    fn add(&mut self, delay: Duration, payload: Payload) -> Self::Handle;

    /// Moves a timer; returns false if it is known to have ended.
    fn reset(&mut self, handle: &mut Self::Handle, delay: Duration) -> bool;

    /// Sends to the owner a closure, which adds the payload's first word to [`counted_runs`].
    fn run(&mut self, payload: Payload);
}

#[derive(Clone, Copy, Debug)]
struct TickClock(Instant);

impl TickClock {
    fn now(self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }

    /// Reads the clock and rounds the deadline up.
    fn deadline(self, delay: Duration) -> u64 {
        (self.0.elapsed() + delay).as_nanos().div_ceil(1_000_000) as u64
    }

    /// Parks until `tick` or a wake-up; returns at once for `None`.
    fn park_until(self, tick: Option<u64>) {
        if let Some(tick) = tick {
            thread::park_timeout(Duration::from_millis(tick).saturating_sub(self.0.elapsed()));
        }
    }
}

thread_local! {
    static COUNTED_RUNS: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn count_run(payload: Payload) {
    COUNTED_RUNS.set(COUNTED_RUNS.get() + payload[0]);
}

pub fn counted_runs() -> u64 {
    COUNTED_RUNS.get()
}

type Task = Box<dyn FnOnce() + Send>;

/// Opens a channel in each direction and returns each side's sender and receiver.
pub(crate) fn channel_pair<S, R>(open: impl Fn() -> (S, R)) -> [(S, R); 2] {
    let [(to_first, first_receiver), (to_second, second_receiver)] = [(); 2].map(|()| open());
    [(to_second, first_receiver), (to_first, second_receiver)]
}
