//! Remotely added timers: their handles before and after admission, and the reuse of their nodes.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use corewheel::{AddErrorReason, Cancel, ManualClock, ShardRef, TimerHandle, local_timer};
use loom::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use loom_tests::{
    CountsDrop, Drops, SeesOnDrop, TICK, add_remotely, assert_all_ended, explore,
    explore_with_preemptions, install_core, install_core_with, on_another_thread, race,
    shard_and_index, shared_clones, turn_after_a_tick, turn_and_log_runs, without_exploring,
};

/// Adds a remote timer that is due in one tick, and admits it.
fn add_admitted(core: &ShardRef, callback: impl FnOnce() + Send + 'static) -> TimerHandle {
    let handle = add_remotely(core, TICK, callback);
    local_timer().turn();
    assert_eq!(local_timer().len(), 1);
    handle
}

/// Adds a remote timer, admits it, and advances the clock to its deadline.
fn add_due(clock: &ManualClock, core: &ShardRef) -> TimerHandle {
    let handle = add_admitted(core, || ());
    clock.advance(TICK);
    handle
}

/// The callback sees the adder's work.
#[test]
fn a_remotely_added_timer_fires_once() {
    explore(85, || {
        let (clock, core) = install_core();
        let (work, [seen, noted]) = (AtomicUsize::new(0), shared_clones(AtomicUsize::new(0)));
        let adder = race(move || {
            // Relaxed, here and below: corewheel must order these accesses.
            work.store(1, Ordering::Relaxed);
            core.add(TICK * 2, move || {
                _ = noted.fetch_add(10 + work.load(Ordering::Relaxed), Ordering::Relaxed);
            })
        });
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!(turn_after_a_tick(&clock), 0);
        let handle = adder.join().unwrap();
        let fired = turn_and_log_runs(&clock, 4);
        assert!(fired == [2] || fired == [3], "not two ticks after the add: {fired:?}");
        assert_eq!((seen.load(Ordering::Relaxed), handle.cancel()), (11, Cancel::Ended));
        assert_all_ended(&local_timer().counts(), 1);
    });
}

#[test]
fn a_timer_cancelled_before_admission_ends_once() {
    explore(5_900, || {
        let (clock, core) = install_core();
        let [kept, captured] = shared_clones(());
        let adder = race(move || {
            let handle = core.add(TICK, move || drop(captured));
            let other = race(move || handle.cancel());
            let own = handle.cancel();
            [own, other.join().unwrap()]
        });
        let mut fired = turn_after_a_tick(&clock);
        let answers = adder.join().unwrap();
        fired += turn_and_log_runs(&clock, 3).len();
        let cancelled = answers.iter().filter(|&&answer| answer == Cancel::Cancelled).count();
        assert_eq!(fired + cancelled, 1, "{answers:?}");
        assert_eq!(Arc::strong_count(&kept), 1);
        assert_all_ended(&local_timer().counts(), 1);
    });
}

/// The owner frees the node when it consumes the cancel's message, or the add's message if that is
/// still queued.
#[test]
fn a_canceller_takes_the_payload_before_node_reuse() {
    for (is_admitted, floor) in [(true, 48), (false, 240)] {
        explore(floor, move || {
            let (clock, core) = install_core();
            let payloads = [(); 2].map(|()| Arc::new(()));
            let captured = payloads.each_ref().map(Arc::clone);
            let [first, second] = captured.map(|captured| move || drop(captured));
            // This add takes the other node of the page, so a later add reuses the node of `handle`.
            let other = add_remotely(&core, TICK * 100, || ());
            let handle = add_remotely(&core, TICK, first);
            if is_admitted {
                local_timer().turn();
            }
            let canceller = race(move || handle.cancel());
            (0..2).for_each(|_| _ = local_timer().turn());
            let again = add_remotely(&core, TICK, second);
            assert_eq!(canceller.join().unwrap(), Cancel::Cancelled);
            assert_eq!(payloads.each_ref().map(Arc::strong_count), [1, 2]);
            assert_eq!(turn_and_log_runs(&clock, 3).len(), 1);
            assert_eq!(payloads.each_ref().map(Arc::strong_count), [1, 1]);
            assert_eq!((again.cancel(), other.cancel()), (Cancel::Ended, Cancel::Cancelled));
            assert_all_ended(&local_timer().counts(), 3);
        });
    }
}

