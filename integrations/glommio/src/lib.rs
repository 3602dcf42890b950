//! corewheel in glommio: [`run`] creates an executor that drives its thread's wheel
//! ([`local_timer`](corewheel::local_timer)). [`drive`] drives the wheel in an existing executor.
//! The package needs Linux and io_uring.
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
use io_uring::IoUring;

/// Matches the precision of glommio's own timers.
const DEFAULT_TICK: Duration = Duration::from_micros(20);

/// Runs `future` on this thread, in a glommio executor that drives the thread's wheel. Returns the
/// future's output.
///
/// A thread without a wheel gets one with a tick of 20 us. For another tick, first install a
/// [`Config`]. For other settings of the executor, create an executor and spawn [`drive`] on it.
///
/// # Errors
///
/// Fails if the kernel refuses `io_uring` ([`is_io_uring_unavailable`]), or the executor cannot be
/// created, for example because `ulimit -l` is below 512 KiB.
///
/// # Panics
///
/// Panics if [`drive`] would panic, or `run` is called inside another glommio executor. On Linux
/// before 5.8, glommio panics or ends the process.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    // Returns an error if `io_uring` is missing; glommio would panic instead.
    drop(IoUring::new(1)?);
    // `install` fails if the thread already has a wheel, which the thread then keeps.
    let _ = Config::new().tick(DEFAULT_TICK).install();
    let executor = LocalExecutorBuilder::default().make()?;
    // Keeps a driver registered until the executor ends, because tasks run after `future` has
    // ended.
    let _driver = drive();
    Ok(executor.run(async {
        let driver = glommio::spawn_local(drive());
        let output = future.await;
        driver.cancel().await;
        output
    }))
}

/// Returns a future that drives this thread's wheel and never ends; see
/// [`corewheel::future::drive`]. Spawn the future on the thread's executor.
///
/// # Panics
///
/// Panics if the thread cannot have a wheel, because it is exiting or 16,384 shards exist.
#[track_caller]
pub fn drive() -> impl Future<Output = Infallible> {
    corewheel::future::drive(timer::sleep)
}

/// Returns true if this error from [`run`] means that the kernel refuses `io_uring`, as in many
/// containers.
pub fn is_io_uring_unavailable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}
