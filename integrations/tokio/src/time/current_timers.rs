//! Selects the timers for the futures of a thread.

use std::{borrow::Cow, cell::RefCell, error::Error, fmt, io, sync::OnceLock};

use corewheel::future::Timers;

use super::virtual_time;

thread_local! {
    /// This thread's wheel, while the wheel has a driver. Set by `DriverGuard`.
    pub(crate) static THREAD_TIMERS: RefCell<Option<Timers>> = const { RefCell::new(None) };
}

/// The timers for threads whose wheel has no driver.
static DEFAULT_TIMERS: OnceLock<Timers> = OnceLock::new();

/// Sets the timers for all threads of the process whose wheel is not driven by [`run`](crate::run)
/// or [`spawn_driver`](crate::spawn_driver).
///
/// Use this function to set the number of wheels, their tick or a limit. The wheels live until the
/// process ends. Call the function before the program creates a future of this module, uses a
/// [`DelayQueue`](super::DelayQueue) or calls [`timers`].
///
/// # Errors
///
/// Fails if an earlier call has set the default timers, or another use of this module has started
/// them. The error contains `timers`.
///
/// # Examples
///
/// ```
/// use corewheel::future::Timers;
/// use corewheel_tokio::time;
///
/// time::set_default_timers(Timers::start(2)?)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_default_timers(timers: Timers) -> Result<(), SetDefaultTimersError> {
    DEFAULT_TIMERS.set(timers).map_err(SetDefaultTimersError)
}

/// Reports that [`set_default_timers`] was called too late, and contains the refused timers.
/// Converts to an [`io::Error`] of kind `AlreadyExists`.
#[derive(Debug)]
pub struct SetDefaultTimersError(Timers);

impl SetDefaultTimersError {
    /// Returns the timers that were passed to [`set_default_timers`].
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::Timers;
    /// use corewheel_tokio::time;
    ///
    /// let _ = time::timers(); // sets the default timers
    /// let refused = time::set_default_timers(Timers::start(2)?).unwrap_err();
    /// assert_eq!(refused.into_timers().shards().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_timers(self) -> Timers {
        self.0
    }
}

impl fmt::Display for SetDefaultTimersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the default timers are already set: call `set_default_timers` once, before the first \
             use of `corewheel_tokio::time`",
        )
    }
}

impl Error for SetDefaultTimersError {}

impl From<SetDefaultTimersError> for io::Error {
    fn from(refused: SetDefaultTimersError) -> Self {
        Self::new(io::ErrorKind::AlreadyExists, refused)
    }
}

/// Returns the [`Timers`] for futures that this thread creates, to pass to adapters such as those
/// for hyper, tower and quinn. In a current-thread runtime, call `timers` inside of
/// [`run`](crate::run). In a test with [`pause`](super::pause), call `timers` after `pause`.
///
/// # Panics
///
/// Panics if the default timers cannot be started.
pub fn timers() -> Timers {
    current_timers().into_owned()
}

/// Returns the timers for futures that this thread creates. Borrows the default timers, because
/// threads that clone them would contend for one reference count.
pub(super) fn current_timers() -> Cow<'static, Timers> {
    if let Some(timers) = virtual_time::timers() {
        return Cow::Owned(timers);
    }
    let driven_timers = THREAD_TIMERS.try_with(|timers| timers.borrow().clone()).ok().flatten();
    let start_timers = || Timers::per_worker().expect("the default timers start");
    driven_timers
        .map_or_else(|| Cow::Borrowed(DEFAULT_TIMERS.get_or_init(start_timers)), Cow::Owned)
}

/// Without virtual time, returns the current time of the clock that this thread's new futures use,
/// or `None` if these futures must first start the default timers.
pub(super) fn now_if_started() -> Option<std::time::Instant> {
    let now = THREAD_TIMERS.try_with(|timers| timers.borrow().as_ref().map(Timers::now));
    now.ok().flatten().or_else(|| DEFAULT_TIMERS.get().map(Timers::now))
}