#[test]
fn a_timer_reset_before_admission_fires_at_a_new_deadline() {
    explore(2_000, || {
        let (clock, core) = install_core();
        let adder = race(move || {
            let handle = core.add(TICK, || ());
            let other = race(move || handle.reset(TICK * 2));
            (handle.reset(TICK * 3), other.join().unwrap())
        });
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!(adder.join().unwrap(), (true, true));
        let fired = turn_and_log_runs(&clock, 5);
        assert!(fired == [2] || fired == [3], "{fired:?}");
        assert_all_ended(&local_timer().counts(), 1);
    });
}

/// A reset that ends before the admission queues no message. The owner may apply a later reset
/// before it consumes the reset's message.
#[test]
fn a_reset_that_ends_during_admission_is_counted() {
    explore(1_300, || {
        let (clock, core) = install_core();
        let handle = add_remotely(&core, Duration::ZERO, || ());
        let resetter = race(move || handle.reset(TICK));
        let fired = local_timer().turn().fired;
        assert_eq!(resetter.join().unwrap(), fired == 0);
        let queued = local_timer().counts().queued;
        assert_eq!(turn_and_log_runs(&clock, 2), vec![1; 1 - fired]);
        let counts = local_timer().counts();
        assert!(counts.remote_resets >= queued, "{counts:?}");
        assert_all_ended(&counts, 1);
    });
}

#[test]
fn the_owner_cancels_a_timer_before_its_admission() {
    explore(540, || {
        let (clock, core) = install_core();
        let [kept, captured] = shared_clones(());
        let [post, posted] = shared_clones(Mutex::new(None::<TimerHandle>));
        let adder = race(move || {
            let handle = core.add(TICK, move || drop(captured));
            *posted.lock().unwrap() = Some(handle);
            let _ = handle.reset(TICK * 2);
            handle
        });
        local_timer().turn();
        let early = (*post.lock().unwrap()).map(TimerHandle::cancel);
        local_timer().turn();
        let handle = adder.join().unwrap();
        assert!(early.is_none_or(|answer| answer == Cancel::Cancelled));
        let late = if early.is_some() { Cancel::Ended } else { Cancel::Cancelled };
        assert_eq!(handle.cancel(), late);
        assert!(turn_and_log_runs(&clock, 4).is_empty());
        assert_eq!(Arc::strong_count(&kept), 1);
        assert_all_ended(&local_timer().counts(), 1);
    });
}

/// Before its own reset, each thread reads whether the other thread's reset is done. Overlapping
/// resets may take effect in either order.
#[test]
fn the_later_of_two_resets_around_admission_wins() {
    explore(1_050, || {
        let (clock, core) = install_core();
        let [post, posted] = shared_clones(Mutex::new(None::<TimerHandle>));
        let [[own_reset_done, own_reset_seen], [other_reset_done, other_reset_flag]] =
            [(); 2].map(|()| shared_clones(AtomicUsize::new(0)));
        let adder = race(move || {
            let handle = core.add(TICK, || ());
            *posted.lock().unwrap() = Some(handle);
            let is_later = own_reset_seen.load(Ordering::Acquire) == 1;
            assert!(handle.reset(TICK * 2));
            other_reset_flag.store(1, Ordering::Release);
            is_later
        });
        local_timer().turn();
        let early = *post.lock().unwrap();
        let own_reset_is_later = early.is_some() && other_reset_done.load(Ordering::Acquire) == 1;
        assert!(early.is_none_or(|handle| handle.reset(TICK * 3)));
        own_reset_done.store(early.is_some().into(), Ordering::Release);
        local_timer().turn();
        let other_reset_is_later = early.is_none() | adder.join().unwrap();
        let fired = turn_and_log_runs(&clock, 5);
        assert!(
            fired == [3] && !other_reset_is_later || fired == [2] && !own_reset_is_later,
            "{fired:?}"
        );
        assert_all_ended(&local_timer().counts(), 1);
    });
}

