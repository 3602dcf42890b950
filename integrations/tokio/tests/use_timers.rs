//! Futures on timers whose clock is ahead of the system's, as a boot-time clock is after a
//! suspension.

use std::{
    sync::{LazyLock, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use corewheel::{
    Config, ManualClock,
    future::{Timers, Watcher},
};
use corewheel_tokio::time::{self, DelayQueue, Duration};

const SECOND: Duration = Duration::from_secs(1);

/// Calls `test` with a function that advances the clock of all timers and fires them.
fn ahead(test: impl FnOnce(&mut dyn FnMut(Duration), &mut Context<'_>)) {
    static TIMERS: LazyLock<Mutex<(ManualClock, Watcher)>> = LazyLock::new(|| {
        let clock = ManualClock::new();
        let config = |_| Config::new().clock(&clock);
        let (timers, watcher) = Timers::per_worker_with(1, config).expect("there are few shards");
        time::use_timers(timers).expect("the first use");
        clock.advance(3_600 * SECOND);
        Mutex::new((clock, watcher))
    });
    let mut timers = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
    let (clock, watcher) = &mut *timers;
    let mut advance = |by| {
        clock.advance(by);
        watcher.turn();
    };
    test(&mut advance, &mut Context::from_waker(Waker::noop()));
}

#[test]
fn a_queue_follows_the_clock_of_its_timers() {
    ahead(|advance, cx| {
        let mut queue = DelayQueue::new();
        let key = queue.insert((), 3 * SECOND);
        assert!(queue.poll_expired(cx).is_pending());
        advance(2 * SECOND);
        assert!(queue.poll_expired(cx).is_pending());
        queue.reset(&key, 3 * SECOND);
        advance(2 * SECOND);
        assert!(queue.poll_expired(cx).is_pending());
        advance(SECOND);
        assert!(matches!(queue.poll_expired(cx), Poll::Ready(Some(_))));
        assert!(matches!(queue.poll_expired(cx), Poll::Ready(None)));
    });
}
