//! `ReusableTimer`: keeps its callback and can be armed again.

use std::{cell::Cell, rc::Rc, time::Duration};

use corewheel::{
    AddErrorReason, Cancel, Config, DrainedTimer, ReusableTimer, TimerEnd, TimerStatus, When,
    local_timer,
};

use crate::support::{
    Log, OnDrop, TICK, cancel_remotely, in_checked_virtual_time, in_virtual_time, on_a_thread,
    on_configured_thread, run_after_wheel_ends, turn_after,
};

thread_local! {
    static HOOK_TURNS: Cell<bool> = const { Cell::new(false) };
    static ARMED_BY_HOOK: Cell<Option<Rc<ReusableTimer>>> = const { Cell::new(None) };
}

fn counting_timer() -> (ReusableTimer, Rc<Cell<u32>>) {
    let runs = Rc::new(Cell::new(0));
    let counts = Rc::clone(&runs);
    (ReusableTimer::new(move |_| counts.set(counts.get() + 1)), runs)
}

#[test]
fn a_reusable_timer_can_be_rearmed_and_reports_its_end() {
    in_checked_virtual_time(|clock| {
        let (timer, runs) = counting_timer();
        assert_eq!(format!("{timer:?}"), "ReusableTimer { status: Ended, .. }");
        assert_eq!((timer.last_end(), timer.handle(), timer.cancel()), (None, None, Cancel::Ended));
        for run in 1..=3 {
            assert!(!timer.is_pending() && !timer.arm(TICK * 5));
            assert!(timer.is_pending() && timer.last_end().is_none());
            assert_eq!((turn_after(clock, 4).fired, turn_after(clock, 1).fired), (0, 1));
            assert_eq!((runs.get(), timer.last_end()), (run, Some(TimerEnd::Fired)));
            assert!(!timer.arm(TICK * 5));
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert_eq!(timer.last_end(), Some(TimerEnd::Cancelled));
            assert_eq!((turn_after(clock, 10).fired, timer.status()), (0, TimerStatus::Ended));
        }
    });
}

#[test]
fn arming_a_pending_timer_moves_it() {
    in_checked_virtual_time(|clock| {
        let (timer, runs) = counting_timer();
        assert!(!timer.arm(TICK * 5));
        let handle = timer.handle();
        assert!(timer.arm(TICK * 2));
        turn_after(clock, 2);
        assert_eq!((runs.get(), local_timer().len()), (1, 0));
        assert!(!timer.arm(TICK * 2));
        assert!(timer.arm(When::after(TICK * 9).slack(TICK)));
        assert_ne!(timer.handle(), handle);
        turn_after(clock, 8);
        assert_eq!(runs.get(), 1);
        turn_after(clock, 2);
        assert_eq!(runs.get(), 2);
    });
}

#[test]
fn the_callback_may_arm_and_cancel_its_timer() {
    in_checked_virtual_time(|clock| {
        let log = Log::new();
        let (writes, mut runs) = (log.clone(), 0);
        let timer = ReusableTimer::new(move |timer| {
            runs += 1;
            writes.write((timer.status(), timer.last_end(), timer.cancel()));
            if runs < 3 {
                assert!(!timer.arm(TICK) && timer.arm(TICK * 2));
                assert_eq!((timer.status(), timer.last_end()), (TimerStatus::Pending, None));
            }
        });
        timer.arm(TICK);
        assert_eq!([1, 1, 1, 2, 9].map(|it| turn_after(clock, it).fired), [1, 0, 1, 1, 0]);
        assert_eq!(log.take(), [(TimerStatus::Running, None, Cancel::Running); 3]);
        assert_eq!(timer.last_end(), Some(TimerEnd::Fired));
    });
}

#[test]
fn a_drop_cancels_the_timer_even_inside_its_callback() {
    in_checked_virtual_time(|clock| {
        let (timer, runs) = counting_timer();
        timer.arm(TICK);
        drop(timer);
        assert_eq!((local_timer().len(), Rc::strong_count(&runs)), (0, 1));

        // The callback arms its timer before and after dropping it; neither arming survives.
        let owner = Rc::new(Cell::new(None));
        let (weak_owner, counts) = (Rc::downgrade(&owner), Rc::clone(&runs));
        let timer = ReusableTimer::new(move |timer| {
            timer.arm(TICK);
            drop(weak_owner.upgrade().expect("the test owns the timer").take());
            timer.arm(TICK);
            counts.set(counts.get() + 1);
        });
        timer.arm(TICK);
        owner.set(Some(timer));
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!((runs.get(), Rc::strong_count(&runs), local_timer().len()), (1, 1, 0));
    });
}

