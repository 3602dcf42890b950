//! A task that drives its thread's timer in any executor.

use std::{
    convert::Infallible,
    future::poll_fn,
    mem,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    limits::DRIVE_BUDGET,
    local::{LocalTimer, local_timer},
};

/// Drives this thread's timer from a task of any executor: a future that never ends. Spawn it on the thread, and drop it to stop.
///
/// `sleep` makes a future that ends after a time, from the executor's own timer. Each time the task runs it turns the timer, and then
/// waits until the next deadline. An earlier timer of this thread wakes the task, and so does every request of another thread that
/// calls [`Config::on_wake`](crate::Config::on_wake). A configured hook is called too.
///
/// The thread is driven from the call on: tasks that were spawned before may wait. One task is enough; of two, the one that has
/// begun to wait last is woken.
///
/// A timer is as punctual as the executor's sleep and its run queue. A turn touches at most 1,024 entries before other tasks have their
/// go. Where the executor can wait for a descriptor, a `TimerFd` does without its timer.
///
/// The executor's wakers must be good for any thread, as [`Waker`](std::task::Waker) promises: monoio's need its feature `sync`.
///
/// # Panics
///
/// If the thread is exiting and its timer has ended, or cannot have one because 16,384 shards exist.
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
    local_timer().register_driver();
    async move {
        let _awake_at_the_end = Driver;
        loop {
            local_timer().turn_within(DRIVE_BUDGET);
            let announce = |cx: &mut Context<'_>| LocalTimer::prepare_sleep_of(cx.waker());
            let announced = poll_fn(|cx| Poll::Ready(announce(cx))).await;
            // Something is left to do: other tasks have their go first.
            let is_over = announced.timeout() == Some(Duration::ZERO);
            let slept = announced.timeout().filter(|_| !is_over).map(&mut sleep);
            sleep_or_wake(slept, is_over).await;
        }
    }
}

/// Ends with `sleep`, or when the task is woken: at the next poll. The task wakes itself if `wakes`.
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

/// The task that drives the timer. When it ends, nothing wakes it any more.
struct Driver;

impl Drop for Driver {
    fn drop(&mut self) {
        LocalTimer::forget_task();
    }
}
