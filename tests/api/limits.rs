//! `Config::limit`: how many timers may be live, exactly on the own core, and as documented for what comes from elsewhere.
//! What is refused comes back as it was.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use corewheel::{
    AddError, AddErrorReason, Cancel, Config, ManualClock, Shard, ShardRef, TimerHandle,
    local_timer,
};

use crate::common::{TICK, on_a_thread, operations};

fn never() {
    unreachable!("this callback must not run");
}

/// Runs `test` on a thread whose timer takes so many timers, in virtual time.
fn limited<R: Send>(limit: usize, test: impl FnOnce(&ManualClock) -> R + Send) -> R {
    let clock = ManualClock::new();
    let config = Config::new().tick(TICK).clock(&clock).limit(limit);
    on_a_thread(|| {
        config.install().expect("a fresh thread");
        test(&clock)
    })
}

/// Fills this thread's timer with so many, which are due in as many ticks as there are before them, and one.
fn fill(timers: u32) -> Vec<TimerHandle> {
    (1..=timers).map(|ticks| local_timer().add(TICK * ticks, || {})).collect()
}

/// Nobody tells others of it again before the sleep is over.
#[test]
fn room_that_the_owner_makes_after_it_has_announced_its_sleep_is_there_at_once() {
    limited(5, |_| {
        let (timers, shard) = (fill(5), local_timer().shard_ref());
        let sleep = local_timer().prepare_sleep();
        for timer in timers {
            assert_eq!(timer.cancel(), Cancel::Cancelled);
        }
        let add = || (0..5).flat_map(|_| shard.try_add(TICK, || ())).count();
        assert_eq!(on_a_thread(add), 5);
        drop(sleep);
    });
}

/// A callback that is refused comes back by value: it can be called, and is dropped once.
fn assert_full(shard: Option<&ShardRef>) {
    let captured = Arc::new(AtomicUsize::new(0));
    let callback = {
        let captured = Arc::clone(&captured);
        move || _ = captured.fetch_add(1, Ordering::Relaxed)
    };
    let added = match shard {
        Some(shard) => shard.try_add(TICK, callback),
        None => local_timer().try_add(TICK, callback),
    };
    let error = added.expect_err("it is full");
    assert_eq!((error.reason(), Arc::strong_count(&captured)), (AddErrorReason::Full, 2));
    error.into_inner()();
    assert_eq!((captured.load(Ordering::Relaxed), Arc::strong_count(&captured)), (1, 1));
    let add = || match shard {
        Some(shard) => shard.add(TICK, never),
        None => local_timer().add(TICK, never),
    };
    assert!(catch_unwind(AssertUnwindSafe(add)).is_err(), "`add` panics");
}

fn elsewhere<R: Send>(ask: impl FnOnce(&ShardRef) -> R + Send) -> R {
    let shard = local_timer().shard_ref();
    on_a_thread(|| ask(&shard))
}

/// How many of so many are let in from elsewhere.
fn let_in(of: usize) -> usize {
    elsewhere(|shard| (0..of).filter(|_| shard.try_add(TICK, || {}).is_ok()).count())
}

// ---- the own core

#[test]
fn the_own_core_keeps_to_the_limit_exactly() {
    for limit in [1, 3, 600, 1_100] {
        limited(limit as usize, |clock| {
            let handles = fill(limit);
            assert_eq!(local_timer().len(), limit as usize);
            assert_full(None);
            assert_full(Some(&local_timer().shard_ref()));
            assert!(catch_unwind(|| local_timer().add_local(TICK, never)).is_err());
            assert!(catch_unwind(|| local_timer().add_periodic(TICK, never)).is_err());
            // One goes, one may come.
            assert_eq!(handles[0].cancel(), Cancel::Cancelled);
            assert!(local_timer().try_add(TICK, || {}).is_ok());
            assert_full(None);
            clock.advance(TICK);
            assert_eq!(local_timer().turn().fired, 1);
            assert!(local_timer().try_add(TICK, || {}).is_ok());
            assert_full(None);
            assert_eq!((local_timer().len(), local_timer().counts().panicked), (limit as usize, 0));
        });
    }
}

