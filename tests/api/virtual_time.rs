//! `VirtualTime`: the clock advances when all tasks are idle, and a seed decides the task order.

use std::{future, sync::Arc, task::Poll, time::Duration};

use corewheel::{
    Cancel, Shard, When,
    future::{MissedTickBehavior, Timers, VirtualTime, interval, sleep, timeout},
    local_timer,
    purgatory::{Completion, PurgatoryGroup},
};

use crate::support::{
    Counter, Log, OnDrop, OpRecord, Poller, add_waiting, on_a_thread, panic_message, panics,
    poll_with, waker, waker_whose_clones_panic_in_drop,
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn there_is_at_least_one_core() {
    assert_eq!(VirtualTime::with_cores(0, 0).shards().len(), 1);
}

#[test]
fn advance_stops_at_each_deadline() {
    let (time, moments) = (VirtualTime::new(), Log::new());
    let (clock, seen) = (time.clock().clone(), moments.clone());
    let _ticks = time.spawn(move || async move {
        let mut interval = interval(SECOND * 10);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            interval.tick().await;
            seen.write(clock.elapsed().as_secs());
        }
    });
    time.advance(SECOND * 35);
    assert_eq!(moments.take(), [0, 10, 20, 30]);
    assert_eq!((time.elapsed(), time.task_count()), (SECOND * 35, 1));
}

#[test]
fn run_returns_when_the_remaining_tasks_wait_forever() {
    let time = VirtualTime::new();
    let task = time.spawn(|| async {
        local_timer().add(SECOND * 100, || ());
        sleep(SECOND).await;
    });
    assert_eq!((time.run(), task.is_finished(), time.elapsed()), (0, true, SECOND));
    let _never = time.spawn(future::pending::<()>);
    let _longest = time.spawn(|| sleep(Duration::MAX));
    assert_eq!(time.run(), 2);
    time.advance(Duration::MAX);
    assert_eq!(time.run(), 2);
}

fn panic_of<F: Future<Output = ()> + 'static>(task: fn() -> F) -> String {
    panic_message(|| VirtualTime::new().block_on(task))
}

#[test]
fn block_on_and_spawn_local_report_errors_by_panics() {
    assert!(panic_of(future::pending::<()>).contains("would wait for ever"));
    assert!(panic_of(|| sleep(Duration::MAX)).contains("would wait for ever"));
    let panics = || async {
        sleep(SECOND).await;
        panic!("as planned");
    };
    assert_eq!(panic_of(panics), "as planned");
    let outside = panic_message(|| VirtualTime::spawn_local(async {}));
    assert!(outside.contains("not in a task of a `VirtualTime`"), "{outside}");
}

#[test]
fn panics_of_destructors_of_unfinished_tasks_are_contained() {
    let time = VirtualTime::new();
    let dropped = Counter::default();
    for _ in 0..3 {
        let dropped = dropped.clone();
        time.spawn(move || async move {
            let _bomb = OnDrop(move || {
                dropped.increment();
                panic!("as planned");
            });
            future::pending::<()>().await;
        });
    }
    assert_eq!(time.run(), 3);
    drop(time);
    assert_eq!(dropped.get(), 3);
}

#[test]
fn other_tasks_continue_after_a_panic() {
    let time = VirtualTime::new();
    let panicked = time.spawn(|| async {
        sleep(SECOND).await;
        panic!("as planned");
    });
    let other = time.spawn(|| sleep(SECOND * 2));
    assert!(panics(|| time.run()));
    assert_eq!((time.task_count(), time.run()), (1, 0));
    assert!(other.is_finished() && !panicked.is_finished());
    let _waits = time.spawn(|| panicked);
    assert_eq!(time.run(), 1, "the handle is never ready");
}

#[test]
fn a_panicking_waker_of_a_join_handle_is_contained() {
    let time = VirtualTime::new();
    let mut task = time.spawn(|| sleep(SECOND));
    assert!(poll_with(&waker(|| panic!("as planned")), &mut task).is_pending());
    assert_eq!((time.run(), task.is_finished()), (0, true));
}

