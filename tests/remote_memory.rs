//! Memory of what comes from other threads (P8, P4): a burst of it is given back in bounded steps, the steady state allocates
//! nothing, and what has ended keeps nothing alive: counted by an allocator, in all and by thread.
#![cfg(feature = "std")]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::{
    hint::black_box,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use common::{TICK, in_virtual_time, on_a_thread, operations};
use corewheel::{AddErrorReason, Cancel, ManualClock, ShardRef, TimerHandle, Turn, local_timer};
use counting::{alone, calls, held};

/// Bytes, from a count of them or of what takes them.
fn bytes(count: usize) -> i64 {
    i64::try_from(count).expect("small")
}

const HOUR: Duration = Duration::from_secs(3_600);

fn never() {
    unreachable!("this callback must not run");
}

/// As many turns as it takes until nothing is left of what was asked before.
fn turn_after(clock: &ManualClock, ticks: u32) -> Turn {
    clock.advance(TICK * ticks);
    let mut turn = local_timer().turn();
    while turn.behind {
        turn = local_timer().turn();
    }
    turn
}

/// What fits into a callback without a box.
fn small() -> impl FnOnce() + Send + 'static {
    let captured = [7_u64; 4];
    move || _ = black_box(captured)
}

// ---- bursts

const BURST: usize = 100_000;

/// How the timers of a burst end.
#[derive(Clone, Copy, Debug)]
enum End {
    CancelledElsewhere,
    /// In another order than that in which they came.
    CancelledElsewhereShuffled,
    CancelledBeforeTheyArrive,
    CancelledByTheOwnerShuffled,
    Fired,
}

fn cancel_all(handles: &[TimerHandle]) {
    for handle in handles {
        assert_eq!(handle.cancel(), Cancel::Cancelled);
    }
}

/// A burst from elsewhere that comes and goes. The bytes it takes, and those left after so many turns, while its handles are kept.
fn burst(clock: &ManualClock, end: End, turns: usize) -> (i64, i64) {
    let (shard, others) = (local_timer().shard_ref(), local_timer().len());
    let mut random = fastrand::Rng::with_seed(1);
    let mut handles = Vec::with_capacity(BURST);
    let before = held();
    on_a_thread(|| {
        handles.extend((0..BURST).map(|_| shard.add(TICK * random.u32(10_000..70_000), small())));
        match end {
            End::CancelledElsewhereShuffled | End::CancelledByTheOwnerShuffled => {
                random.shuffle(&mut handles)
            }
            End::CancelledBeforeTheyArrive => assert_eq!(calls(|| cancel_all(&handles)), (0, 0)),
            _ => (),
        }
    });
    let full = held() - before;
    let _ = turn_after(clock, 1);
    let arrived = held() - before;
    match end {
        End::CancelledElsewhere | End::CancelledElsewhereShuffled => {
            on_a_thread(|| {
                // The first look makes a thread known to the epochs.
                assert!(handles[0].is_pending());
                assert_eq!(calls(|| cancel_all(&handles)), (0, 0), "a cancel allocates nothing");
            });
        }
        End::CancelledBeforeTheyArrive => {
            assert_eq!(local_timer().counts().cancelled, bytes(BURST).cast_unsigned())
        }
        End::CancelledByTheOwnerShuffled => cancel_all(&handles),
        End::Fired => _ = turn_after(clock, 70_000),
    }
    let _ = turn_after(clock, 1);
    assert_eq!(local_timer().len(), others);
    (0..turns).for_each(|_| _ = turn_after(clock, 1));
    assert!(handles.iter().all(|handle| handle.cancel() == Cancel::Ended));
    (full.max(arrived), held() - before)
}

fn assert_goes_back(end: End) {
    let _alone = alone();
    in_virtual_time(|clock| {
        // The tables of the wheel, and what the epochs keep for each thread.
        let _ = turn_after(clock, 1);
        let (full, left) = burst(clock, end, 2_000);
        println!("{end:?}: {full} bytes, {left} left");
        assert!(full <= bytes(BURST) * 250, "{full} bytes for {BURST}");
        assert!(left <= full / 10, "{left} bytes left of {full}");
    });
}

#[test]
fn a_burst_that_was_cancelled_elsewhere_goes_back() {
    assert_goes_back(End::CancelledElsewhere);
}

#[test]
fn a_burst_that_was_cancelled_in_another_order_goes_back() {
    assert_goes_back(End::CancelledElsewhereShuffled);
}

#[test]
fn a_burst_that_never_arrived_goes_back() {
    assert_goes_back(End::CancelledBeforeTheyArrive);
}