#[test]
fn a_reset_needs_no_room() {
    limited(2, |_| {
        let handles = fill(2);
        assert!(handles[0].reset(TICK) && elsewhere(|_| handles[1].reset(TICK)));
        assert_full(None);
    });
}

#[test]
fn a_periodic_timer_counts_once_through_its_runs() {
    limited(2, |clock| {
        let periodic = local_timer().add_periodic(TICK, || {});
        for _ in 0..5 {
            clock.advance(TICK);
            assert_eq!(local_timer().turn().fired, 1);
            let other = local_timer().add(TICK, never);
            assert_full(None);
            assert_eq!(other.cancel(), Cancel::Cancelled);
        }
        assert_eq!(periodic.cancel(), Cancel::Cancelled);
        fill(2);
        assert_full(None);
    });
}

/// Inside a callback its own timer has ended: there is room for the next one.
#[test]
fn a_callback_finds_the_room_of_its_own_timer() {
    limited(1, |clock| {
        local_timer().add(TICK, || assert!(local_timer().try_add(TICK, || {}).is_ok()));
        clock.advance(TICK);
        assert_eq!((local_timer().turn().fired, local_timer().len()), (1, 1));
        assert_eq!(local_timer().counts().panicked, 0);
    });
}

/// Who was cancelled elsewhere is live until the owner knows.
#[test]
fn a_held_timer_counts_until_the_next_turn() {
    limited(2, |_| {
        let handles = fill(2);
        assert_eq!(elsewhere(|_| handles[0].cancel()), Cancel::Cancelled);
        assert_full(None);
        assert_eq!(local_timer().turn().collected, 1);
        assert!(local_timer().try_add(TICK, || {}).is_ok());
        assert_full(None);
    });
}

#[test]
fn a_shard_of_payloads_keeps_to_the_limit_too() {
    let mut shard = Shard::with_config(Config::new().limit(2)).expect("valid");
    let first = shard.add(TICK, "first");
    shard.add(TICK, "second");
    let error = shard.try_add(TICK, "third").expect_err("it is full");
    assert_eq!((error.reason(), error.into_inner()), (AddErrorReason::Full, "third"));
    assert_eq!(shard.cancel(first), Some("first"));
    assert!(shard.try_add(TICK, "third").is_ok());
    assert_eq!(shard.len(), 2);
}

/// Whoever adds too much is named, not this library.
#[test]
fn a_panic_names_the_line_that_adds() {
    thread_local! {
        static WHERE: Cell<Option<(String, u32)>> = const { Cell::new(None) };
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        WHERE.set(info.location().map(|at| (at.file().to_owned(), at.line())));
        before(info);
    }));
    limited(0, |_| {
        let timer = local_timer();
        let adds: [(u32, &dyn Fn()); 5] = [
            (line!(), &|| _ = timer.add(TICK, never)),
            (line!(), &|| _ = timer.add_at(timer.now(), never)),
            (line!(), &|| _ = timer.add_periodic(TICK, never)),
            (line!(), &|| _ = timer.add_local(TICK, never)),
            (line!(), &|| _ = timer.shard_ref().run(never)),
        ];
        for (line, add) in adds {
            assert!(catch_unwind(AssertUnwindSafe(add)).is_err());
            assert_eq!(WHERE.take(), Some((file!().to_owned(), line)));
        }
    });
}