#[test]
fn a_panic_of_a_callbacks_destructor_does_not_reach_the_drop_of_the_timer() {
    in_virtual_time(|_| {
        for arms in [false, true] {
            let captured = OnDrop(|| panic!("as planned"));
            let timer = ReusableTimer::new(move |_| _ = &captured);
            if arms {
                timer.arm(TICK);
            }
            drop(timer);
            assert_eq!(local_timer().counts().panicked, 1 + u64::from(arms));
        }
        assert!(local_timer().is_empty());
    });
}

#[test]
fn a_callback_that_panics_is_kept() {
    in_virtual_time(|clock| {
        let runs = Rc::new(Cell::new(0));
        let counts = Rc::clone(&runs);
        let timer = ReusableTimer::new(move |timer| {
            counts.set(counts.get() + 1);
            timer.arm(TICK * 3);
            assert!(counts.get() > 1, "as planned in the first run");
        });
        timer.arm(TICK);
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!((local_timer().counts().panicked, timer.status()), (1, TimerStatus::Pending));
        turn_after(clock, 3);
        assert_eq!(runs.get(), 2);
    });
}

#[test]
fn deadline_and_time_left_are_none_unless_pending() {
    in_checked_virtual_time(|clock| {
        let (timer, _) = counting_timer();
        let times = || (timer.deadline(), timer.time_left());
        assert_eq!(times(), (None, None));
        timer.arm(TICK * 5);
        let deadline = local_timer().now() + TICK * 5;
        assert_eq!(times(), (Some(deadline), Some(TICK * 5)));
        clock.advance(TICK * 3);
        assert_eq!(times(), (Some(deadline), Some(TICK * 2)));
        assert_eq!((turn_after(clock, 2).fired, times()), (1, (None, None)));
        timer.arm(TICK);
        timer.cancel();
        assert_eq!(times(), (None, None));
    });
}

#[test]
fn a_dropped_timer_does_not_run_after_a_drain() {
    in_checked_virtual_time(|_| {
        let (timer, runs) = counting_timer();
        let (kept, kept_runs) = counting_timer();
        timer.arm(TICK);
        kept.arm(TICK);
        let pending = local_timer().drain();
        drop(timer);
        assert_eq!(pending.len(), 2);
        pending.into_iter().for_each(DrainedTimer::run);
        assert_eq!((runs.get(), kept_runs.get()), (0, 1));
    });
}

#[test]
fn another_thread_may_cancel_or_reset_a_reusable_timer() {
    in_checked_virtual_time(|clock| {
        let (timer, runs) = counting_timer();
        timer.arm(TICK * 5);
        let handle = timer.handle().expect("armed");
        assert!(on_a_thread(|| handle.reset(TICK * 9)));
        turn_after(clock, 5);
        assert_eq!(runs.get(), 0);
        assert_eq!(on_a_thread(|| handle.cancel()), Cancel::Cancelled);
        assert_eq!(timer.last_end(), Some(TimerEnd::Cancelled));
        // The owner has not yet collected the cancelled timer.
        assert!(!timer.arm(TICK * 5));
        turn_after(clock, 5);
        assert_eq!((runs.get(), handle.cancel()), (1, Cancel::Ended));
    });
}

#[test]
fn a_refused_arming_keeps_the_callback() {
    on_configured_thread(Config::new().limit(1), |clock| {
        let (timer, runs) = counting_timer();
        let other = local_timer().add(TICK, || ());
        assert_eq!(timer.try_arm(TICK), Err(AddErrorReason::Full));
        assert_eq!((timer.status(), timer.last_end()), (TimerStatus::Ended, None));
        other.cancel();
        assert_eq!(timer.try_arm(TICK), Ok(false));
        turn_after(clock, 1);
        assert_eq!(runs.get(), 1);
    });
    // An ended wheel refuses timers.
    let after = run_after_wheel_ends(|| {
        let (timer, _) = counting_timer();
        timer.arm(TICK * 1_000);
        move || (timer.try_arm(TICK * 1_000), timer.status(), timer.last_end())
    });
    let shut_down = Err(AddErrorReason::ShutDown);
    assert_eq!(after, (shut_down, TimerStatus::Ended, Some(TimerEnd::Cancelled)));
}

