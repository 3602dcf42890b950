//! The API of `tokio::time` on corewheel's timers: to move a program, change its `use` lines.
//!
//! ```
//! use corewheel_tokio::time::{self, Duration, Instant}; // was: use tokio::time::{self, ...}
//!
//! # #[cfg(any(target_os = "linux", target_os = "android"))]
//! corewheel_tokio::run(async {
//!     let begun = Instant::now();
//!     time::sleep(Duration::from_millis(5)).await;
//!     assert!(begun.elapsed() >= Duration::from_millis(5));
//!     let answer = time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
//!     assert!(answer.is_err());
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`DelayQueue`] has the methods of `tokio_util::time::DelayQueue`, and [`IntervalStream`] those
//! of `tokio_stream`'s wrapper.
//!
//! # Which wheel a future uses
//!
//! The futures of this module are `Send` if their contents are. Each future uses the first of these
//! wheels that exists:
//!
//! 1. The wheel of the thread's virtual time, after [`pause`].
//! 2. The thread's own wheel, while [`run`](crate::run) or [`spawn_driver`](crate::spawn_driver)
//!    drives it. The future may move to another thread; its timer does not.
//! 3. A wheel of the timers given to [`set_default_timers`]. If [`set_default_timers`] is not
//!    called, the first use calls [`Timers::per_worker`](corewheel::future::Timers::per_worker),
//!    and panics if this fails.
//!
//! Unless a dependency uses `tokio::time`, neither a tokio runtime nor `enable_time` is needed.
//! Where tasks never change threads, the futures of [`corewheel::future`] cost less.
//!
//! # What differs from tokio
//!
//! - **A sleep whose deadline has passed is usually ready at its first poll**, even
//!   `sleep(Duration::ZERO)`, so a loop over such sleeps spins. tokio waits for the next
//!   millisecond.
//! - A deadline more than 584 years ahead never elapses.
//! - [`Sleep`] is `Unpin`, so it does not need `tokio::pin!`: reset it by
//!   `Pin::new(&mut sleep).reset(deadline)`.
//! - A poll panics if no timer is available, because the wheel is full or its thread has ended.
//! - A wait of more than a second returns `Pending` once if first polled after its deadline.
//! - A future can stay pending after its runtime has ended. tokio's futures panic.
//! - After a reset, a [`Sleep`] that is not waiting gets a timer only at its next poll. Until that
//!   poll, [`Sleep::is_elapsed`] stays false.
//! - [`pause`] affects only the thread that calls it. Futures created before the call stay in real
//!   time, and so do [`corewheel::local_timer`] and [`corewheel::future`]. The paused clock can
//!   advance while a blocking task runs, such as `spawn_blocking`, `tokio::fs` or a DNS lookup. To
//!   wait for a blocking task in real time, call [`resume`] before and [`pause`] after it.
//! - The paused clock advances automatically only in [`run`](crate::run), and in a runtime that
//!   calls [`auto_advance`] in its `on_thread_park`. Instead of `#[tokio::test]`, write a `#[test]`
//!   that calls [`run`](crate::run), and first call [`pause`] in its future; `start_paused` stops
//!   only tokio's clock.
//! - `std::time::Instant::now()` is never virtual: read the time with [`Instant::now`]. A
//!   [`corewheel::Shard`] follows virtual time if it is configured with [`clock`].
//! - [`DelayQueue`] is not `Sync`. The page of `DelayQueue` lists how its methods differ.

mod current_timers;
pub mod delay_queue;
pub mod error;

mod instant;
mod interval;
mod sleep;
mod timeout;
mod virtual_time;

pub use std::time::Duration;

#[doc(inline)]
pub use self::delay_queue::DelayQueue;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use self::{current_timers::THREAD_TIMERS, virtual_time::request_event_polls};
pub use self::{
    current_timers::{SetDefaultTimersError, set_default_timers, timers},
    instant::Instant,
    interval::{Interval, IntervalStream, MissedTickBehavior, interval, interval_at},
    sleep::{Sleep, sleep, sleep_until},
    timeout::{Timeout, timeout, timeout_at},
    virtual_time::{advance, auto_advance, clock, pause, resume},
};
