//! The error types.

use std::{error::Error, fmt, io, time::Duration};

use crate::limits::SHARDS_MAX;

/// The error of a refused add. [`into_inner`](Self::into_inner) returns the callback or payload.
///
/// # Examples
///
/// ```
/// use corewheel::{AddErrorReason, Config, Shard};
/// use std::time::Duration;
///
/// let mut timers = Shard::with_config(Config::new().limit(1))?;
/// timers.add(Duration::from_secs(30), "first");
/// let error = timers.try_add(Duration::from_secs(30), "second").unwrap_err();
/// assert_eq!(error.reason(), AddErrorReason::Full);
/// assert_eq!(error.into_inner(), "second");
/// # Ok::<(), corewheel::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AddError<F> {
    reason: AddErrorReason,
    refused_item: F,
}

/// Why a timer could not be added.
///
/// # Examples
///
/// ```
/// use corewheel::{AddErrorReason, Shard};
/// use std::time::Duration;
///
/// let mut timers = Shard::new();
/// drop(timers.drain());
/// let error = timers.try_add(Duration::ZERO, "too late").unwrap_err();
/// assert_eq!(error.reason(), AddErrorReason::ShutDown);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddErrorReason {
    /// The wheel has ended: its thread is exiting or has exited, its shard was drained, or the
    /// [`TimersDriver`](crate::future::TimersDriver) of its `Timers` was dropped.
    ShutDown,
    /// The shard has as many live timers as [`Config::limit`](crate::Config::limit) allows.
    Full,
    /// The process already has 16,384 shards, the maximum.
    TooManyShards,
}

impl<F> AddError<F> {
    pub(crate) fn new(reason: AddErrorReason, refused_item: F) -> Self {
        Self { reason, refused_item }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn or_panic<T>(add_result: Result<T, Self>) -> T {
        match add_result {
            Ok(added) => added,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns why the timer was not added.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{AddErrorReason, Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().limit(0).install()?;
    /// let error = local_timer().try_add(Duration::from_secs(30), || ()).unwrap_err();
    /// assert_eq!(error.reason(), AddErrorReason::Full);
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn reason(&self) -> AddErrorReason {
        self.reason
    }

    /// Returns the callback or payload that was not added.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, local_timer};
    /// use std::time::Duration;
    ///
    /// Config::new().limit(0).install()?;
    /// let refused = local_timer().try_add(Duration::from_secs(30), || println!("timed out"));
    /// let time_out = refused.unwrap_err().into_inner();
    /// time_out(); // shed the load: time out at once
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn into_inner(self) -> F {
        self.refused_item
    }
}

impl fmt::Display for AddErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShutDown => {
                "the wheel has ended: its thread is exiting or has exited, it was drained, or its \
                 `TimersDriver` was dropped"
            }
            Self::Full => "the shard is full (see `Config::limit`)",
            Self::TooManyShards => "too many shards",
        })
    }
}

impl Error for AddErrorReason {}

impl AddErrorReason {
    pub(crate) fn io_kind(self) -> io::ErrorKind {
        match self {
            Self::ShutDown => io::ErrorKind::BrokenPipe,
            Self::Full | Self::TooManyShards => io::ErrorKind::QuotaExceeded,
        }
    }
}

/// Converts the reason to an I/O error. Its kind is [`BrokenPipe`](io::ErrorKind::BrokenPipe) for
/// [`ShutDown`](AddErrorReason::ShutDown), and [`QuotaExceeded`](io::ErrorKind::QuotaExceeded)
/// otherwise.
///
/// # Examples
///
/// ```
/// use corewheel::AddErrorReason;
/// use std::io;
///
/// let error = io::Error::from(AddErrorReason::Full);
/// assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
/// ```
impl From<AddErrorReason> for io::Error {
    fn from(reason: AddErrorReason) -> Self {
        Self::new(reason.io_kind(), reason)
    }
}

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

/// Converts the error to an I/O error, and drops the callback or payload. The kind depends on the
/// [`AddErrorReason`].
///
/// # Examples
///
/// ```
/// use corewheel::{Config, Shard};
/// use std::{io, time::Duration};
///
/// fn serve() -> io::Result<()> {
///     let mut timers = Shard::with_config(Config::new().limit(0))?;
///     timers.try_add(Duration::from_secs(30), "idle")?;
///     Ok(())
/// }
/// let error = serve().unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
/// assert_eq!(error.to_string(), "timer not added: the shard is full (see `Config::limit`)");
/// ```
impl<F> From<AddError<F>> for io::Error {
    fn from(error: AddError<F>) -> Self {
        Self::new(error.reason.io_kind(), AddError::new(error.reason, ()))
    }
}

