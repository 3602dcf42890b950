//! Cases of the protocol between cores: references, wake-ups, order and drops when
//! one thread adds, moves and cancels timers of another. They run in virtual time, except the
//! waits. `src/shard/tests.rs` and `src/cross_core/state/tests.rs` have the states of a remote
//! timer's node and word, `memory/remote.rs` its memory.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use corewheel::{AddErrorReason, Cancel, Config, TimerHandle, local_timer};

use crate::{
    common::{TICK, in_virtual_time, on_a_thread},
    support::{
        Counter, HOUR, configured, counting_wakes, elsewhere, manual_shard, never, turn_after,
    },
};

fn cancel_all(timers: &[TimerHandle]) {
    assert!(timers.iter().all(|timer| timer.cancel() == Cancel::Cancelled));
}

// ---- whom a reference reaches

/// A reference to a thread that was full when it ended.
#[test]
fn a_thread_that_has_ended_says_so_and_not_that_it_was_full() {
    let limited = |config: Config| config.limit(1);
    let ended = configured(limited, |_| {
        local_timer().add(HOUR, never);
        local_timer().turn();
        elsewhere(|own| {
            assert!(
                own.try_add(TICK, never).is_err_and(|error| error.reason() == AddErrorReason::Full)
            );
        });
        local_timer().shard_ref()
    });
    assert!(
        ended.try_add(TICK, never).is_err_and(|error| error.reason() == AddErrorReason::ShutDown)
    );
}

// ---- what wakes a sleeper

/// The owner may move a timer that it has not admitted after it has announced a sleep. This ends
/// the sleep like a reset of any other timer, and the next sleep can be ended again.
#[test]
fn the_owners_reset_of_a_timer_that_it_has_not_seen_ends_its_sleep() {
    counting_wakes(|clock, wakes, _| {
        for _ in 0..3 {
            let sleep = local_timer().prepare_sleep();
            assert_eq!(sleep.timeout(), None);
            let unseen = elsewhere(|own| own.add(Duration::MAX, || ()));
            assert!(unseen.reset(HOUR));
            assert_eq!(wakes.take(), 1);
            drop(sleep);
            assert!(unseen.reset(TICK));
            assert_eq!(wakes.take(), 0, "it is awake");
            assert_eq!(turn_after(clock, 1).fired, 1);
        }
    });
}

/// If the reset is to a moment after the end of the sleep, the next urgent request ends the sleep.
#[test]
fn the_owners_reset_of_a_timer_that_it_has_not_seen_leaves_later_wakes_alone() {
    counting_wakes(|clock, wakes, _| {
        local_timer().add(TICK * 10, || ());
        let sleep = local_timer().prepare_sleep();
        assert_eq!(sleep.timeout(), Some(TICK * 10));
        let unseen = elsewhere(|own| own.add(HOUR, never));
        for delay in [HOUR * 2, TICK * 10, HOUR] {
            assert!(unseen.reset(delay));
            assert_eq!(wakes.get(), 0);
        }
        elsewhere(|own| _ = own.add(TICK * 2, || ()));
        assert_eq!(wakes.get(), 1);
        drop(sleep);
        assert_eq!(turn_after(clock, 10).fired, 2);
    });
}

/// Runs `test` with a wake hook that counts its calls, and panics in the first two.
fn with_a_hook_that_fails_twice(test: impl FnOnce(&Counter) + Send) {
    let wakes = Counter::default();
    let called = wakes.clone();
    let hook = move || assert!(called.increment() > 2, "as planned");
    configured(|config| config.on_wake(hook), |_| test(&wakes));
}

/// The next request tries again.
#[test]
fn a_wake_hook_that_panics_does_not_lose_the_next_wake() {
    with_a_hook_that_fails_twice(|wakes| {
        let sleep = local_timer().prepare_sleep();
        assert_eq!(sleep.timeout(), None);
        for (delay, woken) in [(5, 1), (4, 2), (4, 3), (1, 3)] {
            elsewhere(|own| _ = own.add(TICK * delay, never));
            assert_eq!(wakes.get(), woken, "what has woken it is enough");
        }
        drop(sleep);
        assert_eq!(local_timer().counts().panicked, 2);
    });
}

