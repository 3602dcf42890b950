//! Timers of one thread that other threads reach: the adapter of each peer, for all workloads of
//! two cores.
//!
//! An [`Owner`] adds timers, and another thread's [`Remote`] cancels them. Then the owner collects
//! them, and only then their memory can be reused. Every peer reads the machine's clock in each add
//! and reset, outside of its lock, and in each turn; `corewheel-local-fast` reads its fast clock.

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
pub use self::tokio::{Entered, TokioDrop};

/// The largest number of timers that one core has handed to the other and not yet collected.
pub const IN_FLIGHT: usize = 4096;

/// How many timers are handed over at a time.
pub const BATCH: usize = 64;

pub trait Owner: Sized {
    type Handle: Send + 'static;
    type Remote: Remote<Handle = Self::Handle> + 'static;

    /// Creates the timers on their thread, at most this number at a time and those in flight.
    fn new(timers: usize) -> (Self, Self::Remote);

    fn add(&mut self, delay: Duration, payload: Payload) -> Self::Handle;

    /// Fires the due timers and consumes at most `budget` requests of other threads, if it can.
    fn turn(&mut self, budget: usize, on_fire: impl FnMut(Payload)) -> Turned;
}

#[derive(Clone, Copy, Debug)]
pub struct Turned {
    pub collected: usize,
    /// Whether requests were left.
    pub is_behind: bool,
}

pub trait Resets: Owner {
    /// Moves a timer; false if it has ended.
    fn reset(&mut self, handle: &mut Self::Handle, delay: Duration) -> bool;
}

pub trait Sleeping: Owner {
    /// Whether the budget of a turn has an effect.
    const HAS_BUDGET: bool = false;

    /// Sleeps until a turn is needed.
    fn sleep(&self);
}

/// Another thread's access to the timers of an owner.
pub trait Remote: Send {
    type Handle;

    /// Cancels a timer; false if it had ended. Where there is no answer, the owner asserts it.
    fn cancel(&mut self, handle: Self::Handle) -> bool;

    /// Sends the owner more, after some cancels, for peers that need it.
    fn send(&mut self) {}
}

/// A remote that can do more than cancel.
pub trait Requests: Remote {
    fn add(&mut self, delay: Duration, payload: Payload) -> Self::Handle;

    /// Moves a timer; false if the answer is that it had ended.
    fn reset(&mut self, handle: &mut Self::Handle, delay: Duration) -> bool;

    /// Has the owner add the payload to [`noted`].
    fn run(&mut self, payload: Payload);
}

#[derive(Clone, Copy, Debug)]
struct Ticks(Instant);

impl Ticks {
    /// Reads the clock and rounds down.
    fn now(self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }

    /// Reads the clock and returns the first tick that is not before the deadline.
    fn deadline(self, delay: Duration) -> u64 {
        (self.0.elapsed() + delay).as_nanos().div_ceil(1_000_000) as u64
    }

    /// Parks the thread until a tick; not at all if there is none.
    fn park_until(self, tick: Option<u64>) {
        if let Some(tick) = tick {
            thread::park_timeout(Duration::from_millis(tick).saturating_sub(self.0.elapsed()));
        }
    }
}

thread_local! {
    /// The sum of what closures have noted on this thread.
    static NOTED: Cell<u64> = const { Cell::new(0) };
}

/// Counts one run of a closure, on the owner's thread.
pub(crate) fn note(payload: Payload) {
    NOTED.set(NOTED.get() + payload[0]);
}

/// Returns the sum of what closures have noted on this thread.
pub fn noted() -> u64 {
    NOTED.get()
}

type Task = Box<dyn FnOnce() + Send>;

/// Opens a channel in each direction and returns the two ends of each side.
pub(crate) fn both_ways<S, R>(open: impl Fn() -> (S, R)) -> [(S, R); 2] {
    let [(to_first, of_first), (to_second, of_second)] = [(); 2].map(|()| open());
    [(to_second, of_first), (to_first, of_second)]
}
