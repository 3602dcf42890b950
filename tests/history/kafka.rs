//! Kafka's `DelayedOperation` and its purgatory: operations that a condition completes, or else their timer. Ours is in
//! `purgatory`; what is tested here is what it rests on, with the cancel of the timer as the claim to complete.

use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use corewheel::{Cancel, Shard, TimerHandle, local_timer};

use crate::{
    CANCELS, DEBT, Drops, HOUR, TOO_LONG, add_debt, cancel_elsewhere,
    common::{TICK, on_a_thread, operations},
    ends_soon, never, on_a_core, turn_after,
};

/// #19759 (KAFKA-19312): an operation was completed by two at once. Two threads and the timer want to; one does.
#[test]
fn bug_31_an_operation_was_completed_twice() {
    for _ in 0..operations(300).min(3_000) {
        on_a_core(|clock| {
            let (completions, start) = (Arc::new(AtomicUsize::new(0)), Barrier::new(3));
            let by_timer = Arc::clone(&completions);
            let handle =
                local_timer().add(TICK, move || _ = by_timer.fetch_add(1, Ordering::SeqCst));
            let complete = || {
                start.wait();
                if handle.cancel() == Cancel::Cancelled {
                    completions.fetch_add(1, Ordering::SeqCst);
                }
            };
            thread::scope(|scope| {
                scope.spawn(complete);
                scope.spawn(complete);
                start.wait();
                turn_after(clock, 1);
            });
            local_timer().turn();
            assert_eq!((completions.load(Ordering::SeqCst), local_timer().len()), (1, 0));
        });
    }
}

/// #4704 (KAFKA-6653): who could not get the lock left without completing, and nobody looked again. Here the only
/// lock that is tried and left alone is that of the default wake-up. Eight threads make the sleeper's debts, again
/// and again.
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
        for _ in 0..operations(40).min(400) {
            let debts: Vec<_> =
                senders.iter().map(|_| (0..3).flat_map(|_| add_debt()).collect()).collect();
            for (sender, handles) in senders.iter().zip(debts) {
                sender.send(handles).expect("it listens");
            }
            let begun = Instant::now();
            while !local_timer().is_empty() {
                // As long as a debt can come together.
                if local_timer().len() >= DEBT {
                    let sleep = local_timer().prepare_sleep();
                    thread::park_timeout(sleep.timeout().unwrap_or(TOO_LONG).min(TOO_LONG));
                }
                assert!(begun.elapsed() < TOO_LONG, "nobody woke it: {:?}", local_timer().counts());
                local_timer().turn();
            }
        }
    });
}

/// #2195, #8657: two locks, taken in two orders. Here a callback runs and waits for a lock of the user's, whose
/// holder does with that timer, its owner and others what it likes: nothing of ours is locked while user code runs.
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
                let others: Vec<_> = (0..DEBT).map(|_| local_timer().add(HOUR, never)).collect();
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
        assert_eq!((turn.fired, turn.collected, turn.live), (1, DEBT, 0));
        assert_eq!(run.cancel(), Cancel::Ended);
    });
}

/// #17842 (KAFKA-18027), and the brokers that ran out of memory (#19928, #20654): an operation that was completed
/// while it was being watched on several keys stayed on their lists, with all it held.
#[test]
fn bug_34_an_operation_completed_between_two_keys_stayed_watched() {
    for completed_after in 0..4 {
        for cancel in CANCELS {
            on_a_core(|clock| {
                let (drops, mut watched) = (Drops::default(), Vec::new());
                let held = drops.one();
                let handle = local_timer().add(TICK, move || drop(held));
                for key in 0..4 {
                    if key == completed_after {
                        assert_eq!(cancel(handle), Cancel::Cancelled);
                        assert_eq!(local_timer().turn().live, 0);
                    }
                    watched.push(handle);
                }
                assert_eq!(drops.count(), 1, "the lists keep nothing alive");
                // In its node is another one now, whom none of the lists can complete.
                let next = local_timer().add(TICK, || ());
                for handle in watched {
                    assert_eq!(
                        (handle.cancel(), cancel_elsewhere(handle)),
                        (Cancel::Ended, Cancel::Ended)
                    );
                    assert!(!handle.is_pending() && !handle.reset(HOUR));
                }
                assert!(next.is_pending() && turn_after(clock, 1).fired == 1);
            });
        }
    }
}