/// To make room, an arming drops callbacks that other threads have cancelled.
#[test]
fn a_destructor_may_arm_the_timer_inside_its_arming() {
    on_configured_thread(Config::new().limit(2), |clock| {
        let (timer, runs) = counting_timer();
        let timer = Rc::new(timer);
        let timer_in_drop = Rc::clone(&timer);
        let dropped = OnDrop(move || _ = timer_in_drop.try_arm(TICK));
        let first = local_timer().add(TICK, move || _ = &dropped);
        let second = local_timer().add(TICK, || ());
        // The owner consumes the latest cancel first.
        on_a_thread(move || [second.cancel(), first.cancel()]);
        assert!(!timer.arm(TICK * 5));
        assert_eq!(local_timer().len(), 1);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        turn_after(clock, 20);
        assert_eq!((runs.get(), local_timer().len()), (0, 0));
    });
}

fn cancel_and_check(timer: &ReusableTimer) {
    assert_eq!(timer.last_end(), None);
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    assert_eq!(timer.last_end(), Some(TimerEnd::Cancelled));
}

#[test]
fn last_end_belongs_to_the_remaining_arming() {
    // The timer of the inner call of `arm`, made by a destructor, fires first.
    on_configured_thread(Config::new().limit(1), |clock| {
        let (timer, runs) = counting_timer();
        let timer = Rc::new(timer);
        let (timer_in_drop, clock) = (Rc::clone(&timer), clock.clone());
        let dropped = OnDrop(move || {
            timer_in_drop.arm(TICK);
            turn_after(&clock, 1);
        });
        cancel_remotely(local_timer().add(TICK, move || _ = &dropped));
        assert!(!timer.arm(TICK));
        assert_eq!(runs.get(), 1);
        cancel_and_check(&timer);
    });
    // The timer of the outer call of `arm` fires in the wake hook, which makes the inner call.
    let hook = || {
        if let Some(timer) = ARMED_BY_HOOK.take() {
            timer.arm(TICK);
            local_timer().turn();
        }
    };
    on_configured_thread(Config::new().wake_hook(hook), |_| {
        let (timer, runs) = counting_timer();
        let timer = Rc::new(timer);
        local_timer().turn();
        let _sleep = local_timer().prepare_sleep();
        ARMED_BY_HOOK.set(Some(Rc::clone(&timer)));
        assert!(!timer.arm(Duration::ZERO));
        assert_eq!(runs.get(), 1);
        cancel_and_check(&timer);
    });
}

/// The inner call of `try_arm` takes the only room, so the outer call resets the timer.
#[test]
fn an_inner_arm_call_may_take_the_last_room() {
    on_configured_thread(Config::new().limit(1), |clock| {
        let (timer, runs) = counting_timer();
        let timer = Rc::new(timer);
        let timer_in_drop = Rc::clone(&timer);
        let dropped = OnDrop(move || _ = timer_in_drop.try_arm(TICK));
        cancel_remotely(local_timer().add(TICK, move || _ = &dropped));
        assert_eq!(timer.try_arm(TICK * 5), Ok(true));
        assert_eq!((timer.status(), local_timer().len()), (TimerStatus::Pending, 1));
        turn_after(clock, 4);
        assert_eq!(runs.get(), 0);
        turn_after(clock, 1);
        assert_eq!((runs.get(), timer.last_end()), (1, Some(TimerEnd::Fired)));
    });
}

/// An arming without a delay ends an announced sleep by calling the wake hook.
#[test]
fn a_turn_inside_an_arming_may_fire_the_timer() {
    let hook = || _ = HOOK_TURNS.get().then(|| local_timer().turn());
    for arms_again in [false, true] {
        on_configured_thread(Config::new().wake_hook(hook), |_| {
            let timer = ReusableTimer::new(move |timer| {
                if arms_again {
                    timer.arm(TICK);
                }
            });
            local_timer().turn();
            let sleep = local_timer().prepare_sleep();
            HOOK_TURNS.set(true);
            assert!(!timer.arm(Duration::ZERO));
            HOOK_TURNS.set(false);
            drop(sleep);
            let end = (!arms_again).then_some(TimerEnd::Fired);
            assert_eq!((timer.last_end(), local_timer().len()), (end, arms_again.into()));
            drop(timer);
            assert_eq!(local_timer().len(), 0);
        });
    }
}
