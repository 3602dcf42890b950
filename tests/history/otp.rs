//! Erlang/OTP's scheduler.

use std::{
    thread,
    time::{Duration, Instant},
};

use corewheel::local_timer;

use crate::{
    DEBT, TOO_LONG, add_debt, cancel_on_a_thread,
    common::{TICK, on_a_thread},
    on_a_core_that_sleeps,
};

/// #4127: the flag that asks for a wake-up was cleared just before the sleep, and the scheduler slept for ever. (The
/// races are in `loom-tests/tests/sleep.rs`.)
#[test]
fn bug_35_a_wake_up_that_came_before_the_sleep_was_forgotten() {
    // What comes after the announcement and before the sleep ends it at once.
    on_a_thread(|| {
        let handles = add_debt();
        let sleep = local_timer().prepare_sleep();
        cancel_on_a_thread(handles).join().expect("all were cancelled");
        let begun = Instant::now();
        thread::park_timeout(sleep.timeout().expect("timers are pending").min(TOO_LONG));
        drop(sleep);
        assert!(begun.elapsed() < TOO_LONG, "it was forgotten");
        assert_eq!(local_timer().turn().collected, DEBT);
    });
    // The end of an older announcement, a turn, a second announcement: none of them takes the flag away.
    on_a_core_that_sleeps(|clock, wakes| {
        let handles = add_debt();
        let mut sleep = local_timer().prepare_sleep();
        for _ in 0..3 {
            assert!(sleep.timeout() > Some(TICK));
            sleep = local_timer().prepare_sleep();
            assert_eq!(local_timer().turn().fired, 0);
        }
        clock.advance(TICK);
        cancel_on_a_thread(handles).join().expect("all were cancelled");
        assert_eq!(wakes.take(), 1);
        // The same debt does not keep it awake, and does not let it sleep before it has been taken in.
        drop(sleep);
        assert_eq!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO));
        assert_eq!(
            (local_timer().turn().collected, local_timer().prepare_sleep().timeout()),
            (DEBT, None)
        );
    });
}
