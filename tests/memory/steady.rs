//! In the steady state, no thread allocates or frees memory (P4).

use std::{
    future,
    hint::black_box,
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};

use corewheel::{
    Cancel, Config, ManualClock, ReusableTimer, TimerHandle,
    future::{Timers, interval, sleep, timeout},
    local_timer,
    purgatory::{Purgatory, PurgatoryGroup},
};

use crate::{
    TICK, allocator_calls, cancel_all, common::turn_after, for_each_kind, lockstep::Lockstep,
    must_not_run, operation::NeverCompletes, polling::Poller, run_alone, run_alone_in_virtual_time,
    small_callback,
};

/// Number of other live timers, which do not fire during a test.
const LIVE: u32 = 3_000;
const ROUNDS: u32 = 5_000;

/// Repeats `step` as a warm-up, and asserts that further repetitions neither allocate nor free.
fn assert_steady(what: &str, mut step: impl FnMut(u32)) {
    (0..ROUNDS).for_each(&mut step);
    let call_counts = allocator_calls(|| (ROUNDS..2 * ROUNDS).for_each(&mut step));
    assert_eq!(call_counts, (0, 0), "allocations and frees of {what}");
}

/// Runs `run_on_other_thread` on another thread and `run_on_this_thread` on this one, in
/// alternation. Asserts that neither allocates or frees in the second half of the rounds.
fn assert_steady_on_two_threads(
    what: &str,
    rounds: u32,
    mut run_on_other_thread: impl FnMut(u32) + Send,
    mut run_on_this_thread: impl FnMut(u32),
) {
    let (round_sender, round_receiver) = mpsc::channel();
    let (count_sender, count_receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in round_receiver {
                count_sender
                    .send(allocator_calls(|| run_on_other_thread(round)))
                    .expect("the owner listens");
            }
        });
        for round in 0..rounds {
            round_sender.send(round).expect("the other thread listens");
            let call_counts = [
                count_receiver.recv().expect("the other thread answers"),
                allocator_calls(|| run_on_this_thread(round)),
            ];
            let is_steady = round < rounds / 2 || call_counts == [(0, 0); 2];
            assert!(is_steady, "{what}: {call_counts:?} there and here, round {round}");
        }
        drop(round_sender);
    });
}

fn with_live_timers(test: impl FnOnce(&ManualClock) + Send) {
    run_alone_in_virtual_time(|clock| {
        for id in 1..=LIVE {
            local_timer().add(TICK * 10_000_000 * id, must_not_run);
        }
        test(clock);
    });
}

/// Returns a pseudorandom delay of 1 to `ticks_max` ticks.
fn delay(round: u32, ticks_max: u32) -> Duration {
    TICK * (1 + round.wrapping_mul(0x9E37_79B9) % ticks_max)
}

#[test]
fn rearming_a_reusable_timer_allocates_nothing() {
    with_live_timers(|clock| {
        let timer = ReusableTimer::new(|_| ());
        assert_steady("arming, moving, firing and cancelling", |round| {
            timer.arm(delay(round, 3));
            timer.arm(TICK);
            assert_eq!(turn_after(clock, 1).fired, 1);
            timer.arm(delay(round, 3));
            timer.cancel();
        });
    });
}

