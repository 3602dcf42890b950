//! tokio's own, on whichever runtime its task runs.

use std::time::Duration;

use tokio::time::{Timeout, error::Elapsed, timeout};

use super::{LocalTimeouts, Operation, Timeouts};

/// `tokio-sleep`, `tokio-threads`, `tokio-alt`.
#[derive(Clone, Copy, Debug)]
pub struct Tokio;

impl Timeouts for Tokio {
    type Elapsed = Elapsed;
    type Guarded = Timeout<Operation>;

    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded {
        timeout(limit, operation)
    }
}

impl LocalTimeouts for Tokio {
    /// The runtime does it.
    async fn drive() {}
}
