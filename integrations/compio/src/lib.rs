//! corewheel in compio: [`run`] makes a runtime whose thread's [`local_timer`] works as it does
//! everywhere, [`spawn`] does the same in a runtime of yours. compio's own timer is not needed. On Linux.
//!
//! Callbacks run between the tasks, and wake them by whatever you like: a oneshot channel, an event, a waker.

#![cfg(any(target_os = "linux", target_os = "android"))]

use std::{convert::Infallible, io};

use compio_runtime::{JoinHandle, Runtime, fd::PollFd};
use corewheel::{TimerFd, local_timer};

/// How many entries a turn touches before other tasks have their go.
const BUDGET: usize = 1_024;

/// Runs `future` on this thread, in a compio runtime of its own that drives the thread's timer; returns what it returns. Tasks
/// that are left then are dropped, and timers stay until the thread ends.
///
/// With [`Cores`](corewheel::Cores) that makes a program of one runtime per core. To change the timer, install a
/// [`Config`](corewheel::Config) before.
///
/// A timer is as punctual as its runtime: a task that computes for a millisecond makes it late by as much.
///
/// # Errors
///
/// If the runtime cannot be made, or as [`spawn`].
///
/// # Examples
///
/// ```
/// use corewheel::{Cores, local_timer};
/// use futures::channel::oneshot;
/// use std::time::Duration;
///
/// let cores = Cores::builder().shards(2).start(|core| {
///     corewheel_compio::run(async move {
///         let (alarm, rung) = oneshot::channel();
///         local_timer().add(Duration::from_millis(5), move || alarm.send(core.index()).unwrap());
///         rung.await.unwrap()
///     })
/// })?;
/// for (index, core) in cores.join().into_iter().enumerate() {
///     assert_eq!(core.unwrap()?, index);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let _driver = spawn()?;
        Ok(future.await)
    })
}

/// Spawns a task on the current runtime that drives this thread's timer, until the handle is dropped. One is enough.
///
/// Cost: arming the descriptor, a system call, and one operation of the runtime's each time the timer wants a turn, and nothing in
/// between. A timer that a task adds before all others is another turn for nothing.
///
/// # Errors
///
/// If the timer can have no file descriptor ([`TimerFdError`](corewheel::TimerFdError): its time is virtual, or too many files
/// are open).
///
/// # Panics
///
/// Outside of a runtime.
pub fn spawn() -> io::Result<JoinHandle<io::Result<Infallible>>> {
    let timer = PollFd::new(local_timer().timer_fd()?)?;
    timer.arm();
    Ok(compio_runtime::spawn(drive(timer)))
}

/// Only a runtime that cannot wait any more ends it, with that error.
async fn drive(timer: PollFd<TimerFd>) -> io::Result<Infallible> {
    loop {
        timer.read_ready().await?;
        timer.turn_within(BUDGET);
    }
}
