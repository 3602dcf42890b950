//! A `DelayQueue` whose timer goes to a wheel with another clock, because the first wheel is full.
#![cfg(any(target_os = "linux", target_os = "android"))]

#[path = "../../../tests/common/polling.rs"]
mod polling;

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
    time::Instant,
};

use corewheel::{Clock, Config, future::Timers};
use corewheel_tokio::time::{self, DelayQueue, Duration};
use polling::Poller;

const HOUR: Duration = Duration::from_secs(3_600);

/// The second clock is 100 h behind, and then advances faster than the first.
#[test]
fn a_queue_waits_again_after_a_sleep_on_another_clock() {
    static HOURS: AtomicU32 = AtomicU32::new(0);
    let origin = Instant::now().checked_sub(100 * HOUR).expect("a valid instant");
    let behind = Clock::from_fn(origin, || HOURS.load(SeqCst) * HOUR);
    let configs = [Config::new().clock(Clock::boot_time()).limit(1), Config::new().clock(behind)];
    let (timers, mut driver) =
        Timers::per_worker_with(2, |index| configs[index].clone()).expect("valid configs");
    timers.shards()[0].add(HOUR, || ());
    time::set_default_timers(timers).expect("the first use");
    let mut poll_and_advance = || {
        let mut queue = DelayQueue::new();
        queue.insert((), HOUR);
        for _ in 0..3 {
            let poller = Poller::new();
            let poll = queue.poll_expired(&mut poller.context());
            HOURS.fetch_add(2, SeqCst);
            driver.turn();
            assert!(poll.is_ready() || poller.wake_count() > 0, "not woken");
        }
    };
    // The futures of one of the two threads use the full wheel first.
    for _ in 0..2 {
        thread::scope(|scope| scope.spawn(&mut poll_and_advance).join().expect("no panic"));
    }
}