#[test]
fn operations_of_the_owner_allocate_nothing() {
    type Round = fn(&ManualClock, u32);
    let rounds: [(&str, Round); 7] = [
        ("add and cancel", |_, round| {
            let handle = local_timer().add(delay(round, 100_000), || {});
            assert_eq!(handle.cancel(), Cancel::Cancelled);
        }),
        ("add and fire", |clock, round| {
            local_timer().add(delay(round, 50), || {});
            local_timer().add(clock.now() + delay(round, 20), || {});
            _ = local_timer().try_add(delay(round, 10), || {});
            black_box(turn_after(clock, 1));
        }),
        // Some timers are cascaded before they fire.
        ("add and fire far ahead", |clock, round| {
            local_timer().add(delay(round, 200_000), || {});
            black_box(turn_after(clock, 100));
        }),
        ("add_local", |clock, round| {
            let cancelled = local_timer().add_local(delay(round, 1_000), || {});
            local_timer().add_local(delay(round, 20), || {});
            assert_eq!(cancelled.cancel(), Cancel::Cancelled);
            black_box(turn_after(clock, 1));
        }),
        ("add_periodic", |_, round| {
            let handle = local_timer().add_periodic(delay(round, 100), || {});
            assert_eq!(handle.cancel(), Cancel::Cancelled);
        }),
        ("queries, sleeps and idle turns", |clock, _| {
            let timer = local_timer();
            black_box((timer.next_deadline(), timer.time_until_next(), timer.len()));
            black_box((timer.counts(), timer.now()));
            drop(black_box(timer.prepare_sleep()));
            turn_after(clock, 1);
        }),
        ("callbacks that capture 32 bytes", |clock, round| {
            let captured = [u64::from(round); 4];
            let callback = move || _ = black_box(captured);
            assert_eq!(size_of_val(&callback), 32);
            local_timer().add(TICK, callback);
            local_timer().add_local(TICK, callback).cancel();
            let periodic = local_timer().add_periodic(TICK, callback);
            assert_eq!(turn_after(clock, 1).fired, 2);
            periodic.cancel();
        }),
    ];
    for (what, round) in rounds {
        with_live_timers(|clock| assert_steady(what, |number| round(clock, number)));
    }
    with_live_timers(|clock| {
        let mut handles = [None::<TimerHandle>; 500];
        assert_steady("add and cancel of 500 at a time, with turns", |round| {
            let place = &mut handles[round as usize % 500];
            if let Some(handle) = place.replace(local_timer().add(delay(round, 100_000), || {})) {
                assert_eq!(handle.cancel(), Cancel::Cancelled);
            }
            turn_after(clock, 0);
        });
    });
    with_live_timers(|clock| {
        let (own, private) = (local_timer().add(TICK, || {}), local_timer().add_local(TICK, || {}));
        assert_steady("reset", |round| {
            assert!(own.reset(delay(round, 100_000) + TICK));
            assert!(private.reset(delay(round + 1, 100) + TICK));
            assert_eq!(turn_after(clock, 1).fired, 0);
        });
    });
    with_live_timers(|clock| {
        for period in 1..=20 {
            local_timer().add_periodic(TICK * period / 2, || {});
        }
        assert_steady("periodic runs", |_| assert!(turn_after(clock, 1).fired > 0));
    });
}

/// Each batch fills more than one page.
#[test]
fn equal_batches_allocate_nothing() {
    const BATCH: u32 = 5_000;
    let _alone = run_alone();
    for_each_kind(|make| {
        let mut timers = make();
        for live in 0..6 {
            let mut handles = Vec::with_capacity(BATCH as usize);
            let mut round = |number: u32| {
                handles.extend((0..BATCH).map(|one| timers.add(100 + (number * one) % 30_000)));
                assert!(handles.drain(..).all(|handle| timers.cancel(handle)));
                timers.pass(1, usize::MAX);
                timers.prepare_sleep();
            };
            (0..10).for_each(&mut round);
            assert_eq!(allocator_calls(|| (10..20).for_each(&mut round)), (0, 0), "{live} live");
            (0..1_000).for_each(|_| _ = timers.add(10_000_000));
        }
    });
}

/// Shows that the allocator of these tests counts allocations: a closure of 33 bytes is boxed.
#[test]
fn a_callback_that_captures_33_bytes_is_boxed_once() {
    with_live_timers(|clock| {
        let captured = [1_u8; 33];
        let callback = move || _ = black_box(captured);
        assert_eq!(size_of_val(&callback), 33);
        assert_eq!(allocator_calls(|| _ = local_timer().add(TICK, callback)), (1, 0));
        assert_eq!(allocator_calls(|| assert_eq!(turn_after(clock, 1).fired, 1)), (0, 1));
        let cancelled = || assert!(local_timer().add(TICK, callback).cancel().is_cancelled());
        assert_eq!(allocator_calls(cancelled), (1, 1));
    });
}

#[test]
fn a_remote_cancel_allocates_nothing_on_either_thread() {
    const BATCH: usize = 100;
    with_live_timers(|_| {
        let add = || [(); BATCH].map(|()| local_timer().add(TICK, must_not_run));
        let handles = Mutex::new(add());
        assert_steady_on_two_threads(
            "cancel",
            200,
            |_| cancel_all(&*handles.lock().expect("sound")),
            |_| {
                assert_eq!(local_timer().turn().collected, BATCH);
                *handles.lock().expect("sound") = add();
            },
        );
    });
}

/// The timers of two rounds need more pages than a shard keeps as spares, but no turn frees pages.
#[test]
fn remote_adds_and_their_firing_allocate_nothing() {
    run_alone_in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        let add = |_| (0..5_000).for_each(|_| _ = shard.add(TICK * 2, small_callback()));
        assert_steady_on_two_threads("add and fire thousands", 400, add, |_| {
            _ = crate::turn_after(clock, 1);
        });
    });
}

