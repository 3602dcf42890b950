//! `Config::limit`, the maximum number of live timers: exact for the owner's adds, approximate for
//! remote adds. A refused `try_add` returns its callback.

use std::{cell::Cell, rc::Rc, sync::mpsc, thread, time::Duration};

use corewheel::{AddError, AddErrorReason, Cancel, Config, ManualClock, Shard, local_timer};

use crate::support::{
    Counter, HOUR, OnDrop, TICK, WAKE_AT_QUEUED_MESSAGES, assert_refuses, call_from_another_thread,
    cancel_all_remotely, cancel_remotely, must_not_run, on_a_thread, on_configured_thread,
    turn_after,
};

fn with_limit(limit: usize, test: impl FnOnce(&ManualClock) + Send) {
    on_configured_thread(Config::new().limit(limit), test);
}

fn count_accepted_remote_adds(add_count: usize) -> usize {
    call_from_another_thread(|shard| {
        (0..add_count).filter(|_| shard.try_add(TICK, || {}).is_ok()).count()
    })
}

fn expect_refused<T>(added: Result<impl Sized, AddError<T>>) -> T {
    let error = added.err().expect("no room");
    assert_eq!(error.reason(), AddErrorReason::Full);
    error.into_inner()
}

#[test]
fn a_remotely_cancelled_timer_makes_room_for_the_owner() {
    with_limit(2, |_| {
        let drops = Counter::default();
        let handles = [(); 2].map(|()| local_timer().add(HOUR, drops.callback()));
        assert_eq!(cancel_remotely(handles[0]), Cancel::Cancelled);
        assert_eq!(drops.other_refs(), 2);
        assert!(local_timer().try_add(TICK, must_not_run).is_ok());
        assert_eq!((drops.other_refs(), local_timer().len()), (1, 2));
        assert_refuses(&local_timer().shard_ref(), AddErrorReason::Full);
        // An add that drops a cancelled callback contains the panic of its destructor.
        assert_eq!(cancel_remotely(handles[1]), Cancel::Cancelled);
        let bomb = OnDrop(|| panic!("as planned"));
        let armed = local_timer().add(HOUR, move || drop(bomb));
        assert_eq!(cancel_remotely(armed), Cancel::Cancelled);
        local_timer().add(Duration::ZERO, must_not_run);
        let counts = local_timer().counts();
        assert_eq!((counts.panicked, counts.live, counts.cancelled), (1, 2, 3));
    });
    let mut shard = Shard::with_config(Config::new().limit(1)).expect("valid");
    for payload in 0..3 {
        let handle = shard.add(HOUR, payload);
        assert_eq!(expect_refused(shard.try_add(HOUR, 9)), 9);
        assert_eq!(cancel_remotely(handle), Cancel::Cancelled);
    }
}

/// The next turn collects the other cancelled timers, even if the clock has not advanced.
#[test]
fn an_add_to_a_full_wheel_collects_one_cancelled_timer() {
    with_limit(3, |clock| {
        let handles = [(); 3].map(|()| local_timer().add(HOUR, must_not_run));
        // The last of these three turns finds no message and no due timer.
        (0..3).for_each(|_| _ = turn_after(clock, 1));
        cancel_all_remotely(&handles);
        local_timer().add(HOUR, must_not_run);
        assert_eq!(local_timer().len(), 3);
        let turn = local_timer().turn();
        assert_eq!((turn.collected, turn.live, turn.behind), (2, 1, false));
        assert_eq!(local_timer().counts().queued, 0);
    });
}

/// The message about the reset is urgent, so only a turn consumes it.
#[test]
fn a_timer_cancelled_after_a_queued_reset_makes_room_in_the_next_turn() {
    with_limit(1, |_| {
        let handle = local_timer().add(HOUR, must_not_run);
        call_from_another_thread(|_| assert!(handle.reset(2 * HOUR)));
        assert_eq!(cancel_remotely(handle), Cancel::Cancelled);
        expect_refused(local_timer().try_add(HOUR, must_not_run));
        let turn = local_timer().turn();
        assert_eq!((turn.collected, turn.live), (1, 0));
        assert!(local_timer().try_add(HOUR, must_not_run).is_ok());
    });
}