/// Loom does not see the order of the `std` mutex, so only the state word orders the adder's writes
/// before the owner's reset.
#[test]
fn the_owners_reset_before_admission_sees_the_adders_writes() {
    explore(12, || {
        let (clock, core) = install_core();
        let [post, posted] = shared_clones(std::sync::Mutex::new(None::<TimerHandle>));
        let adder = race(move || {
            *posted.lock().unwrap() = Some(core.add_periodic(TICK, || ()));
            thread::yield_now();
        });
        thread::yield_now();
        let early = *post.lock().unwrap();
        let is_reset = early.is_some_and(|handle| handle.reset(TICK * 2));
        adder.join().unwrap();
        let expected: &[_] = if is_reset { &[2, 3] } else { &[1, 2, 3] };
        assert_eq!(turn_and_log_runs(&clock, 3), expected);
        assert_eq!(post.lock().unwrap().map(TimerHandle::cancel), Some(Cancel::Cancelled));
        assert_all_ended(&local_timer().counts(), 1);
    });
}

#[test]
fn a_cancel_around_the_first_run_prevents_further_runs() {
    explore(3_300, || {
        let (clock, core) = install_core();
        let (captured, drops) = Drops::with_counter();
        let adder = race(move || {
            let handle = core.add_periodic(TICK, move || _ = &captured);
            handle.cancel()
        });
        local_timer().turn();
        let fired = turn_after_a_tick(&clock);
        let answer = adder.join().unwrap();
        local_timer().turn();
        assert_eq!(turn_and_log_runs(&clock, 4), [], "{answer:?}");
        assert!(answer == Cancel::Cancelled || (answer, fired) == (Cancel::Running, 1));
        assert_eq!(drops.wait(), 1);
        assert_all_ended(&local_timer().counts(), 1);
    });
}