/// The first of many cancels wakes. If that fails, the 1,024th does, and then the 2,048th.
#[test]
fn a_debt_whose_wake_up_failed_wakes_later() {
    with_a_hook_that_fails_twice(|wakes| {
        let timers: Vec<_> = (0..3_000).map(|_| local_timer().add(HOUR, never)).collect();
        let sleep = local_timer().prepare_sleep();
        let mut done = 0;
        for (until, woken) in [(1, 1), (1_023, 1), (1_024, 2), (2_047, 2), (2_048, 3), (3_000, 3)] {
            elsewhere(|_| cancel_all(&timers[done..until]));
            assert_eq!(wakes.get(), woken, "after {until}");
            done = until;
        }
        drop(sleep);
    });
}

// ---- floods

/// A deadline request behind a flood of cancels is consumed in time, also with a small budget and
/// in the middle of the flood.
#[test]
fn a_flood_of_cancels_holds_up_no_deadline() {
    in_virtual_time(|clock| {
        let flood: Vec<_> = (0..20_000).map(|_| local_timer().add(HOUR, never)).collect();
        let (early, late) = flood.split_at(10_000);
        let moved = local_timer().add(HOUR, || ());
        elsewhere(|own| {
            own.run(|| ());
            own.add(TICK, || ());
            assert!(moved.reset(TICK));
            cancel_all(early);
        });
        clock.advance(TICK);
        let turn = local_timer().turn_within(8);
        assert_eq!((turn.fired, turn.behind), (3, true));
        elsewhere(|own| {
            cancel_all(late);
            own.run(|| ());
        });
        assert_eq!(local_timer().turn_within(4).fired, 1);
        while local_timer().turn().behind {}
        assert_eq!((local_timer().len(), local_timer().counts().cancelled), (0, 20_000));
    });
}

/// Under a steady flow of urgent messages, cancelled timers are still collected. Each kind gets
/// half of the budget; the larger half of an odd one alternates.
#[test]
fn cancelled_timers_go_however_much_else_is_asked() {
    for budget in [1, 2, 3, 8] {
        in_virtual_time(|_| {
            let timers: Vec<_> = (0..50 * budget).map(|_| local_timer().add(HOUR, never)).collect();
            elsewhere(|_| cancel_all(&timers));
            for _ in 0..50 {
                let mut met = (0, 0);
                for _ in 0..2 {
                    elsewhere(|own| (0..8).for_each(|_| _ = own.run(|| ())));
                    let turn = local_timer().turn_within(budget);
                    assert_eq!(turn.fired + turn.collected, budget);
                    met = (met.0 + turn.fired, met.1 + turn.collected);
                }
                assert_eq!(met, (budget, budget));
            }
            assert_eq!(local_timer().counts().cancelled, 50 * budget as u64);
        });
    }
}

/// A turn whose budget is used up by the backlog of the one before still knows of new messages.
#[test]
fn what_a_budget_leaves_is_not_slept_over() {
    for (budget, first, then) in [(1, 2, 1), (1, 1, 1), (8, 16, 3), (usize::MAX, 2_048, 100)] {
        for moves in [false, true] {
            in_virtual_time(|_| {
                let timers: Vec<_> =
                    (0..first + then).map(|_| local_timer().add(HOUR, never)).collect();
                let ask = |timers: &[TimerHandle]| {
                    let moved = |timer: &TimerHandle| timer.reset(HOUR * 2);
                    let all_moved = || moves && timers.iter().all(moved);
                    elsewhere(|_| {
                        if !all_moved() {
                            cancel_all(timers);
                        }
                    });
                };
                ask(&timers[..first]);
                assert_eq!(local_timer().turn_within(budget).behind, first > 1_024.min(budget));
                ask(&timers[first..]);
                while local_timer().counts().queued > 0 {
                    let is_left = local_timer().turn_within(budget).behind;
                    assert_eq!(is_left, local_timer().counts().queued > 0, "{budget}");
                    assert_eq!(is_left, local_timer().time_until_next() == Some(Duration::ZERO));
                }
            });
        }
    }
}

