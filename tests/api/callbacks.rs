//! What a callback may do and what becomes of it: it adds, cancels, resets and turns while others are due (P5), learns
//! at once who won (P3), runs again without drift, and keeps its panics to itself (P6). In virtual time.
#![allow(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

use std::{
    cell::{Cell, RefCell},
    panic::panic_any,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use corewheel::{
    AddErrorReason, Cancel, Config, Counts, ManualClock, PanicPlace, TimerHandle, Turn, local_timer,
};

use crate::common::{TICK, in_virtual_time, on_a_thread, wait_until};

/// Lets `ticks` pass and runs what is due.
fn turn_after(clock: &ManualClock, ticks: u32) -> Turn {
    clock.advance(TICK * ticks);
    local_timer().turn()
}

/// A turn that finds nothing is cut short; what it says is the same.
#[test]
fn a_turn_that_finds_nothing_says_what_is_left() {
    in_virtual_time(|clock| {
        local_timer().add(TICK * 100, || {});
        for ticks in [0, 1, 1, 7] {
            let turn = turn_after(clock, ticks);
            assert_eq!(
                (turn.fired, turn.collected, turn.touched, turn.live),
                (0, 0, 0, 1),
                "after {ticks} ticks"
            );
            assert!(!turn.behind && !turn.nested);
        }
    });
}

/// Those of this turn, and only of the wheel.
#[test]
fn a_turn_says_how_many_entries_it_has_touched() {
    in_virtual_time(|clock| {
        let timers: Vec<_> =
            (0..5).map(|tick| local_timer().add(TICK * (1 + tick / 3), || {})).collect();
        assert!(timers[0].reset(TICK * 9));
        // One is found where it was and goes where it belongs.
        for (fired, touched) in [(2, 3), (2, 2), (0, 0)] {
            let turn = turn_after(clock, 1);
            assert_eq!((turn.fired, turn.touched), (fired, touched));
        }
    });
}

/// As what a callback adds, so what it moves to now fires in a later turn, also if it was due in this one.
#[test]
fn what_a_callback_moves_to_now_fires_in_a_later_turn() {
    in_virtual_time(|clock| {
        for delay in [Duration::ZERO, TICK / 2, TICK] {
            let moved = local_timer().add(TICK * 2, || {});
            local_timer().add(TICK, move || assert!(moved.reset(delay)));
            assert_eq!(turn_after(clock, 3).fired, 1);
            assert_eq!(turn_after(clock, 1).fired, 1);
        }
    });
}

/// A callback has another thread move a timer that is due in the same turn, before it is fired.
#[test]
fn a_timer_that_is_moved_when_it_is_already_due_is_counted_once() {
    in_virtual_time(|clock| {
        let moved = local_timer().add(TICK * 2, || {});
        local_timer().add(TICK, move || assert!(on_a_thread(|| moved.reset(TICK * 10))));
        assert_eq!(turn_after(clock, 3).fired, 1);
        let counts = local_timer().counts();
        assert_eq!(
            (counts.fired, counts.resets, counts.resets_elsewhere, counts.live),
            (1, 0, 1, 1)
        );
        assert_eq!((turn_after(clock, 9).fired, turn_after(clock, 1).fired), (0, 1));
        assert_eq!(local_timer().counts().resets_elsewhere, 1);
    });
}

fn ticks(clock: &ManualClock) -> u128 {
    assert_eq!(clock.elapsed().as_nanos() % TICK.as_nanos(), 0);
    clock.elapsed().as_nanos() / TICK.as_nanos()
}

fn assert_sum(counts: Counts) {
    assert_eq!(
        counts.added,
        counts.live + counts.fired + counts.cancelled + counts.handed_back,
        "{counts:?}"
    );
}

/// What happened, in order.
struct Log<T>(Rc<RefCell<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T: 'static> Log<T> {
    fn new() -> Self {
        Self(Rc::default())
    }

    fn write(&self, entry: T) {
        self.0.borrow_mut().push(entry);
    }

    /// A callback that writes `entry`.
    fn writes(&self, entry: T) -> impl FnOnce() + 'static {
        let log = self.clone();
        move || log.write(entry)
    }

    fn take(&self) -> Vec<T> {
        self.0.take()
    }
}

impl<T: Ord + 'static> Log<T> {
    fn take_sorted(&self) -> Vec<T> {
        let mut entries = self.take();
        entries.sort();
        entries
    }
}

/// Handles that callbacks find each other by.
type Handles = Rc<RefCell<Vec<TimerHandle>>>;

fn others(handles: &Handles, own: usize) -> Vec<TimerHandle> {
    let all = handles.borrow();
    all.iter().enumerate().filter(|&(index, _)| index != own).map(|(_, &handle)| handle).collect()
}

