//! corewheel in glommio: [`run`] makes an executor whose thread's [`local_timer`](corewheel::local_timer) works as it does
//! everywhere. [`drive`] does the same in an executor of yours. On Linux, with io_uring.
//!
//! ```no_run
//! use corewheel::future::{sleep, timeout};
//! use std::{future, time::Duration};
//!
//! let answer = corewheel_glommio::run(async {
//!     glommio::spawn_local(sleep(Duration::from_millis(5))).await;
//!     timeout(Duration::from_millis(5), future::pending::<()>()).await
//! })?;
//! assert!(answer.is_err());
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg(target_os = "linux")]

use std::{convert::Infallible, io, time::Duration};

use corewheel::Config;
use glommio::{LocalExecutorBuilder, timer};

/// The tick of [`run`]. glommio's own timers have none.
const TICK: Duration = Duration::from_micros(20);

/// Runs `future` on this thread, in a glommio executor that drives the thread's timer. Returns the output of the future.
///
/// The timer has a tick of 20 us. To change it, or the executor, spawn [`drive`] in an executor of yours.
///
/// # Errors
///
/// If the kernel refuses io_uring, or the thread has a timer already, without the [`hook`] of this package.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    let driver = drive(Config::new().tick(TICK))?;
    let executor = LocalExecutorBuilder::default().make()?;
    Ok(executor.run(async {
        let driver = glommio::spawn_local(driver);
        let output = future.await;
        driver.cancel().await;
        output
    }))
}

/// Gives `config` a wake hook for glommio. For threads whose timer is made before [`run`] or [`drive`], as in
/// [`Cores`](corewheel::Cores). Call it on the thread itself, and install the result there.
pub fn hook(config: Config) -> Config {
    corewheel_drive::hook(config)
}

/// Returns a future that drives this thread's timer and never ends. Spawn it on the thread's executor.
///
/// A thread without a timer gets one as `config` says. Later drivers of the thread go on with it.
///
/// # Errors
///
/// If the thread has a timer already, without the [`hook`] of this package, or `config` cannot be used.
pub fn drive(config: Config) -> io::Result<impl Future<Output = Infallible>> {
    corewheel_drive::drive(config, timer::sleep)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Returns whether `error` says that the kernel refuses `io_uring`: in a sandbox, or before Linux 5.8.
pub fn is_refusal(error: &io::Error) -> bool {
    const ENOSYS: i32 = 38;
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(ENOSYS)
}