#[test]
fn up_to_1024_cancelled_timers_leave_room_for_remote_adds() {
    with_limit(3 * WAKE_AT_QUEUED_MESSAGES, |_| {
        let all: Vec<_> = (0..3 * WAKE_AT_QUEUED_MESSAGES)
            .map(|_| local_timer().add(HOUR, must_not_run))
            .collect();
        let _ = local_timer().turn();
        call_from_another_thread(|shard| assert_refuses(shard, AddErrorReason::Full));
        cancel_all_remotely(&all[..1]);
        assert_eq!(count_accepted_remote_adds(10), 1);
        cancel_all_remotely(&all[1..]);
        assert_eq!(
            count_accepted_remote_adds(3 * WAKE_AT_QUEUED_MESSAGES),
            WAKE_AT_QUEUED_MESSAGES - 1
        );
    });
}

#[test]
fn every_refused_add_returns_its_callback_or_payload() {
    with_limit(0, |_| {
        let (timer, runs) = (local_timer(), Counter::default());
        let run = || runs.callback();
        expect_refused(timer.try_add(TICK, run()))();
        expect_refused(timer.try_add_periodic(TICK, run()))();
        expect_refused(timer.try_add_local(TICK, run()))();
        expect_refused(timer.shard_ref().try_run(run()))();
        assert_eq!((runs.get(), runs.other_refs()), (4, 0));
    });
    let mut shard = Shard::with_config(Config::new().limit(2)).expect("valid");
    let first = shard.add(TICK, 1);
    shard.add(TICK, 2);
    assert_eq!(expect_refused(shard.try_add(TICK, 3)), 3);
    assert_eq!(expect_refused(shard.try_add_periodic(TICK, 4)), 4);
    assert_eq!((shard.cancel(first), shard.try_add(TICK, 5).is_ok()), (Some(1), true));
    assert_eq!(shard.len(), 2);
}

#[test]
fn cancels_before_or_during_a_sleep_make_room_for_remote_adds() {
    for cancels_before in [true, false] {
        with_limit(5, |_| {
            let timers = [(); 5].map(|()| local_timer().add(TICK, || ()));
            let cancel = || assert!(timers.iter().all(|timer| timer.cancel() == Cancel::Cancelled));
            let _ = local_timer().turn();
            call_from_another_thread(|shard| assert_refuses(shard, AddErrorReason::Full));
            if cancels_before {
                cancel();
            }
            let sleep = local_timer().prepare_sleep();
            assert_eq!(sleep.timeout().is_none(), cancels_before);
            if !cancels_before {
                cancel();
            }
            assert_eq!(count_accepted_remote_adds(10), 5);
        });
    }
}

#[test]
fn a_cancel_before_admission_makes_room_for_remote_adds() {
    for is_remote in [true, false] {
        with_limit(2, |clock| {
            turn_after(clock, 1);
            let [first, second] =
                [(); 2].map(|()| call_from_another_thread(|shard| shard.add(HOUR, must_not_run)));
            assert_eq!(count_accepted_remote_adds(1), 0);
            let sleep = local_timer().prepare_sleep();
            let answer = if is_remote { cancel_remotely(first) } else { first.cancel() };
            assert_eq!(answer, Cancel::Cancelled);
            drop(sleep);
            if is_remote {
                turn_after(clock, 1);
            }
            assert_eq!((count_accepted_remote_adds(3), second.cancel()), (1, Cancel::Cancelled));
            turn_after(clock, 2);
            assert_eq!((local_timer().len(), count_accepted_remote_adds(3)), (0, 2));
        });
    }
}

#[test]
fn a_refused_remote_add_wakes_an_owner_with_cancelled_timers() {
    let wakes = Counter::default();
    on_a_thread(|| {
        Config::new().limit(100).wake_hook(wakes.callback()).install().expect("a new thread");
        local_timer().add(TICK * 1_000, must_not_run);
        let _ = local_timer().turn();
        let sleep = local_timer().prepare_sleep();
        let added = call_from_another_thread(|shard| {
            let added = (0..1_000).map_while(|_| shard.try_add(TICK * 5_000, must_not_run).ok());
            added.map(|timer| assert_eq!(timer.cancel(), Cancel::Cancelled)).count()
        });
        assert_eq!((added, wakes.get()), (99, 1));
        call_from_another_thread(|shard| assert_refuses(shard, AddErrorReason::Full));
        assert_eq!(wakes.get(), 1, "the owner is already awake");
        drop(sleep);
        let _ = local_timer().turn();
        call_from_another_thread(|shard| {
            assert!(shard.try_add(TICK * 5_000, must_not_run).is_ok());
        });
        // No timer is cancelled, so waking the owner would make no room.
        let _ = local_timer().turn();
        while local_timer().try_add(TICK * 1_000, must_not_run).is_ok() {}
        let sleep = local_timer().prepare_sleep();
        assert!(sleep.timeout() > Some(Duration::ZERO));
        call_from_another_thread(|shard| assert_refuses(shard, AddErrorReason::Full));
        assert_eq!(wakes.get(), 1);
    });
}