/// Runs its closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A callback that never runs here and calls `dropped` when it is dropped.
fn when_dropped(dropped: impl FnMut() + 'static) -> impl FnOnce() + 'static {
    let captured = OnDrop(dropped);
    move || {
        let _captured = captured;
        unreachable!("it is cancelled or handed back");
    }
}

/// A callback that panics when it is dropped.
fn panics_when_dropped(message: &'static str) -> impl FnOnce() + 'static {
    when_dropped(move || panic!("{message}"))
}

// ---- P5: a callback and its siblings

#[test]
fn what_a_callback_adds_fires_in_a_later_turn_never_in_the_same() {
    in_virtual_time(|clock| {
        let log = Log::new();
        let (written, begun, moved) = (log.clone(), clock.now(), clock.clone());
        local_timer().add(TICK, move || {
            local_timer().add(Duration::ZERO, written.writes("zero"));
            local_timer().add_local(Duration::ZERO, written.writes("local zero"));
            local_timer().add_at(local_timer().now(), written.writes("now"));
            local_timer().add_at(begun, written.writes("past"));
            local_timer()
                .try_add(Duration::from_nanos(1), written.writes("a nanosecond"))
                .expect("a live thread");
            // However late it has become meanwhile.
            moved.advance(TICK * 10);
            local_timer().add(Duration::ZERO, written.writes("late zero"));
            local_timer().add_at(begun, written.writes("late past"));
        });
        let turn = turn_after(clock, 3);
        assert_eq!((turn.fired, turn.live, log.take()), (1, 7, vec![]));
        assert_eq!(local_timer().time_until_next(), Some(Duration::ZERO));
        assert_eq!(local_timer().turn().fired, 7);
        let all = ["a nanosecond", "late past", "late zero", "local zero", "now", "past", "zero"];
        assert_eq!(log.take_sorted(), all);
    });
}

#[test]
fn a_callback_that_always_adds_another_gets_one_run_per_turn() {
    fn again(left: u32, runs: Rc<Cell<u32>>) {
        local_timer().add(Duration::ZERO, move || {
            runs.set(runs.get() + 1);
            if left > 0 {
                again(left - 1, runs);
            }
        });
    }
    in_virtual_time(|clock| {
        let runs = Rc::new(Cell::new(0));
        clock.advance(TICK);
        again(99, Rc::clone(&runs));
        for turn in 1..=100 {
            assert_eq!((local_timer().turn().fired, runs.get()), (1, turn));
        }
        assert!(local_timer().is_empty());
    });
}

#[test]
fn a_timer_that_a_due_sibling_cancels_is_cancelled_and_never_runs() {
    in_virtual_time(|clock| {
        // At the same tick, and at different ticks of the same turn.
        for apart in [0, 1] {
            let (handles, log) = (Handles::default(), Log::<Vec<Cancel>>::new());
            for own in 0..10 {
                let (all, log) = (Rc::clone(&handles), log.clone());
                let callback = move || {
                    log.write(others(&all, own).into_iter().map(TimerHandle::cancel).collect())
                };
                let own = u32::try_from(own).expect("small");
                handles.borrow_mut().push(local_timer().add(TICK * (1 + own * apart), callback));
            }
            let turn = turn_after(clock, 20);
            assert_eq!((turn.fired, turn.live), (1, 0));
            assert_eq!(log.take(), [vec![Cancel::Cancelled; 9]]);
            turn_after(clock, 20);
            assert_eq!(log.take(), [] as [Vec<Cancel>; 0]);
            assert!(handles.borrow().iter().all(|handle| handle.cancel() == Cancel::Ended));
            assert_sum(local_timer().counts());
        }
    });
}

#[test]
fn a_timer_that_a_due_sibling_resets_fires_at_its_new_time_once() {
    in_virtual_time(|clock| {
        for apart in [0, 1] {
            let (handles, log) = (Handles::default(), Log::new());
            let begun = ticks(clock);
            let moved = Rc::new(Cell::new(false));
            for own in 0..10 {
                let (all, log, moved, clock) =
                    (Rc::clone(&handles), log.clone(), Rc::clone(&moved), clock.clone());
                let callback = move || {
                    log.write(ticks(&clock) - begun);
                    if !moved.replace(true) {
                        let movable = others(&all, own)
                            .into_iter()
                            .filter(|handle| handle.reset(TICK * 5))
                            .count();
                        assert_eq!(movable, 9);
                    }
                };
                let own = u32::try_from(own).expect("small");
                handles.borrow_mut().push(local_timer().add(TICK * (1 + own * apart), callback));
            }
            assert_eq!(turn_after(clock, 20).fired, 1);
            for _ in 0..10 {
                turn_after(clock, 1);
            }
            assert_eq!(log.take(), [vec![20], vec![25; 9]].concat());
            assert!(local_timer().is_empty());
        }
        assert_eq!(local_timer().counts().panicked, 0);
    });
}

#[test]
fn a_timer_that_a_due_sibling_resets_to_now_still_fires_once() {
    in_virtual_time(|clock| {
        let (handles, log) = (Handles::default(), Log::new());
        for own in 0..10 {
            let (all, log) = (Rc::clone(&handles), log.clone());
            let callback = move || {
                log.write(own);
                for handle in others(&all, own) {
                    _ = handle.reset(Duration::ZERO);
                }
            };
            handles.borrow_mut().push(local_timer().add(TICK, callback));
        }
        turn_after(clock, 1);
        for _ in 0..9 {
            local_timer().turn();
        }
        assert_eq!(log.take_sorted(), (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn a_callback_that_cancels_itself_is_told_that_it_is_running() {
    in_virtual_time(|clock| {
        let (handles, log) = (Handles::default(), Log::new());
        let (all, written) = (Rc::clone(&handles), log.clone());
        handles.borrow_mut().push(local_timer().add(TICK, move || {
            let own = all.borrow()[0];
            let elsewhere =
                thread::spawn(move || (own.cancel(), own.is_pending())).join().expect("no panic");
            written.write((own.cancel(), own.is_pending(), own.reset(TICK), elsewhere));
        }));
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(log.take(), [(Cancel::Running, false, false, (Cancel::Running, false))]);
        assert_eq!(handles.borrow()[0].cancel(), Cancel::Ended);
        assert!(local_timer().is_empty());
        assert_eq!((local_timer().counts().fired, local_timer().counts().cancelled), (1, 0));
    });
}

#[test]
fn a_nested_turn_does_nothing_and_says_so() {
    in_virtual_time(|clock| {
        let log = Log::new();
        for _ in 0..3 {
            let log = log.clone();
            local_timer().add(TICK, move || log.write(local_timer().turn()));
        }
        local_timer().add(TICK * 9, || {});
        let turn = turn_after(clock, 1);
        assert_eq!((turn.fired, turn.live, turn.nested), (3, 1, false));
        let nested: Vec<Turn> = log.take();
        assert_eq!(nested.iter().map(|turn| turn.live).collect::<Vec<_>>(), [3, 2, 1]);
        let idle =
            |turn: &Turn| turn.nested && (turn.fired, turn.collected, turn.touched) == (0, 0, 0);
        assert!(nested.iter().all(idle), "{nested:?}");
        assert!(!local_timer().turn().nested);
    });
}

#[test]
fn a_callback_may_ask_the_timer_everything_and_drop_a_guard() {
    in_virtual_time(|clock| {
        let guard = local_timer().add(TICK * 5, || unreachable!("its guard is dropped")).guard();
        let guarded = guard.handle();
        let seen = Log::new();
        let log = seen.clone();
        local_timer().add(TICK, move || {
            let timer = local_timer();
            assert_eq!((timer.len(), timer.is_empty()), (1, false));
            assert_eq!(timer.next_deadline(), Some(timer.now() + TICK * 4));
            assert_eq!(timer.time_until_next(), Some(TICK * 4));
            let sleep = timer.prepare_sleep();
            assert_eq!(sleep.timeout(), Some(TICK * 4));
            drop(sleep);
            drop(guard);
            assert_eq!(
                (timer.len(), timer.next_deadline(), timer.time_until_next()),
                (0, None, None)
            );
            assert_eq!(timer.prepare_sleep().timeout(), None);
            assert_sum(timer.counts());
            log.write((timer.counts().fired, timer.counts().cancelled, guarded.cancel()));
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(seen.take(), [(1, 1, Cancel::Ended)]);
        assert_eq!((turn_after(clock, 9).fired, local_timer().counts().panicked), (0, 0));
    });
}

#[test]
fn callbacks_run_in_the_order_of_their_deadlines() {
    in_virtual_time(|clock| {
        let log = Log::new();
        for delay in [9, 2, 70_000, 7, 2, 1, 300, 8] {
            local_timer().add(TICK * delay, log.writes(delay));
        }
        turn_after(clock, 100_000);
        assert_eq!(log.take(), [1, 2, 2, 7, 8, 9, 300, 70_000]);
    });
}

// ---- periodic timers

/// The virtual nanoseconds at which a timer of `period` runs, looked at every `step`.
fn runs_of(clock: &ManualClock, period: Duration, step: Duration, steps: u32) -> Vec<u128> {
    let log = Log::new();
    let (written, now, begun) = (log.clone(), clock.clone(), clock.elapsed());
    let handle = local_timer()
        .add_periodic(period, move || written.write((now.elapsed() - begun).as_nanos()));
    for _ in 0..steps {
        clock.advance(step);
        local_timer().turn();
    }
    assert_eq!(handle.cancel(), Cancel::Cancelled);
    log.take()
}

#[test]
fn a_period_that_is_no_multiple_of_the_tick_does_not_drift() {
    in_virtual_time(|clock| {
        for period in [2_500, 1_001, 3_333, 7_999] {
            let runs = runs_of(clock, Duration::from_micros(period), TICK / 4, 4 * 1_000);
            let due = (1..).map(|run| (u128::from(period) * run).div_ceil(1_000) * TICK.as_nanos());
            let due: Vec<u128> = due.take_while(|&due| due <= TICK.as_nanos() * 1_000).collect();
            assert_eq!(runs, due, "a period of {period} us");
        }
    });
}

#[test]
fn missed_runs_are_skipped_and_the_phase_is_kept() {
    in_virtual_time(|clock| {
        let (log, now) = (Log::new(), clock.clone());
        let written = log.clone();
        local_timer().add_periodic(TICK * 10, move || written.write(ticks(&now)));
        for stop in [10, 35, 36, 40, 49, 90, 91, 99, 100] {
            clock.set(TICK * stop);
            local_timer().turn();
            local_timer().turn();
        }
        assert_eq!(log.take(), [10, 35, 40, 90, 100]);
        assert_eq!(local_timer().next_deadline(), Some(clock.now() + TICK * 10));
        let counts = local_timer().counts();
        assert_eq!((counts.added, counts.live, counts.fired, counts.runs), (1, 1, 0, 5));
    });
}

#[test]
fn a_run_that_takes_longer_than_its_period_is_one_run_of_the_turn() {
    in_virtual_time(|clock| {
        let (runs, slow) = (Rc::new(Cell::new(0)), clock.clone());
        let counted = Rc::clone(&runs);
        local_timer().add_periodic(TICK * 2, move || {
            counted.set(counted.get() + 1);
            slow.advance(TICK * 7);
            // Reads the clock, so the timer knows how late it is.
            local_timer().add(TICK * 1_000, || {}).cancel();
        });
        clock.advance(TICK);
        for turn in 1..=5 {
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, turn));
        }
    });
}

#[test]
fn a_periodic_timer_cancelled_inside_its_run_makes_no_further_run_and_is_dropped() {
    in_virtual_time(|clock| {
        let (handles, log) = (Handles::default(), Log::new());
        let captured = Rc::new(());
        let (all, written, held) = (Rc::clone(&handles), log.clone(), Rc::clone(&captured));
        handles.borrow_mut().push(local_timer().add_periodic(TICK, move || {
            let own = all.borrow()[0];
            let pending = own.is_pending();
            let first = own.cancel();
            written.write((pending, first, own.cancel(), own.reset(TICK), Rc::strong_count(&held)));
        }));
        let turn = turn_after(clock, 1);
        assert_eq!((turn.fired, turn.live), (1, 0));
        assert_eq!(log.take(), [(false, Cancel::Running, Cancel::Running, false, 2)]);
        assert_eq!(Rc::strong_count(&captured), 1, "dropped with the end of the run");
        assert_eq!(handles.borrow()[0].cancel(), Cancel::Ended);
        assert_eq!(turn_after(clock, 10).fired, 0);
        let counts = local_timer().counts();
        assert_eq!((counts.fired, counts.cancelled, counts.live, counts.runs), (0, 1, 0, 1));
    });
}

#[test]
fn a_periodic_timer_cancelled_elsewhere_during_its_run_makes_no_further_run() {
    in_virtual_time(|clock| {
        let (handles, log) = (Handles::default(), Log::new());
        let captured = Rc::new(());
        let (all, written, held) = (Rc::clone(&handles), log.clone(), Rc::clone(&captured));
        handles.borrow_mut().push(local_timer().add_periodic(TICK, move || {
            let (own, _held) = (all.borrow()[0], &held);
            written.write(thread::spawn(move || own.cancel()).join().expect("no panic"));
        }));
        assert_eq!(turn_after(clock, 1).live, 0);
        assert_eq!(turn_after(clock, 10).fired, 0);
        assert_eq!(log.take(), [Cancel::Running]);
        assert_eq!((Rc::strong_count(&captured), local_timer().counts().cancelled), (1, 1));
    });
}

#[test]
fn a_periodic_timer_that_a_due_sibling_cancels_never_runs() {
    in_virtual_time(|clock| {
        let log = Log::new();
        let periodic = local_timer().add_periodic(TICK * 2, || unreachable!("it is cancelled"));
        let written = log.clone();
        local_timer().add(TICK, move || written.write(periodic.cancel()));
        assert_eq!(turn_after(clock, 5).fired, 1);
        assert_eq!(turn_after(clock, 5).fired, 0);
        assert_eq!(log.take(), [Cancel::Cancelled]);
        assert_eq!((local_timer().counts().panicked, local_timer().len()), (0, 0));
    });
}

#[test]
fn a_periodic_timer_answers_cancelled_between_its_runs() {
    in_virtual_time(|clock| {
        let runs = Rc::new(Cell::new(0));
        let counted = Rc::clone(&runs);
        let periodic = local_timer().add_periodic(TICK, move || counted.set(counted.get() + 1));
        turn_after(clock, 1);
        turn_after(clock, 1);
        assert!(periodic.is_pending());
        assert_eq!((periodic.cancel(), Rc::strong_count(&runs)), (Cancel::Cancelled, 1));
        assert_eq!(
            (turn_after(clock, 5).fired, runs.get(), periodic.cancel()),
            (0, 2, Cancel::Ended)
        );
    });
}

#[test]
fn a_reset_moves_the_next_run_of_a_periodic_timer_and_its_phase() {
    in_virtual_time(|clock| {
        let (log, now) = (Log::new(), clock.clone());
        let written = log.clone();
        let periodic = local_timer().add_periodic(TICK * 10, move || written.write(ticks(&now)));
        for tick in 1..=80 {
            turn_after(clock, 1);
            match tick {
                // From 10 to 7, and from 37 to 44.
                4 => assert!(periodic.reset(TICK * 3)),
                30 => assert!(periodic.reset(TICK * 14)),
                _ => {}
            }
        }
        assert_eq!(log.take(), [7, 17, 27, 44, 54, 64, 74]);
    });
}

/// A reset within the tick that the old run was due in counts as well, to the nanosecond.
#[test]
fn a_reset_of_a_periodic_timer_is_exact_within_a_tick() {
    in_virtual_time(|clock| {
        let (log, now) = (Log::new(), clock.clone());
        let written = log.clone();
        let periodic = local_timer().add_periodic(TICK * 5 / 2, move || written.write(ticks(&now)));
        assert!(periodic.reset(TICK * 3));
        for _ in 1..=14 {
            turn_after(clock, 1);
        }
        // 3, 5.5, 8, 10.5, 13 in ticks, each rounded up.
        assert_eq!(log.take(), [3, 6, 8, 11, 13]);
    });
}

/// What a callback does, reading the clock among it, moves neither the phase nor the count of the runs.
#[test]
fn a_run_that_adds_timers_does_not_shift_its_schedule() {
    for adds in [false, true] {
        in_virtual_time(|clock| {
            let now = clock.clone();
            local_timer().add_periodic(TICK * 10, move || {
                now.advance(TICK * 15);
                if adds {
                    local_timer().add(TICK * 1_000, || {});
                }
            });
            clock.advance(TICK * 10);
            assert_eq!(local_timer().turn().fired, 1, "adds: {adds}");
            assert_eq!(local_timer().turn().fired, 1, "adds: {adds}");
        });
    }
}

/// The hooks of a timer go with it, and their destructors harm nobody.
#[test]
fn the_hooks_of_a_thread_that_ended_are_dropped_and_may_panic() {
    struct PanicsOnDrop(Arc<()>);
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("as planned");
        }
    }
    let alive = Arc::new(());
    let hook = |captured: PanicsOnDrop| move || _ = Arc::strong_count(&captured.0);
    for _ in 0..10 {
        let (wake, panic) =
            (hook(PanicsOnDrop(Arc::clone(&alive))), hook(PanicsOnDrop(Arc::clone(&alive))));
        on_a_thread(|| {
            Config::new()
                .on_wake(wake)
                .on_panic(move |_| panic())
                .install()
                .expect("a fresh thread");
            local_timer().add(TICK, || ());
        });
    }
    // Another test's thread may be looking at the registry; the next shard that ends takes the rest.
    wait_until("the hooks are dropped", || {
        drop(corewheel::Shard::<()>::new());
        Arc::strong_count(&alive) == 1
    });
}

#[test]
fn a_period_below_a_tick_counts_as_a_tick() {
    in_virtual_time(|clock| {
        for period in
            [Duration::ZERO, Duration::from_nanos(1), TICK - Duration::from_nanos(1), TICK]
        {
            let runs = runs_of(clock, period, TICK / 2, 20);
            assert_eq!(
                runs,
                (1..=10).map(|tick| tick * TICK.as_nanos()).collect::<Vec<_>>(),
                "{period:?}"
            );
        }
    });
}

#[test]
fn an_endless_period_never_runs() {
    in_virtual_time(|clock| {
        let periodic =
            local_timer().add_periodic(Duration::MAX, || unreachable!("584 years have not passed"));
        assert_eq!(turn_after(clock, u32::MAX).fired, 0);
        assert_eq!(periodic.cancel(), Cancel::Cancelled);
    });
}

// ---- what is captured

/// Adds a callback of each kind, with what it captures in place and in a box; each counts its drop in `drops`.
fn add_one_of_each_kind(drops: &Arc<AtomicUsize>) -> Vec<TimerHandle> {
    let counts = || {
        let drops = Arc::clone(drops);
        OnDrop(move || _ = drops.fetch_add(1, Ordering::Relaxed))
    };
    let (small, large, again, large_again, private) =
        (counts(), (counts(), [0; 9]), counts(), counts(), counts());
    let room = [0_u64; 9];
    vec![
        local_timer().add(TICK, move || drop(small)),
        local_timer().add(TICK, move || _ = (&large, large.1)),
        local_timer().add_periodic(TICK, move || _ = &again),
        local_timer().add_periodic(TICK, move || _ = (&large_again, room)),
        local_timer().add_local(TICK, move || _ = &private).share(),
    ]
}

#[test]
fn what_a_callback_captured_is_dropped_once_when_it_has_fired() {
    let drops = Arc::new(AtomicUsize::new(0));
    in_virtual_time(|clock| {
        let handles = add_one_of_each_kind(&drops);
        assert_eq!(turn_after(clock, 1).fired, 5);
        assert_eq!(drops.load(Ordering::Relaxed), 3, "the periodic ones go on");
        assert_eq!(turn_after(clock, 1).fired, 2);
        let cancelled =
            handles.into_iter().filter(|handle| handle.cancel() == Cancel::Cancelled).count();
        assert_eq!((cancelled, drops.load(Ordering::Relaxed)), (2, 5));
    });
    assert_eq!(drops.load(Ordering::Relaxed), 5);
}

#[test]
fn what_a_callback_captured_is_dropped_within_the_cancel_on_its_own_core() {
    let drops = Arc::new(AtomicUsize::new(0));
    in_virtual_time(|clock| {
        for (handle, before) in add_one_of_each_kind(&drops).into_iter().zip(0..) {
            assert_eq!(drops.load(Ordering::Relaxed), before);
            assert_eq!(handle.cancel(), Cancel::Cancelled);
            assert_eq!(drops.load(Ordering::Relaxed), before + 1);
        }
        turn_after(clock, 5);
    });
    assert_eq!(drops.load(Ordering::Relaxed), 5);
}

#[test]
fn what_a_callback_captured_is_dropped_once_when_its_thread_exits() {
    let drops = Arc::new(AtomicUsize::new(0));
    in_virtual_time(|_| {
        add_one_of_each_kind(&drops);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
    });
    assert_eq!(drops.load(Ordering::Relaxed), 5);
}

// ---- P6: panics stay where they happened

/// The panics that a thread's timer has reported.
type Reports = Arc<Mutex<Vec<(PanicPlace, String)>>>;

/// As `in_virtual_time`, with a panic hook that keeps the reports.
fn with_reports<R: Send>(
    test: impl FnOnce(&ManualClock, &Reports) -> R + Send,
) -> (R, Vec<(PanicPlace, String)>) {
    let (clock, reports) = (ManualClock::new(), Reports::default());
    let kept = Arc::clone(&reports);
    let config = Config::new().tick(TICK).clock(&clock).on_panic(move |report| {
        let message = report.message().unwrap_or("no message").to_owned();
        kept.lock().expect("sound").push((report.place(), message));
    });
    let returned = on_a_thread(|| {
        config.install().expect("a fresh thread");
        test(&clock, &reports)
    });
    let reports = reports.lock().expect("sound").clone();
    (returned, reports)
}

fn report(place: PanicPlace, message: impl Into<String>) -> (PanicPlace, String) {
    (place, message.into())
}

#[test]
fn a_callback_that_panics_is_reported_and_all_others_run() {
    for panicking in 0..6 {
        for apart in [0, 1] {
            let (ran, reports) = with_reports(|clock, _| {
                let log = Log::new();
                for id in 0..6_u32 {
                    let log = log.clone();
                    local_timer().add(TICK * (1 + id * apart), move || {
                        assert_ne!(id, panicking, "as planned: {id}");
                        log.write(id);
                    });
                }
                let turn = turn_after(clock, 10);
                assert_eq!((turn.fired, turn.live, turn.nested), (6, 0, false));
                let counts = local_timer().counts();
                assert_eq!((counts.fired, counts.runs, counts.panicked), (6, 6, 1));
                // The timer is as usable as before.
                local_timer().add(TICK, log.writes(99));
                assert_eq!(turn_after(clock, 1).fired, 1);
                log.take_sorted()
            });
            let others = (0..6).filter(|&id| id != panicking).chain([99]);
            assert_eq!(ran, others.collect::<Vec<_>>());
            assert_eq!(reports.len(), 1);
            assert_eq!(reports[0].0, PanicPlace::Callback);
            assert!(reports[0].1.contains(&format!("as planned: {panicking}")), "{reports:?}");
        }
    }
}

#[test]
fn a_report_carries_the_message_if_there_is_one() {
    let ((), reports) = with_reports(|clock, _| {
        local_timer().add(TICK, || panic!("a literal"));
        local_timer().add(TICK * 2, || panic!("a {}", "string"));
        local_timer().add(TICK * 3, || panic_any(7));
        assert_eq!(turn_after(clock, 3).fired, 3);
        assert_eq!(local_timer().counts().panicked, 3);
    });
    let messages = ["a literal", "a string", "no message"];
    assert_eq!(reports, messages.map(|message| report(PanicPlace::Callback, message)));
}

#[test]
fn a_report_carries_what_was_thrown() {
    let clock = ManualClock::new();
    let thrown = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&thrown);
    let hook = move |report: &corewheel::PanicReport<'_>| {
        *kept.lock().expect("sound") = report.payload().downcast_ref::<i32>().copied();
    };
    on_a_thread(|| {
        Config::new().tick(TICK).clock(&clock).on_panic(hook).install().expect("a fresh thread");
        local_timer().add(TICK, || panic_any(7));
        turn_after(&clock, 1);
    });
    assert_eq!(*thrown.lock().expect("sound"), Some(7));
}

#[test]
fn a_panicking_destructor_of_a_cancelled_callback_is_reported_on_its_own_core() {
    let ((), reports) = with_reports(|clock, _| {
        let handle = local_timer().add(TICK, panics_when_dropped("dropped by the owner"));
        let guard = local_timer().add(TICK, panics_when_dropped("dropped by a guard")).guard();
        let private = local_timer().add_local(TICK, panics_when_dropped("dropped locally"));
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        drop(guard);
        assert_eq!(private.cancel(), Cancel::Cancelled);
        let counts = local_timer().counts();
        assert_eq!((counts.cancelled, counts.live, counts.panicked), (3, 0, 3));
        assert_eq!(turn_after(clock, 2).fired, 0);
    });
    let messages = ["dropped by the owner", "dropped by a guard", "dropped locally"];
    assert_eq!(reports, messages.map(|message| report(PanicPlace::Drop, message)));
}

#[test]
fn a_panicking_destructor_does_not_keep_a_turn_from_collecting_the_others() {
    for panicking in 0..5 {
        let (drops, reports) = with_reports(|clock, _| {
            let drops = Rc::new(Cell::new(0));
            let counts = || {
                let drops = Rc::clone(&drops);
                when_dropped(move || drops.set(drops.get() + 1))
            };
            let add = |id| {
                if id == panicking {
                    local_timer().add(TICK, panics_when_dropped("collected"))
                } else {
                    local_timer().add(TICK, counts())
                }
            };
            let handles: Vec<_> = (0..5).map(add).collect();
            let cancel_all =
                move || handles.into_iter().map(TimerHandle::cancel).collect::<Vec<_>>();
            let answers =
                thread::spawn(cancel_all).join().expect("nothing is dropped on the canceller");
            assert_eq!(answers, [Cancel::Cancelled; 5]);
            let turn = turn_after(clock, 1);
            assert_eq!((turn.fired, turn.collected, turn.live), (0, 5, 0));
            assert_eq!(local_timer().counts().panicked, 1);
            drops.get()
        });
        assert_eq!(drops, 4);
        assert_eq!(reports, [report(PanicPlace::Drop, "collected")]);
    }
}

#[test]
fn a_panicking_destructor_at_thread_exit_keeps_no_other_callback_from_being_dropped() {
    let drops = Arc::new(AtomicUsize::new(0));
    let ((), reports) = with_reports(|_, _| {
        for id in 0..10 {
            let drops = Arc::clone(&drops);
            local_timer().add(
                TICK,
                when_dropped(move || {
                    drops.fetch_add(1, Ordering::Relaxed);
                    assert_ne!(id % 2, 0, "at the end");
                }),
            );
        }
        // One that is held when the thread ends.
        let held = local_timer().add(TICK, panics_when_dropped("held at the end"));
        assert_eq!(
            thread::spawn(move || held.cancel()).join().expect("no panic"),
            Cancel::Cancelled
        );
    });
    assert_eq!(drops.load(Ordering::Relaxed), 10);
    assert_eq!(reports.len(), 6);
    assert!(
        reports
            .iter()
            .all(|(place, message)| *place == PanicPlace::Drop && message.contains("at the end"))
    );
}

#[test]
fn a_panic_hook_that_panics_harms_nothing() {
    let clock = ManualClock::new();
    on_a_thread(|| {
        let config = Config::new()
            .tick(TICK)
            .clock(&clock)
            .on_panic(|report| panic!("the hook, too: {report:?}"));
        config.install().expect("a fresh thread");
        let log = Log::new();
        local_timer().add(TICK, || panic!("first"));
        local_timer().add(TICK * 2, log.writes(()));
        let dropped = local_timer().add(TICK * 2, panics_when_dropped("second"));
        assert_eq!(dropped.cancel(), Cancel::Cancelled);
        assert_eq!(turn_after(&clock, 2).fired, 2);
        assert_eq!((log.take().len(), local_timer().counts().panicked), (1, 2));
    });
}

#[test]
fn a_thrown_value_that_panics_when_dropped_harms_nothing() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a thrown value that panics");
        }
    }
    let ((), reports) = with_reports(|clock, _| {
        let log = Log::new();
        local_timer().add(TICK, || panic_any(Bomb));
        local_timer().add(TICK * 2, log.writes(()));
        assert_eq!(turn_after(clock, 2).fired, 2);
        assert_eq!((log.take().len(), local_timer().counts().panicked), (1, 1));
    });
    assert_eq!(reports, [report(PanicPlace::Callback, "no message")]);
}