/// Each way to add has one that gives back what it cannot take.
#[test]
fn every_way_to_add_gives_back_what_is_too_much() {
    fn refused<T>(added: Result<impl Sized, AddError<T>>) -> T {
        let error = added.err().expect("it is full");
        assert_eq!(error.reason(), AddErrorReason::Full);
        error.into_inner()
    }
    limited(0, |clock| {
        let (timer, ran) = (local_timer(), Arc::new(AtomicUsize::new(0)));
        let count = || {
            let ran = Arc::clone(&ran);
            move || _ = ran.fetch_add(1, Ordering::Relaxed)
        };
        refused(timer.try_add(TICK, count()))();
        refused(timer.try_add_at(clock.now(), count()))();
        refused(timer.try_add_within(TICK, TICK, count()))();
        refused(timer.try_add_spread(TICK, TICK, count()))();
        refused(timer.try_add_periodic(TICK, count()))();
        refused(timer.try_add_local(TICK, count()))();
        refused(timer.shard_ref().try_run(count()))();
        assert_eq!((ran.load(Ordering::Relaxed), Arc::strong_count(&ran)), (7, 1));
    });
    let mut shard = Shard::with_config(Config::new().limit(1)).expect("valid");
    shard.add(TICK, 0);
    assert_eq!(refused(shard.try_add(TICK, 1)), 1);
    assert_eq!(refused(shard.try_add_at(shard.now(), 2)), 2);
    assert_eq!(refused(shard.try_add_within(TICK, TICK, 3)), 3);
    assert_eq!(refused(shard.try_add_spread(TICK, TICK, 4)), 4);
}

#[test]
fn a_limit_of_zero_takes_nothing() {
    limited(0, |_| {
        for _ in 0..3 {
            assert_full(None);
            elsewhere(|shard| assert_full(Some(shard)));
            let _ = local_timer().turn();
        }
        assert_eq!(local_timer().counts().added, 0);
    });
    let mut shard = Shard::with_config(Config::new().limit(0).capacity(10)).expect("valid");
    assert_eq!(shard.try_add(TICK, 7).expect_err("it is full").into_inner(), 7);
}

#[test]
fn an_absurd_limit_is_none() {
    limited(usize::MAX, |_| {
        fill(2_000);
        assert_eq!(let_in(2_000), 2_000);
        // A turn takes in a thousand.
        while local_timer().turn().behind {}
        assert_eq!(local_timer().len(), 4_000);
    });
}

// ---- from elsewhere

#[test]
fn what_comes_from_elsewhere_is_held_against_what_was_there_at_the_last_turn() {
    limited(5, |_| {
        fill(2);
        let _ = local_timer().turn();
        assert_eq!(let_in(10), 3);
        elsewhere(|shard| assert_full(Some(shard)));
        let _ = local_timer().turn();
        assert_eq!(local_timer().len(), 5);
        assert_full(None);
    });
}

/// Arrived, they are no longer on their way, but there.
#[test]
fn those_that_have_arrived_count_at_once() {
    limited(5, |_| {
        assert_eq!(let_in(10), 5);
        let _ = local_timer().turn();
        assert_eq!((let_in(10), local_timer().len()), (0, 5));
        let _ = local_timer().turn();
        assert_eq!((let_in(10), local_timer().len()), (0, 5));
    });
}

/// As many more as the owner has added since its last turn, and no others.
#[test]
fn the_documented_excess_is_all_there_is() {
    limited(5, |_| {
        let _ = local_timer().turn();
        fill(4);
        assert_eq!(let_in(10), 5);
        let _ = local_timer().turn();
        assert_eq!((local_timer().len(), let_in(10)), (9, 0));
        assert_full(None);
        let _ = local_timer().turn();
        assert_eq!(let_in(10), 0);
    });
}

#[test]
fn there_is_room_again_after_a_turn_in_which_some_have_gone() {
    limited(5, |clock| {
        assert_eq!(let_in(10), 5);
        let _ = local_timer().turn();
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 5);
        assert_eq!(let_in(10), 5, "they have fired");
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 5, "as soon as they have come");
        let handles = elsewhere(|shard| [(); 5].map(|()| shard.add(TICK, never)));
        let _ = local_timer().turn();
        assert_eq!(handles.map(TimerHandle::cancel), [Cancel::Cancelled; 5]);
        let _ = local_timer().turn();
        let handles = elsewhere(|shard| [(); 5].map(|()| shard.add(TICK, never)));
        elsewhere(|shard| {
            // On their way, or cancelled there: they count until the owner has met them.
            assert_eq!(handles.map(TimerHandle::cancel), [Cancel::Cancelled; 5]);
            assert_full(Some(shard));
        });
        assert_eq!(local_timer().turn().collected, 5);
        assert_eq!(let_in(10), 5, "they were cancelled");
    });
}

