//! What can go wrong, and what is given back.

use std::{error::Error, fmt, time::Duration};

/// A timer that could not be added; it gives the callback or payload back.
#[derive(Clone, PartialEq, Eq)]
pub struct AddError<F> {
    reason: AddErrorReason,
    rejected: F,
}

/// Why a timer could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddErrorReason {
    /// The thread is exiting and its timer has ended, or the shard has been drained.
    ShutDown,
    /// As many timers are live as may be ([`Config::limit`](crate::Config::limit), at most 2^25 - 1), or the shard has used up
    /// its 2^56 generations.
    Full,
    /// The thread has no timer yet and cannot have one: 16 384 shards exist already.
    TooManyShards,
}

impl<F> AddError<F> {
    pub(crate) fn new(reason: AddErrorReason, rejected: F) -> Self {
        Self { reason, rejected }
    }

    /// What has been added. Its panic names the place where the caller was called, which that of a closure could not.
    #[inline]
    #[track_caller]
    pub(crate) fn or_panic<T>(added: Result<T, Self>) -> T {
        match added {
            Ok(added) => added,
            Err(error) => panic!("{error}"),
        }
    }

    /// Why it was not added.
    pub fn reason(&self) -> AddErrorReason {
        self.reason
    }

    /// What was to be added.
    pub fn into_inner(self) -> F {
        self.rejected
    }
}

impl fmt::Display for AddErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShutDown => {
                "the timer has ended, as its thread is exiting or its shard was drained"
            }
            Self::Full => "the shard can take no more timers",
            Self::TooManyShards => "there are as many shards as there can be",
        })
    }
}

impl Error for AddErrorReason {}

impl<F> fmt::Display for AddError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timer not added: {}", self.reason)
    }
}

impl<F> fmt::Debug for AddError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<F> Error for AddError<F> {}

/// Why a thread cannot wait for a callback: it is in one itself. From [`cancel_wait`](crate::TimerHandle::cancel_wait).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsideCallback(pub(crate) ());

impl fmt::Display for InsideCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a callback cannot wait for another one, which might wait for it")
    }
}

impl Error for InsideCallback {}

/// A configuration that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The tick is shorter than a microsecond.
    TickTooShort {
        /// What was asked for.
        tick: Duration,
    },
    /// This thread has a timer already, or is exiting.
    AlreadyRunning,
    /// This many shards exist already.
    TooManyShards {
        /// How many can exist at the same time.
        max: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TickTooShort { tick } => write!(f, "a tick of {tick:?} is too short: the least is 1 us"),
            Self::AlreadyRunning => f.write_str("this thread has a timer already, or is exiting: install the configuration once, before the first use"),
            Self::TooManyShards { max } => write!(f, "more than {max} shards cannot exist at a time"),
        }
    }
}

impl Error for ConfigError {}
