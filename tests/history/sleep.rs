//! Sleeps that last too long.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use corewheel::{Cancel, TimerHandle, local_timer};

use crate::{
    Counter, HOUR, RESETS, TOO_LONG, WAKE_BACKLOG, add_debt, add_elsewhere, cancel_elsewhere,
    cancel_on_a_thread,
    common::{TICK, on_a_thread, operations, seeded},
    counter, counting_wakes, on_a_core, turn_after, turn_twice,
};

/// tokio #6683: the next wake-up was computed from one wheel while an earlier timer came to
/// another. Here the earlier timer comes from the owner, or from another core.
#[test]
fn bug_02_an_earlier_timer_did_not_shorten_the_sleep() {
    for is_elsewhere in [false, true] {
        counting_wakes(|clock, wakes, _| {
            let runs = Counter::default();
            for delay in (1..=20).map(|ticks| TICK * ticks).rev() {
                let sleep = local_timer().prepare_sleep();
                assert!(sleep.timeout().is_none_or(|timeout| timeout > delay), "too long a sleep");
                if is_elsewhere {
                    add_elsewhere(&local_timer().shard_ref(), delay, runs.callback());
                } else {
                    local_timer().add(delay, runs.callback());
                }
                assert_eq!(wakes.take(), 1, "so it is woken");
                drop(sleep);
                local_timer().turn();
            }
            for ran in 1..=20 {
                assert_eq!(local_timer().prepare_sleep().timeout(), Some(TICK));
                turn_after(clock, 1);
                assert_eq!(runs.get(), ran);
            }
        });
    }
}

/// tokio-util #6752 (the last one removed), #8274 (reset to the present), #8320 (all removed): the
/// task was not woken. Each change comes under an announced sleep, and so does a new timer after
/// it.
#[test]
fn bug_08_a_change_of_the_timers_left_the_sleeper_asleep() {
    type Change = fn([TimerHandle; 2]);
    let changes: [(Change, usize, usize); 4] = [
        (|[first, _]| assert!(first.reset(Duration::ZERO)), 1, 3),
        (|[_, last]| assert!(last.reset(TICK)), 1, 3),
        (|[_, last]| assert_eq!(last.cancel(), Cancel::Cancelled), 0, 2),
        (|both| assert_eq!(both.map(TimerHandle::cancel), [Cancel::Cancelled; 2]), 0, 1),
    ];
    for (change, wakes_it, expected) in changes {
        counting_wakes(|clock, wakes, _| {
            let (runs, run) = counter();
            let handles = [10, 20].map(|ticks| local_timer().add(TICK * ticks, run.clone()));
            let sleep = local_timer().prepare_sleep();
            assert_eq!(sleep.timeout(), Some(TICK * 10));
            change(handles);
            assert_eq!(wakes.take(), wakes_it);
            local_timer().add(TICK * 2, run);
            assert_eq!(wakes.take(), 1 - wakes_it, "one wake is enough");
            drop(sleep);
            local_timer().turn();
            while let Some(timeout) = local_timer().prepare_sleep().timeout() {
                assert!(timeout <= TICK * 18);
                clock.advance(timeout);
                assert!(local_timer().turn().fired > 0, "a timer was due");
            }
            assert_eq!(runs.get(), expected);
        });
    }
}

/// tokio-util #8274, Go #47762: a reset to the present and one that shortens wake the sleeper, from
/// any thread; one that lengthens lets no timer run early.
#[test]
fn bug_08_and_bug_29_a_reset_to_earlier_was_ignored() {
    for delay in [0, 1, 500, 200_000].map(|ticks| TICK * ticks) {
        for (reset, is_periodic) in RESETS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
            counting_wakes(|clock, wakes, _| {
                let (timer, (runs, run)) = (local_timer(), counter());
                let handle =
                    if is_periodic { timer.add_periodic(HOUR, run) } else { timer.add(HOUR, run) };
                let sleep = timer.prepare_sleep();
                assert!(reset(handle, delay * 2) && reset(handle, delay));
                assert!(wakes.take() > 0, "the sleeper would come too late");
                drop(sleep);
                assert!(timer.prepare_sleep().timeout().is_some_and(|timeout| timeout <= delay));
                timer.turn();
                clock.advance(delay);
                turn_twice();
                assert_eq!((runs.get(), handle.is_pending()), (1, is_periodic));
                assert_eq!(reset(handle, HOUR * 3), is_periodic);
                clock.advance(HOUR * 2);
                let is_cancelled = cancel_elsewhere(handle) == Cancel::Cancelled;
                assert_eq!((turn_twice(), is_cancelled), (0, is_periodic));
            });
        }
    }
}