/// Threads that add as fast as they can, with an owner that only turns: never more than the limit, and in the end exactly as many.
#[test]
fn threads_that_add_together_keep_to_the_limit() {
    const LIMIT: usize = 100;
    limited(LIMIT, |clock| {
        let (shard, over) = (local_timer().shard_ref(), AtomicBool::new(false));
        let add = |threads_seed: u64| {
            let mut random = fastrand::Rng::with_seed(threads_seed);
            let (mut added, mut handles) = (0_u64, Vec::new());
            while !over.load(Ordering::Relaxed) {
                match shard.try_add(TICK * random.u32(..3), || {}) {
                    Ok(handle) if random.bool() => handles.push(handle),
                    added => {
                        _ = added.map_err(|error| assert_eq!(error.reason(), AddErrorReason::Full))
                    }
                }
                added += 1;
                if random.u32(..4) == 0 {
                    _ = handles.pop().map(TimerHandle::cancel);
                }
            }
            added
        };
        thread::scope(|scope| {
            let add = &add;
            let threads: Vec<_> = (0..3).map(|seed| scope.spawn(move || add(seed))).collect();
            let lasts = Duration::from_millis(operations(200).min(5_000));
            let begun = std::time::Instant::now();
            while begun.elapsed() < lasts {
                clock.advance(TICK / 2);
                let turn = local_timer().turn();
                assert!(turn.live <= LIMIT, "{turn:?}");
            }
            over.store(true, Ordering::Relaxed);
            let tried: u64 =
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
            assert!(tried >= local_timer().counts().added);
        });
        while !local_timer().is_empty() || local_timer().counts().queued > 0 {
            clock.advance(TICK);
            let _ = local_timer().turn();
        }
        let _ = local_timer().turn();
        assert_eq!(let_in(2 * LIMIT), LIMIT, "nobody is counted who has gone");
    });
}

/// What the owner cancels after its turn is room for others, though no turn comes before it sleeps.
#[test]
fn room_that_is_made_after_a_turn_is_there_while_the_owner_sleeps() {
    limited(5, |_| {
        let timers = fill(5);
        let _ = local_timer().turn();
        elsewhere(|shard| assert_full(Some(shard)));
        assert!(timers.into_iter().all(|timer| timer.cancel() == Cancel::Cancelled));
        let sleep = local_timer().prepare_sleep();
        assert_eq!((sleep.timeout(), let_in(10)), (None, 5));
    });
}

/// What others have cancelled is room as soon as the owner has met it: who is refused for it wakes an owner that sleeps.
#[test]
fn who_is_refused_wakes_an_owner_that_sleeps_over_cancelled_timers() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let woken = Arc::clone(&wakes);
    on_a_thread(|| {
        let wake = move || _ = woken.fetch_add(1, Ordering::Relaxed);
        Config::new().limit(100).on_wake(wake).install().expect("a fresh thread");
        local_timer().add(TICK * 1_000, never);
        let _ = local_timer().turn();
        let sleep = local_timer().prepare_sleep();
        let added = elsewhere(|shard| {
            let added = (0..1_000).map_while(|_| shard.try_add(TICK * 5_000, never).ok());
            added.map(|timer| assert_eq!(timer.cancel(), Cancel::Cancelled)).count()
        });
        assert_eq!((added, wakes.load(Ordering::Relaxed)), (99, 1));
        elsewhere(|shard| assert_full(Some(shard)));
        assert_eq!(wakes.load(Ordering::Relaxed), 1, "it is awake");
        drop(sleep);
        let _ = local_timer().turn();
        elsewhere(|shard| assert!(shard.try_add(TICK * 5_000, never).is_ok()));
        // If nothing waits that would make room, nobody is woken for it.
        let _ = local_timer().turn();
        while local_timer().try_add(TICK * 1_000, never).is_ok() {}
        let sleep = local_timer().prepare_sleep();
        elsewhere(|shard| assert_full(Some(shard)));
        assert_eq!(
            (
                sleep.timeout().is_some_and(|timeout| !timeout.is_zero()),
                wakes.load(Ordering::Relaxed)
            ),
            (true, 1)
        );
    });
}
