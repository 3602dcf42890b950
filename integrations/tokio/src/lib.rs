//! corewheel in tokio's current-thread and multi-thread runtimes. tokio's own timer is not needed.
//!
//! ```
//! use corewheel::{future::sleep, local_timer};
//! use std::time::Duration;
//!
//! # #[cfg(any(target_os = "linux", target_os = "android"))]
//! corewheel_tokio::run(async {
//!     local_timer().add(Duration::from_millis(5), || println!("five milliseconds later"));
//!     sleep(Duration::from_millis(10)).await;
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! - **A current-thread runtime per core, on Linux and Android**: [`run`], or [`run_in`] for an
//!   existing runtime, or [`spawn_driver`] for an existing `LocalSet`. Each of these functions
//!   drives the thread's wheel ([`local_timer`](corewheel::local_timer)), whose callbacks run
//!   between the tasks.
//! - **A multi-thread runtime**: [`time`], for sleeps and deadlines of tasks, and [`time::timers`]
//!   for packages that take [`Timers`](corewheel::future::Timers). By default, each thread's
//!   futures use a wheel of [`Timers::per_worker`](corewheel::future::Timers::per_worker), and a
//!   separate thread fires the timers. If most timers fire, keep tokio's own timer. For callbacks,
//!   use the [`shards`](corewheel::future::Timers::shards) of a `Timers`. A callback on a wheel of
//!   `per_worker` adds timers through a clone of its [`ShardRef`](corewheel::ShardRef), because
//!   `local_timer()` returns another wheel there.
//! - **A program written for `tokio::time`**: [`time`] has the names of `tokio::time`, for both
//!   runtimes.
//!
//! Callbacks can wake tasks through a `Notify`, a `oneshot` or a waker.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod local;
pub mod time;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use self::local::{run, run_in, spawn_driver};
