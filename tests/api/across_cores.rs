//! Requests between cores. The states of a remote timer are tested in `src/shard/tests.rs` and
//! `src/cross_core/state/tests.rs`, its memory in `tests/memory/remote.rs`.

use std::{
    iter,
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
    time::Duration,
};

use corewheel::{Cancel, Config, PanicPlace, PanicReport, Shard, ShardRef, local_timer};

use crate::support::{
    Counter, HOUR, Log, TICK, WAKE_AT_QUEUED_MESSAGES, assert_ends_soon, call_from_another_thread,
    cancel_all_remotely, cancel_remotely, in_checked_virtual_time, in_virtual_time, manual_shard,
    must_not_run, on_a_thread, on_configured_thread, turn_after, with_counted_wakes,
};

/// The owner resets a remote timer before its admission. No new deadline is before the end of the
/// sleep.
#[test]
fn an_owners_reset_in_a_sleep_does_not_suppress_a_later_wake() {
    with_counted_wakes(|clock, wakes, _| {
        local_timer().add(TICK * 10, || ());
        let sleep = local_timer().prepare_sleep();
        assert_eq!(sleep.timeout(), Some(TICK * 10));
        let unadmitted = call_from_another_thread(|own| own.add(HOUR, must_not_run));
        for delay in [HOUR * 2, TICK * 10, HOUR] {
            assert!(unadmitted.reset(delay));
            assert_eq!(wakes.get(), 0);
        }
        call_from_another_thread(|own| _ = own.add(TICK * 2, || ()));
        assert_eq!(wakes.get(), 1);
        drop(sleep);
        assert_eq!(turn_after(clock, 10).fired, 2);
    });
}

#[test]
fn a_failed_wake_up_is_retried_every_1024_cancels() {
    let [wakes, reports] = [(); 2].map(|()| Counter::default());
    let (called, reported) = (wakes.clone(), reports.callback());
    let fails_twice = move || assert!(called.increment() > 2, "as planned");
    let report = move |panic: &PanicReport<'_>| {
        assert_eq!(panic.place(), PanicPlace::Wake);
        reported();
    };
    on_configured_thread(Config::new().wake_hook(fails_twice).panic_hook(report), |_| {
        let timers: Vec<_> = (0..3_000).map(|_| local_timer().add(HOUR, must_not_run)).collect();
        let sleep = local_timer().prepare_sleep();
        let mut cancelled_count = 0;
        for (cancel_count, woken) in
            [(1, 1), (1_023, 1), (1_024, 2), (2_047, 2), (2_048, 3), (3_000, 3)]
        {
            cancel_all_remotely(&timers[cancelled_count..cancel_count]);
            assert_eq!(wakes.get(), woken, "after {cancel_count} cancels");
            cancelled_count = cancel_count;
        }
        drop(sleep);
        assert_eq!(reports.get(), 2);
    });
}

/// No other timer is due, so a faulty turn could advance past the new deadlines.
#[test]
fn remotely_reset_timers_expire_in_tick_order() {
    let (mut shard, clock) = manual_shard();
    let timers = [0, 1, 2, 3].map(|_| shard.add(TICK * 100, ()));
    clock.advance(TICK);
    shard.turn();
    assert!(shard.next_expired().is_none());
    call_from_another_thread(|_| {
        for (timer, expected_tick) in timers.into_iter().zip([5, 1, 3, 2]) {
            assert!(timer.reset(TICK * expected_tick));
        }
    });
    clock.advance(TICK * 10);
    shard.turn();
    let lateness = iter::from_fn(|| shard.next_expired().map(|expired| expired.lateness()));
    assert!(lateness.eq([9, 8, 7, 5].map(|ticks| TICK * ticks)));
}

#[test]
fn a_remote_reset_to_a_tick_that_a_turn_has_passed_fires_in_the_next_turn() {
    in_virtual_time(|_| {
        let timer = local_timer().add(HOUR, || ());
        local_timer().turn();
        call_from_another_thread(|_| assert!(timer.reset(Duration::ZERO)));
        assert_eq!(local_timer().turn().fired, 1);
    });
}

