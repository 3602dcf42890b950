//! That it is over, as whoever ends a server tells its cores. A sleeping one must also be woken.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// See the module. It is relaxed: nothing else is read because of it.
#[derive(Debug, Default)]
pub(crate) struct Over(AtomicBool);

impl Over {
    pub(crate) fn call(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_called(&self) -> bool {
        self.0.load(Relaxed)
    }
}