/// pingora #983: the flag was read before the waiter was registered, and a flag that was set in
/// between woke no thread. Here a request comes just before the announcement and just after it.
/// Loom explores the order of the two: `a_debt_from_another_core_is_never_slept_through`.
#[test]
fn bug_10_a_request_between_the_look_and_the_wait_woke_nobody() {
    counting_wakes(|_, wakes, _| {
        cancel_on_a_thread(add_debt()).join().expect("all were cancelled");
        assert_eq!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO), "it was before");
        assert_eq!((local_timer().turn().collected, wakes.take()), (WAKE_BACKLOG, 0));
        let handles = add_debt();
        let sleep = local_timer().prepare_sleep();
        assert!(sleep.timeout() > Some(Duration::ZERO));
        cancel_on_a_thread(handles).join().expect("all were cancelled");
        assert_eq!(wakes.take(), 1, "it was after");
        drop(sleep);
    });
}

/// Kafka #4704 (KAFKA-6653): a thread that could not get the lock gave up without completing, and
/// no thread checked again. Here only the default wake-up tries a lock and gives up. Eight threads
/// cancel the sleeper's timers again and again.
#[test]
fn bug_32_who_found_the_lock_taken_left_and_nobody_looked_again() {
    const THREADS: usize = 8;
    on_a_thread(|| {
        let senders: Vec<_> = (0..THREADS)
            .map(|_| {
                let (sender, handles) = mpsc::channel::<Vec<TimerHandle>>();
                thread::spawn(move || {
                    let cancelled = |handle: TimerHandle| handle.cancel() == Cancel::Cancelled;
                    assert!(handles.into_iter().flatten().all(cancelled));
                });
                sender
            })
            .collect();
        for _ in 0..operations(8).min(400) {
            let debts: Vec<_> =
                senders.iter().map(|_| (0..3).flat_map(|_| add_debt()).collect()).collect();
            for (sender, handles) in senders.iter().zip(debts) {
                sender.send(handles).expect("it listens");
            }
            let begun = Instant::now();
            while !local_timer().is_empty() {
                // As long as a debt can come together.
                if local_timer().len() >= WAKE_BACKLOG {
                    let sleep = local_timer().prepare_sleep();
                    thread::park_timeout(sleep.timeout().unwrap_or(TOO_LONG).min(TOO_LONG));
                }
                assert!(begun.elapsed() < TOO_LONG, "nobody woke it: {:?}", local_timer().counts());
                local_timer().turn();
            }
        }
    });
}

/// Erlang/OTP #4127: the flag that requests a wake-up was cleared just before the sleep, and the
/// scheduler slept for ever. The races are in `loom-tests/tests/sleep.rs`.
#[test]
fn bug_35_a_wake_up_that_came_before_the_sleep_was_forgotten() {
    on_a_thread(|| {
        let handles = add_debt();
        let sleep = local_timer().prepare_sleep();
        cancel_on_a_thread(handles).join().expect("all were cancelled");
        let begun = Instant::now();
        thread::park_timeout(sleep.timeout().expect("timers are pending").min(TOO_LONG));
        drop(sleep);
        assert!(begun.elapsed() < TOO_LONG, "it was forgotten");
        assert_eq!(local_timer().turn().collected, WAKE_BACKLOG);
    });
}

/// embassy #3758, #6528, #3672: a deadline passed, or another alarm was set, between computing the
/// next deadline and setting the alarm. The alarm never came, and all timers hung. Here time passes
/// at every step of a loop that also adds.
#[test]
fn bug_36_a_deadline_that_passed_before_the_alarm_was_set_stopped_everything() {
    seeded(0..operations(20).min(500), |random| {
        let mut pauses: Vec<_> = (0..1_000).map(|_| random.u32(..30) * random.u32(..2)).collect();
        on_a_core(|clock| {
            let mut pause = || clock.advance(TICK * pauses.pop().unwrap_or(0) / 2);
            let (runs, run) = counter();
            local_timer().add_periodic(TICK * 3, run.clone());
            for added in 1..300 {
                let late = clock.clone();
                let counts = run.clone();
                local_timer().add(TICK * (added % 20), move || {
                    counts();
                    late.advance(TICK * (added % 7));
                });
                pause();
                let sleep = local_timer().prepare_sleep();
                pause();
                let slept = sleep.timeout().expect("a periodic timer is pending");
                assert!(slept <= TICK * 3, "asleep for {slept:?}");
                clock.advance(slept);
                drop(sleep);
                let before = runs.get();
                local_timer().turn();
                assert!(runs.get() > before, "what it has slept for is due");
                pause();
            }
        });
    });
}