/// Logs its name when it is dropped.
struct NotesItsDrop(Arc<Mutex<Vec<usize>>>, usize);

impl Drop for NotesItsDrop {
    fn drop(&mut self) {
        self.0.lock().expect("sound").push(self.1);
    }
}

/// Due timers fire before the destructors of cancelled timers run, with or without other requests.
#[test]
fn what_has_been_cancelled_is_dropped_after_what_is_due_has_run() {
    for asks in [0, 1, 5] {
        in_virtual_time(|clock| {
            let noted: Arc<Mutex<Vec<usize>>> = Arc::default();
            let cancelled = [100, 101].map(|name| {
                let held = NotesItsDrop(Arc::clone(&noted), name);
                local_timer().add(HOUR, move || drop(held))
            });
            local_timer().add(TICK * 2, notes(&noted, asks + 1));
            elsewhere(|own| {
                cancel_all(&cancelled);
                (1..=asks).for_each(|name| _ = own.run(notes(&noted, name)));
            });
            let turn = turn_after(clock, 2);
            assert_eq!((turn.fired, turn.collected), (asks + 1, 2));
            assert_eq!(
                *noted.lock().expect("sound"),
                (1..=asks + 1).chain([101, 100]).collect::<Vec<_>>()
            );
        });
    }
}

// ---- order

/// It holds for any number of timers: timers that share a tick are linked once.
#[test]
fn a_crowd_from_elsewhere_wakes_nobody_before_it_is_due() {
    in_virtual_time(|clock| {
        elsewhere(|own| (0..1_000).for_each(|_| _ = own.add(Duration::from_secs(30), || ())));
        local_timer().turn();
        let mut wakes = Vec::new();
        while let Some(timeout) = local_timer().time_until_next() {
            clock.advance(timeout);
            wakes.push(local_timer().turn().fired);
        }
        assert_eq!((wakes, clock.elapsed()), (vec![1_000], Duration::from_secs(30)));
    });
}

// ---- in order

/// Returns a callback that logs its name.
fn notes(ran: &Arc<Mutex<Vec<usize>>>, name: usize) -> impl FnOnce() + Send + 'static {
    let ran = Arc::clone(ran);
    move || ran.lock().expect("sound").push(name)
}

/// Order holds for any thread that requests a deadline, and any order of the requests.
#[test]
fn what_is_due_fires_in_the_order_of_its_ticks() {
    in_virtual_time(|clock| {
        let ran = Arc::default();
        local_timer().turn();
        let moved =
            [local_timer().add(HOUR, notes(&ran, 2)), local_timer().add(TICK * 3, notes(&ran, 7))];
        for at in [8, 4] {
            local_timer().add(TICK * at, notes(&ran, at as usize));
        }
        elsewhere(|own| {
            for at in [5, 1, 6, 3] {
                own.add(TICK * at, notes(&ran, at as usize));
            }
            own.run(notes(&ran, 0));
            assert!(moved[0].reset(TICK * 2) && moved[1].reset(TICK * 7));
        });
        clock.advance(TICK * 10);
        assert_eq!((local_timer().turn().fired, local_timer().len()), (9, 0));
        assert_eq!(*ran.lock().expect("sound"), (0..9).collect::<Vec<_>>());
    });
}

