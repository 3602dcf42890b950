//! The crate of this name: timeouts that end within the same 10 ms share one entry, which stays until then.

use std::time::Duration;

use pingora_timeout::{Elapsed, Timeout, fast_timeout::FastOrTokioTimeout, timeout};

use super::{Operation, Timeouts};

/// `pingora-timeout`.
#[derive(Clone, Copy, Debug)]
pub struct Pingora;

impl Timeouts for Pingora {
    type Elapsed = Elapsed;
    type Guarded = Timeout<Operation, FastOrTokioTimeout>;

    fn guard(&self, limit: Duration, operation: Operation) -> Self::Guarded {
        timeout(limit, operation)
    }
}
