//! pingora-timeout.

use std::{
    thread,
    time::{Duration, Instant},
};

use corewheel::local_timer;

use crate::{
    DEBT, TOO_LONG, add_debt, cancel_on_a_thread,
    common::{on_a_thread, operations},
    on_a_core_that_sleeps,
};

/// #983: the flag was looked at before the waiter was registered, and what was set in between woke nobody. (The order
/// of the two is what `loom-tests/tests/sleep.rs` explores: `a_debt_from_another_core_is_never_slept_through`.) Here
/// a request comes just before the announcement, just after it, and at any moment.
#[test]
fn bug_10_a_request_between_the_look_and_the_wait_woke_nobody() {
    on_a_core_that_sleeps(|_, wakes| {
        cancel_on_a_thread(add_debt()).join().expect("all were cancelled");
        assert_eq!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO), "it was before");
        assert_eq!((local_timer().turn().collected, wakes.take()), (DEBT, 0));
        let handles = add_debt();
        let sleep = local_timer().prepare_sleep();
        assert!(sleep.timeout() > Some(Duration::ZERO));
        cancel_on_a_thread(handles).join().expect("all were cancelled");
        assert_eq!(wakes.take(), 1, "it was after");
        drop(sleep);
    });
    on_a_thread(|| {
        for round in 0..operations(200).min(2_000) {
            let handles = add_debt();
            let canceller = cancel_on_a_thread(handles);
            // Elsewhere in each round.
            (0..round * 20).for_each(|_| std::hint::spin_loop());
            let begun = Instant::now();
            while local_timer().counts().held < DEBT as u64 {
                let sleep = local_timer().prepare_sleep();
                thread::park_timeout(sleep.timeout().expect("timers are pending").min(TOO_LONG));
                assert!(begun.elapsed() < TOO_LONG, "nobody woke it");
            }
            canceller.join().expect("all were cancelled");
            assert_eq!(local_timer().turn().collected, DEBT);
        }
    });
}
