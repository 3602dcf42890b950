//! The same bugs where another core does more than cancel: it adds to a core's timers, resets them, and waits for a
//! callback to end. By system and number, as in `doc/history.md`.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{Cancel, ManualClock, ShardRef, TimerHandle, local_timer};

use crate::{
    Drops, HOUR, TOO_LONG, cancel_elsewhere,
    common::{TICK, in_virtual_time, on_a_thread, operations},
    counter, ends_soon, never, on_a_core, on_a_core_that_sleeps, shard, turn_after,
};

fn add_elsewhere(
    to: &ShardRef,
    delay: Duration,
    callback: impl FnOnce() + Send + 'static,
) -> TimerHandle {
    on_a_thread(|| to.add(delay, callback))
}

fn reset_elsewhere(handle: TimerHandle, delay: Duration) -> bool {
    on_a_thread(|| handle.reset(delay))
}

/// A callback for any core that counts its runs.
fn counts(runs: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let runs = Arc::clone(runs);
    move || _ = runs.fetch_add(1, Ordering::SeqCst)
}

/// What came from elsewhere may take a turn to be taken in.
fn turn_twice() -> usize {
    local_timer().turn().fired + local_timer().turn().fired
}

/// The handle works at once: a timer that is cancelled before its owner has seen it leaves nothing behind.
#[test]
fn tokio_bug_01_a_cancel_before_the_timer_was_linked_leaked_it() {
    on_a_core(|clock| {
        for cancel in crate::CANCELS {
            let drops = Drops::default();
            let held = drops.one();
            let handle = add_elsewhere(&local_timer().shard_ref(), TICK, move || {
                let _held = held;
                never();
            });
            assert!(handle.is_pending());
            assert_eq!((cancel(handle), cancel(handle)), (Cancel::Cancelled, Cancel::Ended));
            assert_eq!(turn_twice(), 0);
            assert_eq!(
                (drops.count(), local_timer().len(), local_timer().counts().held),
                (1, 0, 0)
            );
            clock.advance(TICK * 2);
            assert_eq!((turn_twice(), local_timer().next_deadline()), (0, None));
        }
    });
}

/// A timer from elsewhere that is due before the sleeper would wake ends the sleep.
#[test]
fn tokio_bug_02_an_earlier_timer_did_not_shorten_the_sleep() {
    on_a_core_that_sleeps(|clock, wakes| {
        let runs = Arc::new(AtomicUsize::new(0));
        for delay in (1..=20).rev() {
            let sleep = local_timer().prepare_sleep();
            assert!(
                sleep.timeout().is_none_or(|timeout| timeout > TICK * delay),
                "it would sleep too long"
            );
            add_elsewhere(&local_timer().shard_ref(), TICK * delay, counts(&runs));
            assert_eq!(wakes.take(), 1, "so it is woken");
            drop(sleep);
            local_timer().turn();
        }
        for ran in 1..=20 {
            assert_eq!(local_timer().prepare_sleep().timeout(), Some(TICK));
            turn_after(clock, 1);
            assert_eq!(runs.load(Ordering::SeqCst), ran);
        }
    });
    // On real threads: what is added at any moment of falling asleep is run in time.
    on_a_thread(|| {
        let (to, adds) = mpsc::channel::<(ShardRef, Arc<AtomicUsize>)>();
        let adder = thread::spawn(move || {
            for (to, runs) in adds {
                to.add(Duration::from_micros(10), counts(&runs));
            }
        });
        local_timer().add(HOUR, never);
        let runs = Arc::new(AtomicUsize::new(0));
        for round in 1..=usize::try_from(operations(500).min(5_000)).expect("few") {
            to.send((local_timer().shard_ref(), Arc::clone(&runs))).expect("it listens");
            let begun = Instant::now();
            while runs.load(Ordering::SeqCst) < round {
                let sleep = local_timer().prepare_sleep();
                thread::park_timeout(sleep.timeout().unwrap_or(TOO_LONG).min(TOO_LONG));
                assert!(begun.elapsed() < TOO_LONG, "nobody woke it");
                local_timer().turn();
            }
        }
        drop(to);
        adder.join().expect("it ends");
    });
}

