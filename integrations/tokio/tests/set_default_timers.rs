//! Futures on timers whose clock is ahead of the system clock, as after a suspension.

use std::{
    pin::pin,
    sync::{LazyLock, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use corewheel::{
    Config, ManualClock,
    future::{Timers, TimersDriver},
};
use corewheel_tokio::time::{
    self, DelayQueue, Duration, Instant,
    MissedTickBehavior::{Burst, Delay, Skip},
};

const SECOND: Duration = Duration::from_secs(1);

/// Calls `test` with a function that advances the clock of all timers and fires the due ones.
fn with_advanced_clock(test: impl FnOnce(&mut dyn FnMut(Duration), &mut Context<'_>)) {
    static TIMERS: LazyLock<Mutex<(ManualClock, TimersDriver)>> = LazyLock::new(|| {
        let clock = ManualClock::new();
        let config = |_| Config::new().clock(&clock);
        let (timers, driver) = Timers::per_worker_with(1, config).expect("a valid config");
        time::set_default_timers(timers).expect("the first use");
        clock.advance(3_600 * SECOND);
        Mutex::new((clock, driver))
    });
    let mut timers = TIMERS.lock().unwrap_or_else(PoisonError::into_inner);
    let (clock, driver) = &mut *timers;
    let mut advance = |by| {
        clock.advance(by);
        driver.turn();
    };
    test(&mut advance, &mut Context::from_waker(Waker::noop()));
}

#[test]
fn a_queue_follows_the_clock_of_its_timers() {
    with_advanced_clock(|advance, cx| {
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

#[test]
fn a_deadline_from_instant_now_follows_the_clock_of_its_timers() {
    with_advanced_clock(|advance, cx| {
        let start = Instant::now();
        let mut sleep = pin!(time::sleep_until(start + 3 * SECOND));
        assert!(sleep.as_mut().poll(cx).is_pending());
        advance(2 * SECOND);
        sleep.as_mut().reset(Instant::now() + 3 * SECOND);
        advance(2 * SECOND);
        assert!(sleep.as_mut().poll(cx).is_pending());
        advance(SECOND);
        assert!(sleep.as_mut().poll(cx).is_ready());
        assert_eq!(start.elapsed(), 5 * SECOND);
    });
}

#[test]
fn an_interval_follows_the_clock_of_its_timers() {
    for (behavior, expected) in [(Burst, [10, 20, 30]), (Delay, [10, 45, 55]), (Skip, [10, 40, 50])]
    {
        with_advanced_clock(|advance, cx| {
            let mut interval = time::interval(10 * SECOND);
            interval.set_missed_tick_behavior(behavior);
            let Poll::Ready(first) = interval.poll_tick(cx) else { panic!("not ready") };
            assert!(interval.poll_tick(cx).is_pending());
            let ticks = [35, 10, 10].map(|wait| {
                advance(wait * SECOND);
                let Poll::Ready(tick) = interval.poll_tick(cx) else { panic!("{behavior:?}") };
                (tick - first).as_secs()
            });
            assert_eq!(ticks, expected, "{behavior:?}");
            interval.reset();
            assert!(interval.poll_tick(cx).is_pending());
            advance(10 * SECOND);
            assert!(interval.poll_tick(cx).is_ready());
        });
    }
}
