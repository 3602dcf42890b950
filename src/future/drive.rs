//! A task that drives its thread's wheel in any executor.

use std::{convert::Infallible, future::poll_fn, mem, pin::pin, task::Poll, time::Duration};

use crate::{
    limits::DRIVE_TURN_BUDGET,
    local::{DriverKind, DriverRegistration, ThreadWheel, local_timer},
    shard::PreparedSleep,
};

/// Maximum length of the sleep after a turn that has fired timers. A sleep of zero length could be
/// ready at its first poll, and then no other task would run.
const SLEEP_LENGTH_AFTER_FIRING_MAX: Duration = Duration::from_micros(1);

/// The length of each sleep after the wheel has ended. A turn of an ended wheel only sends queued
/// purgatory messages, so turns may be rare.
const ENDED_WHEEL_SLEEP_LENGTH: Duration = Duration::from_millis(100);

/// Returns a future that drives this thread's wheel and never completes. Spawn the future on this
/// thread in any executor.
///
/// `sleep` is the executor's sleep function, such as `tokio::time::sleep`, but not corewheel's own
/// [`sleep`](super::sleep). The driving task turns the wheel, lets other tasks run, turns the wheel
/// again, and sleeps at most until the next deadline. A request that must [end a
/// sleep](crate::LocalTimer::prepare_sleep) wakes the task, and also calls the hook set by
/// [`Config::wake_hook`](crate::Config::wake_hook).
///
/// The call of `drive`, not the first poll, registers the [driver](super#without-a-driver).
/// Dropping the future unregisters the driver. Several tasks may drive one wheel.
///
/// A turn handles at most about 1,024 remote requests and 1,024 wheel entries before other tasks
/// run. If the executor can wait for a file descriptor, a `TimerFd` can drive the wheel instead.
///
/// The executor's sleep must follow the clock of the wheel. Under tokio's paused clock, each sleep
/// would end at once, so the driving task would turn the wheel again and again.
///
/// The executor's wakers must be usable on any thread, as [`Waker`](std::task::Waker) promises. The
/// wakers of monoio are usable on any thread only with its feature `sync`.
///
/// # Panics
///
/// Panics if the thread is exiting and its wheel has ended, or if the thread cannot have a wheel
/// because 16,384 shards, the maximum, exist. A poll of the returned future panics if `sleep` waits
/// for this thread's wheel.
///
/// # Examples
///
/// With tokio's current-thread runtime and tokio's sleep:
///
/// ```ignore
/// tokio::task::spawn_local(corewheel::future::drive(tokio::time::sleep));
/// corewheel::future::sleep(Duration::from_millis(5)).await;
/// ```
#[track_caller]
pub fn drive<S: Future>(mut sleep: impl FnMut(Duration) -> S) -> impl Future<Output = Infallible> {
    let id = match ThreadWheel::with(ThreadWheel::new_driver_task_id) {
        Ok(id) => id,
        Err(reason) => panic!("no wheel to drive: {reason}"),
    };
    let registration = DriverRegistration::new(DriverKind::Task(id));
    async move {
        let _registration = registration;
        loop {
            local_timer().turn_within(DRIVE_TURN_BUDGET);
            wait_until_repolled(None::<S>, true).await;
            // If this turn fires timers, more timers may come due while the woken tasks run, so the
            // next sleep is short.
            let has_fired = local_timer().turn_within(DRIVE_TURN_BUDGET).fired > 0;
            // A request that must end the announced sleep wakes this task by `cx.waker()`.
            let announced_sleep = poll_fn(|cx| {
                let sleep = ThreadWheel::with(|wheel| wheel.prepare_sleep_of_task(id, cx.waker()));
                Poll::Ready(sleep.unwrap_or_else(|_| PreparedSleep::zero_length()))
            })
            .await;
            let timeout = if ThreadWheel::has_ended() {
                Some(ENDED_WHEEL_SLEEP_LENGTH)
            } else {
                announced_sleep.timeout()
            };
            // If the timeout is zero, this task does not sleep, but lets other tasks run before the
            // next turn.
            let must_yield = timeout == Some(Duration::ZERO);
            let executor_sleep = timeout.filter(|_| !must_yield).map(|time| {
                sleep(if has_fired { time.min(SLEEP_LENGTH_AFTER_FIRING_MAX) } else { time })
            });
            wait_until_repolled(executor_sleep, must_yield).await;
        }
    }
}

/// Polls `sleep` once, if there is one. Unless the sleep is ready, waits until the task is polled
/// again for any reason. If `must_yield` is true, wakes the task, so that it is polled again after
/// other tasks.
async fn wait_until_repolled<S: Future>(sleep: Option<S>, must_yield: bool) {
    let (mut sleep, mut was_polled) = (pin!(sleep), false);
    poll_fn(|cx| {
        if mem::replace(&mut was_polled, true) {
            return Poll::Ready(());
        }
        if must_yield {
            cx.waker().wake_by_ref();
        }
        let Some(sleep) = sleep.as_mut().as_pin_mut() else { return Poll::Pending };
        ThreadWheel::poll_driver_sleep(|| sleep.poll(cx).map(drop))
    })
    .await;
}
