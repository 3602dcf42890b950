//! DPDK's `rte_timer`.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use corewheel::{Cancel, Config, ManualClock, Shard, TimerHandle, local_timer};

use crate::{
    HOUR, assert_sound, cancel_elsewhere,
    common::{TICK, on_a_thread, operations},
    counter, ends_soon, never, on_a_core, shard, turn_after,
};

/// a4b7a5a45cf5: while the first of a due batch runs, another core changes others of the batch, through the links
/// that the batch hangs by.
#[test]
fn bug_16_another_core_changed_the_batch_while_its_first_ran() {
    for timers in [2, 3, 10, 100] {
        on_a_core(|clock| {
            let (runs, run) = counter();
            let handles = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..timers {
                let (run, all) = (run.clone(), Rc::clone(&handles));
                let handle = local_timer().add(TICK, move || {
                    run();
                    // Every second one of the others is cancelled, and as many are added in their stead.
                    let others: Vec<TimerHandle> = all.take();
                    let others: Vec<_> =
                        others.into_iter().filter(|other| other.is_pending()).collect();
                    for other in others.iter().step_by(2) {
                        assert_eq!(cancel_elsewhere(*other), Cancel::Cancelled);
                        local_timer().add(Duration::ZERO, run.clone());
                    }
                });
                handles.borrow_mut().push(handle);
            }
            let cancelled = timers / 2;
            let turn = turn_after(clock, 1);
            assert_eq!(
                (turn.fired, turn.collected, turn.live),
                (timers - cancelled, cancelled, cancelled)
            );
            assert_eq!((local_timer().turn().fired, runs.get() as usize), (cancelled, timers));
        });
    }
}

/// 7079e29f: a timer was linked before it was marked as pending; who found it in between took it off for good. Here a
/// wake hook, called from within the add, turns when the timer is due already.
#[test]
fn bug_17_a_timer_found_before_it_was_marked_was_dropped() {
    thread_local! {
        static TURNS: Cell<bool> = const { Cell::new(false) };
    }
    let clock = ManualClock::new();
    let now = clock.clone();
    let config = Config::new().tick(TICK).clock(&clock).on_wake(move || {
        if TURNS.take() {
            now.advance(TICK);
            assert_eq!(local_timer().turn().fired, 1);
        }
    });
    on_a_thread(|| {
        config.install().expect("a fresh thread");
        let (runs, run) = counter();
        for ran in 0..20 {
            let _sleep = local_timer().prepare_sleep();
            TURNS.set(true);
            let handle = match ran % 2 {
                0 => local_timer().add(TICK, run.clone()),
                _ => local_timer().add_periodic(TICK, run.clone()),
            };
            assert_eq!(
                (runs.get(), TURNS.get()),
                (ran + 1, false),
                "it ran before the add returned"
            );
            assert_eq!(handle.is_pending(), ran % 2 == 1);
            handle.cancel();
            assert!(local_timer().is_empty());
        }
        assert_sound(local_timer().counts());
    });
}

/// Of ten timers that are due, the first that runs moves four others, taken from one end of the batch.
fn a_batch_whose_first_moves_four(clock: &ManualClock, delay: Duration, from_the_end: bool) {
    let (runs, run) = counter();
    let handles = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..10 {
        let (run, all) = (run.clone(), Rc::clone(&handles));
        let handle = local_timer().add(TICK, move || {
            run();
            let mut others: Vec<TimerHandle> = all.take();
            others.retain(|other| other.is_pending());
            if from_the_end {
                others.reverse();
            }
            assert!(others.into_iter().take(4).all(|other| other.reset(delay)));
        });
        handles.borrow_mut().push(handle);
    }
    // One that is pending stands where the others are moved to.
    local_timer().add(TICK + delay.max(TICK), run);
    assert_eq!((turn_after(clock, 1).fired, runs.get()), (6, 6));
    clock.advance(delay);
    let fired = local_timer().turn().fired;
    assert_eq!(fired, if delay.is_zero() { 4 } else { 5 });
    assert_eq!(fired + turn_after(clock, 2).fired, 5);
    assert_eq!((runs.get(), local_timer().next_deadline()), (11, None));
}

/// 20d159f2: the callback of one timer resets another one of the batch that is being run.
#[test]
fn bug_18_a_reset_of_a_due_sibling_chained_the_batch_to_the_pending_ones() {
    for delay in [0, 1, 2, 200_000].map(|ticks| TICK * ticks) {
        for from_the_end in [false, true] {
            on_a_core(|clock| a_batch_whose_first_moves_four(clock, delay, from_the_end));
        }
    }
}

/// 83cb53f3, 0efd46d7: a periodic timer was not armed again if its callback had touched another one.
#[test]
fn bug_19_a_periodic_timer_that_touched_another_one_stopped() {
    on_a_core(|clock| {
        let (runs, run) = counter();
        let other = Cell::new(local_timer().add(HOUR, never));
        let periodic = local_timer().add_periodic(TICK * 3, move || {
            let sibling = other.get();
            assert!(sibling.reset(TICK) && sibling.reset(HOUR));
            assert_eq!(cancel_elsewhere(local_timer().add(TICK, never)), Cancel::Cancelled);
            assert_eq!(sibling.cancel(), Cancel::Cancelled);
            other.set(local_timer().add(HOUR, never));
            local_timer().add_periodic(TICK, never).cancel();
            assert!(
                local_timer().turn().nested && local_timer().prepare_sleep().timeout().is_some()
            );
            run();
        });
        for ran in 1..100 {
            assert_eq!(turn_after(clock, 2).fired, 0);
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, ran));
            assert!(periodic.is_pending());
            assert_eq!((local_timer().len(), local_timer().time_until_next()), (2, Some(TICK * 3)));
        }
    });
}

/// When it is dropped, makes a shard and ends it, and cancels a timer of the one that is ending.
struct EndsAShard(ManualClock, Option<TimerHandle>);

impl Drop for EndsAShard {
    fn drop(&mut self) {
        let mut other = shard(&self.0);
        other.add(TICK, ());
        assert_eq!(other.drain().len(), 1);
        assert!(self.1.is_none_or(|handle| handle.cancel() == Cancel::Ended));
    }
}

/// Makes shards whose payloads and hooks end others, and ends them.
fn end_shards(clock: &ManualClock) {
    for round in 0..operations(100).min(3_000) {
        let captured = EndsAShard(clock.clone(), None);
        let hook = move || _ = &captured;
        let mut shard: Shard<EndsAShard> =
            Shard::with_config(Config::new().clock(clock).on_wake(hook)).expect("valid");
        let first = shard.add(TICK, EndsAShard(clock.clone(), None));
        let second = shard.add(HOUR, EndsAShard(clock.clone(), Some(first)));
        assert!(round % 3 > 0 || cancel_elsewhere(second) == Cancel::Cancelled);
        if round % 2 == 0 {
            assert!(!shard.drain().is_empty());
        }
    }
}

/// eb63c85d: stopping all timers took a lock and then called what took it again. Here two threads end shards while a
/// third one looks at what they leave behind: so each frees what the other one could not free, and its hooks with it.
#[test]
fn bug_20_stopping_all_timers_took_a_lock_twice() {
    ends_soon(|| {
        let (clock, is_over) = (ManualClock::new(), AtomicBool::new(false));
        let looked_at = shard(&clock).add(TICK, ());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(looked_at.cancel(), Cancel::Ended);
                }
            });
            let enders = [0; 2].map(|_| scope.spawn(|| end_shards(&clock)));
            let ended = enders.map(|ender| ender.join().is_ok());
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(ended, [true; 2], "no assertion failed");
        });
    });
}
