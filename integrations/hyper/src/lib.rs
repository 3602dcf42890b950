//! corewheel as the timer of hyper's servers and clients: [`Timer`] is a [`hyper::rt::Timer`].
//!
//! hyper uses its timer for the timeout of request headers and for HTTP/2 keep-alive.
//!
//! ```
//! use corewheel_hyper::Timer;
//! use corewheel_tokio::time;
//! use hyper::server::conn::http1;
//! use std::time::Duration;
//!
//! let mut server = http1::Builder::new();
//! server.timer(Timer::new(time::timers())).header_read_timeout(Duration::from_secs(10));
//! ```
//!
//! In a current-thread runtime of `corewheel_tokio::run`, `time::timers` returns the thread's own
//! wheel. In a multi-thread runtime, `time::timers` returns the wheels of [`Timers::per_worker`] by
//! default. With another executor, use [`Timers::per_worker`].
//!
//! `header_read_timeout` also closes a kept-alive connection whose next request does not arrive in
//! time.
//!
//! If [no timer is available](corewheel::future#without-a-timer), the task of the connection
//! panics.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use corewheel::future::{self, SharedWheel, Timers};
use hyper::rt;

/// Implements hyper's timer with corewheel's timers.
#[derive(Clone, Debug)]
pub struct Timer(Timers);

impl Timer {
    /// Creates a timer for hyper. Clones share `timers`.
    pub fn new(timers: Timers) -> Self {
        Self(timers)
    }
}

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep(self.0.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep(self.0.sleep_until(deadline)))
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(mut sleep) => sleep.0.reset(deadline),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

#[derive(Debug)]
struct Sleep(future::Sleep<SharedWheel>);

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl rt::Sleep for Sleep {}
