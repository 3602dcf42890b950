//! The parts of a thread's wheel that a `TimerFd` needs.

use std::{sync::Arc, time::Duration};

use super::{LocalTimer, inner::Local};
use crate::{
    descriptor::{Descriptor, TimerFdError},
    shard::PreparedSleep,
};

impl LocalTimer {
    /// Returns the descriptor that becomes readable at every wake; opens it on first use.
    pub(crate) fn descriptor() -> Result<Arc<Descriptor>, TimerFdError> {
        Local::with(Local::descriptor).map_err(TimerFdError::NoTimer)?
    }

    /// Announces a sleep that ends when `descriptor` is readable. Returns `None` in an exiting
    /// thread.
    pub(crate) fn prepare_sleep_on(descriptor: &Descriptor) -> Option<PreparedSleep<'static>> {
        let prepared = Local::with(|local| local.prepare_sleep_on(descriptor));
        prepared.map_err(|_| descriptor.arm(None, || None)).ok()
    }
}

impl Local {
    fn descriptor(&self) -> Result<Arc<Descriptor>, TimerFdError> {
        let descriptor = self.shared.hooks.descriptor().get_or_open(|| {
            let clock = self
                .step(|shard| shard.clock().of_the_kernel())
                .ok_or(TimerFdError::VirtualTime)?;
            Descriptor::open(clock).map_err(TimerFdError::System)
        })?;
        self.register_driver();
        Ok(descriptor)
    }

    fn prepare_sleep_on(&self, descriptor: &Descriptor) -> PreparedSleep<'static> {
        self.flush();
        // Before the announcement: afterwards it might undo a wake.
        let (until, _) = self.step(|shard| shard.sleep());
        descriptor.arm(until, || self.step(|shard| shard.time_until(until)));
        let sleep = self.announce_sleep();
        if sleep.timeout() == Some(Duration::ZERO) {
            descriptor.fire();
        }
        sleep
    }
}
