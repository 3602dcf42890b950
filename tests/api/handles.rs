//! Handles are plain values (P12), and whoever cancels learns at once who won (P3), on the owning core and elsewhere.

use std::{
    cell::Cell, collections::HashSet, fmt::Debug, hash::Hash, marker::PhantomData, panic, rc::Rc,
    sync::Arc, thread, time::Duration,
};

use corewheel::{
    Cancel, Config, Core, Cores, LocalHandle, LocalTimer, ManualClock, PreparedSleep, Shard,
    TimerGuard, TimerHandle, Turn, local_timer,
};

use crate::common::{TICK, in_virtual_time, on_a_thread};

/// Whether a type implements a trait: what is inherent, and there for such types only, comes before what is there for all.
macro_rules! implements {
    ($type:ty: $($bound:tt)+) => {{
        #[allow(dead_code, reason = "used where the bound does not hold")]
        trait No {
            const IT_DOES: bool = false;
        }
        struct Probe<T>(PhantomData<T>);
        #[allow(dead_code, reason = "used where the bound holds")]
        impl<T: $($bound)+> Probe<T> {
            const IT_DOES: bool = true;
        }
        impl<T> No for Probe<T> {}
        <Probe<$type>>::IT_DOES
    }};
}

fn turn_after(clock: &ManualClock, ticks: u32) -> Turn {
    clock.advance(TICK * ticks);
    local_timer().turn()
}

fn never() {
    unreachable!("this callback must not run");
}

fn cancel_elsewhere(handle: TimerHandle) -> Cancel {
    on_a_thread(move || handle.cancel())
}

// ---- what they are

#[test]
fn a_handle_is_sixteen_bytes_also_in_an_option() {
    assert_eq!(size_of::<TimerHandle>(), 16);
    assert_eq!(size_of::<Option<TimerHandle>>(), 16);
    assert_eq!(size_of::<LocalHandle>(), 16);
    assert_eq!(size_of::<TimerGuard>(), 16);
}

#[test]
fn a_handle_is_a_plain_value() {
    fn plain<
        T: Copy
            + Send
            + Sync
            + Unpin
            + Eq
            + Hash
            + Debug
            + panic::UnwindSafe
            + panic::RefUnwindSafe
            + 'static,
    >() {
    }
    plain::<TimerHandle>();
    assert!(implements!(TimerHandle: Copy + Send + Sync));
    assert!(implements!(TimerGuard: Send + Sync + Debug));
    assert!(!implements!(TimerGuard: Clone), "a guard cancels once");
    assert!(implements!(LocalHandle: Copy + Eq + Hash + Debug));
    assert!(implements!(Cores<()>: Send + Sync));
    assert!(implements!(Core: Send + Sync));
    assert!(implements!(Config: Send + Sync));
    assert!(implements!(Shard<u8>: Send));
}

