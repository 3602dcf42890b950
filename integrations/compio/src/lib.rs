//! corewheel in compio: [`run`] creates a runtime that drives its thread's wheel ([`local_timer`]).
//! [`spawn_driver`] drives the wheel in an existing runtime. Only Linux and Android are supported.
//!
//! ```
//! use corewheel::future::sleep;
//! use std::time::Duration;
//!
//! corewheel_compio::run(async {
//!     sleep(Duration::from_millis(5)).await;
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Callbacks can wake tasks through a channel, an event or a waker.
//!
//! compio waits by `io_uring` (feature `io-uring`, the default) or a poller (`polling`).

#![cfg(any(target_os = "linux", target_os = "android"))]

use std::{
    convert::Infallible,
    future::poll_fn,
    io, mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use compio_runtime::{JoinHandle, Runtime, fd::PollFd};
use corewheel::{Config, TimerFd, local_timer};

/// Limits each turn, so that other tasks run between turns.
const TURN_BUDGET: usize = 1_024;

/// Matches the precision of compio's own timers.
const DEFAULT_TICK: Duration = Duration::from_micros(20);

/// The handle of a task that drives the wheel.
type DriverTask = JoinHandle<io::Result<Infallible>>;

/// Runs `future` on this thread, in a new compio runtime that drives the thread's wheel. Returns
/// the future's output, and drops unfinished tasks. Pending timers stay in the wheel until the
/// thread ends.
///
/// For one runtime per core, call `run` on the threads of [`Cores`](corewheel::Cores), whose wheels
/// keep their configuration, by default with a tick of 1 ms. A thread without a wheel gets one with
/// a tick of 20 us. For another tick, first install a [`Config`].
///
/// # Errors
///
/// Fails if the runtime cannot be created, or [`run_in`] would fail.
///
/// # Examples
///
/// ```
/// use corewheel::{Cores, local_timer};
/// use futures::channel::oneshot;
/// use std::time::Duration;
///
/// let cores = Cores::builder().threads(2).start(|core| {
///     corewheel_compio::run(async move {
///         let (alarm, fired) = oneshot::channel();
///         local_timer().add(Duration::from_millis(5), move || alarm.send(core.index()).unwrap());
///         fired.await.unwrap()
///     })
/// })?;
/// for (index, core) in cores.join().into_iter().enumerate() {
///     assert_eq!(core.unwrap()?, index);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    run_in(Runtime::new()?, future)
}

/// Runs `future` on this thread, in an existing compio runtime, and drives the thread's wheel.
/// Returns the future's output, and drops the runtime with its unfinished tasks. If a clone of the
/// runtime remains, the wheel's driver stays registered until the clone next runs. Until then, a
/// future that waits for this thread's wheel can hang instead of panicking.
///
/// A thread without a wheel gets one with a tick of 20 us, as in [`run`].
///
/// # Errors
///
/// Fails if [`spawn_driver`] would fail, or the runtime later fails to wait for the wheel's
/// descriptor.
///
/// # Examples
///
/// ```
/// use compio_runtime::RuntimeBuilder;
/// use corewheel::future::sleep;
/// use std::time::Duration;
///
/// let runtime = RuntimeBuilder::new().event_interval(16).build()?;
/// corewheel_compio::run_in(runtime, sleep(Duration::from_millis(5)))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn run_in<F: Future>(runtime: Runtime, future: F) -> io::Result<F::Output> {
    // `install` fails if the thread already has a wheel, which the thread then keeps.
    let _ = Config::new().tick(DEFAULT_TICK).install();
    let run_result = catch_unwind(AssertUnwindSafe(|| {
        runtime.enter(|| {
            let driver = spawn_driver()?;
            block_on(&runtime, driver, future)
        })
    }));
    // Drops the tasks outside of unwinding, because their destructors may panic too.
    drop(runtime);
    run_result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs `future` as [`Runtime::block_on`] does, and turns the wheel in each round. Fails if the
/// driver fails.
fn block_on<F: Future>(
    runtime: &Runtime,
    mut driver: DriverTask,
    future: F,
) -> io::Result<F::Output> {
    let waker = runtime.waker();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            runtime.run();
            return Ok(output);
        }
        let has_tasks = runtime.run();
        if driver.is_finished()
            && let Poll::Ready(ended) = Pin::new(&mut driver).poll(&mut context)
        {
            let Err(error) = ended?;
            return Err(error);
        }
        // Fires timers that became due while tasks ran, before the runtime wakes more tasks. If a
        // timer wakes a task, the runtime does not sleep.
        local_timer().turn_within(TURN_BUDGET);
        if has_tasks {
            runtime.poll_with(Some(Duration::ZERO));
        } else {
            runtime.poll();
        }
    }
}

/// Spawns a task that drives this thread's wheel until the handle is dropped. A thread needs only
/// one such task.
///
/// Cost: each wake of the driver takes two turns, a system call to arm the descriptor and one
/// operation of the runtime. An add with a new earliest deadline costs one more wake.
///
/// # Errors
///
/// Fails if no file descriptor can be opened ([`TimerFdError`](corewheel::TimerFdError)), for
/// example because the wheel's time is virtual.
///
/// # Panics
///
/// Panics if `spawn_driver` is called outside of a runtime.
pub fn spawn_driver() -> io::Result<JoinHandle<io::Result<Infallible>>> {
    let timer = PollFd::new(local_timer().timer_fd()?)?;
    timer.arm();
    Ok(compio_runtime::spawn(drive(timer)))
}

/// Drives the wheel. Returns only if the runtime fails to wait for the descriptor.
async fn drive(timer: PollFd<TimerFd>) -> io::Result<Infallible> {
    loop {
        timer.read_ready().await?;
        local_timer().turn_within(TURN_BUDGET);
        // Yields once, so that other tasks run.
        let mut was_polled = false;
        poll_fn(|cx| {
            if mem::replace(&mut was_polled, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        // If timers became due while other tasks ran, the descriptor stays readable, so that the
        // driver turns again.
        if local_timer().turn_within(TURN_BUDGET).fired == 0 {
            timer.arm();
        }
    }
}
