//! corewheel in tokio's current-thread and multi-thread runtimes. tokio's own timer is not needed.
//!
//! - **A current-thread runtime per core**: [`run`], on Linux, or [`run_in`] an existing runtime, or
//!   [`spawn_local`] in an existing `LocalSet`. It drives the thread's
//!   [`local_timer`](corewheel::local_timer), whose callbacks run between the tasks.
//! - **One multi-thread runtime**: [`time`], for sleeps and deadlines of tasks, and
//!   [`time::timers`] for packages that take [`Timers`](corewheel::future::Timers). Its default is
//!   [`Timers::per_worker`](corewheel::future::Timers::per_worker): a timer goes to the
//!   wheel of the thread that creates its future. If most timers fire, pass
//!   [`Timers::start`](corewheel::future::Timers::start) to [`time::use_timers`]. For callbacks:
//!   [`Shards`], timers on dedicated threads.
//! - **A program written for `tokio::time`**: [`time`] has the same names, for both kinds.
//!
//! Callbacks may wake tasks by a `Notify`, a `oneshot`, a waker, or any other means.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod local;
mod shards;
pub mod time;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use self::local::{run, run_in, spawn_local};
pub use self::shards::Shards;