/// A reset to the present, and one that shortens, wake the sleeper; one that lengthens lets no timer run early.
#[test]
fn tokio_util_bug_08_and_go_bug_29_a_reset_to_earlier_was_ignored() {
    for delay in [Duration::ZERO, TICK, TICK * 500, TICK * 200_000] {
        for is_periodic in [false, true] {
            on_a_core_that_sleeps(|clock, wakes| {
                let (runs, run) = counter();
                let timer = local_timer();
                let handle =
                    if is_periodic { timer.add_periodic(HOUR, run) } else { timer.add(HOUR, run) };
                let sleep = timer.prepare_sleep();
                assert!(reset_elsewhere(handle, delay * 2) && reset_elsewhere(handle, delay));
                assert!(wakes.take() > 0, "the sleeper would come too late");
                drop(sleep);
                assert!(timer.prepare_sleep().timeout().is_some_and(|timeout| timeout <= delay));
                timer.turn();
                clock.advance(delay);
                turn_twice();
                assert_eq!((runs.get(), handle.is_pending()), (1, is_periodic));
                assert_eq!(reset_elsewhere(handle, HOUR * 3), is_periodic);
                clock.advance(HOUR * 2);
                assert_eq!(
                    (turn_twice(), cancel_elsewhere(handle) == Cancel::Cancelled),
                    (0, is_periodic)
                );
            });
        }
    }
}

/// Each timer is added, reset and cancelled from three other threads at once, while its owner turns.
#[test]
fn netty_bug_13_a_cancelled_timer_was_linked_again() {
    let (drops, timers) = (Drops::default(), operations(2_000).min(20_000));
    on_a_thread(|| {
        let (owner, runs) = (local_timer().shard_ref(), Arc::new(AtomicUsize::new(0)));
        let is_over = AtomicBool::new(false);
        let cancelled = thread::scope(|scope| {
            let all = scope.spawn(|| {
                let cancelled = (0..timers).filter(|round| {
                    let (held, run) = (drops.one(), counts(&runs));
                    let handle = owner.add(Duration::from_micros(round % 3 * 500), move || {
                        let _held = held;
                        run();
                    });
                    thread::scope(|scope| {
                        scope.spawn(|| _ = handle.reset(Duration::from_micros(300)));
                        scope
                            .spawn(|| handle.cancel() == Cancel::Cancelled)
                            .join()
                            .expect("no panic")
                    })
                });
                let cancelled = cancelled.count();
                is_over.store(true, Ordering::SeqCst);
                cancelled
            });
            while !is_over.load(Ordering::SeqCst) {
                local_timer().turn();
            }
            all.join().expect("no panic")
        });
        let begun = Instant::now();
        while !local_timer().is_empty() || local_timer().counts().added < timers {
            local_timer().turn();
            assert!(begun.elapsed() < TOO_LONG, "a timer is left: {:?}", local_timer().counts());
        }
        assert_eq!((cancelled + runs.load(Ordering::SeqCst)) as u64, timers);
        assert_eq!(local_timer().counts().cancelled, cancelled as u64);
    });
    assert_eq!(drops.count() as u64, timers);
}

/// While the first of a due batch runs, another core resets others of the batch.
#[test]
fn dpdk_bug_16_another_core_changed_the_batch_while_its_first_ran() {
    for delay in [0, 1, 5, 200_000].map(|ticks| TICK * ticks) {
        on_a_core(|clock| {
            let (runs, run) = counter();
            let handles = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..20 {
                let (run, all) = (run.clone(), Rc::clone(&handles));
                let handle = local_timer().add(TICK, move || {
                    run();
                    let others: Vec<TimerHandle> = all.take();
                    let others: Vec<_> =
                        others.into_iter().filter(|other| other.is_pending()).collect();
                    on_a_thread(|| {
                        assert!(others.iter().step_by(2).all(|other| other.reset(delay)))
                    });
                });
                handles.borrow_mut().push(handle);
            }
            let turn = turn_after(clock, 1);
            // What is moved to the present may still run in this turn.
            assert!(
                delay.is_zero() || (turn.fired, turn.live, runs.get()) == (10, 10, 10),
                "those that were moved wait"
            );
            clock.advance(delay);
            turn_twice();
            assert_eq!((runs.get(), local_timer().len()), (20, 0));
            assert_eq!(local_timer().counts().fired, 20);
        });
    }
}

