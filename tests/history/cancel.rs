//! What cancels and resets answer, of timers that fire, move, are on their way or have ended.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
};

use corewheel::{Cancel, ManualClock, Shard, TimerHandle, Wheel, local_timer};

use crate::{
    CANCELS, Counter, HOUR, RESETS, WAKE_BACKLOG, add_elsewhere, assert_sound, cancel_elsewhere,
    common::{TICK, on_a_thread},
    counter, ends_soon, never, on_a_core, shard_by, turn_after, turn_twice,
};

/// tokio's alternative timer, #8252. Here a periodic timer is in no slot while it runs, and one
/// that was due when another thread cancelled it has left its slot before its message is read.
#[test]
fn bug_01_a_cancel_before_the_timer_was_linked_leaked_it() {
    for cancel in CANCELS {
        on_a_core(|clock| {
            let (drops, own) = (Counter::default(), Rc::new(Cell::new(None::<TimerHandle>)));
            let (held, handle) = (drops.on_drop(), Rc::clone(&own));
            own.set(Some(local_timer().add_periodic(TICK, move || {
                let _held = &held;
                assert_eq!(handle.get().map(cancel), Some(Cancel::Running));
            })));
            let held = drops.on_drop();
            let due = local_timer().add(TICK, move || drop(held));
            clock.advance(TICK);
            assert_eq!(cancel(due), Cancel::Cancelled);
            assert_eq!(local_timer().turn().fired, 1);
            assert_eq!((drops.get(), local_timer().len(), local_timer().counts().held), (2, 0, 0));
            assert_eq!(local_timer().next_deadline(), None);
            assert_eq!(turn_after(clock, 10).fired, 0);
        });
    }
}

/// The handle works at once: a timer that is cancelled before its owner has seen it leaves nothing
/// behind.
#[test]
fn bug_01_from_another_core_a_cancel_before_the_timer_was_linked_leaked_it() {
    on_a_core(|clock| {
        for cancel in CANCELS {
            let drops = Counter::default();
            let held = drops.on_drop();
            let handle = add_elsewhere(&local_timer().shard_ref(), TICK, move || {
                let _held = held;
                never();
            });
            assert!(handle.is_pending());
            assert_eq!((cancel(handle), cancel(handle)), (Cancel::Cancelled, Cancel::Ended));
            assert_eq!(turn_twice(), 0);
            assert_eq!((drops.get(), local_timer().len(), local_timer().counts().held), (1, 0, 0));
            clock.advance(TICK * 2);
            assert_eq!((turn_twice(), local_timer().next_deadline()), (0, None));
        }
    });
}

/// Netty #2662, on one thread: timers that another one has cancelled are moved down the levels, one
/// entry per turn, before their messages are read; none is put back.
#[test]
fn bug_13_a_cancelled_timer_was_linked_again() {
    let clock = ManualClock::new();
    let (mut shard, drops) = (shard_by(&clock), Counter::default());
    let delays = [1, 100, 200_000, 200_001, 5_000_000].map(|ticks| TICK * ticks);
    let handles = [(); 20].map(|()| delays.map(|delay| shard.add(delay, drops.on_drop())));
    let kept = shard.add(delays[2], drops.on_drop());
    on_a_thread(|| {
        assert!(handles.iter().flatten().all(|handle| handle.cancel() == Cancel::Cancelled));
    });
    assert!(
        handles
            .iter()
            .flatten()
            .all(|&handle| !shard.reset(handle, TICK) && shard.cancel(handle).is_none())
    );
    clock.advance(delays[2] - TICK);
    for _ in 0..1_000 {
        shard.turn_within(1);
        assert!(shard.next_expired().is_none(), "only the one that was kept may fire");
    }
    assert_eq!((shard.len(), drops.get(), shard.is_behind()), (1, 100, false));
    clock.advance(TICK);
    shard.turn();
    assert!(shard.next_expired().is_some() && shard.next_expired().is_none() && !kept.is_pending());
    assert!(shard.next_deadline().is_none());
    assert_sound(shard.counts());
}

/// Cancels (0, 1), resets (2, 3) or fires (4) one timer that is due in two ticks; each answer must
/// fit those before.
fn answers_fit(clock: &ManualClock, steps: [usize; 4]) {
    let (runs, run) = counter();
    let handle = local_timer().add(TICK * 2, run);
    let (mut due_in, mut ran) = (Some(2), 0);
    for step in steps {
        match step {
            0 | 1 => {
                let expected = due_in.take().map_or(Cancel::Ended, |_| Cancel::Cancelled);
                assert_eq!(CANCELS[step](handle), expected, "{steps:?}");
            }
            2 | 3 => {
                assert_eq!(RESETS[step - 2](handle, TICK * 2), due_in.is_some(), "{steps:?}");
                due_in = due_in.map(|_| 2);
            }
            _ => {
                due_in = due_in.map(|ticks| ticks - 1);
                ran += usize::from(due_in == Some(0));
                due_in = due_in.filter(|&ticks| ticks > 0);
                clock.advance(TICK);
                turn_twice();
            }
        }
        assert_eq!((runs.get(), handle.is_pending()), (ran, due_in.is_some()), "{steps:?}");
        assert_eq!(on_a_thread(|| handle.is_pending()), due_in.is_some(), "{steps:?}");
    }
    handle.cancel();
    turn_twice();
    assert_eq!((runs.get(), local_timer().len()), (ran, 0));
}