#[test]
fn what_belongs_to_one_thread_cannot_leave_it() {
    assert!(!implements!(LocalHandle: Send));
    assert!(!implements!(LocalHandle: Sync));
    assert!(!implements!(LocalTimer: Send));
    assert!(!implements!(LocalTimer: Sync));
    assert!(!implements!(PreparedSleep<'static>: Send));
    assert!(!implements!(PreparedSleep<'static>: Sync));
    assert!(!implements!(Shard<Rc<u8>>: Send));
}

#[test]
fn handles_are_equal_when_they_name_the_same_timer() {
    in_virtual_time(|_| {
        let one = local_timer().add(TICK, never);
        let other = local_timer().add(TICK, never);
        let copy = one;
        assert!(one == copy && one != other);
        assert_eq!(HashSet::from([one, copy, other]).len(), 2);
        assert!(!format!("{one:?}").is_empty() && format!("{one:?}") != format!("{other:?}"));
        let private = local_timer().add_local(TICK, never);
        assert_eq!(private.share(), private.share());
    });
}

// ---- guards

#[test]
fn a_guard_cancels_when_it_is_dropped() {
    in_virtual_time(|clock| {
        let captured = Rc::new(());
        let held = Rc::clone(&captured);
        let guard = local_timer().add(TICK, move || drop(held)).guard();
        let handle = guard.handle();
        assert!(handle.is_pending());
        drop(guard);
        assert_eq!((handle.cancel(), Rc::strong_count(&captured)), (Cancel::Ended, 1));
        assert_eq!((turn_after(clock, 1).fired, local_timer().counts().cancelled), (0, 1));
    });
}

#[test]
fn a_guard_cancels_when_a_panic_unwinds_its_scope() {
    in_virtual_time(|_| {
        let unwound = panic::catch_unwind(|| {
            let _guard = local_timer().add(TICK, never).guard();
            panic!("as planned");
        });
        assert!(unwound.is_err() && local_timer().is_empty());
    });
}

#[test]
fn a_disarmed_guard_cancels_nothing() {
    in_virtual_time(|clock| {
        let runs = Rc::new(Cell::new(0));
        let counted = Rc::clone(&runs);
        let guard = local_timer().add(TICK, move || counted.set(counted.get() + 1)).guard();
        let handle = guard.disarm();
        assert!(handle.is_pending());
        assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, 1));
    });
}

#[test]
fn a_guard_that_moved_to_another_thread_cancels_from_there() {
    in_virtual_time(|clock| {
        let guard = local_timer().add(TICK, never).guard();
        on_a_thread(move || drop(guard));
        let turn = turn_after(clock, 1);
        assert_eq!((turn.fired, turn.collected, turn.live), (0, 1, 0));
    });
}

#[test]
fn a_guard_that_outlives_its_timer_cancels_nothing() {
    in_virtual_time(|clock| {
        let guard = local_timer().add(TICK, || {}).guard();
        assert_eq!(turn_after(clock, 1).fired, 1);
        let next = local_timer().add(TICK, || {});
        drop(guard);
        assert!(next.is_pending());
        assert_eq!(turn_after(clock, 1).fired, 1);
    });
    let guard = in_virtual_time(|_| local_timer().add(TICK, never).guard());
    drop(guard);
}

// ---- stale handles

/// What a handle that names no timer must answer, here and elsewhere.
fn assert_stale(handle: TimerHandle) {
    assert_eq!(handle.cancel(), Cancel::Ended);
    assert!(!handle.is_pending());
    assert!(!handle.reset(Duration::ZERO));
}

#[test]
fn a_handle_whose_timer_fired_or_was_cancelled_is_stale() {
    in_virtual_time(|clock| {
        let fired = local_timer().add(TICK, || {});
        let cancelled = local_timer().add(TICK, never);
        let cancelled_elsewhere = local_timer().add(TICK, never);
        let private = local_timer().add_local(TICK, || {});
        assert_eq!(cancelled.cancel(), Cancel::Cancelled);
        assert_eq!(cancel_elsewhere(cancelled_elsewhere), Cancel::Cancelled);
        let all = [fired, cancelled, cancelled_elsewhere];
        [cancelled, cancelled_elsewhere].into_iter().for_each(assert_stale);
        assert_eq!(turn_after(clock, 1).fired, 2);
        all.into_iter().for_each(assert_stale);
        on_a_thread(|| all.into_iter().for_each(assert_stale));
        assert_eq!(
            (private.cancel(), private.is_pending(), private.reset(TICK)),
            (Cancel::Ended, false, false)
        );
        assert_stale(private.share());
        assert_eq!(cancel_elsewhere(private.share()), Cancel::Ended);
    });
}

#[test]
fn a_stale_handle_never_touches_the_timers_that_use_its_node_again() {
    in_virtual_time(|clock| {
        let mut stale = HashSet::new();
        for round in 0..3_000 {
            // With one timer at a time, each uses the node of the one before.
            let handle = match round % 2 {
                0 => local_timer().add(TICK, || {}),
                _ => local_timer().add_periodic(TICK, || {}),
            };
            match round % 3 {
                0 => assert_eq!(turn_after(clock, 1).fired, 1),
                1 => assert_eq!(handle.cancel(), Cancel::Cancelled),
                _ if round % 64 == 2 => assert_eq!(cancel_elsewhere(handle), Cancel::Cancelled),
                _ => {}
            }
            // A periodic one goes on after it fired, and some have only been cancelled elsewhere.
            handle.cancel();
            local_timer().turn();
            assert!(local_timer().is_empty());
            assert!(stale.insert(handle), "no two timers ever have the same handle");
        }
        let runs = Rc::new(Cell::new(0));
        let live: Vec<_> = (0..10)
            .map(|_| {
                let runs = Rc::clone(&runs);
                local_timer().add(TICK, move || runs.set(runs.get() + 1))
            })
            .collect();
        stale.iter().copied().for_each(assert_stale);
        on_a_thread(|| stale.iter().copied().for_each(assert_stale));
        assert!(live.iter().all(|handle| handle.is_pending()));
        assert_eq!((turn_after(clock, 1).fired, runs.get()), (10, 10));
    });
}

#[test]
fn handles_of_shards_that_are_gone_never_touch_the_shards_that_come_after() {
    let clock = ManualClock::new();
    let mut stale = HashSet::new();
    // Numbers of shards are used again at once, so most of these follow each other under the same one.
    for round in 0..100 {
        let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
        for id in 0..20 {
            assert!(stale.insert(shard.add(TICK, id)), "no two timers ever have the same handle");
        }
        if round % 3 == 0 {
            clock.advance(TICK);
            shard.turn();
            assert_eq!(std::iter::from_fn(|| shard.next_expired()).count(), 20);
        }
        if round % 2 == 0 {
            drop(shard.drain());
        }
    }
    let mut shards: Vec<Shard<u8>> = (0..20)
        .map(|_| Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid"))
        .collect();
    let live: Vec<Vec<_>> =
        shards.iter_mut().map(|shard| (0..20).map(|id| shard.add(TICK, id)).collect()).collect();
    stale.iter().copied().for_each(assert_stale);
    for &handle in &stale {
        for shard in &mut shards[..2] {
            assert_eq!((shard.cancel(handle), shard.reset(handle, Duration::ZERO)), (None, false));
        }
    }
    assert!(live.iter().flatten().all(|handle| handle.is_pending()));
    for mut shard in shards {
        let mut ids: Vec<_> = shard.drain().into_iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..20));
    }
    live.into_iter().flatten().for_each(assert_stale);
}

#[test]
fn a_shard_refuses_the_handles_of_another() {
    let clock = ManualClock::new();
    let shard = || Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    let (mut one, mut other) = (shard(), shard());
    let handles: Vec<_> =
        (0..10).map(|id| (one.add(TICK * 9, id), other.add(TICK * 9, id))).collect();
    for &(of_one, of_other) in &handles {
        assert_eq!((one.cancel(of_other), other.cancel(of_one)), (None, None));
        assert_eq!((one.reset(of_other, TICK), other.reset(of_one, TICK)), (false, false));
    }
    assert_eq!((one.time_until_next(), other.time_until_next()), (Some(TICK * 9), Some(TICK * 9)));
    assert_eq!(one.cancel(handles[3].0), Some(3));
}

#[test]
fn handles_of_threads_that_are_gone_never_touch_the_threads_that_come_after() {
    let mut stale = Vec::new();
    for _ in 0..100 {
        stale.extend(in_virtual_time(|clock| {
            let mut handles: Vec<_> = (0..8).map(|_| local_timer().add(TICK, || {})).collect();
            assert_eq!(turn_after(clock, 1).fired, 8);
            handles.extend((0..8).map(|_| local_timer().add(TICK, never)));
            handles
        }));
    }
    stale.iter().copied().for_each(assert_stale);
    in_virtual_time(|clock| {
        let live: Vec<_> = (0..8).map(|_| local_timer().add(TICK, || {})).collect();
        // By the owner's own path as well as from elsewhere.
        stale.iter().copied().for_each(assert_stale);
        on_a_thread(|| stale.iter().copied().for_each(assert_stale));
        assert!(live.iter().all(|handle| handle.is_pending()));
        assert_eq!(turn_after(clock, 1).fired, 8);
    });
}

#[test]
fn a_stale_handle_with_a_large_index_is_stale_in_a_small_shard() {
    let clock = ManualClock::new();
    let shard = || Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    let mut large = shard();
    let last = (0..5_000).map(|id| large.add(TICK, id)).last().expect("some");
    drop(large);
    // One of these has the number of the large one.
    let mut small: Vec<Shard<i32>> = (0..20).map(|_| shard()).collect();
    for shard in &mut small {
        shard.add(TICK, 0);
    }
    assert_stale(last);
    for shard in &mut small {
        assert_eq!((shard.cancel(last), shard.len()), (None, 1));
    }
}

// ---- from another thread

#[test]
fn a_cancel_elsewhere_gives_the_callback_back_to_the_next_turn_of_the_owner() {
    in_virtual_time(|clock| {
        let captured = Rc::new(());
        let held = Rc::clone(&captured);
        let handle = local_timer().add(TICK * 5, move || drop(held));
        let other = local_timer().add(TICK * 9, || {});
        assert_eq!(cancel_elsewhere(handle), Cancel::Cancelled);
        // It has not run and never will; but it has not been dropped either.
        assert_eq!(
            (handle.cancel(), handle.is_pending(), handle.reset(TICK)),
            (Cancel::Ended, false, false)
        );
        assert_eq!(cancel_elsewhere(handle), Cancel::Ended);
        let counts = local_timer().counts();
        assert_eq!((counts.live, counts.held, counts.cancelled, local_timer().len()), (2, 1, 0, 2));
        assert_eq!(Rc::strong_count(&captured), 2);
        let turn = local_timer().turn();
        assert_eq!((turn.fired, turn.collected, turn.live), (0, 1, 1));
        assert_eq!(Rc::strong_count(&captured), 1);
        let counts = local_timer().counts();
        assert_eq!((counts.live, counts.held, counts.cancelled), (1, 0, 1));
        assert_eq!((turn_after(clock, 9).fired, other.cancel()), (1, Cancel::Ended));
    });
}

#[test]
fn a_due_timer_that_another_thread_has_cancelled_never_runs() {
    in_virtual_time(|clock| {
        let due = local_timer().add(TICK, never);
        clock.advance(TICK * 3);
        assert_eq!(cancel_elsewhere(due), Cancel::Cancelled);
        let turn = local_timer().turn();
        assert_eq!((turn.fired, turn.collected, turn.live), (0, 1, 0));
        // Also when it is queued behind another one in the same turn.
        let queued = local_timer().add(TICK * 2, never);
        let answer = Rc::new(Cell::new(Cancel::Running));
        let told = Rc::clone(&answer);
        local_timer().add(TICK, move || told.set(cancel_elsewhere(queued)));
        let turn = turn_after(clock, 3);
        assert_eq!(
            (turn.fired, turn.collected, turn.live, answer.get()),
            (1, 1, 0, Cancel::Cancelled)
        );
        assert_eq!(local_timer().counts().panicked, 0);
    });
}

#[test]
fn a_cancelled_timer_that_is_held_at_thread_exit_is_dropped_there() {
    let captured = Arc::new(());
    in_virtual_time(|_| {
        let held = Arc::clone(&captured);
        let handle = local_timer().add(TICK, move || drop(held));
        assert_eq!(cancel_elsewhere(handle), Cancel::Cancelled);
    });
    assert_eq!(Arc::strong_count(&captured), 1);
}

#[test]
fn of_many_threads_that_cancel_one_is_told_that_it_won() {
    in_virtual_time(|clock| {
        for _ in 0..50 {
            let handle = local_timer().add(TICK, never);
            let answers: Vec<Cancel> = thread::scope(|scope| {
                let cancellers: Vec<_> =
                    (0..4).map(|_| scope.spawn(move || handle.cancel())).collect();
                cancellers
                    .into_iter()
                    .map(|canceller| canceller.join().expect("no panic"))
                    .collect()
            });
            let won = answers.iter().filter(|&&answer| answer == Cancel::Cancelled).count();
            let lost = answers.iter().filter(|&&answer| answer == Cancel::Ended).count();
            assert_eq!((won, lost), (1, 3));
            assert_eq!(turn_after(clock, 1).collected, 1);
        }
    });
}

#[test]
fn a_reset_elsewhere_moves_the_timer() {
    in_virtual_time(|clock| {
        let ran_at = Rc::new(Cell::new(Duration::ZERO));
        let (written, now) = (Rc::clone(&ran_at), clock.clone());
        let handle = local_timer().add(TICK * 5, move || written.set(now.elapsed()));
        assert!(on_a_thread(|| handle.reset(TICK * 10)));
        // Also by a thread that has a timer of its own.
        assert!(in_virtual_time(|_| {
            let own = local_timer().add(TICK, never);
            let moved = handle.reset(TICK * 7);
            assert!(own.is_pending());
            moved
        }));
        assert!(handle.is_pending());
        (0..20).for_each(|_| _ = turn_after(clock, 1));
        assert_eq!(ran_at.get(), TICK * 7);
        assert!(!on_a_thread(|| handle.reset(TICK)));
    });
}

/// On the own core, from another one, by a private handle and by a shard; to a moment that has passed as well.
#[test]
fn a_timer_moves_to_an_instant_of_its_own_clock() {
    in_virtual_time(|clock| {
        let runs = Rc::new(Cell::new(0));
        let count = || {
            let runs = Rc::clone(&runs);
            move || runs.set(runs.get() + 1)
        };
        let own = local_timer().add(TICK, count());
        let (other, private) =
            (local_timer().add(TICK, count()), local_timer().add_local(TICK, count()));
        let (passed, soon) = (clock.now(), clock.now() + TICK * 5);
        assert!(
            own.reset_at(soon) && private.reset_at(soon) && on_a_thread(|| other.reset_at(soon))
        );
        clock.advance(TICK * 4);
        assert_eq!(local_timer().turn().fired, 0);
        clock.advance(TICK);
        assert_eq!((local_timer().turn().fired, runs.get()), (3, 3));
        assert!(
            !own.reset_at(soon) && !private.reset_at(soon) && !on_a_thread(|| other.reset_at(soon)),
            "they have ended"
        );
        let late = local_timer().add(TICK * 100, count());
        assert!(late.reset_at(passed));
        clock.advance(TICK);
        assert_eq!((local_timer().turn().fired, runs.get()), (1, 4));

        let from_elsewhere = local_timer().shard_ref();
        let at = from_elsewhere.now() + TICK * 2;
        assert_eq!(from_elsewhere.now(), clock.now());
        on_a_thread(|| {
            from_elsewhere.add_at(at, || ());
            from_elsewhere.add_at(passed, || ());
        });
        assert_eq!(local_timer().turn().fired, 1);
        clock.advance(TICK * 2);
        assert_eq!(local_timer().turn().fired, 1);
    });
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    let handle = shard.add(TICK, ());
    assert!(shard.reset_at(handle, clock.now() + TICK * 3));
    clock.advance(TICK * 2);
    shard.turn();
    assert!(shard.next_expired().is_none());
    clock.advance(TICK);
    shard.turn();
    assert!(shard.next_expired().is_some() && !shard.reset_at(handle, clock.now()));
}

#[test]
fn a_reset_leaves_the_handle_valid() {
    in_virtual_time(|clock| {
        let handle = local_timer().add(TICK, never);
        for delay in [5, 70_000, 2, 3, 1 << 20, 2] {
            assert!(handle.reset(TICK * delay));
            assert!(handle.is_pending());
            assert_eq!(turn_after(clock, 1).fired, 0);
        }
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        assert_eq!(turn_after(clock, 1 << 21).fired, 0);
    });
}

// ---- local handles

#[test]
fn a_local_handle_cancels_and_resets_as_any_other() {
    in_virtual_time(|clock| {
        let captured = Rc::new(());
        let held = Rc::clone(&captured);
        let private = local_timer().add_local(TICK, move || drop(held));
        assert!(private.is_pending() && private.reset(TICK * 2));
        assert_eq!(turn_after(clock, 1).fired, 0);
        assert_eq!((private.cancel(), Rc::strong_count(&captured)), (Cancel::Cancelled, 1));
        assert_eq!((private.cancel(), turn_after(clock, 5).fired), (Cancel::Ended, 0));
    });
}

#[test]
fn a_shared_local_handle_is_cancelled_from_another_thread() {
    in_virtual_time(|clock| {
        let private = local_timer().add_local(TICK, never);
        let shared = private.share();
        assert_eq!(cancel_elsewhere(shared), Cancel::Cancelled);
        assert_eq!(
            (private.cancel(), private.is_pending(), private.reset(TICK)),
            (Cancel::Ended, false, false)
        );
        let turn = turn_after(clock, 1);
        assert_eq!((turn.fired, turn.collected), (0, 1));
    });
}

#[test]
fn a_shared_local_handle_still_fires_and_its_local_one_stays_valid() {
    in_virtual_time(|clock| {
        let private = local_timer().add_local(TICK, || {});
        let shared = private.share();
        assert!(private.reset(TICK * 3));
        assert_eq!(turn_after(clock, 2).fired, 0);
        assert!(shared.is_pending() && on_a_thread(|| shared.is_pending()));
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!((private.cancel(), cancel_elsewhere(shared)), (Cancel::Ended, Cancel::Ended));
    });
}

#[test]
fn a_local_handle_shared_while_it_runs_is_running_elsewhere() {
    in_virtual_time(|clock| {
        let place = Rc::new(Cell::new(None::<LocalHandle>));
        let answers = Rc::new(Cell::new(None));
        let (own, told) = (Rc::clone(&place), Rc::clone(&answers));
        place.set(Some(local_timer().add_local(TICK, move || {
            let own = own.get().expect("set below");
            told.set(Some((own.cancel(), cancel_elsewhere(own.share()))));
        })));
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(answers.get(), Some((Cancel::Running, Cancel::Running)));
        assert_eq!(place.get().expect("set").cancel(), Cancel::Ended);
    });
}