/// Very short timers from elsewhere, while the owner does nothing but turn: none is lost.
#[test]
fn dpdk_bug_17_a_timer_found_before_it_was_marked_was_dropped() {
    on_a_thread(|| {
        let (owner, runs) = (local_timer().shard_ref(), Arc::new(AtomicUsize::new(0)));
        let timers = usize::try_from(operations(20_000).min(200_000)).expect("few");
        let adder = {
            let runs = Arc::clone(&runs);
            thread::spawn(move || {
                (0..timers).for_each(|_| _ = owner.add(Duration::ZERO, counts(&runs)))
            })
        };
        let begun = Instant::now();
        while runs.load(Ordering::SeqCst) < timers {
            local_timer().turn();
            assert!(begun.elapsed() < TOO_LONG * 3, "lost: {:?}", local_timer().counts());
        }
        adder.join().expect("it ends");
        assert_eq!((local_timer().counts().fired, local_timer().len()), (timers as u64, 0));
    });
}

/// Waiting for a callback to end: from elsewhere it lasts until then; from within the callback, or anywhere in its
/// owner's turn, it would last for ever, and is refused.
#[test]
fn dpdk_bug_20_and_kafka_bug_33_waiting_for_ones_own_callback_stood_still() {
    ends_soon(|| {
        on_a_core(|clock| {
            let own = Rc::new(Cell::new(None::<TimerHandle>));
            let handle = Rc::clone(&own);
            own.set(Some(local_timer().add(TICK, move || {
                assert!(handle.get().expect("it was added").cancel_wait().is_err());
            })));
            assert_eq!(turn_after(clock, 1).fired, 1);
            assert_eq!(own.get().and_then(|handle| handle.cancel_wait().ok()), Some(Cancel::Ended));
            let pending = local_timer().add(TICK, never);
            assert_eq!(pending.cancel_wait().ok(), Some(Cancel::Cancelled));
        });
        let (running, ended) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
        let (begun, ending) = (Arc::clone(&running), Arc::clone(&ended));
        let (send, handles) = mpsc::channel();
        let owner = thread::spawn(move || {
            in_virtual_time(|clock| {
                let handle = local_timer().add(TICK, move || {
                    begun.wait();
                    thread::sleep(Duration::from_millis(20));
                    ending.store(true, Ordering::SeqCst);
                });
                send.send(handle).expect("somebody waits");
                turn_after(clock, 1).fired
            })
        });
        let handle: TimerHandle = handles.recv().expect("it was added");
        running.wait();
        assert!(
            handle.cancel_wait().is_ok() && ended.load(Ordering::SeqCst),
            "it has waited for the end"
        );
        assert_eq!(owner.join().expect("no assertion failed"), 1);
    });
}

/// What another thread adds while a pass runs its callbacks fires in a later one.
#[test]
fn folly_bug_22_a_timer_added_by_a_callback_ran_in_the_same_pass() {
    fn again(owner: ShardRef, runs: Arc<AtomicUsize>) {
        let to = owner.clone();
        add_elsewhere(&to, Duration::ZERO, move || {
            runs.fetch_add(1, Ordering::SeqCst);
            again(owner, runs);
        });
    }
    on_a_core(|_: &ManualClock| {
        let runs = Arc::new(AtomicUsize::new(0));
        again(local_timer().shard_ref(), Arc::clone(&runs));
        for _ in 0..100 {
            let before = runs.load(Ordering::SeqCst);
            assert!(local_timer().turn().fired <= 1);
            assert!(runs.load(Ordering::SeqCst) <= before + 1);
        }
        assert!(runs.load(Ordering::SeqCst) >= 30);
    });
}