/// Go #80760, #69312 (stopping said yes, and so did resetting; or no, and nothing ever ran), #69969
/// (a counter overflowed). All sequences of four steps, by the owner and by another thread, one at
/// a time; `loom-tests/tests/cancel.rs` has the races. `src/wheel/tests.rs` retires indices before
/// their counters overflow.
#[test]
fn bug_30_stop_and_reset_gave_answers_that_contradict() {
    on_a_core(|clock| {
        for number in 0..625 {
            answers_fit(clock, [1, 5, 25, 125].map(|place| number / place % 5));
        }
    });
}

/// A callback that cancels its own one-shot timer gets `Running`, and the run continues.
#[test]
fn bug_30_stop_while_running_claimed_to_have_stopped() {
    on_a_core(|clock| {
        let (runs, run) = counter();
        let own = Rc::new(Cell::new(None::<TimerHandle>));
        let handle = Rc::clone(&own);
        own.set(Some(local_timer().add(TICK, move || {
            let handle = handle.get().expect("it was added");
            assert_eq!(
                (handle.cancel(), cancel_elsewhere(handle)),
                (Cancel::Running, Cancel::Running)
            );
            assert_eq!((handle.reset(TICK), handle.is_pending()), (false, false));
            run();
        })));
        assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, 1));
        assert_eq!(own.get().map(TimerHandle::cancel), Some(Cancel::Ended));
        assert_eq!(turn_after(clock, 5).fired, 0);
    });
}

/// Kafka #2195, #8657: two locks, taken in two orders. Here a callback waits for a lock of the
/// user's, whose holder uses that timer, its owner and others freely. Nothing of ours is locked
/// while user code runs.
#[test]
fn bug_33_a_callback_that_needed_the_callers_lock_stood_still_with_it() {
    ends_soon(|| {
        let users = Arc::new(Mutex::new(()));
        let (wanted, running) = (Arc::clone(&users), Arc::new(Barrier::new(2)));
        let (send, handles) = mpsc::channel();
        let begun = Arc::clone(&running);
        let owner = thread::spawn(move || {
            on_a_core(|clock| {
                let run = local_timer().add(TICK, move || {
                    begun.wait();
                    drop(wanted.lock().expect("no panic"));
                });
                let others: Vec<_> =
                    (0..WAKE_BACKLOG).map(|_| local_timer().add(HOUR, never)).collect();
                send.send((run, others)).expect("somebody waits");
                turn_after(clock, 1)
            })
        });
        let held = users.lock().expect("no panic");
        let (run, others) = handles.recv().expect("it was added");
        running.wait();
        assert_eq!((run.cancel(), run.is_pending()), (Cancel::Running, false));
        assert!(others.iter().all(|other| other.cancel() == Cancel::Cancelled));
        local_timer().add(TICK, || ());
        let mut shard = Shard::new();
        shard.add(HOUR, ());
        assert_eq!(shard.drain().len(), 1);
        drop(held);
        let turn = owner.join().expect("no assertion failed");
        assert_eq!((turn.fired, turn.collected, turn.live), (1, WAKE_BACKLOG, 0));
        assert_eq!(run.cancel(), Cancel::Ended);
    });
}

/// Agrona. Its identifiers have no generation: a stale identifier cancels the present timer of its
/// slot.
#[test]
fn bug_38_a_stale_id_cancelled_a_stranger() {
    let mut wheel = Wheel::<u32>::new();
    let stale = wheel.insert(10, 1);
    assert_eq!(wheel.remove(stale), Some(1));
    let fired = wheel.insert(5, 2);
    assert_eq!(wheel.advance(5).next(), Some((5, 2)));
    let live = wheel.insert(10, 3);
    assert_eq!((wheel.remove(stale), wheel.remove(fired)), (None, None));
    assert!(!wheel.reset(stale, 20) && !wheel.reset(fired, 20));
    assert_eq!((wheel.next_deadline(), wheel.remove(live)), (Some(10), Some(3)));

    let mut shard = shard_by(&ManualClock::new());
    let stale = shard.add(TICK, 1);
    assert_eq!(shard.cancel(stale), Some(1));
    let live = shard.add(TICK, 2);
    assert_eq!(
        (shard.cancel(stale), shard.reset(stale, TICK * 5), cancel_elsewhere(stale)),
        (None, false, Cancel::Ended)
    );
    assert_eq!((shard.time_until_next(), shard.cancel(live)), (Some(TICK), Some(2)));

    for cancel in CANCELS {
        on_a_core(|clock| {
            let (runs, run) = counter();
            let stale = local_timer().add(TICK, never);
            let private = local_timer().add_local(TICK, never);
            assert_eq!((cancel(stale), private.cancel()), (Cancel::Cancelled, Cancel::Cancelled));
            local_timer().turn();
            let live = [0; 2].map(|_| local_timer().add(TICK, run.clone()));
            assert_eq!((cancel(stale), private.cancel()), (Cancel::Ended, Cancel::Ended));
            assert!(!stale.reset(TICK * 5) && !private.reset(TICK * 5) && !stale.is_pending());
            assert!(live.iter().all(|handle| handle.is_pending()));
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (2, 2));
        });
    }
}
