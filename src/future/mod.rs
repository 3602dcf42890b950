//! Async sleeps, timeouts and intervals on timing wheels, for any executor.
//!
//! | wheel | functions | futures |
//! |---|---|---|
//! | this thread's [`local_timer`] | [`sleep`], [`timeout`], [`interval`], ... | are `!Send` |
//! | a wheel of [`Timers`] | [`Timers::sleep`], [`Timers::timeout`], ... | are `Send`: any thread may poll and drop them |
//!
//! The free functions suit runtimes with one thread per core: each thread
//! [turns](crate::LocalTimer::turn) its own wheel. [`Timers`] suits runtimes that move tasks
//! between threads.
//!
//! ```
//! use corewheel::future::{VirtualTime, sleep, timeout};
//! use std::time::Duration;
//!
//! let time = VirtualTime::new(); // a small executor for tests; a program uses its runtime
//! let answer = time.spawn(|| async {
//!     timeout(Duration::from_secs(30), async {
//!         sleep(Duration::from_secs(3600)).await;
//!         "an hour later"
//!     })
//!     .await
//! });
//! assert_eq!(time.run(), 0);
//! assert!(answer.take().unwrap().is_err());
//! assert_eq!(time.elapsed(), Duration::from_secs(30));
//! ```
//!
//! # Common properties
//!
//! - **A duration counts from the creation of the future.** The first poll that must wait adds the
//!   timer, so a timeout whose future is ready at once adds none.
//! - **No timer fires early.** For lateness, see [Time](crate#time).
//! - **There is no cooperative budget.** A loop over sleeps or timeouts that elapse at once never
//!   yields to other tasks.
//! - **corewheel allocates nothing** in the steady state.
//! - **A timer that fires calls the waker of the latest poll**, in a turn of the wheel. A panic of
//!   the waker is reported like a callback's panic.
//! - **Dropping a future [cancels](crate::TimerHandle::cancel) its timer.** The waker is usually
//!   dropped at once, but may stay until a later turn: see
//!   [`Config::drop_cancelled_within`](crate::Config::drop_cancelled_within).
//! - **The end of a wheel wakes the futures that wait on it.** A [`Timers`] future then continues
//!   on another live wheel, if there is one. [`LocalTimer::drain`](crate::LocalTimer::drain) wakes
//!   no future: run or drop the returned timers to wake their futures.
//!
//! # Without a driver
//!
//! A *driver* is a loop or task that turns a thread's wheel. On a thread without a driver, a poll
//! that must add a timer to the thread's wheel panics. Most drivers register when they are created:
//! [`drive`], a `TimerFd`, [`VirtualTime`], and the packages for tokio, compio, monoio, glommio,
//! smol and `io_uring`. A loop registers by its first call of [`turn`](crate::LocalTimer::turn),
//! [`prepare_sleep`](crate::LocalTimer::prepare_sleep) or
//! [`time_until_next`](crate::LocalTimer::time_until_next). A loop that begins by polling futures
//! must first call [`register_driver`](crate::LocalTimer::register_driver).
//!
//! A [`run_until`](crate::LocalTimer::run_until) is a driver until it returns. After a thread's
//! last driver has ended, a poll that must add a timer panics, and pending timers fire only if the
//! wheel is turned again.
//!
//! # Without a timer
//!
//! No timer is available if the wheel has ended or has reached its limit of live timers
//! ([`Config::limit`](crate::Config::limit)). With a [`Timers`], a timer is unavailable only if all
//! wheels have ended or are full. A thread gets no wheel if the process already has 16,384 shards,
//! the maximum.
//!
//! If a poll needs a timer and no timer is available:
//!
//! - A [`Sleep`] or an [`Interval`] panics. [`Sleep::poll_elapsed`] and [`Interval::try_poll_tick`]
//!   return an error instead.
//! - A [`Timeout`] ends with [`TimeoutError::NoTimer`]. With
//!   [`keep_waiting_without_timer`](Timeout::keep_waiting_without_timer), the `Timeout` waits for
//!   its future without a timer.
//!
//! For a `Timers`, the error's reason is [`ShutDown`](crate::AddErrorReason::ShutDown) only if
//! every wheel has ended.
//!
//! # How a waker changes
//!
//! A poll with another waker than the previous poll cancels the timer, and adds a new timer unless
//! the deadline has elapsed. On another thread's full wheel, the cancelled timer may still count
//! towards the limit, so that the new timer is refused.

mod backend;
mod claimable_wheels;
mod drive;
mod interval;
mod sleep;
mod timeout;
mod timers;
mod virtual_time;
mod waker_callback;

use std::time::{Duration, Instant};

