//! What the rest of the crate is to a thread's wheel: modules that keep timers in it, and drivers.

use std::marker::PhantomData;

use super::inner::Local;

/// A module that keeps many timers of a thread and has work at the end of turns.
pub(crate) trait Client {
    /// Expires the timer of that index.
    fn expire(&self, index: u32);

    /// Sends the queued messages.
    fn flush(&self);

    /// Frees spare memory: all of it before a long sleep. Returns true to be called in the next
    /// turn too.
    fn trim(&self, is_long_sleep: bool) -> bool;
}

/// The position of a [`Client`] in a thread's wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientId(pub(super) u32);

/// A descriptor or task that drives this thread's wheel, until it is dropped.
#[derive(Debug)]
pub(crate) struct DrivesHere(PhantomData<*const ()>);

impl DrivesHere {
    pub(crate) fn new() -> Self {
        // An exiting thread has no wheel.
        let _ = Local::with(Local::add_driver);
        Self(PhantomData)
    }
}

impl Drop for DrivesHere {
    fn drop(&mut self) {
        let _ = Local::with(Local::remove_driver);
    }
}
