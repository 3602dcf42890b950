//! The interface between a thread's wheel and its clients (purgatories) and drivers.

use std::marker::PhantomData;

use super::inner::ThreadWheel;

/// A purgatory, which keeps many timers on a thread's wheel. It sends messages and frees memory at
/// the end of turns.
pub(crate) trait WheelClient {
    /// Expires the client's timer `index`.
    fn expire(&self, index: u32);

    /// Sends the client's queued messages to other cores.
    fn flush(&self);

    /// Frees some spare memory, or all spare memory before a long sleep. Returns true if the next
    /// turn must call `trim` again.
    fn trim(&self, is_long_sleep: bool) -> bool;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientId(pub(super) u32);

/// Registers a descriptor or task as a driver of this thread's wheel, until this value is dropped.
#[derive(Debug)]
pub(crate) struct DriverRegistration(PhantomData<*const ()>);

impl DriverRegistration {
    pub(crate) fn new() -> Self {
        // Without a wheel, there is nothing to drive.
        let _ = ThreadWheel::with(ThreadWheel::add_driver);
        Self(PhantomData)
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        let _ = ThreadWheel::with(ThreadWheel::remove_driver);
    }
}