/// A coroutine's stack may be smaller than a page of timers, so pages must not be built on the
/// stack.
#[test]
fn adds_and_cancels_fit_a_small_stack() {
    let kibibytes = if cfg!(debug_assertions) { 64 } else { 16 };
    let owner = local_timer().shard_ref();
    // The new thread also creates its wheel and the first pages.
    let small = thread::Builder::new().stack_size(kibibytes << 10).spawn(move || {
        for _ in 0..2_000 {
            assert_eq!(owner.add(Duration::from_secs(1), || ()).cancel(), Cancel::Cancelled);
            local_timer().add(Duration::from_secs(1), || ());
        }
        local_timer().turn();
        local_timer().len()
    });
    assert_eq!(small.expect("a thread").join().expect("no panic"), 2_000);
    local_timer().turn();
}

/// An idle turn must publish what the owner has added and cancelled since the turn before.
#[test]
fn remote_adds_know_the_live_timers_at_the_last_turn_even_if_it_was_idle() {
    with_limit(2, |clock| {
        turn_after(clock, 1);
        turn_after(clock, 1);
        let handles = [(); 2].map(|()| local_timer().add(HOUR, must_not_run));
        turn_after(clock, 1);
        assert_eq!(count_accepted_remote_adds(1), 0);
        assert!(handles.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
        turn_after(clock, 1);
        assert_eq!(count_accepted_remote_adds(3), 2);
    });
}

#[test]
fn a_turn_publishes_the_live_timers_before_its_callbacks_run() {
    with_limit(2, |clock| {
        let accepted = Rc::new(Cell::new(0));
        turn_after(clock, 1);
        let handle = local_timer().add(HOUR, must_not_run);
        let result = Rc::clone(&accepted);
        local_timer().add(2 * TICK, move || result.set(count_accepted_remote_adds(2)));
        turn_after(clock, 1);
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        turn_after(clock, 1);
        assert_eq!(accepted.get(), 1);
    });
}

#[test]
fn a_queued_closure_makes_room_for_remote_adds_when_it_runs() {
    with_limit(2, |_| {
        let (sender, accepted) = mpsc::channel();
        call_from_another_thread(|shard| {
            for sender in [sender.clone(), sender] {
                shard.run(move || sender.send(count_accepted_remote_adds(2)).expect("received"));
            }
        });
        local_timer().turn();
        assert_eq!(accepted.iter().collect::<Vec<_>>(), [1, 1]);
    });
}

#[test]
fn cancelled_timers_that_a_turn_has_left_make_room_for_remote_adds() {
    with_limit(10, |_| {
        let handles = [(); 10].map(|()| local_timer().add(HOUR, must_not_run));
        local_timer().turn();
        cancel_all_remotely(&handles);
        let turn = local_timer().turn_within(1);
        assert_eq!((turn.live, turn.behind, local_timer().counts().uncollected), (9, true, 9));
        assert_eq!(count_accepted_remote_adds(12), 10);
    });
}

#[test]
fn cancelled_timers_that_an_add_has_taken_make_room_for_remote_adds() {
    with_limit(10, |_| {
        let handles = [(); 10].map(|()| local_timer().add(HOUR, || ()));
        local_timer().turn();
        cancel_all_remotely(&handles);
        // Takes all messages out of the mailbox, and consumes one.
        local_timer().add(HOUR, must_not_run);
        assert_eq!((local_timer().counts().uncollected, local_timer().len()), (9, 10));
        assert!(count_accepted_remote_adds(12) >= 9);
    });
}