#[test]
fn a_burst_that_the_owner_cancelled_goes_back() {
    assert_goes_back(End::CancelledByTheOwnerShuffled);
}

#[test]
fn a_burst_that_fired_goes_back() {
    assert_goes_back(End::Fired);
}

/// One burst after the other leaves no more behind than the first.
#[test]
fn bursts_come_and_go() {
    let _alone = alone();
    in_virtual_time(|clock| {
        let _ = turn_after(clock, 1);
        let base = local_timer().shard_ref();
        let base = on_a_thread(|| [(); 1_000].map(|()| base.add(TICK * 10_000_000, never)));
        let _ = turn_after(clock, 1);
        let mut before = None;
        for round in 0..4 {
            burst(clock, End::CancelledElsewhereShuffled, 2_000);
            let more = held() - *before.get_or_insert_with(held);
            assert!(more < 100_000, "{more} bytes more after burst {round} than after the first");
        }
        assert_eq!(base.map(TimerHandle::cancel), [Cancel::Cancelled; 1_000]);
    });
}

/// Of each burst a few stay for long, all over the pages that it came with. What is free of these is for the next one.
#[test]
fn bursts_of_which_few_stay_take_no_more_and_more() {
    const BURST: usize = 10_000;
    const STAY: usize = BURST / 100;
    let _alone = alone();
    in_virtual_time(|clock| {
        let (shard, mut before) = (local_timer().shard_ref(), 0);
        for round in 1..=12 {
            on_a_thread(|| {
                for one in 0..BURST {
                    shard.add(if one % 100 == 0 { HOUR * 10 } else { TICK * 2 }, small());
                }
            });
            (0..400).for_each(|_| _ = turn_after(clock, 1));
            assert_eq!(local_timer().len(), round * STAY);
            if round == 2 {
                before = held();
            }
        }
        let more = held() - before;
        println!("{more} bytes more for {} timers more", 10 * STAY);
        assert!(
            more < bytes(10 * STAY * 250) + 100_000,
            "{more} bytes more than after the second burst"
        );
    });
}

// ---- the steady state

const ROUNDS: usize = 2_000;

/// Does `step` on another thread and a turn here, so many times; in the second half nobody allocates or frees.
fn assert_steady(
    what: &str,
    rounds: usize,
    clock: &ManualClock,
    mut step: impl FnMut(usize) + Send,
) {
    let (to_other, asked) = mpsc::channel();
    let (to_owner, done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in asked {
                to_owner.send(calls(|| step(round))).expect("the owner listens");
            }
        });
        for round in 0..rounds {
            to_other.send(round).expect("it listens");
            let there = done.recv().expect("it answers");
            let here = calls(|| _ = turn_after(clock, 1));
            assert!(
                round < rounds / 2 || (there, here) == ((0, 0), (0, 0)),
                "{what}: {there:?} {here:?}, {round}"
            );
        }
        drop(to_other);
    });
}

#[test]
fn adding_elsewhere_and_firing_allocates_nothing() {
    let _alone = alone();
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        assert_steady("add and fire", ROUNDS, clock, |round| {
            for one in 0..10 {
                shard.add(TICK * u32::try_from((round * 7 + one) % 50).expect("small"), small());
            }
        });
    });
}

/// Far more at a time than are kept in any case: no page goes in one turn that is wanted in the next.
#[test]
fn adding_thousands_elsewhere_and_firing_allocates_nothing() {
    let _alone = alone();
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        assert_steady("add and fire thousands", 200, clock, |_| {
            (0..5_000).for_each(|_| _ = shard.add(TICK * 2, small()));
        });
    });
}

#[test]
fn cancelling_and_moving_elsewhere_allocates_nothing() {
    let _alone = alone();
    in_virtual_time(|clock| {
        let shard = local_timer().shard_ref();
        let mut waiting: [Option<TimerHandle>; 300] = [None; 300];
        assert_steady("add, move and cancel", ROUNDS, clock, |round| {
            for one in 0..10 {
                let place = &mut waiting[(round * 10 + one) % 300];
                if let Some(handle) = place.take() {
                    assert!(handle.reset(TICK * 500) && handle.is_pending());
                    // One of two without a turn in between.
                    assert!(one % 2 == 0 || handle.cancel() == Cancel::Cancelled);
                }
                *place = Some(shard.add(TICK * 400, small()));
            }
        });
    });
}

// ---- the end

/// A thread's timer that has ended, and what it took while it lived.
fn ended(timers: usize) -> (ShardRef, Vec<TimerHandle>) {
    on_a_thread(|| {
        let shard = local_timer().shard_ref();
        let handles =
            on_a_thread(|| (0..timers).map(|_| shard.add(TICK * 1_000_000, small())).collect());
        let _ = local_timer().turn();
        (shard, handles)
    })
}