/// Timers for a core that ends at that moment: each runs, or is dropped with the core, or comes back; and all that
/// captured something let go of it.
#[test]
fn go_bug_28_and_glommio_bug_41_timers_of_a_retired_processor_were_lost() {
    for _ in 0..operations(200).min(2_000) {
        let drops = Drops::default();
        let (send, owners) = mpsc::channel::<ShardRef>();
        let owner = thread::spawn(move || {
            in_virtual_time(|_| {
                send.send(local_timer().shard_ref()).expect("somebody waits");
                (0..20).for_each(|_| _ = local_timer().turn());
                local_timer().counts()
            })
        });
        let to = owners.recv().expect("it lives");
        let (mut handles, mut refused) = (Vec::new(), 0);
        for _ in 0..200 {
            let held = drops.one();
            match to.try_add(Duration::ZERO, move || drop(held)) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    refused += 1;
                    // The callback is there, and may be run here.
                    (error.into_inner())();
                }
            }
        }
        owner.join().expect("no panic");
        assert_eq!(handles.len() + refused, 200);
        assert!(handles.iter().all(|handle| handle.cancel() == Cancel::Ended));
        assert_eq!(drops.count(), 200, "a callback leaked");
    }
}

/// Timers that another core has moved, and the owner has not heard of it when it ends, come back with their new
/// deadlines.
#[test]
fn go_bug_28_timers_of_a_retired_processor_came_back_with_their_old_deadlines() {
    let clock = ManualClock::new();
    let (begun, mut retired) = (clock.now(), shard(&clock));
    let handles: Vec<_> = (0..100).map(|id| retired.add(TICK * (1 + id), id)).collect();
    clock.advance(TICK * 20);
    on_a_thread(|| assert!(handles.iter().step_by(3).all(|handle| handle.reset(HOUR))));
    let pending = retired.drain();
    assert_eq!(pending.len(), 100);
    for (deadline, id) in pending {
        let due = if id % 3 == 0 { TICK * 20 + HOUR } else { TICK * (1 + id) };
        assert_eq!(deadline - begun, due, "timer {id}");
    }
}

/// A cancel that said yes, then a reset that says yes; as `go::bug_30`, from two other threads in turn.
#[test]
fn go_bug_30_stop_and_reset_gave_answers_that_contradict() {
    on_a_core(|clock| {
        for steps in 0..256_u32 {
            let (runs, run) = counter();
            let handle = local_timer().add(TICK * 2, run);
            let (mut due_in, mut ran) = (Some(2), 0);
            for step in [steps % 4, steps / 4 % 4, steps / 16 % 4, steps / 64] {
                match step {
                    0 => {
                        let expected =
                            if due_in.take().is_some() { Cancel::Cancelled } else { Cancel::Ended };
                        assert_eq!(cancel_elsewhere(handle), expected, "{steps:b}");
                    }
                    1 => {
                        assert_eq!(
                            reset_elsewhere(handle, TICK * 2),
                            due_in.is_some(),
                            "{steps:b}"
                        );
                        due_in = due_in.map(|_| 2);
                    }
                    2 => {
                        assert_eq!(handle.reset(TICK * 2), due_in.is_some(), "{steps:b}");
                        due_in = due_in.map(|_| 2);
                    }
                    _ => {
                        due_in = due_in.map(|ticks| ticks - 1);
                        ran += u32::from(due_in == Some(0));
                        due_in = due_in.filter(|&ticks| ticks > 0);
                        clock.advance(TICK);
                        turn_twice();
                    }
                }
                assert_eq!((runs.get(), handle.is_pending()), (ran, due_in.is_some()), "{steps:b}");
            }
            handle.cancel();
            turn_twice();
            assert_eq!((runs.get(), local_timer().len()), (ran, 0), "{steps:b}");
        }
    });
}