#[test]
fn a_wake_hook_that_panics_is_reported_and_the_timer_is_added() {
    let (clock, reports) = (ManualClock::new(), Reports::default());
    let kept = Arc::clone(&reports);
    on_a_thread(|| {
        let hook = move |panic: &corewheel::PanicReport<'_>| {
            kept.lock()
                .expect("sound")
                .push(report(panic.place(), panic.message().unwrap_or_default()));
        };
        let config = Config::new()
            .tick(TICK)
            .clock(&clock)
            .on_wake(|| panic!("will not wake"))
            .on_panic(hook);
        config.install().expect("a fresh thread");
        let sleep = local_timer().prepare_sleep();
        let handle = local_timer().add(TICK, || {});
        drop(sleep);
        assert!(handle.is_pending());
        assert_eq!((turn_after(&clock, 1).fired, local_timer().counts().panicked), (1, 1));
    });
    assert_eq!(*reports.lock().expect("sound"), [report(PanicPlace::Wake, "will not wake")]);
}

#[test]
fn a_periodic_callback_that_panics_goes_on() {
    let ((), reports) = with_reports(|clock, _| {
        let runs = Rc::new(Cell::new(0));
        let counted = Rc::clone(&runs);
        let periodic = local_timer().add_periodic(TICK, move || {
            counted.set(counted.get() + 1);
            assert_ne!(counted.get() % 2, 0, "every other run");
        });
        for turn in 1..=6 {
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, turn));
        }
        assert_eq!((periodic.cancel(), Rc::strong_count(&runs)), (Cancel::Cancelled, 1));
    });
    assert_eq!(reports.len(), 3);
}

