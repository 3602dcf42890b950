//! A future that is given up when its time is over.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use super::{Home, Sleep};
use crate::{error::AddErrorReason, local::LocalTimer};

pin_project! {
    /// Gives a future up if it is not ready in time; from [`timeout`](super::timeout) and
    /// [`Timers::timeout`](super::Timers::timeout).
    ///
    /// The future is polled first: if it is ready, the time does not matter. One that is ready at its first poll touches no
    /// timer. When the time is over the answer is [`Elapsed`], and the future is dropped together with the timeout, or taken back
    /// by [`into_inner`](Self::into_inner).
    ///
    /// It cannot interrupt a poll that does not return.
    ///
    /// # Panics
    ///
    /// When it would wait on a thread [without a driver](super#without-a-driver).
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Timeout<F, H: Home = LocalTimer> {
        #[pin]
        future: F,
        sleep: Sleep<H>,
    }
}

/// A timeout has given its future up: the time was over, or [no timer could be had](super#without-a-timer).
///
/// # Examples
///
/// ```
/// use corewheel::future::{VirtualTime, timeout};
/// use std::{future, time::Duration};
///
/// let time = VirtualTime::new();
/// let task = time.spawn(|| timeout(Duration::from_secs(5), future::pending::<()>()));
/// assert_eq!(time.run(), 0);
/// let elapsed = task.take().unwrap().unwrap_err();
/// assert_eq!(elapsed.without_timer(), None, "five seconds were over");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Elapsed(Option<AddErrorReason>);

impl<F, H: Home> Timeout<F, H> {
    pub(super) fn new(future: F, sleep: Sleep<H>) -> Self {
        Self { future, sleep }
    }

    /// The future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The future, to be changed.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// The future, without its timeout.
    pub fn into_inner(self) -> F {
        self.future
    }

    /// Its time, to be asked or moved: [`Sleep::deadline`], [`Sleep::reset`].
    pub fn sleep(self: Pin<&mut Self>) -> &mut Sleep<H> {
        self.project().sleep
    }
}

impl<F: Future, H: Home> Future for Timeout<F, H> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        this.sleep.poll_elapsed(cx).map(|elapsed| Err(Elapsed(elapsed.err())))
    }
}

impl Elapsed {
    /// Why no timer could be had. `None`: the time was over.
    pub fn without_timer(self) -> Option<AddErrorReason> {
        self.0
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("the time was over"),
            Some(reason) => write!(f, "given up without a timer: {reason}"),
        }
    }
}

impl Error for Elapsed {}
