//! Why there is no file descriptor.

use std::{error::Error, fmt, io};

use super::AddErrorReason;

/// Why a thread's timer has no file descriptor.
#[derive(Debug)]
#[non_exhaustive]
pub enum TimerFdError {
    /// Its time is virtual ([`ManualClock`](crate::ManualClock)): the kernel does not know when it passes.
    VirtualTime,
    /// The thread has no timer, for this reason.
    NoTimer(AddErrorReason),
    /// The system has none to give, as when too many files are open.
    System(io::Error),
}

impl fmt::Display for TimerFdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VirtualTime => {
                f.write_str("no file descriptor can follow a timer whose time is virtual")
            }
            Self::NoTimer(reason) => write!(f, "no timer to follow: {reason}"),
            Self::System(_) => f.write_str("the system has no timer descriptor to give"),
        }
    }
}

impl Error for TimerFdError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            Self::VirtualTime | Self::NoTimer(_) => None,
        }
    }
}

impl From<TimerFdError> for io::Error {
    fn from(error: TimerFdError) -> Self {
        match error {
            TimerFdError::System(error) => error,
            TimerFdError::VirtualTime => Self::new(io::ErrorKind::Unsupported, error),
            TimerFdError::NoTimer(_) => Self::other(error),
        }
    }
}
