//! What a peer does where one core asks another one: for a timer, for another deadline, and for something to be run there.
//!
//! The owner's timers belong to its thread, with whatever the peer needs for others to reach them.

mod channel;
mod corewheel;
mod locked;
mod tokio_enter;

use std::{cell::Cell, fmt};

pub use self::{
    channel::Channel,
    corewheel::Local,
    locked::{Guarded, Locked},
    tokio_enter::Entered,
};
use crate::timers::Payload;

thread_local! {
    /// How much has been run on this thread.
    static RAN: Cell<u64> = const { Cell::new(0) };
}

/// What is to be run, where the peer has no way of its own.
struct Task(Box<dyn FnOnce() + Send>);

impl Task {
    fn new(payload: Payload) -> Self {
        Self(Box::new(move || note(payload)))
    }

    fn run(self) {
        (self.0)();
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

/// What is run: on the owner's thread, once.
pub fn note(payload: Payload) {
    RAN.set(RAN.get() + payload[0]);
}

/// What all that has been run on this thread says, added up.
pub fn ran() -> u64 {
    RAN.get()
}

/// Virtual milliseconds, of peers that have such: a turn is short beside one.
fn tick(turns: u64) -> u64 {
    turns / 16
}

/// The thread whose timers they are.
pub trait Owner: Sized {
    /// Who asks.
    type Asker: Asker + Send;

    /// A thread without timers, and who asks it.
    fn new() -> (Self, Self::Asker);

    /// Takes in what was asked, and lets the timers have their turn, in which none may fire. Runs what is to be run, until so much
    /// [has been](ran).
    fn turn(&mut self, runs: u64);

    /// Whether nothing that was asked is left.
    fn is_settled(&self) -> bool {
        true
    }
}

/// Another thread.
pub trait Asker {
    /// Names a timer that it has asked for.
    type Handle;

    /// Adds a timer that is due in `delay` milliseconds.
    fn add(&mut self, delay: u64, payload: Payload) -> Self::Handle;

    /// Moves a timer; false if the answer is that it has ended.
    fn reset(&mut self, handle: &mut Self::Handle, delay: u64) -> bool;

    /// Has the owner [`note`] the payload.
    fn run(&mut self, payload: Payload);

    /// Cancels a timer; false if the answer is that it had ended.
    fn cancel(&mut self, handle: Self::Handle) -> bool;
}
