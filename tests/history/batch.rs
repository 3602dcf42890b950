//! Timers that are due together, and callbacks that change one another's timers.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    panic::resume_unwind,
    rc::Rc,
    time::Duration,
};

use corewheel::{
    AddErrorReason, Cancel, Config, ManualClock, Shard, ShardRef, TimerHandle, local_timer,
};

use crate::{
    CANCELS, Counter, HOUR, add_batch, add_batch_that_is_cancelled, add_elsewhere, assert_sound,
    cancel_elsewhere,
    common::{TICK, any_magnitude, configured, in_virtual_time, on_a_thread, operations, seeded},
    counter, expired, never, on_a_core, shard_by, turn_after, turn_twice,
};

/// tokio #6714: entries were fired straight from their slot, and an entry that was reset and
/// dropped during the walk broke it. Here one of a due batch is cancelled, and others are moved,
/// after `before` of them have been handed out.
fn changes_in_the_middle_of_a_batch(batch: usize, before: usize) {
    let clock = ManualClock::new();
    let mut shard: Shard<usize> = shard_by(&clock);
    let handles: Vec<_> = (0..batch).map(|id| shard.add(TICK, id)).collect();
    clock.advance(TICK);
    shard.turn();
    let mut waiting: Vec<usize> = (0..batch).collect();
    let take = |shard: &mut Shard<usize>, waiting: &mut Vec<usize>| {
        let expired = shard.next_expired()?;
        let place = waiting.iter().rposition(|&id| id == expired.payload).expect("it fires once");
        waiting.swap_remove(place);
        Some(())
    };
    for _ in 0..before {
        take(&mut shard, &mut waiting).expect("more are due");
    }
    let (cancelled, later, at_once, twice) = (waiting[0], waiting[1], waiting[2], waiting[3]);
    assert_eq!(shard.cancel(handles[cancelled]), Some(cancelled));
    assert!(shard.reset(handles[later], TICK * 5) && shard.reset(handles[at_once], Duration::ZERO));
    assert!(shard.reset(handles[twice], TICK * 5) && shard.reset(handles[twice], TICK));
    waiting.drain(..4);
    while take(&mut shard, &mut waiting).is_some() {}
    assert!(waiting.is_empty(), "{waiting:?} were passed over");
    assert_eq!(expired(&mut shard), [at_once]);
    clock.advance(TICK);
    assert_eq!(expired(&mut shard), [twice]);
    clock.advance(TICK * 4);
    assert_eq!(expired(&mut shard), [later]);
    assert!(shard.is_empty() && shard.next_deadline().is_none());
}

/// tokio.
#[test]
fn bug_03_a_sibling_moved_in_the_middle_of_a_batch_broke_it() {
    (0..8).for_each(|before| changes_in_the_middle_of_a_batch(12, before));
    // Enough for the lists of a tick to be prefetched.
    let many = if cfg!(miri) { 20 } else { 10_000 };
    for before in [0, 1, many / 2, many - 4] {
        changes_in_the_middle_of_a_batch(many, before);
    }
}

/// Adds two timers that are due at once, of which the one that runs first cancels the other.
fn two_that_cancel_each_other(cancel: fn(TimerHandle) -> Cancel) {
    let handles = Rc::new(Cell::new(None::<[TimerHandle; 2]>));
    let add = |other: usize| {
        let handles = Rc::clone(&handles);
        local_timer().add(Duration::ZERO, move || {
            assert_eq!(
                handles.get().map(|handles| cancel(handles[other])),
                Some(Cancel::Cancelled)
            );
        })
    };
    handles.set(Some([add(1), add(0)]));
}

/// tokio #3229, #5989.
#[test]
fn bug_04_a_timer_dropped_in_the_tick_it_fires_in_panicked() {
    for cancel in CANCELS {
        on_a_core(|clock| {
            let add = || local_timer().add(TICK, never);
            let (before, between, guarded) = (add(), add(), add().guard());
            clock.advance(TICK);
            assert_eq!(cancel(before), Cancel::Cancelled);
            // A pass that may touch nothing has begun, and stands at the tick of all of them.
            assert!(local_timer().turn_within(0).behind);
            assert_eq!(cancel(between), Cancel::Cancelled);
            drop(guarded);
            two_that_cancel_each_other(cancel);
            assert_eq!(local_timer().turn().fired, 1);
            assert_eq!(local_timer().turn().live, 0);
        });
    }
}

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