#[test]
fn a_periodic_callback_that_cancels_itself_and_panics_ends() {
    let ((), reports) = with_reports(|clock, _| {
        let (handles, captured) = (Handles::default(), Rc::new(()));
        let (all, held) = (Rc::clone(&handles), Rc::clone(&captured));
        handles.borrow_mut().push(local_timer().add_periodic(TICK, move || {
            let answer = all.borrow()[0].cancel();
            assert_eq!((answer, Rc::strong_count(&held)), (Cancel::Ended, 0), "as planned");
        }));
        assert_eq!((turn_after(clock, 1).live, Rc::strong_count(&captured)), (0, 1));
        assert_eq!((turn_after(clock, 5).fired, local_timer().counts().cancelled), (0, 1));
    });
    assert_eq!(reports.len(), 1);
}

// ---- destructors that call back into the timer

/// A callback whose destructor does everything that one may do with the timer, and then writes what its turn was.
fn busy_when_dropped(log: &Log<Turn>, victim: TimerHandle) -> impl FnOnce() + 'static {
    let log = log.clone();
    when_dropped(move || {
        let timer = local_timer();
        assert_eq!(victim.cancel(), Cancel::Cancelled);
        let added = timer.add(TICK * 3, || {});
        assert!(added.reset(TICK * 2));
        timer.add(Duration::ZERO, || {});
        assert_eq!(timer.len() as u64, timer.counts().live);
        assert_sum(timer.counts());
        _ = timer.prepare_sleep();
        _ = (timer.next_deadline(), timer.time_until_next());
        log.write(timer.turn());
    })
}

