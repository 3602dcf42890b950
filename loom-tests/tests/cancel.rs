//! Races for the state word, which decides how a timer ends. `src/cross_core/state/mod.rs` defines
//! the orderings S1 and S2.
#![cfg(all(loom, not(crossbeam_loom)))]

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use corewheel::{Cancel, Counts, Expiry, ManualClock, TimerHandle, local_timer};
use loom::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use loom_tests::{
    Drops, SeesOnDrop, TICK, add_remotely, assert_all_ended, explore, fire_and_add_four,
    install_wheel, on_another_thread, race, shard, shard_with_due_timer, shard_with_retirable_page,
    shard_with_timer, shared_clones, turn_after_a_tick, turn_and_expire, turn_and_log_runs,
    without_exploring, work_and_cancel,
};

#[test]
fn one_of_two_remote_cancels_and_an_owner_cancel_wins() {
    explore(280, || {
        let payload = Arc::new(());
        let (mut shard, _clock, handle) = shard_with_timer(1, Arc::clone(&payload));
        let others = [(); 2].map(|()| thread::spawn(move || handle.cancel()));
        let own = shard.cancel(handle);
        let answers = others.map(|other| other.join().unwrap());
        let won = answers.iter().filter(|&&answer| answer == Cancel::Cancelled).count()
            + usize::from(own.is_some());
        assert_eq!(won, 1);
        drop(own);
        assert!(turn_and_expire(&mut shard).is_empty());
        assert_eq!(Arc::strong_count(&payload), 1, "the payload was not dropped once");
        assert_eq!((shard.counts().cancelled, shard.len()), (1, 0));
    });
}

#[test]
fn a_stale_handle_never_reaches_the_next_timer_of_its_node() {
    explore(20, || {
        let (mut shard, clock, first) = shard_with_due_timer(1);
        let canceller = thread::spawn(move || first.cancel());
        let fired = turn_and_expire(&mut shard);
        // If the first timer has ended, the second one reuses its node.
        let second = shard.add(TICK, 2);
        let answer = canceller.join().unwrap();
        assert_eq!(fired.is_empty(), answer == Cancel::Cancelled);
        assert!(second.is_pending(), "{first:?} {fired:?} {answer:?} {second:?} {shard:?}");
        clock.advance(TICK);
        assert_eq!(turn_and_expire(&mut shard), [2]);
        assert_all_ended(&shard.counts(), 2);
    });
}

/// While the owner has not collected a cancelled timer, the timer's page is not retired.
#[test]
fn a_stale_handle_never_reaches_the_next_timer_in_a_new_page() {
    explore(85, || {
        let (mut shard, clock, first) = shard_with_retirable_page();
        clock.advance(TICK);
        let canceller = thread::spawn(move || first.cancel());
        let (has_fired, added) = fire_and_add_four(&mut shard, first);
        assert_eq!(has_fired, canceller.join().unwrap() != Cancel::Cancelled);
        assert!(added.into_iter().all(TimerHandle::is_pending));
        clock.advance(TICK);
        assert_eq!(turn_and_expire(&mut shard), [2; 4]);
        assert_eq!((shard.len(), shard.counts().uncollected), (0, 0));
    });
}

#[test]
fn a_timer_cancelled_during_the_owners_reset_never_fires() {
    explore(5, || {
        let (mut shard, clock, handle) = shard_with_timer(1, ());
        let canceller = thread::spawn(move || handle.cancel());
        let was_reset = shard.reset(handle, TICK * 20);
        assert_eq!(canceller.join().unwrap(), Cancel::Cancelled);
        clock.advance(TICK * 40);
        assert!(turn_and_expire(&mut shard).is_empty(), "was_reset: {was_reset}");
        assert!(!shard.reset(handle, TICK));
        assert_eq!((shard.counts().cancelled, shard.len()), (1, 0));
    });
}

/// After a run, the owner first rearms the timer and then relinks it; the cancel may come in
/// between.
#[test]
fn a_cancel_before_relinking_prevents_every_later_run() {
    explore(40, || {
        let clock = install_wheel();
        let runs = Rc::new(Cell::new(0));
        let counted = Rc::clone(&runs);
        let handle = local_timer().add_periodic(TICK, move || counted.set(counted.get() + 1));
        clock.advance(TICK);
        let canceller = thread::spawn(move || handle.cancel());
        let first = local_timer().turn().fired;
        let answer = canceller.join().unwrap();
        assert_eq!(turn_after_a_tick(&clock), 0, "first {first}, {answer:?}");
        assert_eq!(runs.get(), first);
        assert!(answer != Cancel::Ended && (answer != Cancel::Running || first == 1));
        assert_eq!((local_timer().len(), Rc::strong_count(&runs)), (0, 1));
    });
}