/// Order holds for a shard, whose timers other threads can move. It also holds if nothing else is
/// due and the wheel could skip ahead.
#[test]
fn what_is_due_is_handed_out_in_the_order_of_its_ticks() {
    let (mut shard, clock) = manual_shard();
    let timers = [0, 1, 2, 3].map(|_| shard.add(TICK * 100, ()));
    clock.advance(TICK);
    shard.turn();
    assert!(shard.next_expired().is_none(), "nor will anything be for long");
    elsewhere(|_| {
        for (timer, at) in timers.into_iter().zip([5, 1, 3, 2]) {
            assert!(timer.reset(TICK * at));
        }
    });
    clock.advance(TICK * 10);
    shard.turn();
    let mut ticks = Vec::new();
    while let Some(expired) = shard.next_expired() {
        ticks.push(expired.lateness().as_nanos() / TICK.as_nanos());
    }
    assert_eq!(ticks, [9, 8, 7, 5]);
}

/// Order holds for more closures than one turn runs, with a budget, and while more are submitted.
#[test]
fn what_one_thread_asks_to_be_run_runs_in_the_order_in_which_it_asks() {
    for (asks, budget) in
        [(2, 1), (5, 2), (100, 7), (1_024, usize::MAX), (10_000, usize::MAX), (10_000, 100)]
    {
        in_virtual_time(|_| {
            let ran = Arc::default();
            let ask = |from: usize| {
                elsewhere(|own| {
                    (from..from + asks).for_each(|name| _ = own.run(notes(&ran, name)));
                });
            };
            ask(0);
            let _ = local_timer().turn_within(budget);
            ask(asks);
            while local_timer().turn_within(budget).behind || local_timer().counts().queued > 0 {}
            assert_eq!(
                *ran.lock().expect("sound"),
                (0..2 * asks).collect::<Vec<_>>(),
                "{budget} in a turn"
            );
        });
    }
}

// ---- cancelling

/// No other thread has the handle yet, so the owner need not wait for one.
#[test]
fn the_owners_cancel_of_a_timer_that_it_has_not_seen_drops_the_callback_at_once() {
    in_virtual_time(|clock| {
        let captured = Arc::new(());
        for moved in [false, true] {
            let held = Arc::clone(&captured);
            let unseen = elsewhere(|own| own.add(TICK, move || drop(held)));
            assert!(!moved || on_a_thread(|| unseen.reset(TICK * 2)));
            assert_eq!((unseen.cancel(), Arc::strong_count(&captured)), (Cancel::Cancelled, 1));
            assert_eq!(
                (unseen.cancel(), unseen.is_pending(), unseen.reset(TICK)),
                (Cancel::Ended, false, false)
            );
            let before = local_timer().counts();
            assert_eq!((before.added, before.live, before.held), (before.cancelled, 0, 0));
            let turn = turn_after(clock, 5);
            assert_eq!((turn.fired, turn.collected, local_timer().counts().queued), (0, 0, 0));
            assert_eq!(local_timer().counts().cancelled, before.cancelled, "it is counted once");
        }
    });
}

/// A periodic callback that is cancelled while it runs is dropped after that run, and `cancel_wait`
/// waits for the drop too.
#[test]
fn cancel_wait_returns_after_what_a_periodic_callback_captured_is_dropped() {
    struct SlowToDrop(Arc<AtomicBool>);
    impl Drop for SlowToDrop {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(50));
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let is_dropped = Arc::new(AtomicBool::new(false));
    let captured = SlowToDrop(Arc::clone(&is_dropped));
    let ((running, runs), (stop, stopped)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let (sender, handles) = mpsc::channel::<TimerHandle>();
    let owner = thread::spawn(move || {
        let handle = local_timer().add_periodic(TICK, move || {
            let SlowToDrop(_) = &captured;
            running.send(()).expect("it is waited for");
            stopped.recv().expect("it is told");
        });
        sender.send(handle).expect("it is waited for");
        while !local_timer().is_empty() {
            local_timer().turn();
        }
    });
    let handle = handles.recv().expect("it is added");
    runs.recv().expect("it runs");
    // This run is the last, whenever the wait begins.
    assert_eq!(handle.cancel(), Cancel::Running);
    stop.send(()).expect("it waits");
    assert!(handle.cancel_wait().is_ok());
    assert!(is_dropped.load(Ordering::SeqCst), "who has waited may free what was captured");
    owner.join().expect("no panic");
}