#[test]
fn a_destructor_run_by_a_cancel_may_use_the_timer_and_even_turn_it() {
    let ((), reports) = with_reports(|clock, _| {
        let log = Log::new();
        clock.advance(TICK);
        let victim = local_timer().add(TICK * 9, || {});
        let busy = local_timer().add(TICK * 9, busy_when_dropped(&log, victim));
        assert_eq!(busy.cancel(), Cancel::Cancelled);
        let turns = log.take();
        assert_eq!((turns.len(), turns[0].fired, turns[0].live, turns[0].nested), (1, 1, 1, false));
        assert_eq!(turn_after(clock, 2).fired, 1);
        assert_sum(local_timer().counts());
    });
    assert_eq!(reports, []);
}

#[test]
fn a_destructor_run_by_a_turn_may_use_the_timer() {
    let ((), reports) = with_reports(|clock, _| {
        let log = Log::new();
        clock.advance(TICK);
        let victim = local_timer().add(TICK * 9, || {});
        let busy = local_timer().add(TICK * 9, busy_when_dropped(&log, victim));
        assert_eq!(
            thread::spawn(move || busy.cancel()).join().expect("no panic"),
            Cancel::Cancelled
        );
        let turn = local_timer().turn();
        assert_eq!((turn.fired, turn.collected, turn.live), (0, 1, 2));
        let nested = log.take();
        assert_eq!((nested.len(), nested[0].nested, nested[0].fired), (1, true, 0));
        assert_eq!(local_timer().turn().fired, 1);
        assert_eq!(turn_after(clock, 2).fired, 1);
        assert_sum(local_timer().counts());
    });
    assert_eq!(reports, []);
}