/// Measured with tokio 1.54.1: of 20 sleeps due together, those behind one whose waker panics were
/// never woken.
#[test]
fn bug_11_a_panic_dropped_the_timers_behind_it() {
    for timers in [3, 20, 101] {
        for panics in [0, 1, timers / 2, timers - 1] {
            in_virtual_time(|clock| {
                let (runs, run) = counter();
                for _ in 0..timers {
                    let (run, runs) = (run.clone(), runs.clone());
                    local_timer().add(TICK, move || {
                        run();
                        if runs.get() == panics + 1 {
                            // Panics without the message of `panic!`.
                            resume_unwind(Box::new("as planned"));
                        }
                    });
                }
                let turn = turn_after(clock, 1);
                assert_eq!((turn.fired, runs.get(), turn.live), (timers, timers, 0));
                assert_eq!(local_timer().counts().panicked, 1);
                local_timer().add(TICK, run);
                assert_eq!(turn_after(clock, 1).fired, 1);
            });
        }
    }
}

/// Netty #14959, with its numbers: of eleven timeouts of the same tick the first that runs cancels
/// the other ten. With a limit, each timeout that was counted twice made room for one too many.
#[test]
fn bug_12_a_timer_cancelled_in_the_tick_it_fires_in_was_counted_twice() {
    for cancel in CANCELS {
        configured(Config::new().limit(11), |clock| {
            for round in 1..=3 {
                let drops = add_batch_that_is_cancelled(11, cancel);
                let refused = local_timer().try_add(TICK, || ());
                assert!(refused.is_err_and(|error| error.reason() == AddErrorReason::Full));
                assert_eq!((turn_after(clock, 1).fired, drops.get()), (1, 11));
                let counts = local_timer().counts();
                let ends = (counts.added, counts.fired, counts.cancelled);
                assert_eq!(ends, (11 * round, round, 10 * round));
                assert_eq!((local_timer().len(), counts.live, counts.held), (0, 0, 0));
            }
            assert_sound(local_timer().counts());
        });
    }
}

/// DPDK a4b7a5a45cf5: while the first of a due batch runs, another core changes others of the
/// batch, through the links that the batch hangs by. Here it cancels every second one, and its
/// owner adds others.
#[test]
fn bug_16_another_core_changed_the_batch_while_its_first_ran() {
    for timers in [2, 3, 10, 100] {
        on_a_core(|clock| {
            let (runs, run) = counter();
            add_batch(timers, &Counter::default(), move |others| {
                run();
                for other in others.into_iter().step_by(2) {
                    assert_eq!(cancel_elsewhere(other), Cancel::Cancelled);
                    local_timer().add(Duration::ZERO, run.clone());
                }
            });
            let (cancelled, turn) = (timers / 2, turn_after(clock, 1));
            let did = (turn.fired, turn.collected, turn.live);
            assert_eq!(did, (timers - cancelled, cancelled, cancelled));
            assert_eq!((local_timer().turn().fired, runs.get()), (cancelled, timers));
        });
    }
}

#[test]
fn bug_16_another_core_reset_others_of_the_batch_while_its_first_ran() {
    for delay in [0, 1, 5, 200_000].map(|ticks| TICK * ticks) {
        on_a_core(|clock| {
            let (runs, run) = counter();
            add_batch(20, &Counter::default(), move |others| {
                run();
                on_a_thread(|| assert!(others.iter().step_by(2).all(|other| other.reset(delay))));
            });
            let turn = turn_after(clock, 1);
            // A timer that is moved to the present may still run in this turn.
            assert!(delay.is_zero() || (turn.fired, turn.live, runs.get()) == (10, 10, 10));
            clock.advance(delay);
            turn_twice();
            assert_eq!(
                (runs.get(), local_timer().len(), local_timer().counts().fired),
                (20, 0, 20)
            );
        });
    }
}