#[test]
fn remote_resets_and_cancels_allocate_nothing() {
    run_alone_in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        let mut waiting: [Option<TimerHandle>; 300] = [None; 300];
        let change = |round: u32| {
            for one in 0..10 {
                let place = &mut waiting[(round * 10 + one) as usize % 300];
                if let Some(handle) = place.take() {
                    assert!(handle.reset(TICK * 500) && handle.is_pending());
                    // Every other timer is cancelled before the owner sees the reset.
                    assert!(one % 2 == 0 || handle.cancel() == Cancel::Cancelled);
                }
                *place = Some(shard.add(TICK * 400, small_callback()));
            }
        };
        assert_steady_on_two_threads("add, move and cancel", 2_000, change, |_| {
            _ = crate::turn_after(clock, 1);
        });
    });
}

#[test]
fn sleeps_timeouts_and_intervals_allocate_nothing() {
    with_live_timers(|clock| {
        let pollers = [Poller::new(), Poller::new()];
        assert_steady("sleeps", |round| {
            let mut sleeps = [20, 1_000, 100_000].map(|most| sleep(delay(round, most)));
            for poller in &pollers {
                assert!(sleeps.iter_mut().all(|sleep| poller.poll(sleep).is_pending()));
            }
            let [mut fires, mut moves, goes] = sleeps;
            moves.reset_after(delay(round, 2_000));
            drop(goes);
            black_box(turn_after(clock, 20));
            assert!(pollers[0].poll(&mut fires).is_ready());
        });
        assert_steady("timeouts", |round| {
            assert!(pollers[0].poll(&mut timeout(TICK, future::ready(round))).is_ready());
            let mut waits = timeout(delay(round, 1_000), future::pending::<()>());
            assert!(pollers[0].poll(&mut waits).is_pending());
        });
        let mut interval = interval(TICK * 3);
        assert_steady("an interval", |_| {
            black_box(interval.poll_tick(&mut pollers[0].context()).is_ready());
            black_box(turn_after(clock, 1));
        });
    });
}

#[test]
fn sleeps_on_another_threads_wheel_allocate_nothing() {
    const BATCH: u32 = 50;
    with_live_timers(|clock| {
        let timers = Timers::new(&[local_timer().shard_ref()]);
        let pollers = [Poller::new(), Poller::new()];
        let mut sleeps = Vec::with_capacity(2 * BATCH as usize);
        let run_on_other_thread = |round: u32| {
            assert!(sleeps.iter_mut().all(|sleep| pollers[0].poll(sleep).is_ready()));
            sleeps.clear();
            for number in 0..BATCH {
                let [mut fires, mut goes] =
                    [20, 2_000].map(|most| timers.sleep(delay(round * BATCH + number, most)));
                assert!(pollers[0].poll(&mut fires).is_pending());
                assert!(pollers[0].poll(&mut goes).is_pending());
                assert!(pollers[1].poll(&mut fires).is_pending());
                sleeps.push(fires);
            }
        };
        assert_steady_on_two_threads("sleeps", 400, run_on_other_thread, |_| {
            turn_after(clock, 0);
            turn_after(clock, 20);
        });
    });
}

#[test]
fn sleeps_on_worker_wheels_allocate_nothing() {
    with_live_timers(|clock| {
        let config = |_| Config::new().clock(clock);
        let (timers, mut driver) = Timers::per_worker_with(1, config).expect("valid");
        let poller = Poller::new();
        assert_steady("sleeps on worker wheels", |round| {
            let [mut fires, mut goes] = [20, 2_000].map(|most| timers.sleep(delay(round, most)));
            assert!(poller.poll(&mut fires).is_pending() && poller.poll(&mut goes).is_pending());
            drop(goes);
            clock.advance(TICK * 20);
            driver.turn();
            assert!(poller.poll(&mut fires).is_ready());
        });
    });
}

/// Two cores of a group notify each other, and reuse the batches that they have read.
#[test]
fn events_for_another_core_allocate_nothing() {
    let _alone = run_alone();
    let cores: Lockstep<Option<Purgatory<usize, NeverCompletes>>> = Lockstep::start(2);
    let group = PurgatoryGroup::partitioned_by(|&key: &usize| key);
    for core in 0..2 {
        let (group, shards) = (group.clone(), cores.shards.clone());
        cores.run_on(core, move |own| *own = Some(group.join(core, &shards)));
    }
    for round in 0..2 * ROUNDS {
        for core in 0..2 {
            let call_counts = cores.run_on(core, move |own| {
                let own = own.as_ref().expect("the core has joined");
                allocator_calls(|| {
                    own.notify(&(1 - core));
                    local_timer().turn();
                })
            });
            assert!(
                round < ROUNDS || call_counts == (0, 0),
                "{call_counts:?} on {core}, round {round}"
            );
        }
    }
}