/// The canceller drops the callback, or the owner does if the last run is in progress.
#[test]
fn a_remote_periodic_callback_is_dropped_after_its_runs() {
    explore(580, || {
        let (clock, core) = install_core();
        let (captured, work, seen) = SeesOnDrop::with_counter();
        let handle = without_exploring(|| {
            let run = move || {
                let _captured = &captured;
                // Relaxed, here and below: corewheel must order these accesses.
                work.store(work.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            };
            let handle = on_another_thread(move || core.add_periodic(TICK, run));
            local_timer().turn();
            clock.advance(TICK);
            handle
        });
        let canceller = race(move || handle.cancel());
        let fired = local_timer().turn().fired + turn_after_a_tick(&clock);
        let answer = canceller.join().unwrap();
        local_timer().turn();
        assert_eq!(seen.load(Ordering::Relaxed), 10 + fired, "{answer:?}");
        assert_ne!(answer, Cancel::Ended);
        assert_eq!(turn_and_log_runs(&clock, 4), []);
        assert_all_ended(&local_timer().counts(), 1);
    });
}

#[test]
fn set_period_takes_effect_before_admission() {
    explore(1_300, || {
        let (clock, core) = install_core();
        let [post, posted] = shared_clones(Mutex::new(None::<TimerHandle>));
        let adder = race(move || {
            let handle = core.add_periodic(TICK, || ());
            *posted.lock().unwrap() = Some(handle);
            assert!(handle.reset(TICK * 2));
            handle
        });
        let early = *post.lock().unwrap();
        assert!(early.is_none_or(|handle| local_timer().set_period(handle, TICK * 3)));
        local_timer().turn();
        let handle = adder.join().unwrap();
        let expected = if early.is_some() { vec![2, 5] } else { vec![2, 3, 4, 5] };
        assert_eq!(turn_and_log_runs(&clock, 5), expected);
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        assert_all_ended(&local_timer().counts(), 1);
    });
}

#[test]
fn a_remote_timer_racing_fire_cancel_and_reset_ends_once() {
    explore(9_700, || {
        let (clock, core) = install_core();
        let handle = without_exploring(|| add_due(&clock, &core));
        let resetter = race(move || handle.reset(TICK * 2));
        let canceller = race(move || handle.cancel());
        let fired = local_timer().turn().fired;
        let (was_reset, answer) = (resetter.join().unwrap(), canceller.join().unwrap());
        let (cancelled, later) =
            (usize::from(answer == Cancel::Cancelled), turn_and_log_runs(&clock, 4));
        assert_eq!(fired + cancelled + later.len(), 1, "was_reset: {was_reset}, {answer:?}");
        assert!(later.is_empty() || was_reset && later == [3]);
        assert!(!was_reset || fired == 0, "fired after a successful reset");
        assert_all_ended(&local_timer().counts(), 1);
    });
}

#[test]
fn a_cancel_by_the_owner_overrides_a_concurrent_reset() {
    explore(11_000, || {
        let (clock, core) = install_core();
        let handle = without_exploring(|| add_admitted(&core, || ()));
        let resetter = race(move || handle.reset(TICK * 2));
        assert!(handle.reset(TICK * 3));
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        // The new timer reuses the node only if the owner has consumed the first timer's message.
        let adder = race(move || core.add(TICK, || ()).reset(TICK * 2));
        local_timer().turn();
        let _ = resetter.join().unwrap();
        assert!(adder.join().unwrap());
        assert_eq!(turn_and_log_runs(&clock, 4), [2]);
        assert_all_ended(&local_timer().counts(), 2);
    });
}

#[test]
fn a_stale_handle_never_reaches_the_next_remote_timer_of_its_node() {
    explore(4_300, || {
        let (clock, core) = install_core();
        let first = without_exploring(|| add_due(&clock, &core));
        let stale_caller = race(move || (first.reset(TICK * 9), first.cancel()));
        let fired = local_timer().turn().fired;
        let second = race(move || core.add(TICK, || ())).join().unwrap();
        let (was_reset, answer) = stale_caller.join().unwrap();
        assert_eq!((was_reset, answer == Cancel::Cancelled), (fired == 0, fired == 0));
        assert_eq!((second.is_pending(), turn_and_log_runs(&clock, 3)), (true, vec![2]));
        assert_all_ended(&local_timer().counts(), 2);
    });
}

/// Checks the orderings S2 (`src/cross_core/state/mod.rs`) and G1 (`src/cross_core/slab/page.rs`).
/// An adder may arm the node for a new timer before the cancel reads the state word.
#[test]
fn callback_writes_are_visible_after_remote_node_reuse() {
    explore(4_400, || {
        let (clock, core) = install_core();
        let [ran, noted] = shared_clones(AtomicUsize::new(0));
        let handle = without_exploring(|| {
            let handle = add_admitted(&core, move || noted.store(1, Ordering::Relaxed));
            // This add takes the other node of the page, so a later add reuses the node of `handle`.
            add_remotely(&core, TICK * 9, || ());
            local_timer().turn();
            clock.advance(TICK);
            handle
        });
        let canceller = race(move || (handle.cancel(), ran.load(Ordering::Relaxed)));
        let adder = race(move || core.add(TICK * 9, || ()));
        local_timer().turn();
        adder.join().unwrap();
        let (answer, seen) = canceller.join().unwrap();
        assert!(answer != Cancel::Ended || seen == 1, "the callback's write is not visible");
    });
}

/// While one adder stalls in taking a node, the other adder uses the same node, and the owner frees
/// it. The tag of the free list prevents this ABA.
#[test]
fn no_node_is_taken_twice_from_the_free_list() {
    explore_with_preemptions(1, 4_200, || {
        let (clock, core) = install_core();
        // Puts two nodes into the free list.
        without_exploring(|| {
            let adder = core.clone();
            for handle in on_another_thread(move || [(); 2].map(|()| adder.add(TICK, || ()))) {
                assert_eq!(handle.cancel(), Cancel::Cancelled);
            }
            local_timer().turn();
            assert!(local_timer().is_empty());
        });
        let [one, other] = [core.clone(), core.clone()];
        let one = race(move || one.add(TICK, || ()));
        let other = race(move || {
            assert_eq!(other.add(TICK, || ()).cancel(), Cancel::Cancelled);
            other.add(TICK, || ())
        });
        local_timer().turn();
        let added = [one.join().unwrap(), other.join().unwrap(), add_remotely(&core, TICK, || ())];
        assert!(added.into_iter().all(TimerHandle::is_pending));
        assert_eq!(turn_and_log_runs(&clock, 3), [1; 3]);
        assert_all_ended(&local_timer().counts(), 6);
    });
}

/// Returns this thread's clock and shard, and a stale handle of a remote timer. [`retire_page`]
/// retires the page that the handle names.
fn core_with_retirable_page() -> (ManualClock, ShardRef, TimerHandle) {
    let (clock, core) = install_core();
    let adder = core.clone();
    // Under loom a page has two nodes, and the owner keeps one empty page as a spare.
    let handles = on_another_thread(move || [(); 4].map(|()| adder.add(TICK, || ())));
    local_timer().turn();
    for handle in handles {
        assert_eq!(handle.cancel(), Cancel::Cancelled);
    }
    (clock, core, handles[0])
}

fn retire_page() {
    (0..2).for_each(|_| _ = local_timer().turn());
}

#[test]
fn a_stale_handle_never_reaches_the_next_remote_timer_in_a_new_page() {
    explore(250, || {
        let (clock, core, stale) = without_exploring(core_with_retirable_page);
        let stale_caller = race(move || (stale.reset(TICK * 9), stale.cancel()));
        retire_page();
        let added = on_another_thread(move || [(); 3].map(|()| core.add(TICK, || ())));
        let has_its_index =
            |handle: &TimerHandle| shard_and_index(*handle) == shard_and_index(stale);
        assert!(added.iter().any(has_its_index), "{added:?}, {stale:?}");
        assert_eq!(stale_caller.join().unwrap(), (false, Cancel::Ended));
        assert!(added.into_iter().all(TimerHandle::is_pending));
        assert_eq!(turn_and_log_runs(&clock, 2), [1; 3]);
    });
}

/// The adder finds all nodes in use and looks for a vacant page number. At the same time, the owner
/// frees the nodes and retires a page, whose number the adder's new page may get.
#[test]
fn a_stale_handle_never_reaches_a_timer_added_during_retirement() {
    let [was_reused, noted] = shared_clones(AtomicBool::new(false));
    explore_with_preemptions(2, 16_000, move || {
        let (clock, core, stale) = without_exploring(|| {
            let (clock, core) = install_core();
            let mut own = [(); 5].map(|()| local_timer().add(TICK * 9, || ()));
            let adder = core.clone();
            // Fills the pages 3 and 4.
            let handles = on_another_thread(move || [(); 4].map(|()| adder.add(TICK, || ())));
            local_timer().turn();
            // Retires the owner's page 2 and adds it again, so that the adder first tries the page
            // numbers 3 and 4.
            for timer in own {
                assert_eq!(timer.cancel(), Cancel::Cancelled);
            }
            own = own.map(|_| local_timer().add(TICK * 9, || ()));
            assert!(own.into_iter().all(TimerHandle::is_pending));
            // Another thread cancels the timers, so their nodes stay in use until the next turn.
            on_another_thread(move || handles.map(TimerHandle::cancel));
            (clock, core, handles)
        });
        // The first timer of page 4, which the owner retires.
        let first = stale[2];
        let adder = race(move || core.add(TICK, || ()));
        let stale_caller = race(move || (first.reset(TICK * 9), first.cancel()));
        retire_page();
        let added = adder.join().unwrap();
        if shard_and_index(added) == shard_and_index(first) {
            noted.store(true, Ordering::Relaxed);
        }
        assert_eq!(stale_caller.join().unwrap(), (false, Cancel::Ended));
        assert_eq!(stale.map(TimerHandle::cancel), [Cancel::Ended; 4]);
        assert_eq!((added.is_pending(), turn_and_log_runs(&clock, 2)), (true, vec![1]));
    });
    assert!(was_reused.load(Ordering::Relaxed), "no new page got the number of a retired page");
}

#[test]
fn no_node_is_taken_from_a_retired_page() {
    explore(26, || {
        let (clock, core, _) = without_exploring(core_with_retirable_page);
        let adder = core.clone();
        let adder = race(move || adder.add(TICK, || ()));
        retire_page();
        let added = [adder.join().unwrap(), add_remotely(&core, TICK, || ())];
        assert!(added.into_iter().all(TimerHandle::is_pending));
        assert_eq!(turn_and_log_runs(&clock, 2), [1; 2]);
        assert_all_ended(&local_timer().counts(), 6);
    });
}

#[test]
fn one_of_two_concurrent_adds_at_the_limit_succeeds() {
    explore(280, || {
        let (clock, core) = install_core_with(|config| config.limit(1));
        let adders = [core.clone(), core.clone()]
            .map(|core| race(move || core.try_add(TICK, || ()).map_err(|error| error.reason())));
        let answers = adders.map(|adder| adder.join().unwrap());
        let refused = answers.iter().filter(|answer| **answer == Err(AddErrorReason::Full)).count();
        assert_eq!(refused, 1, "{answers:?}");
        assert_eq!(turn_and_log_runs(&clock, 2), [1]);
        assert!(on_another_thread(move || core.try_add(TICK, || ()).is_ok()));
        assert_eq!(turn_and_log_runs(&clock, 4), [3]);
    });
}

/// The room that the adder reserves stays occupied while the owner admits the timer.
#[test]
fn a_timer_counts_toward_the_limit_during_admission() {
    explore(110, || {
        let (clock, core) = install_core_with(|config| config.limit(1));
        add_remotely(&core, TICK, || ());
        let other = race(move || core.try_add(TICK, || ()).map_err(|error| error.reason()));
        local_timer().turn();
        assert_eq!(other.join().unwrap(), Err(AddErrorReason::Full));
        assert_eq!(turn_and_log_runs(&clock, 2), [1]);
    });
}

/// The admission of a timer does not change the occupied room.
#[test]
fn a_timer_never_counts_twice_toward_the_limit() {
    explore(680, || {
        let (clock, core) = install_core_with(|config| config.limit(2));
        add_remotely(&core, TICK, || ());
        let other = race(move || core.try_add(TICK, || ()).map_err(|error| error.reason()));
        local_timer().turn();
        assert!(other.join().unwrap().is_ok());
        assert_eq!(turn_and_log_runs(&clock, 2), [1; 2]);
    });
}

#[test]
fn a_callback_added_at_shard_end_is_dropped_once() {
    explore(1_370, || {
        let (dropped, drops) = Drops::with_counter();
        let owner = race(move || {
            let (_clock, core) = install_core();
            race(move || {
                // Returns `core`, so that the drop of `core` does not drop the callback.
                (core.try_add(TICK, move || drop(dropped)).map_err(|error| error.reason()), core)
            })
        });
        let (added, _core) = owner.join().unwrap().join().unwrap();
        assert!(added.is_ok() || added == Err(AddErrorReason::ShutDown));
        assert_eq!(drops.wait(), 1);
        if let Ok(handle) = added {
            assert_eq!((handle.reset(TICK), handle.cancel()), (false, Cancel::Ended));
        }
    });
}

/// Runs an owner that calls `act`, turns once, and ends. `act` gets the handle of a remotely added
/// timer that captures `dropped`. The returned reference keeps the shard's memory alive.
fn end_after_one_turn<R: 'static>(
    dropped: CountsDrop,
    act: impl FnOnce(TimerHandle) -> R + 'static,
) -> (R, ShardRef) {
    let owner = race(move || {
        let (_clock, core) = install_core();
        let timer = without_exploring(|| add_remotely(&core, TICK, move || drop(dropped)));
        let result = act(timer);
        local_timer().turn();
        (result, core)
    });
    owner.join().unwrap()
}