#[test]
fn remote_closures_run_in_fifo_order() {
    for (count, budget) in
        [(2, 1), (5, 2), (100, 7), (1_024, usize::MAX), (10_000, usize::MAX), (10_000, 100)]
    {
        in_virtual_time(|_| {
            let ran = Log::new();
            let submit = |from: usize| {
                call_from_another_thread(|own| {
                    (from..from + count).for_each(|number| _ = own.run(ran.writer(number)));
                });
            };
            submit(0);
            let _ = local_timer().turn_within(budget);
            submit(count);
            while local_timer().turn_within(budget).behind || local_timer().counts().queued > 0 {}
            assert!(ran.take().into_iter().eq(0..2 * count), "budget {budget}");
        });
    }
}

#[test]
fn pending_is_exact_for_admitted_timers_during_a_sleep() {
    let shard = on_a_thread(|| {
        let shard = local_timer().shard_ref();
        let timers: Vec<_> = (0..5).map(|_| local_timer().add(HOUR, || ())).collect();
        timers[0].cancel();
        local_timer().add_periodic(HOUR, || ());
        local_timer().sleep_with(|_| {
            assert_eq!(on_a_thread(|| shard.pending()), 5);
            assert_eq!(cancel_remotely(timers[1]), Cancel::Cancelled);
            assert_eq!(on_a_thread(|| shard.pending()), 4);
            on_a_thread(|| shard.add(HOUR, || ()));
            assert_eq!(shard.pending(), 4, "the owner has not admitted the new timer");
        });
        local_timer().turn();
        local_timer().sleep_with(|_| assert_eq!(shard.pending(), 5));
        shard
    });
    assert_eq!(shard.pending(), 0, "the thread has ended");
}

// ---- bugs of other systems (`doc/history.md`)

#[test]
fn bug_22_a_remote_add_during_a_turn_fires_later() {
    fn run_again(owner: ShardRef, runs: Counter) {
        let to = owner.clone();
        let callback = move || {
            runs.increment();
            run_again(owner, runs);
        };
        on_a_thread(|| to.add(Duration::ZERO, callback));
    }
    in_checked_virtual_time(|_| {
        let (owner, runs) = (local_timer().shard_ref(), Counter::default());
        let first_runs = runs.clone();
        local_timer().add(Duration::ZERO, move || run_again(owner, first_runs));
        assert_eq!((local_timer().turn().fired, runs.get()), (1, 0));
        for run in 1..100 {
            assert_eq!(local_timer().time_until_next(), Some(Duration::ZERO));
            assert_eq!((local_timer().turn().fired, runs.get()), (1, run));
        }
    });
}

/// Kafka #2195, #8657: two locks taken in opposite orders. Here a callback waits for a mutex. The
/// mutex's holder cancels timers of the callback's wheel and uses other wheels.
#[test]
fn bug_33_a_callback_may_take_the_callers_lock() {
    assert_ends_soon(|| {
        let shared_mutex = Arc::new(Mutex::new(()));
        let (callback_mutex, running) = (Arc::clone(&shared_mutex), Arc::new(Barrier::new(2)));
        let (send, handles) = mpsc::channel();
        let begun = Arc::clone(&running);
        let owner = thread::spawn(move || {
            in_checked_virtual_time(|clock| {
                let run = local_timer().add(TICK, move || {
                    begun.wait();
                    drop(callback_mutex.lock().expect("no panic"));
                });
                let others =
                    [(); WAKE_AT_QUEUED_MESSAGES].map(|()| local_timer().add(HOUR, must_not_run));
                send.send((run, others)).expect("the test waits");
                (turn_after(clock, 1), local_timer().turn())
            })
        });
        let held_lock = shared_mutex.lock().expect("no panic");
        let (run, others) = handles.recv().expect("the timers are added");
        running.wait();
        assert_eq!((run.cancel(), run.is_pending()), (Cancel::Running, false));
        assert!(others.iter().all(|other| other.cancel() == Cancel::Cancelled));
        local_timer().add(TICK, || ());
        let mut shard = Shard::new();
        shard.add(HOUR, ());
        assert_eq!(shard.drain().len(), 1);
        drop(held_lock);
        let (turn, next) = owner.join().expect("no panic");
        assert_eq!((turn.fired, next.collected, next.live), (1, WAKE_AT_QUEUED_MESSAGES, 0));
        assert_eq!(run.cancel(), Cancel::Ended);
    });
}