#[test]
fn a_destructor_run_at_thread_exit_finds_a_timer_that_has_ended() {
    type Answers = Vec<(Option<AddErrorReason>, Cancel, bool, usize, Turn)>;
    let answers = Arc::new(Mutex::new(Answers::new()));
    let ((), reports) = with_reports(|_, _| {
        for _ in 0..2 {
            let other = local_timer().add(TICK, || unreachable!("the thread ends"));
            let answers = Arc::clone(&answers);
            local_timer().add(
                TICK,
                when_dropped(move || {
                    let timer = local_timer();
                    let added = timer.try_add(TICK, || {}).err().map(|error| error.reason());
                    let cancelled = (other.cancel(), other.reset(TICK));
                    let seen = (added, cancelled.0, cancelled.1, timer.len(), timer.turn());
                    answers.lock().expect("sound").push(seen);
                }),
            );
        }
    });
    let ended = (Some(AddErrorReason::ShutDown), Cancel::Ended, false, 0, Turn::default());
    assert_eq!(*answers.lock().expect("sound"), [ended, ended]);
    assert_eq!(reports, []);
}

/// P2 holds at every moment an owner can observe: inside a callback, one-shot or periodic, and inside a destructor.
#[test]
fn the_sum_is_exact_inside_callbacks_and_destructors() {
    struct SumsOnDrop(Rc<Cell<u32>>);
    impl Drop for SumsOnDrop {
        fn drop(&mut self) {
            sum(&self.0);
        }
    }
    fn sum(observed: &Cell<u32>) {
        let counts = local_timer().counts();
        assert_eq!(
            counts.added,
            counts.live + counts.fired + counts.cancelled + counts.handed_back
        );
        assert_eq!(counts.live, local_timer().len() as u64);
        observed.set(observed.get() + 1);
    }
    in_virtual_time(|clock| {
        let observed = Rc::new(Cell::new(0));
        for _ in 0..2 {
            let watched = SumsOnDrop(Rc::clone(&observed));
            local_timer().add(TICK, move || sum(&watched.0));
        }
        let watched = SumsOnDrop(Rc::clone(&observed));
        let periodic = local_timer().add_periodic(TICK, move || sum(&watched.0));
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 3);
        assert_eq!(periodic.cancel(), Cancel::Cancelled);
        assert_eq!(observed.get(), 6, "three runs and three destructors");
        assert_eq!(local_timer().counts().panicked, 0, "no assertion failed inside");
    });
}