#[test]
fn a_reset_and_cancel_at_shard_end_drop_the_callback_once() {
    explore(7_000, || {
        let (dropped, drops) = Drops::with_counter();
        let reset_and_cancel = |timer: TimerHandle| (timer.reset(TICK * 2), timer.cancel());
        let (resetter, _core) =
            end_after_one_turn(dropped, move |timer| race(move || reset_and_cancel(timer)));
        let (was_reset, answer) = resetter.join().unwrap();
        assert_eq!(drops.wait(), 1, "was_reset: {was_reset}, {answer:?}");
        assert!(answer != Cancel::Running && (was_reset || answer == Cancel::Ended));
    });
}

/// If the cancel comes during the reset, the resetter drops the callback. The owner may consume the
/// timer's message and end before this drop.
#[test]
fn a_cancel_during_a_reset_at_shard_end_drops_the_callback_once() {
    explore(2_000, || {
        let (dropped, drops) = Drops::with_counter();
        let (resetter, _core) = end_after_one_turn(dropped, |timer| {
            let resetter = thread::spawn(move || timer.reset(TICK * 2));
            assert_eq!(on_another_thread(move || timer.cancel()), Cancel::Cancelled);
            resetter
        });
        resetter.join().unwrap();
        assert_eq!(drops.wait(), 1);
    });
}