/// DPDK 7079e29f: a timer was linked before it was marked as pending; an owner that found it in
/// between took it off for good. Here a wake hook, called from within the add, turns when the timer
/// is due already.
#[test]
fn bug_17_a_timer_found_before_it_was_marked_was_dropped() {
    thread_local! {
        static TURNS: Cell<bool> = const { Cell::new(false) };
    }
    let clock = ManualClock::new();
    let now = clock.clone();
    let config = Config::new().clock(&clock).on_wake(move || {
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

/// Of ten timers that are due, the first that runs moves four others, from one end of the batch.
fn a_batch_whose_first_moves_four(clock: &ManualClock, delay: Duration, from_the_end: bool) {
    let (runs, run) = counter();
    let counting = run.clone();
    add_batch(10, &Counter::default(), move |mut others| {
        counting();
        if from_the_end {
            others.reverse();
        }
        assert!(others.into_iter().take(4).all(|other| other.reset(delay)));
    });
    // One that is pending stands where the others are moved to.
    local_timer().add(TICK + delay.max(TICK), run);
    assert_eq!((turn_after(clock, 1).fired, runs.get()), (6, 6));
    clock.advance(delay);
    let fired = local_timer().turn().fired;
    assert_eq!(fired, if delay.is_zero() { 4 } else { 5 });
    assert_eq!(fired + turn_after(clock, 2).fired, 5);
    assert_eq!((runs.get(), local_timer().next_deadline()), (11, None));
}

/// DPDK 20d159f2: the callback of one timer resets another one of the batch that is being run.
#[test]
fn bug_18_a_reset_of_a_due_sibling_chained_the_batch_to_the_pending_ones() {
    for delay in [0, 1, 2, 200_000].map(|ticks| TICK * ticks) {
        for from_the_end in [false, true] {
            on_a_core(|clock| a_batch_whose_first_moves_four(clock, delay, from_the_end));
        }
    }
}

/// DPDK 83cb53f3, 0efd46d7: a periodic timer was not armed again if its callback had touched
/// another one.
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

/// folly 09a84b28 (and libuv #4245, ratas 290f5d3): a timer that adds itself again is run again by
/// the same pass, and the loop starves.
#[test]
fn bug_22_a_timer_added_by_a_callback_ran_in_the_same_pass() {
    fn again(clock: ManualClock, way: u32, runs: Rc<Cell<u32>>) {
        let callback = move || {
            runs.set(runs.get() + 1);
            // The clock advances, so the next timer is overdue.
            clock.advance(TICK * way);
            again(clock, way, runs);
        };
        match way {
            0 => _ = local_timer().add(Duration::ZERO, callback),
            1 => _ = local_timer().add_local(Duration::ZERO, callback),
            _ => _ = local_timer().add(local_timer().now() - TICK, callback),
        }
    }
    for way in 0..3 {
        on_a_core(|clock| {
            clock.advance(TICK * 5);
            let runs = Rc::default();
            again(clock.clone(), way, Rc::clone(&runs));
            for run in 1..50 {
                let turn = local_timer().turn();
                assert_eq!((turn.fired, turn.live, runs.get()), (1, 1, run));
                assert_eq!(local_timer().time_until_next(), Some(Duration::ZERO));
            }
        });
    }
    let clock = ManualClock::new();
    let mut shard: Shard<u32> = shard_by(&clock);
    shard.add(Duration::ZERO, 0);
    for pass in 0..50 {
        shard.turn();
        let again = shard.next_expired().expect("one is due").payload;
        shard.add(Duration::ZERO, again + 1);
        assert!(again == pass && shard.next_expired().is_none());
    }
}

/// A timer that another thread adds while a pass runs its callbacks fires in a later pass.
#[test]
fn bug_22_from_another_core_a_timer_added_by_a_callback_ran_in_the_same_pass() {
    fn again(owner: ShardRef, runs: Counter) {
        let to = owner.clone();
        add_elsewhere(&to, Duration::ZERO, move || {
            runs.increment();
            again(owner, runs);
        });
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

/// folly 3a06d042 (and Seastar 544a990f): cancelling all left out those that had been taken out of
/// the wheel in order to run.
#[test]
fn bug_23_cancelling_all_missed_those_about_to_run() {
    for cancel in CANCELS {
        for timers in [1, 2, 50] {
            on_a_core(|clock| {
                let drops = add_batch_that_is_cancelled(timers, cancel);
                assert_eq!(
                    (turn_after(clock, 1).fired, drops.get(), local_timer().len()),
                    (1, timers, 0)
                );
            });
        }
    }
    // Others of the same tick that only their own core can name, or that run again and again.
    on_a_core(|clock| {
        let (runs, run) = counter();
        let private: Vec<_> = (0..10).map(|_| local_timer().add_local(TICK * 2, never)).collect();
        let periodic: Vec<_> =
            (0..10).map(|_| local_timer().add_periodic(TICK * 2, never)).collect();
        local_timer().add(TICK, move || {
            run();
            assert!(private.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
            assert!(periodic.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
        });
        // Both ticks are due in this turn.
        assert_eq!((turn_after(clock, 10).fired, runs.get(), local_timer().len()), (1, 1, 0));
    });
}

/// folly b5759618, 6ea3ec05: within one pass, entries were moved down by one "now" and fired by
/// another. Here the clock moves forward, and at times back, while a pass hands out its timers. A
/// pass keeps the time at which it began.
#[test]
fn bug_24_one_pass_used_two_different_nows() {
    seeded(0..operations(30).min(300), |random| {
        let clock = ManualClock::new();
        let (mut shard, mut live) = (shard_by(&clock), BTreeMap::new());
        let ticks = |clock: &ManualClock| clock.elapsed().as_nanos() / TICK.as_nanos();
        for id in 0..300_u32 {
            let delay = u32::try_from(any_magnitude(random) >> 42).expect("22 bits");
            shard.add(TICK * delay, id);
            live.insert(id, u128::from(delay));
        }
        while !live.is_empty() {
            clock.advance(shard.time_until_next().expect("some are live") + TICK * random.u32(..3));
            let (now, mut latest) = (ticks(&clock), 0);
            shard.turn();
            while let Some(id) = shard.next_expired().map(|expired| expired.payload) {
                let deadline = live.remove(&id).expect("it fires once");
                assert!(
                    latest <= deadline && deadline <= now,
                    "due at {deadline}, after {latest}, in a pass at {now}"
                );
                latest = deadline;
                clock.advance(TICK * random.u32(..5_000));
                if random.u32(..8) == 0 {
                    clock.set(clock.elapsed() / 2);
                }
            }
            assert!(
                live.values().all(|&deadline| deadline > now),
                "left behind by a pass at {now}"
            );
            clock.set(clock.elapsed().max(TICK * u32::try_from(now).expect("22 bits and a few")));
        }
        assert!(expired(&mut shard).is_empty());
    });
}

/// libuv #4304: a timer was stopped and its memory freed while the queue of due timers still
/// contained it. The first of a batch cancels all others, which frees their captures, and adds new
/// ones in their nodes. Then the pass continues.
#[test]
fn bug_39_the_queue_led_through_a_timer_that_was_stopped() {
    for (cancel, is_freed_at_once) in CANCELS.into_iter().zip([true, false]) {
        for timers in [2_usize, 3, 100, 600] {
            on_a_core(|clock| {
                let (drops, (runs, run)) = (Counter::default(), counter());
                // Too large to be stored in place.
                let (dropped, large) = (drops.clone(), [7; 20]);
                add_batch(timers, &drops, move |others| {
                    assert!(others.into_iter().all(|other| cancel(other) == Cancel::Cancelled));
                    assert!(!is_freed_at_once || dropped.get() == timers - 1, "freed at once");
                    (1..timers).for_each(|_| _ = local_timer().add(Duration::ZERO, run.clone()));
                    assert_eq!(large, [7; 20]);
                });
                let turn = turn_after(clock, 1);
                assert_eq!((turn.fired, turn.live, runs.get()), (1, timers - 1, 0));
                assert_eq!(drops.get(), timers);
                assert_eq!(local_timer().turn().fired, timers - 1);
                assert_eq!(runs.get(), timers - 1);
            });
        }
    }
}

/// Seastar #2318, #3013: after a periodic callback had cancelled the earliest timer, the next
/// timeout was still that timer's, and the clock was not set for later ones. Here each of several
/// runs cancels the earliest of the others, and the last run cancels its own timer too.
fn the_earliest_are_cancelled_in_callbacks(runs: u32) {
    on_a_core(|clock| {
        let handles: Rc<RefCell<Vec<TimerHandle>>> = Rc::default();
        let (all, (ran, run)) = (Rc::clone(&handles), counter());
        let periodic = local_timer().add_periodic(TICK, move || {
            run();
            assert_eq!(all.borrow_mut().remove(1).cancel(), Cancel::Cancelled);
            if ran.get() == runs as usize {
                assert_eq!(all.borrow()[0].cancel(), Cancel::Running);
            }
        });
        handles.borrow_mut().push(periodic);
        let delays = (1..=runs + 2).map(|place| TICK * 50 * place);
        handles.borrow_mut().extend(delays.map(|delay| local_timer().add(delay, never)));
        for ran in 1..=runs {
            assert_eq!(turn_after(clock, 1).fired, 1);
            let next = if ran < runs { TICK } else { TICK * 50 * (runs + 1) - TICK * runs };
            assert_eq!(local_timer().time_until_next(), Some(next), "after {ran} of {runs} runs");
        }
        // The clock is set for later timers, before the earliest and after it.
        let (fired, run) = counter();
        for delay in [TICK * 2, TICK] {
            local_timer().add(delay, run.clone());
            assert_eq!(local_timer().time_until_next(), Some(delay));
        }
        assert_eq!((turn_after(clock, 2).fired, fired.get()), (2, 2));
        assert!(
            handles.take().into_iter().skip(1).all(|handle| handle.cancel() == Cancel::Cancelled)
        );
        assert_eq!(local_timer().time_until_next(), None);
        local_timer().add(HOUR, never);
        assert!(local_timer().time_until_next().is_some_and(|next| next > HOUR / 2));
    });
}

/// Seastar.
#[test]
fn bug_40_the_next_timeout_was_that_of_a_timer_cancelled_in_a_callback() {
    (1..10).for_each(the_earliest_are_cancelled_in_callbacks);
}