/// The owner drops the payload when it collects the timer, after the canceller's work.
#[test]
fn a_lent_payload_outlives_a_remote_cancel() {
    explore(120, || {
        let (mut shard, clock) = shard();
        let (payload, work, seen) = SeesOnDrop::with_counter();
        let handle = shard.add_periodic(TICK, (payload, 0));
        clock.advance(TICK);
        let canceller = race(move || work_and_cancel(&work, handle));
        shard.turn();
        let (mut expiries, mut is_last) = (0, false);
        while let Some(mut expiry) = shard.next_expiry() {
            expiry.as_mut().payload.1 += 1;
            expiries += expiry.as_mut().payload.1;
            is_last = matches!(expiry, Expiry::Ended(_));
        }
        let answer = canceller.join().unwrap();
        clock.advance(TICK);
        shard.turn();
        assert!(shard.next_expiry().is_none());
        assert!(expiries <= 1 && is_last == (answer == Cancel::Running), "{answer:?} {expiries}");
        assert!(answer != Cancel::Ended && (!is_last || expiries == 1));
        assert_eq!(seen.load(Ordering::Relaxed), 11);
        assert_all_ended(&shard.counts(), 1);
    });
}

#[test]
fn a_periodic_timer_taken_by_value_or_cancelled_ends_once() {
    explore(155, || {
        let (mut shard, clock) = shard();
        let (payload, drops) = Drops::with_counter();
        let handle = shard.add_periodic(TICK, payload);
        clock.advance(TICK);
        let canceller = race(move || handle.cancel());
        let taken = turn_and_expire(&mut shard);
        let answer = canceller.join().unwrap();
        clock.advance(TICK);
        assert!(turn_and_expire(&mut shard).is_empty());
        assert_eq!(taken.is_empty(), answer == Cancel::Cancelled, "{answer:?}");
        drop(taken);
        assert_eq!(drops.wait(), 1);
        assert_all_ended(&shard.counts(), 1);
    });
}

#[test]
fn is_pending_ignores_the_next_timer_of_its_node() {
    explore(80, || {
        let (mut shard, clock, first) = shard_with_timer(1, 1);
        let observer = thread::spawn(move || (first.is_pending(), first.is_pending()));
        clock.advance(TICK);
        turn_and_expire(&mut shard);
        shard.add(TICK, 2);
        let (before, after) = observer.join().unwrap();
        assert!(before || !after, "pending again after the end");
        assert!(!first.is_pending());
    });
}

#[test]
fn a_shared_local_timer_fires_or_is_cancelled() {
    explore(30, || {
        let clock = install_wheel();
        let handle = local_timer().add_local(TICK, || ()).share();
        clock.advance(TICK);
        let canceller = thread::spawn(move || handle.cancel());
        let fired = local_timer().turn().fired;
        assert_eq!(fired == 0, canceller.join().unwrap() == Cancel::Cancelled);
        local_timer().turn();
        assert!(local_timer().is_empty());
    });
}

/// Checks the ordering S2. The canceller may read a state word that belongs to a later timer of the
/// node.
#[test]
fn callback_writes_are_visible_after_every_node_reuse() {
    explore(94, || cancel_and_reuse(|_| ()));
    explore(75, || {
        cancel_and_reuse(|_| {
            local_timer().add_local(TICK * 100, || ()).cancel();
            local_timer().add(TICK * 100, || ());
        });
    });
    // The node's next timer is added by `add_local`, and fires.
    explore(150, || {
        cancel_and_reuse(|clock| {
            local_timer().add_local(TICK, || ());
            turn_after_a_tick(clock);
        });
    });
    explore(110, || cancel_and_reuse(|_| _ = local_timer().add_local(TICK, || ()).share()));
    explore(350, || {
        cancel_and_reuse(|_| {
            let next = local_timer().add(TICK, || ());
            on_another_thread(move || next.cancel());
            local_timer().turn();
        });
    });
    // Another thread resets the node's next timer, which then fires in the turn that consumes the
    // reset's message.
    explore(700, || {
        cancel_and_reuse(|clock| {
            let next = local_timer().add(TICK, || ());
            clock.advance(TICK);
            on_another_thread(move || next.reset(Duration::ZERO));
            assert_eq!(local_timer().turn().fired, 1);
        });
    });
    // The node's next timer is added remotely, and fires.
    explore(350, || {
        cancel_and_reuse(|clock| {
            add_remotely(&local_timer().shard_ref(), TICK, || ());
            local_timer().turn();
            assert_eq!(turn_after_a_tick(clock), 1);
        });
    });
}

/// Fires a timer and calls `reuse`, while another thread cancels the timer.
fn cancel_and_reuse(reuse: impl FnOnce(&ManualClock)) {
    let clock = install_wheel();
    let [ran, noted, seen] = shared_clones(AtomicUsize::new(0));
    // All `Relaxed`: corewheel must order these accesses.
    let handle = local_timer().add(TICK, move || noted.store(1, Ordering::Relaxed));
    clock.advance(TICK);
    let canceller = race(move || (handle.cancel(), seen.load(Ordering::Relaxed)));
    let fired = local_timer().turn().fired;
    reuse(&clock);
    let (answer, seen) = canceller.join().unwrap();
    assert_eq!((ran.load(Ordering::Relaxed), fired == 0), (fired, answer == Cancel::Cancelled));
    assert!(answer != Cancel::Ended || seen == 1, "the callback's write is not visible");
}

