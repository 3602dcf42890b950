//! corewheel in smol: [`run`] runs a `LocalExecutor` and drives the thread's wheel
//! ([`local_timer`]). [`drive`] returns the driver for an existing executor.
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
//! });
//! assert!(answer.is_err());
//! ```
//!
//! Tasks of smol's global executor run on other threads, and need
//! [`Timers`](corewheel::future::Timers).

use std::{
    convert::Infallible,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    time::Duration,
};

use async_executor::LocalExecutor;
use async_io::Timer;
use corewheel::{Config, local_timer};

/// Matches the precision of smol's own timers.
const DEFAULT_TICK: Duration = Duration::from_micros(20);

/// Limits each turn, so that other tasks run between turns.
const TURN_BUDGET: usize = 1_024;

/// Runs `tasks` and a driver of the thread's wheel on this thread, until `future` ends. Returns the
/// future's output.
///
/// A thread without a wheel gets one with a tick of 20 us. For another tick, first install a
/// [`Config`].
///
/// # Panics
///
/// Panics if [`drive`] would panic.
pub fn run<F: Future>(tasks: &LocalExecutor<'_>, future: F) -> F::Output {
    // `install` fails if the thread already has a wheel, which the thread then keeps.
    let _ = Config::new().tick(DEFAULT_TICK).install();
    // The driver must be a task: the executor runs many tasks before it polls `future` again.
    let driver = tasks.spawn(drive());
    let run_result = catch_unwind(AssertUnwindSafe(|| {
        let mut tasks_and_future = pin!(tasks.run(future));
        async_io::block_on(poll_fn(|cx| {
            let output = tasks_and_future.as_mut().poll(cx);
            if output.is_pending() {
                // Fires timers that became due while tasks ran, before the reactor wakes more
                // tasks.
                local_timer().turn_within(TURN_BUDGET);
            }
            output
        }))
    }));
    // Keeps a driver registered until this function returns, because other tasks can run below.
    let _driver = drive();
    // Waits until the executor has dropped the driver, which would otherwise live until the
    // executor next runs.
    async_io::block_on(tasks.run(driver.cancel()));
    run_result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Returns a future that drives this thread's wheel and never ends; see
/// [`corewheel::future::drive`]. Spawn the future on the thread's `LocalExecutor`.
///
/// # Panics
///
/// Panics if the thread cannot have a wheel, because it is exiting or 16,384 shards exist.
#[track_caller]
pub fn drive() -> impl Future<Output = Infallible> {
    corewheel::future::drive(Timer::after)
}