#[test]
fn adding_to_a_timer_that_has_ended_takes_no_memory() {
    let _alone = alone();
    let (shard, handles) = ended(10);
    let before = held();
    for _ in 0..operations(20_000) {
        let error = shard.try_add(TICK, small()).expect_err("it has ended");
        assert_eq!(error.reason(), AddErrorReason::ShutDown);
        error.into_inner()();
    }
    assert!(held() - before < 10_000, "{} bytes", held() - before);
    assert!(handles.iter().all(|handle| handle.cancel() == Cancel::Ended));
}

/// The same, of adds that come just as it ends.
#[test]
fn adding_while_a_timer_ends_takes_no_memory_that_stays() {
    let _alone = alone();
    let before = held();
    for _ in 0..operations(200) {
        let (sender, receiver) = mpsc::channel();
        let owner = thread::spawn(move || {
            sender.send(local_timer().shard_ref()).expect("it is waited for")
        });
        let shard = receiver.recv().expect("it has a timer");
        while shard.try_add(TICK, small()).is_ok() {}
        owner.join().expect("no panic");
    }
    // What they were frees with the ends of other timers.
    (0..10).for_each(|_| drop(ended(1)));
    assert!(held() - before < 500_000, "{} bytes left", held() - before);
}

/// What a reference keeps: nothing that a callback has captured, and of the timers what they were known by.
#[test]
fn a_reference_that_outlives_its_timer_keeps_its_books_only() {
    const TIMERS: usize = 10_000;
    let _alone = alone();
    let captured = Arc::new(());
    let before = held();
    let shard = on_a_thread(|| {
        let shard = local_timer().shard_ref();
        on_a_thread(|| {
            for _ in 0..TIMERS {
                let (captured, large) = (Arc::clone(&captured), [0_u8; 1_000]);
                shard.add(TICK * 1_000_000, move || drop((captured, large)));
            }
        });
        let _ = local_timer().turn();
        shard
    });
    assert_eq!(Arc::strong_count(&captured), 1, "all callbacks have been dropped");
    let kept = held() - before;
    println!("{kept} bytes kept for {TIMERS}");
    assert!(kept < bytes(TIMERS) * 150, "{kept} bytes");
    drop(shard);
    // What it was frees with the ends of other timers.
    (0..10).for_each(|_| drop(ended(1)));
    assert!(held() - before < 300_000, "{} bytes left", held() - before);
}

/// More timers than there can be shards, one after the other: their numbers are used again, and no handle of an earlier one
/// reaches a later one, nor does a reference.
#[test]
fn tens_of_thousands_of_timers_come_and_go() {
    const KEPT: usize = 50;
    let _alone = alone();
    let (mut stale, mut before) = (Vec::with_capacity(KEPT + 1), None);
    let rounds = if cfg!(debug_assertions) {
        operations(5_000).min(50_000)
    } else {
        operations(40_000).min(200_000)
    };
    for round in 0..rounds {
        let (sender, owners) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let owner = thread::spawn(move || {
            let shard = local_timer().shard_ref();
            let own = local_timer().add(Duration::from_secs(600), never);
            sender.send((shard, own)).expect("it is waited for");
            let _ = gone.recv();
            let _ = local_timer().turn();
        });
        let (shard, own) = owners.recv().expect("it has a timer");
        let (from_here, moved) = (shard.add(HOUR, never), shard.add(HOUR, never));
        assert!(moved.reset(HOUR * 2) && (round % 3 > 0 || own.cancel() == Cancel::Cancelled));
        for (shard, handles) in &stale {
            let _: &(ShardRef, [TimerHandle; 3]) = &(ShardRef::clone(shard), *handles);
            assert!(
                handles
                    .iter()
                    .all(|handle: &TimerHandle| !handle.is_pending() && !handle.reset(TICK))
            );
            assert!(handles.iter().all(|handle| handle.cancel_wait() == Ok(Cancel::Ended)));
            assert!(shard.try_add(TICK, never).is_err());
        }
        assert!(
            from_here.is_pending() && moved.is_pending() && own.is_pending() == (round % 3 > 0)
        );
        go.send(()).expect("it waits");
        owner.join().expect("no panic");
        if stale.len() == KEPT {
            stale.clear();
        }
        stale.push((shard, [own, from_here, moved]));
        if round % 1_000 == 999 {
            stale.clear();
            (0..10).for_each(|_| drop(ended(1)));
            let more = held() - *before.get_or_insert_with(held);
            assert!(more < 500_000, "{more} bytes more after {round} timers");
        }
    }
}
