//! Callbacks, hooks and destructors may use the wheel that runs them (P5) and may panic (P6).

use std::{
    cell::{Cell, RefCell},
    panic::panic_any,
    rc::Rc,
    time::{Duration, Instant},
};

use corewheel::{
    Cancel, Clock, Config, Counts, ManualClock, PanicPlace, PreparedSleep, Shard, TimerHandle,
    local_timer,
};

use crate::support::{
    ADD_CALLS, Counter, HOUR, Log, OnDrop, TICK, assert_counts_add_up, cancel_remotely,
    in_checked_virtual_time, must_not_run, on_a_thread, on_configured_thread, run_and_check_counts,
    turn_after, wait_until,
};

// ---- P5: uses of the wheel

#[test]
fn a_callback_may_query_the_wheel_and_drop_a_guard() {
    in_checked_virtual_time(|clock| {
        let guard = local_timer().add(TICK * 5, must_not_run).guard();
        let (guarded, log) = (guard.handle(), Log::new());
        let written = log.clone();
        local_timer().add(TICK, move || {
            let timer = local_timer();
            assert_eq!((timer.len(), timer.is_empty()), (1, false));
            assert_eq!(timer.next_deadline(), Some(timer.now() + TICK * 4));
            assert_eq!(timer.time_until_next(), Some(TICK * 4));
            assert_eq!(timer.prepare_sleep().timeout(), Some(TICK * 4));
            drop(guard);
            assert_eq!((timer.len(), timer.next_deadline()), (0, None));
            assert_eq!((timer.time_until_next(), timer.prepare_sleep().timeout()), (None, None));
            assert_counts_add_up(timer.counts());
            written.write((timer.counts().fired, timer.counts().cancelled, guarded.cancel()));
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(log.take(), [(1, 1, Cancel::Ended)]);
        assert_eq!(turn_after(clock, 9).fired, 0);
    });
}

/// Uses the thread's wheel in its destructor, as a dropped waker may.
struct UseWheelOnDrop {
    drops: Counter,
    sibling: TimerHandle,
}

impl Drop for UseWheelOnDrop {
    fn drop(&mut self) {
        let timer = local_timer();
        if let Ok(added) = timer.try_add(TICK * 9, must_not_run) {
            assert!(added.reset(TICK * 8) && self.sibling.reset(TICK * 7));
            assert_eq!(added.cancel(), Cancel::Cancelled);
        }
        timer.turn();
        assert!(timer.counts().uncollected <= 1 && timer.prepare_sleep().timeout().is_some());
        self.drops.increment();
    }
}

/// Checks for the bug of tokio #8550 and #8552.
#[test]
fn bug_09_called_and_dropped_wakers_may_use_the_wheel() {
    let drops = Counter::default();
    in_checked_virtual_time(|clock| {
        let sibling = local_timer().add(TICK * 5, must_not_run);
        let new_use_wheel_on_drop = || UseWheelOnDrop { drops: drops.clone(), sibling };
        let add = || {
            let held = new_use_wheel_on_drop();
            local_timer().add(TICK, move || drop(held))
        };
        let (cancelled, remote_cancels, fired) = (add(), add(), add());
        assert_eq!(cancelled.cancel(), Cancel::Cancelled);
        assert_eq!(cancel_remotely(remote_cancels), Cancel::Cancelled);
        let held = new_use_wheel_on_drop();
        let again = local_timer().add_periodic(TICK, move || _ = &held);
        assert_eq!(turn_after(clock, 1).fired, 2);
        assert_eq!((fired.cancel(), again.cancel()), (Cancel::Ended, Cancel::Cancelled));
        assert_eq!(drops.get(), 4);
        // The exit of this thread drops both callbacks.
        let _pending = (add(), add());
    });
    assert_eq!(drops.get(), 6);
}

/// Adds a periodic timer of one tick that passes its handle to `run`.
fn add_with_handle(mut run: impl FnMut(TimerHandle) + 'static) -> TimerHandle {
    let handle_cell = Rc::new(Cell::new(None));
    let filled_cell = Rc::clone(&handle_cell);
    let handle =
        local_timer().add_periodic(TICK, move || run(filled_cell.get().expect("set below")));
    handle_cell.set(Some(handle));
    handle
}

#[test]
fn a_period_set_in_a_run_counts_from_that_run() {
    in_checked_virtual_time(|clock| {
        let set = |handle, ticks| local_timer().set_period(handle, TICK * ticks);
        let slower = add_with_handle(move |own| {
            assert!(set(own, 5));
            own.cancel();
            assert!(!set(own, 5), "the timer is cancelled");
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert!(!slower.is_pending());
        let slower = add_with_handle(move |own| assert!(set(own, 5)));
        let deadline = local_timer().deadline(slower).expect("the timer is pending");
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(local_timer().deadline(slower), Some(deadline + TICK * 5));
    });
}

#[test]
fn hooks_of_an_ended_thread_are_dropped_despite_panics() {
    let alive = Counter::default();
    let hook = || {
        let (counted, captured) = (alive.clone(), OnDrop(|| panic!("as planned")));
        move || _ = (&counted, &captured)
    };
    for _ in 0..10 {
        let (wake, panic) = (hook(), hook());
        let config = Config::new().wake_hook(wake).panic_hook(move |_| panic());
        on_configured_thread(config, |_| local_timer().add(TICK, || ()));
    }
    // If another thread was reading the registry when the thread ended, the end of a later shard
    // drops the hooks.
    wait_until("the hooks are dropped", || {
        drop(Shard::<()>::new());
        alive.other_refs() == 0
    });
}

// ---- P6: panics are contained

#[test]
fn a_panic_of_a_dropped_clock_function_does_not_abort_an_exiting_thread() {
    let alive = Counter::default();
    let (counted, captured) = (alive.clone(), OnDrop(|| panic!("as planned")));
    let elapsed = move || {
        let _ = (&counted, &captured);
        Duration::ZERO
    };
    let clock = Clock::from_fn(Instant::now(), elapsed);
    on_a_thread(|| {
        Config::new().clock(clock).install().expect("a new thread");
        local_timer().add(TICK, || ());
    });
    wait_until("the function is dropped", || {
        drop(Shard::<()>::new());
        alive.other_refs() == 0
    });
}

/// On most platforms, the thread destroys `NOW` before its wheel, because the thread uses `NOW`
/// later than its wheel.
#[test]
fn a_clock_function_that_needs_a_thread_local_does_not_abort_an_exiting_thread() {
    thread_local!(static NOW: RefCell<Vec<Duration>> = const { RefCell::new(Vec::new()) });
    let dropped = Counter::default();
    on_a_thread(|| {
        let elapsed = || NOW.with_borrow(|now| now.last().copied().unwrap_or_default());
        Config::new().clock(Clock::from_fn(Instant::now(), elapsed)).install().expect("new");
        NOW.with_borrow_mut(|now| now.push(HOUR));
        let captured = dropped.clone();
        local_timer().add(TICK, move || _ = &captured);
    });
    assert_eq!(dropped.other_refs(), 0);
}

type Reports = Vec<(PanicPlace, String)>;

fn reports_of(test: impl FnOnce(&ManualClock) + Send) -> Reports {
    let reports = Log::new();
    let kept = reports.clone();
    let hook = move |report: &corewheel::PanicReport<'_>| {
        let number = || format!("{:?}", report.payload().downcast_ref::<i32>());
        let message = report.message().map_or_else(number, str::to_owned);
        kept.write((report.place(), message));
    };
    on_configured_thread(Config::new().panic_hook(hook), test);
    reports.take()
}

fn expected_reports(place: PanicPlace, messages: &[&str]) -> Reports {
    messages.iter().map(|&message| (place, message.to_owned())).collect()
}

fn callback_that_runs_when_dropped(dropped: impl FnMut() + 'static) -> impl FnOnce() + 'static {
    let captured = OnDrop(dropped);
    move || {
        let _captured = captured;
        must_not_run();
    }
}

fn callback_that_panics_when_dropped(message: &'static str) -> impl FnOnce() + 'static {
    callback_that_runs_when_dropped(move || panic!("{message}"))
}

#[test]
fn a_report_carries_the_message_and_the_payload() {
    let reports = reports_of(|clock| {
        local_timer().add(TICK, || panic!("a literal"));
        local_timer().add(TICK * 2, || panic!("a {}", "string"));
        local_timer().add(TICK * 3, || panic_any(7));
        // The drop of the thrown value throws a second value, whose drop panics too.
        let thrown = OnDrop(|| panic_any(OnDrop(|| panic!("a drop of a thrown value"))));
        local_timer().add(TICK * 4, move || panic_any(thrown));
        local_timer().add(TICK * 5, || ());
        assert_eq!((turn_after(clock, 5).fired, local_timer().counts().panicked), (5, 4));
        let published = local_timer().shard_ref().metrics().counts;
        assert_eq!(published.panicked, 4, "published at once");
    });
    let messages = ["a literal", "a string", "Some(7)", "None"];
    assert_eq!(reports, expected_reports(PanicPlace::Callback, &messages));
}

#[test]
fn a_destructor_that_panics_is_reported_wherever_it_runs() {
    let reports = reports_of(|clock| {
        let handle = local_timer().add(TICK, callback_that_panics_when_dropped("by the owner"));
        let guard =
            local_timer().add(TICK, callback_that_panics_when_dropped("by a guard")).guard();
        let local = local_timer().add_local(TICK, callback_that_panics_when_dropped("locally"));
        let collected = local_timer().add(TICK, callback_that_panics_when_dropped("in a turn"));
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        drop(guard);
        assert_eq!(local.cancel(), Cancel::Cancelled);
        assert_eq!(cancel_remotely(collected), Cancel::Cancelled);
        assert_eq!(turn_after(clock, 2).fired, 0);
        let counts = local_timer().counts();
        assert_eq!((counts.cancelled, counts.live, counts.panicked), (4, 0, 4));
        local_timer().add(TICK, callback_that_panics_when_dropped("at the end"));
    });
    let messages = ["by the owner", "by a guard", "locally", "in a turn", "at the end"];
    assert_eq!(reports, expected_reports(PanicPlace::Drop, &messages));
}

/// The owner drops the callback inside its node, and frees the node afterwards.
#[test]
fn a_destructor_of_a_cancelled_timer_may_use_the_wheel() {
    in_checked_virtual_time(|clock| {
        let (log, own) = (Log::new(), Rc::new(Cell::new(None::<TimerHandle>)));
        let (seen, handle, now) = (log.clone(), Rc::clone(&own), clock.clone());
        let dropped = move || {
            assert_eq!(handle.get().map(TimerHandle::cancel), Some(Cancel::Ended));
            (1..4).for_each(|tick| _ = local_timer().add(TICK * tick, seen.writer(tick)));
            assert_eq!(turn_after(&now, 1).fired, 1);
            seen.write(0);
        };
        own.set(Some(local_timer().add(TICK, callback_that_runs_when_dropped(dropped))));
        assert_eq!(own.get().map(TimerHandle::cancel), Some(Cancel::Cancelled));
        assert_eq!(turn_after(clock, 2).fired, 2);
        assert_eq!(log.take(), [1, 0, 2, 3]);
        assert_counts_add_up(local_timer().counts());
    });
}

#[test]
fn a_panic_hook_that_panics_does_not_stop_the_turn() {
    let hook = |report: &corewheel::PanicReport<'_>| panic!("the hook, too: {report:?}");
    on_configured_thread(Config::new().panic_hook(hook), |clock| {
        let runs = Counter::default();
        local_timer().add(TICK, || panic!("first"));
        local_timer().add(TICK * 2, runs.callback());
        let dropped = local_timer().add(TICK * 2, callback_that_panics_when_dropped("second"));
        assert_eq!(dropped.cancel(), Cancel::Cancelled);
        assert_eq!(turn_after(clock, 2).fired, 2);
        assert_eq!((runs.get(), local_timer().counts().panicked), (1, 2));
    });
}

#[test]
fn a_periodic_callback_that_cancels_itself_and_panics_ends() {
    let reports = reports_of(|clock| {
        let captured = Counter::default();
        let held = captured.clone();
        add_with_handle(move |own| panic!("{:?} {}", own.cancel(), held.get()));
        assert_eq!((turn_after(clock, 1).live, captured.other_refs()), (0, 0));
        let fired = turn_after(clock, 5).fired;
        let Counts { cancelled, remote_cancels, .. } = local_timer().counts();
        assert_eq!((fired, cancelled, remote_cancels), (0, 1, 0));
    });
    assert_eq!(reports, expected_reports(PanicPlace::Callback, &["Running 0"]));
}

// ---- wake hooks that use the wheel

thread_local! {
    static WAKE_HOOK: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Runs `test` in virtual time with a wake hook that calls the closure of `set_wake_hook` once.
fn with_wake_hook(test: impl FnOnce(&ManualClock) + Send) {
    let hook = || {
        if let Some(mut hook) = WAKE_HOOK.take() {
            hook();
        }
    };
    on_configured_thread(Config::new().wake_hook(hook), |clock| {
        run_and_check_counts(|| test(clock));
    });
}

fn set_wake_hook(hook: impl FnMut() + 'static) {
    WAKE_HOOK.set(Some(Box::new(hook)));
}

fn hook_was_called() -> bool {
    WAKE_HOOK.take().is_none()
}

/// Sets a wake hook that advances the clock by a tick and fires one timer.
fn set_turning_wake_hook(clock: &ManualClock) {
    let clock = clock.clone();
    set_wake_hook(move || assert_eq!(turn_after(&clock, 1).fired, 1));
}

#[test]
fn a_wake_hook_may_add_cancel_reset_and_announce_a_sleep() {
    for (name, add) in ADD_CALLS {
        with_wake_hook(|clock| {
            let runs = Counter::default();
            let [ended, moved] = [(); 2].map(|()| local_timer().add(TICK * 100, runs.callback()));
            let sleep = local_timer().prepare_sleep();
            let added = runs.callback();
            set_wake_hook(move || {
                assert_eq!(ended.cancel(), Cancel::Cancelled);
                assert!(moved.reset(TICK));
                local_timer().add(TICK, added.clone());
                drop(local_timer().prepare_sleep());
            });
            add(TICK, Box::new(runs.callback()));
            assert!(hook_was_called(), "{name}");
            drop(sleep);
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (3, 3), "{name}");
        });
    }
}

#[test]
fn a_sleep_announced_by_a_wake_hook_outlasts_the_hook() {
    with_wake_hook(|_| {
        let kept_sleep = Rc::new(RefCell::new(None));
        let place = Rc::clone(&kept_sleep);
        let sleep = local_timer().prepare_sleep();
        set_wake_hook(move || *place.borrow_mut() = Some(local_timer().prepare_sleep()));
        local_timer().add(TICK * 50, must_not_run);
        assert!(hook_was_called());
        assert_eq!(kept_sleep.borrow().as_ref().and_then(PreparedSleep::timeout), Some(TICK * 50));
        set_wake_hook(|| ());
        local_timer().add(TICK * 20, must_not_run);
        assert!(hook_was_called(), "an earlier timer ends the sleep");
        drop((sleep, kept_sleep));
    });
}

#[test]
fn a_wake_hook_is_called_inside_itself_for_a_later_sleep() {
    with_wake_hook(|_| {
        let _sleep = local_timer().prepare_sleep();
        set_wake_hook(|| {
            let _later = local_timer().prepare_sleep();
            set_wake_hook(|| ());
            local_timer().add(TICK, must_not_run);
        });
        local_timer().add(TICK * 50, must_not_run);
        assert!(hook_was_called());
    });
}

#[test]
fn a_wake_hook_may_be_called_inside_a_callback_and_a_destructor() {
    with_wake_hook(|clock| {
        let runs = Counter::default();
        let run = runs.callback();
        let sleep = local_timer().prepare_sleep();
        local_timer().add(TICK, move || {
            set_wake_hook(|| assert!(local_timer().turn().nested));
            let _sleep = local_timer().prepare_sleep();
            local_timer().add(TICK, run.clone());
            assert!(hook_was_called());
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        drop(sleep);

        let run = runs.callback();
        let adds =
            callback_that_runs_when_dropped(move || _ = local_timer().add(TICK, run.clone()));
        let handle = local_timer().add(TICK * 100, adds);
        assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, 1));
        let _sleep = local_timer().prepare_sleep();
        set_turning_wake_hook(clock);
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        assert!(hook_was_called(), "the destructor adds an earlier timer");
        assert_eq!(runs.get(), 2);
    });
}

/// DPDK 7079e29f: an owner dropped a timer that was linked but not yet marked as pending. Here an
/// add or a reset calls the wake hook, inside which the timer fires.
#[test]
fn a_wake_hook_called_by_an_add_or_a_reset_may_turn() {
    with_wake_hook(|clock| {
        let runs = Counter::default();
        let handle = local_timer().add(TICK * 100, runs.callback());
        let periodic = local_timer().add_periodic(TICK * 50, runs.callback());
        for (handle, runs_after) in [(periodic, 1), (handle, 2)] {
            let _sleep = local_timer().prepare_sleep();
            set_turning_wake_hook(clock);
            assert!(handle.reset(TICK) && hook_was_called());
            assert_eq!(runs.get(), runs_after);
        }
        runs.take();
        for (run_number, (name, add)) in (1..).zip(ADD_CALLS) {
            let _sleep = local_timer().prepare_sleep();
            set_turning_wake_hook(clock);
            add(TICK, Box::new(runs.callback()));
            assert!(hook_was_called() && runs.get() == run_number, "{name}");
        }
    });
}
