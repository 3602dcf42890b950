//! A future with a timeout.

use std::{
    error::Error,
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::{Backend, Sleep};
use crate::{error::AddErrorReason, local::LocalTimer};

pin_project! {
    /// Gives up a future that is not ready by a deadline. Created by [`timeout`](super::timeout)
    /// and [`Timers::timeout`](super::Timers::timeout).
    ///
    /// Each poll first polls the future. If the future is pending and the timer has fired, the
    /// output is [`TimeoutError::Elapsed`]. The future is dropped with the timeout, unless
    /// [`into_inner`](Self::into_inner) returns it.
    ///
    /// While the timer is pending, polls with the same waker do not read the clock: even an elapsed
    /// deadline ends the timeout only after the timer has fired. A poll with another waker checks
    /// the deadline.
    ///
    /// A timeout cannot interrupt a poll that does not return.
    ///
    /// # Panics
    ///
    /// A poll panics if it must add a timer on a thread [without a driver](super#without-a-driver).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, sleep, timeout};
    /// use std::time::Duration;
    ///
    /// let time = VirtualTime::new();
    /// let answer = time.block_on(|| async {
    ///     timeout(Duration::from_secs(5), sleep(Duration::from_secs(60))).await
    /// });
    /// assert_eq!(answer.unwrap_err().to_string(), "deadline has elapsed");
    /// ```
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Timeout<F, B: Backend = LocalTimer> {
        #[pin]
        future: F,
        sleep: Sleep<B>,
        keep_waiting_without_timer: bool,
    }
}

/// The reason why a [`Timeout`] has given up its future.
///
/// # Examples
///
/// ```
/// use corewheel::future::{TimeoutError, VirtualTime, timeout};
/// use std::{future, time::Duration};
///
/// let time = VirtualTime::new();
/// let task = time.spawn(|| timeout(Duration::from_secs(5), future::pending::<()>()));
/// assert_eq!(time.run(), 0);
/// assert_eq!(task.take().unwrap(), Err(TimeoutError::Elapsed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeoutError {
    /// The deadline has elapsed.
    Elapsed,
    /// [No timer was available](super#without-a-timer), so the future was given up at once.
    NoTimer(AddErrorReason),
}

impl<F, B: Backend> Timeout<F, B> {
    pub(super) fn new(future: F, sleep: Sleep<B>) -> Self {
        Self { future, sleep, keep_waiting_without_timer: false }
    }

    /// Keeps waiting for the future even while [no timer is available](super#without-a-timer).
    /// Suits requests that must not fail under overload. Without a timer, nothing wakes the task at
    /// the deadline. A later poll usually tries again to add a timer, or gives up the future if the
    /// deadline has elapsed.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Config, future::{TimeoutError, timeout}, local_timer};
    /// use std::{future::pending, pin::pin, task::{Context, Poll, Waker}, time::Duration};
    ///
    /// Config::new().limit(1).install()?;
    /// local_timer().register_driver();
    /// local_timer().add(Duration::from_secs(30), || ()); // no room for another timer
    /// let mut context = Context::from_waker(Waker::noop());
    ///
    /// let mut refused = pin!(timeout(Duration::from_secs(5), pending::<()>()));
    /// assert!(matches!(refused.as_mut().poll(&mut context), Poll::Ready(Err(TimeoutError::NoTimer(_)))));
    ///
    /// let mut runs = pin!(timeout(Duration::from_secs(5), pending::<()>()).keep_waiting_without_timer());
    /// assert!(runs.as_mut().poll(&mut context).is_pending());
    /// # Ok::<(), corewheel::ConfigError>(())
    /// ```
    pub fn keep_waiting_without_timer(mut self) -> Self {
        self.keep_waiting_without_timer = true;
        self
    }

    /// Returns a reference to the future.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::timeout;
    /// use std::{future, time::Duration};
    ///
    /// let guarded = timeout(Duration::from_secs(5), future::ready(7));
    /// println!("guards {:?}", guarded.get_ref());
    /// ```
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns a mutable reference to the future.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::timeout;
    /// use std::{future, time::Duration};
    ///
    /// let mut guarded = timeout(Duration::from_secs(5), future::ready(7));
    /// *guarded.get_mut() = future::ready(8);
    /// assert_eq!(guarded.into_inner().into_inner(), 8);
    /// ```
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Returns the future without its timeout.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::timeout;
    /// use std::{future, time::Duration};
    ///
    /// let guarded = timeout(Duration::from_secs(5), future::ready(7));
    /// assert_eq!(guarded.into_inner().into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> F {
        self.future
    }

    /// Returns the timeout's sleep, to read or reset the deadline ([`Sleep::deadline`],
    /// [`Sleep::reset`]).
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::future::{VirtualTime, timeout};
    /// use std::{future, pin::pin, time::Duration};
    ///
    /// let time = VirtualTime::new();
    /// time.block_on(|| async {
    ///     let mut guarded = pin!(timeout(Duration::from_secs(5), future::pending::<()>()));
    ///     guarded.as_mut().sleep().reset_after(Duration::from_secs(60)); // more time
    ///     assert!(guarded.await.is_err());
    /// });
    /// assert_eq!(time.elapsed(), Duration::from_secs(60));
    /// ```
    pub fn sleep(self: Pin<&mut Self>) -> &mut Sleep<B> {
        self.project().sleep
    }
}

impl<F: Future, B: Backend> Future for Timeout<F, B> {
    type Output = Result<F::Output, TimeoutError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        match ready!(this.sleep.poll_elapsed(cx)) {
            Ok(()) => Poll::Ready(Err(TimeoutError::Elapsed)),
            Err(_) if *this.keep_waiting_without_timer => Poll::Pending,
            Err(reason) => Poll::Ready(Err(TimeoutError::NoTimer(reason))),
        }
    }
}

impl TimeoutError {
    /// Returns true if the deadline has elapsed, and false if no timer was available.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{AddErrorReason, future::TimeoutError};
    ///
    /// assert!(TimeoutError::Elapsed.is_elapsed());
    /// assert!(!TimeoutError::NoTimer(AddErrorReason::Full).is_elapsed());
    /// ```
    pub fn is_elapsed(self) -> bool {
        matches!(self, Self::Elapsed)
    }
}

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elapsed => f.write_str("deadline has elapsed"),
            Self::NoTimer(reason) => write!(f, "given up without a timer: {reason}"),
        }
    }
}

impl Error for TimeoutError {}

/// Converts an elapsed deadline to [`TimedOut`](io::ErrorKind::TimedOut). For `NoTimer`, the
/// [`io::ErrorKind`] depends on the [`AddErrorReason`].
impl From<TimeoutError> for io::Error {
    fn from(error: TimeoutError) -> Self {
        match error {
            TimeoutError::Elapsed => Self::new(io::ErrorKind::TimedOut, error),
            TimeoutError::NoTimer(reason) => Self::new(reason.io_kind(), error),
        }
    }
}
