//! corewheel in monoio: [`run`] creates a runtime that drives its thread's wheel
//! ([`local_timer`](corewheel::local_timer)). [`drive`] drives the wheel in an existing runtime.
//!
//! ```
//! use corewheel::{Cores, future::sleep};
//! use std::time::Duration;
//!
//! let cores = Cores::builder().threads(2).start(|core| {
//!     corewheel_monoio::run(async move {
//!         monoio::spawn(sleep(Duration::from_millis(5))).await;
//!         core.index()
//!     })
//! })?;
//! for (index, core) in cores.join().into_iter().enumerate() {
//!     assert_eq!(core.unwrap()?, index);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! On Linux the driver usually waits for the wheel's [`TimerFd`](corewheel::LocalTimer::timer_fd),
//! so timers are as exact as the wheel's tick. On other systems, the driver sleeps with monoio's
//! own timer, which rounds up to milliseconds. monoio fires all due timers before other tasks run.

#![cfg(unix)]

use std::{
    cell::RefCell,
    convert::Infallible,
    future::poll_fn,
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use corewheel::Config;
use monoio::{FusionDriver, RuntimeBuilder, time};

/// The tick is short, because monoio's own timer can round each deadline up a second time.
const DEFAULT_TICK: Duration = Duration::from_micros(20);

/// Runs `future` on this thread, in a monoio runtime that drives the thread's wheel. Returns the
/// future's output. monoio keeps an unfinished task as long as a timer or a descriptor can wake it.
///
/// A thread without a wheel gets one with a tick of 20 us. For another tick, first install a
/// [`Config`]. For other settings of the runtime, create a runtime and spawn [`drive`] on it.
///
/// # Errors
///
/// Fails if the runtime cannot be created.
///
/// # Panics
///
/// Panics if [`drive`] would panic, or `run` is called inside another monoio runtime.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    // `install` fails if the thread already has a wheel, which the thread then keeps.
    let _ = Config::new().tick(DEFAULT_TICK).install();
    let mut runtime = RuntimeBuilder::<FusionDriver>::new().enable_timer().build()?;
    // The driver is not a task, because monoio never drops a task that waits for a descriptor.
    let driver = Rc::new(RefCell::new(Some(Box::pin(drive()))));
    let driver_of_main = Rc::clone(&driver);
    let run_result = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async move {
            let mut future = pin!(future);
            poll_fn(|cx| {
                if let Some(driver) = &mut *driver_of_main.borrow_mut() {
                    let Poll::Pending = driver.as_mut().poll(cx);
                }
                future.as_mut().poll(cx)
            })
            .await
        })
    }));
    // Drops the driver: after a panic of a task, monoio may never drop the main future.
    driver.take();
    Ok(run_result.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Returns a future that drives this thread's wheel and never ends. Spawn the future on the
/// thread's runtime, which must have its timer enabled. monoio never drops a task that waits for a
/// descriptor. If the thread outlives its runtime, poll this future beside the runtime's main
/// future instead, as [`run`] does.
///
/// Calling `drive` registers a driver, and dropping the future unregisters it. If the wheel cannot
/// have a descriptor, for example because its time is virtual, the driver is
/// [`corewheel::future::drive`] with monoio's sleep.
///
/// # Panics
///
/// Panics if the thread cannot have a wheel, because it is exiting or 16,384 shards exist.
#[track_caller]
pub fn drive() -> impl Future<Output = Infallible> {
    let fallback_driver = corewheel::future::drive(time::sleep);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let timer = corewheel::local_timer().timer_fd();
    async move {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Ok(timer) = timer {
            let _ = drive_by_descriptor(timer).await;
        }
        fallback_driver.await
    }
}

/// Drives the wheel by its descriptor. Returns only if the descriptor fails. monoio has no public
/// wait for a foreign descriptor, but its sockets can wait without reading, so this function treats
/// the descriptor as a socket.
#[cfg(any(target_os = "linux", target_os = "android"))]
async fn drive_by_descriptor(timer: corewheel::TimerFd) -> io::Result<Infallible> {
    use std::os::{fd::AsFd, unix::net::UnixStream};

    /// Limits each turn, so that other tasks run between turns.
    const TURN_BUDGET: usize = 1_024;

    let descriptor = timer.as_fd().try_clone_to_owned()?;
    let socket = monoio::net::UnixStream::from_std(UnixStream::from(descriptor))?;
    timer.arm();
    loop {
        socket.readable(false).await?;
        timer.turn_within(TURN_BUDGET);
        // Lets other tasks run, because the next wait can be ready at its first poll. monoio runs a
        // new task after all others, but a task that wakes itself before them.
        monoio::spawn(async {}).await;
    }
}