/// Checks the ordering S1, for a periodic timer that may be running.
#[test]
fn a_callback_drop_sees_the_cancellers_writes() {
    explore(40, || {
        let clock = install_wheel();
        let (captured, work, seen) = SeesOnDrop::with_counter();
        let handle = local_timer().add_periodic(TICK, move || _ = &captured);
        clock.advance(TICK);
        let canceller = thread::spawn(move || work_and_cancel(&work, handle));
        local_timer().turn();
        let dropped = seen.load(Ordering::Relaxed);
        let answer = canceller.join().unwrap();
        assert!(dropped == 0 || dropped == 11, "{answer:?}, the destructor stored {dropped}");
    });
}

#[test]
fn a_run_cancelled_twice_is_the_last() {
    explore(120, || {
        let clock = install_wheel();
        let own = Rc::new(Cell::new(None::<TimerHandle>));
        let inside = Rc::clone(&own);
        let handle =
            local_timer().add_periodic(TICK, move || _ = inside.get().map(TimerHandle::cancel));
        own.set(Some(handle));
        clock.advance(TICK);
        let canceller = thread::spawn(move || handle.cancel());
        local_timer().turn();
        let answer = canceller.join().unwrap();
        local_timer().turn();
        assert_eq!((local_timer().len(), local_timer().counts().uncollected), (0, 0), "{answer:?}");
    });
}

/// Stores 1 and then 2, so that a reader can tell a run in progress from a finished one.
fn store_twice(work: &AtomicUsize) {
    // Relaxed, like the loads: corewheel must order these accesses.
    work.store(1, Ordering::Relaxed);
    work.store(2, Ordering::Relaxed);
}

/// The second model uses a remotely added timer, whose node may be reused before `cancel_wait`
/// returns.
#[test]
fn cancel_wait_returns_after_the_callback() {
    explore(35, || cancel_wait_during_run(|run| local_timer().add(TICK, run), || ()));
    let add = |run: Box<dyn FnOnce() + Send>| add_remotely(&local_timer().shard_ref(), TICK, run);
    explore(230, move || cancel_wait_during_run(add, || _ = add(Box::new(|| ()))));
}

fn cancel_wait_during_run(
    add: impl FnOnce(Box<dyn FnOnce() + Send>) -> TimerHandle,
    reuse: impl FnOnce(),
) {
    let clock = install_wheel();
    let [work, seen] = shared_clones(AtomicUsize::new(0));
    let handle = without_exploring(|| {
        let handle = add(Box::new(move || store_twice(&work)));
        local_timer().turn();
        clock.advance(TICK);
        handle
    });
    let canceller = race(move || (handle.cancel_wait().unwrap(), seen.load(Ordering::Relaxed)));
    let fired = local_timer().turn().fired;
    reuse();
    let (answer, seen) = canceller.join().unwrap();
    let expected = if answer == Cancel::Cancelled { (0, 0) } else { (1, 2) };
    assert_eq!((fired, seen), expected, "{answer:?}");
}

#[test]
fn cancel_wait_returns_after_the_last_run() {
    explore(320, || {
        let clock = install_wheel();
        let [work, seen] = shared_clones(AtomicUsize::new(0));
        let [in_use, freed] = shared_clones(AtomicUsize::new(0));
        let handle = local_timer().add_periodic(TICK, move || {
            assert_eq!(in_use.load(Ordering::Relaxed), 0, "a run after the answer");
            store_twice(&work);
        });
        clock.advance(TICK);
        let canceller = race(move || {
            let answer = handle.cancel_wait().unwrap();
            freed.store(1, Ordering::Relaxed);
            (answer, seen.load(Ordering::Relaxed))
        });
        let fired = local_timer().turn().fired + turn_after_a_tick(&clock);
        let (answer, seen) = canceller.join().unwrap();
        assert_eq!(turn_and_log_runs(&clock, 4), []);
        assert_ne!(answer, Cancel::Ended);
        assert_eq!(seen, if fired == 0 { 0 } else { 2 }, "{answer:?}");
        assert_eq!((local_timer().len(), local_timer().counts().panicked), (0, 0));
    });
}

#[test]
fn two_timers_cancelled_by_two_threads_each_end_once() {
    explore(5_800, || {
        let (mut shard, clock) = shard();
        let handles = [0, 1].map(|id| shard.add(TICK, id));
        clock.advance(TICK);
        let cancellers = [(); 2].map(|()| thread::spawn(move || handles.map(TimerHandle::cancel)));
        let mut endings = [0; 2];
        for id in turn_and_expire(&mut shard) {
            endings[id] += 1;
        }
        let next = shard.add(TICK, 2);
        for answers in cancellers.map(|canceller| canceller.join().unwrap()) {
            for (ending, answer) in endings.iter_mut().zip(answers) {
                *ending += usize::from(answer == Cancel::Cancelled);
            }
        }
        assert_eq!(endings, [1, 1]);
        assert!(next.is_pending());
        assert!(turn_and_expire(&mut shard).is_empty());
        let Counts { added, live, uncollected, fired, cancelled, .. } = shard.counts();
        assert_eq!((added, live, uncollected, fired + cancelled), (3, 1, 0, 2));
    });
}