/// The second poll replaces the waker of the first. The third poll needs no waker.
#[test]
fn a_panicking_drop_of_a_join_handles_waker_is_contained() {
    on_a_thread(|| {
        assert!(local_timer().is_empty());
        let (time, waker) = (VirtualTime::new(), waker_whose_clones_panic_in_drop());
        let mut task = time.spawn(|| async { 7 });
        assert!(poll_with(&waker, &mut task).is_pending());
        assert!(Poller::new().poll(&mut task).is_pending());
        assert_eq!(local_timer().counts().panicked, 1);
        assert_eq!(time.run(), 0);
        assert_eq!(poll_with(&waker, &mut task), Poll::Ready(7));
        assert_eq!(local_timer().counts().panicked, 2);
    });
}

/// The task's future outlives its panicking poll, so its destructor runs after the poll.
#[test]
fn a_task_whose_poll_and_destructor_panic_does_not_abort() {
    let time = VirtualTime::new();
    let other = time.spawn(|| sleep(SECOND));
    let _panics = time.spawn(|| {
        let dropped = OnDrop(|| panic!("as planned in `drop`"));
        future::poll_fn(move |_| -> Poll<()> {
            let _captured = &dropped;
            panic!("as planned in `poll`")
        })
    });
    assert_eq!(panic_message(|| time.run()), "as planned in `poll`");
    assert_eq!((time.task_count(), time.run()), (1, 0));
    assert!(other.is_finished());
    assert_eq!(time.shards()[0].metrics().counts.panicked, 1);
}

/// The task's sleeps are dropped before `_len_logger`, while the wheel of its core still exists.
#[test]
fn unfinished_tasks_are_dropped_on_their_core() {
    let (time, seen) = (VirtualTime::new(), Log::new());
    let inside = seen.clone();
    let _left = time.spawn(move || async move {
        let _len_logger = OnDrop(move || inside.write(local_timer().len()));
        let mut waits = sleep(SECOND);
        let twice = async { future::poll_fn(|cx| waits.poll_elapsed(cx)).await };
        let _ = timeout(SECOND, twice).await;
    });
    time.run_until_stalled();
    drop(time);
    assert_eq!(seen.take(), [0]);
}

#[test]
fn run_until_stalled_delivers_purgatory_events_to_other_cores() {
    for seed in 0..50 {
        let time = VirtualTime::with_cores(2, seed);
        let (group, seen) = (PurgatoryGroup::partitioned_by(|&key: &usize| key), OpRecord::new());
        for core in 0..2 {
            let (group, shards, seen) = (group.clone(), time.shards().to_vec(), Arc::clone(&seen));
            let _task = time.spawn_on(core, move || {
                let purgatory = group.join(core, &shards);
                async move {
                    if core == 1 {
                        add_waiting(&purgatory, seen.op(), [1], 100_000);
                    } else {
                        sleep(SECOND).await;
                        seen.meet_condition();
                        purgatory.notify(&1);
                    }
                    sleep(SECOND * 200).await;
                }
            });
        }
        time.run_until_stalled();
        time.clock().advance(SECOND);
        time.run_until_stalled();
        assert_eq!(seen.completions(), [Completion::Condition], "seed {seed}");
    }
}

#[test]
fn a_remotely_cancelled_timer_is_dropped_before_time_advances() {
    for seed in 0..20 {
        let (time, dropped) = (VirtualTime::with_cores(2, seed), Log::new());
        let (clock, written) = (time.clock().clone(), dropped.clone());
        let note = OnDrop(move || written.write(clock.elapsed()));
        let cancelled = time.shards()[1].add(SECOND * 100, move || drop(note));
        time.shards()[0].add(SECOND, move || assert_eq!(cancelled.cancel(), Cancel::Cancelled));
        time.advance(SECOND * 50);
        assert_eq!(dropped.take(), [SECOND], "seed {seed}");
    }
}