/// Returns the reason, and drops the callback or payload. Unlike an `AddError`, the reason is
/// always `Send` and `Sync`.
///
/// # Examples
///
/// ```
/// use corewheel::{AddErrorReason, local_timer};
/// use std::{error::Error, rc::Rc, time::Duration};
///
/// fn add_timeout(connection: Rc<()>) -> Result<(), AddErrorReason> {
///     local_timer().try_add(Duration::from_secs(30), move || drop(connection))?;
///     Ok(())
/// }
///
/// fn serve() -> Result<(), Box<dyn Error + Send + Sync>> {
///     add_timeout(Rc::new(()))?;
///     Ok(())
/// }
/// serve().expect("there is room");
/// ```
impl<F> From<AddError<F>> for AddErrorReason {
    fn from(error: AddError<F>) -> Self {
        error.reason
    }
}

/// The error of a [`cancel_wait`](crate::TimerHandle::cancel_wait) inside a callback, where the
/// wait could last forever. Nothing was cancelled.
///
/// # Examples
///
/// ```
/// use corewheel::local_timer;
/// use std::{cell::Cell, rc::Rc, time::Duration};
///
/// let answer = Rc::new(Cell::new(None));
/// let other = local_timer().add(Duration::from_secs(30), || ());
/// let waits = Rc::clone(&answer);
/// local_timer().add(Duration::ZERO, move || waits.set(Some(other.cancel_wait())));
/// # std::thread::sleep(Duration::from_millis(2));
/// local_timer().turn();
/// assert!(answer.get().unwrap().is_err());
/// assert!(other.is_pending()); // nothing was cancelled
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InsideCallbackError(pub(crate) ());

impl fmt::Display for InsideCallbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a callback cannot wait for another callback")
    }
}

impl Error for InsideCallbackError {}

/// Converts the error to an I/O error of the kind [`Deadlock`](io::ErrorKind::Deadlock).
///
/// # Examples
///
/// ```
/// use corewheel::{Cancel, TimerHandle};
/// use std::io;
///
/// fn close(idle: TimerHandle) -> io::Result<Cancel> {
///     Ok(idle.cancel_wait()?)
/// }
/// # let idle = corewheel::local_timer().add(std::time::Duration::from_secs(30), || ());
/// assert_eq!(close(idle)?, Cancel::Cancelled);
/// # Ok::<(), io::Error>(())
/// ```
impl From<InsideCallbackError> for io::Error {
    fn from(error: InsideCallbackError) -> Self {
        Self::new(io::ErrorKind::Deadlock, error)
    }
}

/// Why a configuration cannot be used.
///
/// # Examples
///
/// ```
/// use corewheel::{Config, ConfigError};
/// use std::time::Duration;
///
/// let tick = Duration::from_nanos(100);
/// assert_eq!(Config::new().tick(tick).install(), Err(ConfigError::TickOutOfRange { tick }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigError {
    /// The tick is shorter than a microsecond or longer than an hour.
    TickOutOfRange {
        /// The requested tick.
        tick: Duration,
    },
    /// This thread already has or had a wheel, or is exiting.
    ThreadHasWheel,
    /// The process would have more than 16,384 shards, the maximum.
    TooManyShards,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TickOutOfRange { tick } => {
                write!(f, "a tick of {tick:?} is out of range: from a microsecond to an hour")
            }
            Self::ThreadHasWheel => f.write_str(
                "this thread already has a wheel or is exiting: install the configuration once, \
                 before the first use, or, on a thread of `Cores`, by `CoresBuilder::config`",
            ),
            Self::TooManyShards => write!(f, "too many shards: the maximum is {SHARDS_MAX}"),
        }
    }
}

impl Error for ConfigError {}

/// Converts the error to an I/O error of this kind:
///
/// * [`InvalidInput`](io::ErrorKind::InvalidInput) for
///   [`TickOutOfRange`](ConfigError::TickOutOfRange).
/// * [`AlreadyExists`](io::ErrorKind::AlreadyExists) for
///   [`ThreadHasWheel`](ConfigError::ThreadHasWheel).
/// * [`QuotaExceeded`](io::ErrorKind::QuotaExceeded) for
///   [`TooManyShards`](ConfigError::TooManyShards).
///
/// # Examples
///
/// ```
/// use corewheel::Config;
/// use std::io;
///
/// fn install_wheel() -> io::Result<()> {
///     Config::new().install()?;
///     Ok(())
/// }
/// install_wheel()?;
/// assert_eq!(install_wheel().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
/// # Ok::<(), io::Error>(())
/// ```
impl From<ConfigError> for io::Error {
    fn from(error: ConfigError) -> Self {
        let kind = match error {
            ConfigError::TickOutOfRange { .. } => io::ErrorKind::InvalidInput,
            ConfigError::ThreadHasWheel => io::ErrorKind::AlreadyExists,
            ConfigError::TooManyShards => io::ErrorKind::QuotaExceeded,
        };
        Self::new(kind, error)
    }
}