pub use self::{
    backend::Backend,
    claimable_wheels::TimersDriver,
    drive::drive,
    interval::{Interval, MissedTickBehavior},
    sleep::Sleep,
    timeout::{Timeout, TimeoutError},
    timers::{SharedWheel, Timers},
    virtual_time::{JoinHandle, VirtualTime},
};
use crate::{clock::tick::saturating_nanos, local::local_timer};

/// Waits for `duration`, counted from this call, on this thread's wheel. See [`Sleep`].
///
/// A sleep of zero duration is ready at the first poll. A sleep of more than 584 years is never
/// ready.
///
/// # Examples
///
/// ```
/// use corewheel::future::{VirtualTime, sleep};
/// use std::time::Duration;
///
/// let time = VirtualTime::new();
/// time.spawn(|| sleep(Duration::from_millis(250)));
/// assert_eq!(time.run(), 0);
/// assert_eq!(time.elapsed(), Duration::from_millis(250));
/// ```
#[inline]
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::with_delay(local_timer(), saturating_nanos(duration))
}

/// Waits until `deadline`, an instant of this thread's clock
/// ([`LocalTimer::now`](crate::LocalTimer::now)). See [`Sleep`].
///
/// # Examples
///
/// ```
/// use corewheel::{future::{VirtualTime, sleep_until}, local_timer};
/// use std::time::Duration;
///
/// let time = VirtualTime::new();
/// time.block_on(|| async {
///     let deadline = local_timer().now() + Duration::from_millis(250);
///     sleep_until(deadline).await;
///     assert_eq!(local_timer().now(), deadline);
/// });
/// ```
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::with_deadline(local_timer(), deadline)
}

/// Gives up `future` if it is not ready within `duration` from now. Uses this thread's wheel. See
/// [`Timeout`].
///
/// # Examples
///
/// ```
/// use corewheel::{future::{VirtualTime, timeout}, local_timer};
/// use std::{future, time::Duration};
///
/// let time = VirtualTime::new();
/// let task = time.spawn(|| async {
///     assert_eq!(timeout(Duration::from_secs(1), future::ready(7)).await, Ok(7));
///     assert_eq!(local_timer().counts().added, 0, "it was ready at once");
///     assert!(timeout(Duration::from_secs(1), future::pending::<()>()).await.is_err());
/// });
/// assert_eq!(time.run(), 0);
/// ```
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), sleep(duration))
}

/// Gives up `future` if it is not ready by `deadline`, an instant of this thread's clock. See
/// [`Timeout`].
///
/// # Examples
///
/// ```
/// use corewheel::{future::{VirtualTime, timeout_at}, local_timer};
/// use std::{future, time::Duration};
///
/// let time = VirtualTime::new();
/// time.block_on(|| async {
///     let deadline = local_timer().now() + Duration::from_secs(5); // for the whole request
///     assert_eq!(timeout_at(deadline, future::ready("header")).await, Ok("header"));
///     assert!(timeout_at(deadline, future::pending::<()>()).await.is_err());
/// });
/// assert_eq!(time.elapsed(), Duration::from_secs(5));
/// ```
#[track_caller]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), sleep_until(deadline))
}

/// Returns an interval that ticks every `period`, the first time at once, on this thread's wheel.
/// See [`Interval`].
///
/// A period shorter than the wheel's tick is rounded up to one tick.
///
/// # Examples
///
/// ```
/// use corewheel::future::{VirtualTime, interval};
/// use std::time::Duration;
///
/// let time = VirtualTime::new();
/// time.spawn(|| async {
///     let mut interval = interval(Duration::from_secs(10));
///     let first = interval.tick().await;
///     assert_eq!(interval.tick().await - first, Duration::from_secs(10));
/// });
/// assert_eq!(time.run(), 0);
/// assert_eq!(time.elapsed(), Duration::from_secs(10));
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    let mut interval = Interval::new(sleep(Duration::ZERO), period);
    interval.raise_deadline_to_now();
    interval
}

/// Returns an interval that ticks every `period`, the first time at `start`, an instant of this
/// thread's clock. See [`interval`].
///
/// # Examples
///
/// ```
/// use corewheel::{future::{VirtualTime, interval_at}, local_timer};
/// use std::time::Duration;
///
/// let time = VirtualTime::new();
/// time.block_on(|| async {
///     let start = local_timer().now() + Duration::from_secs(3);
///     let mut ticks = interval_at(start, Duration::from_secs(10));
///     assert_eq!(ticks.tick().await, start);
///     assert_eq!(ticks.tick().await - start, Duration::from_secs(10));
/// });
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval::new_at(start, sleep_until(start), period)
}
