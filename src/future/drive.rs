//! A task that drives its thread's wheel in any executor.

use std::{
    convert::Infallible,
    future::poll_fn,
    mem,
    pin::pin,
    task::{Poll, Waker},
    time::Duration,
};

use crate::{
    limits::DRIVE_BUDGET,
    local::{DriverRegistration, Local, local_timer},
    shard::PreparedSleep,
};

/// A delay so short that it elapses as soon as the executor checks its timers, but not at the first
/// poll.
const SHORT_SLEEP: Duration = Duration::from_micros(1);

/// Drives this thread's wheel from a task of any executor: a future that never ends. Spawn it on
/// the thread, and drop it to stop.
///
/// `sleep` returns a future of the executor's own timer that ends after a time. When that sleep
/// ends, the task turns the wheel. It turns again after the woken tasks have run, and then waits
/// until the next deadline. The task is woken when this thread adds an earlier timer, and by each
/// remote request that must [end a sleep](crate::LocalTimer::prepare_sleep). A hook set by
/// [`Config::on_wake`](crate::Config::on_wake) is called too.
///
/// The thread has a driver from this call on, until the future is dropped. So futures may wait on
/// the thread before this task is first polled. One driving task is enough. If two tasks drive the
/// wheel, wakes go to the task that began to wait last.
///
/// A timer is as punctual as the executor's sleep and its run queue. A turn touches at most 1,024
/// entries before other tasks run. Where the executor can wait for a descriptor, a `TimerFd` needs
/// no timer of the executor.
///
/// The executor's wakers must be usable on any thread, as [`Waker`](std::task::Waker) promises:
/// monoio's wakers need its feature `sync`.
///
/// # Panics
///
/// If the thread is exiting and its wheel has ended, or if it cannot have a wheel because 16,384
/// shards exist.
///
/// # Examples
///
/// With tokio's current-thread runtime and its own sleep:
///
/// ```ignore
/// tokio::task::spawn_local(corewheel::future::drive(tokio::time::sleep));
/// corewheel::future::sleep(Duration::from_millis(5)).await;
/// ```
#[track_caller]
pub fn drive<S: Future>(mut sleep: impl FnMut(Duration) -> S) -> impl Future<Output = Infallible> {
    let _ = local_timer().shard_ref();
    let drives = DriverRegistration::new();
    async move {
        let (_drives, _remove_waker) = (drives, RemoveWaker);
        loop {
            local_timer().turn_within(DRIVE_BUDGET);
            sleep_or_wake(None::<S>, true).await;
            // Other tasks have run since the last turn. If a timer came due while they ran, the
            // next sleep is short.
            let was_long = local_timer().turn_within(DRIVE_BUDGET).fired > 0;
            let announced = poll_fn(|cx| Poll::Ready(prepare_sleep(cx.waker()))).await;
            // A zero timeout: work is left for the next turn, but other tasks run first.
            let is_over = announced.timeout() == Some(Duration::ZERO);
            let timeout = announced.timeout().filter(|_| !is_over);
            let slept =
                timeout.map(|time| sleep(if was_long { time.min(SHORT_SLEEP) } else { time }));
            sleep_or_wake(slept, is_over).await;
        }
    }
}

/// Waits until `sleep` ends or the task is polled again. If `wakes` is true, the task wakes itself.
async fn sleep_or_wake<S: Future>(sleep: Option<S>, wakes: bool) {
    let (mut sleep, mut was_polled) = (pin!(sleep), false);
    poll_fn(|cx| {
        if mem::replace(&mut was_polled, true) {
            return Poll::Ready(());
        }
        if wakes {
            cx.waker().wake_by_ref();
        }
        sleep.as_mut().as_pin_mut().map_or(Poll::Pending, |sleep| sleep.poll(cx).map(drop))
    })
    .await;
}

/// Announces a sleep of the driving task, whose waker ends the sleep early. In a thread without a
/// wheel the timeout is zero.
fn prepare_sleep(task: &Waker) -> PreparedSleep<'static> {
    let prepared = Local::with(|local| local.prepare_sleep_of_task(task));
    prepared.unwrap_or_else(|_| PreparedSleep::zero_length())
}

/// Removes the driving task's waker when it is dropped.
struct RemoveWaker;

impl Drop for RemoveWaker {
    fn drop(&mut self) {
        let _ = Local::with(|local| local.shared.hooks.set_driver_task(None));
    }
}
