//! The interface of a thread's wheel for other modules: clients with many timers, and drivers.

use std::marker::PhantomData;

use super::inner::Local;

/// A module that keeps many timers on a thread's wheel, and does work at the end of turns.
pub(crate) trait Client {
    /// Expires the client's timer `index`.
    fn expire(&self, index: u32);

    /// Sends the queued messages to other cores.
    fn flush(&self);

    /// Frees some spare memory, or all of it before a long sleep. Returns true if it must be called
    /// again in the next turn.
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
        let _ = Local::with(Local::add_driver);
        Self(PhantomData)
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        let _ = Local::with(Local::remove_driver);
    }
}
