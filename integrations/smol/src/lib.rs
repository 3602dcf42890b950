//! corewheel in smol: [`run`] runs a thread's `LocalExecutor` so that its [`local_timer`](corewheel::local_timer) works as it
//! does everywhere. [`drive`] does the same as a future, to be spawned on an executor of yours.
//!
//! ```
//! use corewheel::future::{sleep, timeout};
//! use std::{future, time::Duration};
//!
//! let tasks = smol::LocalExecutor::new();
//! let answer = corewheel_smol::run(&tasks, async {
//!     let task = tasks.spawn(sleep(Duration::from_millis(5)));
//!     let answer = timeout(Duration::from_millis(5), future::pending::<()>()).await;
//!     task.await;
//!     answer
//! })?;
//! assert!(answer.is_err());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Tasks of smol's global executor run on other threads. For them, take [`Timers`](corewheel::future::Timers).

use std::{convert::Infallible, io, time::Duration};

use async_executor::LocalExecutor;
use async_io::Timer;
use corewheel::Config;

/// The tick of [`run`]. smol's own timers have none.
const TICK: Duration = Duration::from_micros(20);

/// Runs `tasks` on this thread until `future` ends, with a driver for the thread's timer among them. Returns the output of the
/// future.
///
/// The timer has a tick of 20 us. For another one, spawn [`drive`] on an executor of yours.
///
/// # Errors
///
/// If the thread has a timer already, without the [`hook`] of this package.
pub fn run<F: Future>(tasks: &LocalExecutor<'_>, future: F) -> io::Result<F::Output> {
    // Among the tasks, and not beside them: an executor runs many tasks before it returns.
    let _driver = tasks.spawn(drive(Config::new().tick(TICK))?);
    Ok(async_io::block_on(tasks.run(future)))
}

/// Gives `config` a wake hook for smol. For threads whose timer is made before [`run`] or [`drive`], as in
/// [`Cores`](corewheel::Cores). Call it on the thread itself, and install the result there.
pub fn hook(config: Config) -> Config {
    corewheel_drive::hook(config)
}

/// Returns a future that drives this thread's timer and never ends. Spawn it on the thread's `LocalExecutor`.
///
/// A thread without a timer gets one as `config` says. Later drivers of the thread go on with it.
///
/// # Errors
///
/// If the thread has a timer already, without the [`hook`] of this package, or `config` cannot be used.
pub fn drive(config: Config) -> io::Result<impl Future<Output = Infallible>> {
    corewheel_drive::drive(config, Timer::after)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
