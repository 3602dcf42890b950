//! What a peer does where one core cancels another core's timers.
//!
//! A peer has two ends, each on a core of its own. Timers are added at one end and cancelled at the other, which has
//! their handles; then the first end takes them in: only then their memory can be used again.

mod channel;
mod corewheel;
mod floor;
mod locked;
mod tokio_drop;

use std::fmt::Debug;

pub use self::{
    channel::Channel,
    corewheel::{Local, LocalShard},
    floor::FloorEnd,
    locked::{Guarded, Lock, Locked},
    tokio_drop::{Place, TokioDrop},
};
use crate::{timers::Payload, workloads::OPERATIONS_PER_TICK};

/// Timers that one core has handed to the other and not yet taken in, at most.
pub const IN_FLIGHT: usize = 4096;

/// How many timers are handed over at a time.
pub const BATCH: usize = 64;

/// The virtual time after so many timers have been added: the machine's own does not matter to those who read no clock.
fn tick(added: u64) -> u64 {
    added / OPERATIONS_PER_TICK as u64
}

/// One of two ends.
pub trait Crossing: Sized {
    /// Names a timer to the other end.
    type Handle: Debug + Send + 'static;
    /// What an end is made of, on its own thread.
    type Seed: Send + 'static;

    /// For two ends that know each other, each with at most so many timers at a time.
    fn seeds(timers: usize) -> [Self::Seed; 2];

    /// One end.
    fn new(seed: Self::Seed) -> Self;

    /// Adds a timer that is due in `delay` milliseconds.
    fn add(&mut self, delay: u64, payload: Payload) -> Self::Handle;

    /// Cancels a timer of the other end; false if the answer is that it had ended. Where there is no answer, the end that
    /// takes it in looks whether it was live.
    fn cancel(&mut self, handle: Self::Handle) -> bool;

    /// Some were cancelled: what else the other end must be sent, for peers that need it.
    fn send(&mut self) {}

    /// Lets the timers have their turn, in which none may fire, and takes in those that the other end has cancelled;
    /// how many these were.
    fn turn(&mut self) -> u64;
}