/// Returns the order in which nine tasks on three cores finish their rounds. Each task also adds
/// timers to the next core.
fn order_of(seed: u64) -> Vec<(usize, usize, u32)> {
    let time = VirtualTime::with_cores(3, seed);
    let (timers, trace) = (Timers::new(time.shards()), Log::new());
    for (core, task) in (0..9).map(|at| (at / 3, at % 3)) {
        let (trace, timers) = (trace.clone(), timers.clone());
        let next = time.shards()[(core + 1) % 3].clone();
        let _task = time.spawn_on(core, move || async move {
            for round in 0..3 {
                sleep(SECOND).await;
                let other = next.add(SECOND / 2, || ());
                timers.sleep(SECOND).await;
                assert_eq!(other.cancel(), Cancel::Ended);
                trace.write((core, task, round));
            }
        });
    }
    assert_eq!((time.run(), time.elapsed()), (0, SECOND * 6));
    trace.take()
}

#[test]
fn the_seed_alone_decides_the_order() {
    let seeds = if cfg!(miri) { 2 } else { 20 };
    let orders: Vec<_> = (0..seeds).map(order_of).collect();
    assert_eq!(orders, (0..seeds).map(order_of).collect::<Vec<_>>());
    let mut different = orders.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), orders.len());
    for mut order in orders {
        assert!(order.is_sorted_by_key(|&(_, _, round)| round));
        order.sort_unstable();
        order.dedup();
        assert_eq!(order.len(), 27);
    }
}

#[test]
fn the_seed_decides_the_fractions_of_spread() {
    let time_left = |seed| {
        let time = VirtualTime::with_cores(1, seed);
        time.block_on(|| async {
            let timer = local_timer().add(When::after(SECOND).spread(SECOND), || ());
            local_timer().time_left(timer).expect("the timer is live")
        })
    };
    assert_eq!(time_left(1), time_left(1));
    assert_ne!(time_left(1), time_left(2));
}

/// Earlier runs change the numbers of later shards and threads.
#[test]
fn a_run_does_not_depend_on_earlier_runs() {
    let run = || {
        let time = VirtualTime::with_cores(3, 7);
        let (timers, trace) = (Timers::new(&time.shards()[..2]), Log::new());
        for task in 0..6 {
            let (timers, trace, start) = (timers.clone(), trace.clone(), time.clock().now());
            time.spawn_on(2, move || async move {
                for _ in 0..5 {
                    timers.sleep(SECOND).await;
                    trace.write((task, local_timer().now() - start));
                    let spread = trace.clone();
                    let note = move || spread.write((task + 10, local_timer().now() - start));
                    local_timer().add(When::after(Duration::ZERO).spread(SECOND), note);
                }
                sleep(SECOND).await;
            });
        }
        assert_eq!(time.run(), 0);
        trace.take()
    };
    let first = run();
    assert_eq!(first.len(), 60);
    for _ in 0..8 {
        let _shard = Shard::<()>::new();
        assert_eq!(run(), first);
    }
}

/// The calling thread creates the sleeps, and so chooses their wheel.
#[test]
fn a_run_does_not_depend_on_the_calling_thread() {
    let run = || {
        let (time, trace) = (VirtualTime::with_cores(2, 3), Log::new());
        let timers = Timers::new(time.shards());
        for (core, task) in (0..6).map(|at| (at / 3, at % 3)) {
            let (sleep, trace) = (timers.sleep(SECOND), trace.clone());
            time.spawn_on(core, move || async move {
                sleep.await;
                trace.write((core, task));
            });
        }
        assert_eq!(time.run(), 0);
        trace.take()
    };
    let first = on_a_thread(run);
    assert_eq!(first.len(), 6);
    (0..8).for_each(|_| assert_eq!(on_a_thread(run), first));
}
