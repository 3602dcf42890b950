//! Callbacks, destructors and passes in which timers change.

use std::{
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
    time::Duration,
};

use corewheel::{Cancel, ManualClock, Shard, ShardRef, TimerHandle, local_timer};

use crate::{
    common::{TICK, on_a_thread},
    ends_soon,
    support::{
        Counter, HOUR, WAKE_BACKLOG, cancel_elsewhere, never, on_a_core,
        turn_after,
    },
};

/// Uses the thread's timer in every way when it is dropped, as a waker may that is dropped or
/// called.
struct UsesTheTimer {
    drops: Counter,
    sibling: TimerHandle,
}

impl Drop for UsesTheTimer {
    fn drop(&mut self) {
        let timer = local_timer();
        if let Ok(added) = timer.try_add(TICK * 9, never) {
            assert!(added.reset(TICK * 8) && self.sibling.reset(TICK * 7));
            assert_eq!(added.cancel(), Cancel::Cancelled);
        }
        timer.turn();
        assert!(timer.counts().held <= 1 && timer.prepare_sleep().timeout().is_some());
        self.drops.increment();
    }
}

/// tokio #8550, #8552.
#[test]
fn bug_09_wakers_were_called_and_dropped_under_the_lock() {
    let drops = Counter::default();
    on_a_core(|clock| {
        let sibling = local_timer().add(TICK * 5, never);
        let uses_the_timer = || UsesTheTimer { drops: drops.clone(), sibling };
        let add = || {
            let held = uses_the_timer();
            local_timer().add(TICK, move || drop(held))
        };
        let (cancelled, cancelled_elsewhere, fired) = (add(), add(), add());
        assert_eq!(cancelled.cancel(), Cancel::Cancelled);
        assert_eq!(cancel_elsewhere(cancelled_elsewhere), Cancel::Cancelled);
        let held = uses_the_timer();
        let again = local_timer().add_periodic(TICK, move || _ = &held);
        assert_eq!(turn_after(clock, 1).fired, 2);
        assert_eq!((fired.cancel(), again.cancel()), (Cancel::Ended, Cancel::Cancelled));
        assert_eq!(drops.get(), 4);
        // Two are handed back when the thread ends.
        let _pending = (add(), add());
    });
    assert_eq!(drops.get(), 6);
}

/// A timer that another thread adds while a pass runs its callbacks fires in a later pass.
#[test]
fn bug_22_from_another_core_a_timer_added_by_a_callback_ran_in_the_same_pass() {
    fn again(owner: ShardRef, runs: Counter) {
        let to = owner.clone();
        let callback = move || {
            runs.increment();
            again(owner, runs);
        };
        on_a_thread(|| to.add(Duration::ZERO, callback));
    }
    on_a_core(|_: &ManualClock| {
        let runs = Counter::default();
        again(local_timer().shard_ref(), runs.clone());
        for _ in 0..100 {
            let before = runs.get();
            assert!(local_timer().turn().fired <= 1);
            assert!(runs.get() <= before + 1);
        }
        assert!(runs.get() >= 30);
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

/// embassy #4736, #5017: a timer for the end of time was removed from the queue and still looked
/// queued, so that the next timer of its task was not queued.
#[test]
fn bug_37_after_a_timer_for_never_the_next_one_was_not_queued() {
    on_a_core(|clock| {
        let runs = Counter::default();
        for (ran, cancel) in (1..10).zip([TimerHandle::cancel, cancel_elsewhere].iter().cycle()) {
            let endless = local_timer().add(Duration::MAX, never);
            assert_eq!(turn_after(clock, 1).fired, 0);
            assert!(local_timer().next_deadline().is_some() && endless.is_pending());
            assert_eq!(cancel(endless), Cancel::Cancelled);
            local_timer().turn();
            // In the same node.
            local_timer().add(TICK, runs.callback());
            assert_eq!(local_timer().time_until_next(), Some(TICK));
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, ran));
        }
    });
}
