//! What the wake hook and a destructor may do where they are called from (P5), and what counts while somebody looks (P2).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use corewheel::{
    Cancel, Config, Counts, LocalTimer, ManualClock, PreparedSleep, Shard, TimerHandle, local_timer,
};

use crate::common::{TICK, in_virtual_time, on_a_thread};

thread_local! {
    /// What the wake hook does on this thread.
    static WHEN_WOKEN: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Runs `test` in virtual time with a wake hook that does what `when_woken` has been told.
fn with_a_hook(test: impl FnOnce(&ManualClock) + Send) {
    let clock = ManualClock::new();
    let config = Config::new().tick(TICK).clock(&clock).on_wake(|| {
        let hook = WHEN_WOKEN.take();
        if let Some(mut hook) = hook {
            hook();
        }
    });
    on_a_thread(|| {
        config.install().expect("a fresh thread");
        test(&clock);
        assert_eq!(local_timer().counts().panicked, 0);
        assert_sum(local_timer().counts());
    });
}

fn when_woken(hook: impl FnMut() + 'static) {
    WHEN_WOKEN.set(Some(Box::new(hook)));
}

fn was_woken() -> bool {
    WHEN_WOKEN.take().is_none()
}

fn assert_sum(counts: Counts) {
    assert_eq!(
        counts.added,
        counts.live + counts.fired + counts.cancelled + counts.handed_back,
        "{counts:?}"
    );
}

fn counter() -> (Rc<Cell<u32>>, impl Fn() + Clone + 'static) {
    let runs = Rc::new(Cell::new(0));
    let counting = Rc::clone(&runs);
    (runs, move || counting.set(counting.get() + 1))
}

/// Each way to add a timer that is due in the next tick, with a callback that it takes.
type Adds = fn(LocalTimer, Box<dyn Fn()>);

const ADDS: [(&str, Adds); 7] = [
    ("add", |timer, run| _ = timer.add(TICK, run)),
    ("add_at", |timer, run| _ = timer.add_at(timer.now() + TICK, run)),
    ("try_add", |timer, run| _ = timer.try_add(TICK, run)),
    ("add_local", |timer, run| _ = timer.add_local(TICK, run)),
    ("add_within", |timer, run| _ = timer.add_within(TICK, Duration::from_micros(1), run)),
    ("add_spread", |timer, run| _ = timer.add_spread(TICK, Duration::ZERO, run)),
    ("add_periodic", |timer, run| _ = timer.add_periodic(TICK, run)),
];

#[test]
fn a_hook_that_turns_runs_the_timer_whose_adding_called_it() {
    for (name, add) in ADDS {
        with_a_hook(|clock| {
            let (runs, run) = counter();
            let sleep = local_timer().prepare_sleep();
            let clock = clock.clone();
            when_woken(move || {
                clock.advance(TICK);
                assert_eq!(local_timer().turn().fired, 1, "its callback is in place");
            });
            add(local_timer(), Box::new(run));
            assert!(was_woken(), "{name} calls the hook");
            assert_eq!(runs.get(), 1, "{name}");
            drop(sleep);
        });
    }
}

#[test]
fn a_hook_may_add_cancel_reset_and_announce_a_sleep() {
    for (name, add) in ADDS {
        with_a_hook(|clock| {
            let (runs, run) = counter();
            let others: Vec<_> =
                (0..2).map(|_| local_timer().add(TICK * 100, run.clone())).collect();
            let sleep = local_timer().prepare_sleep();
            let (cancelled, moved, run_added) = (others[0], others[1], run.clone());
            when_woken(move || {
                assert_eq!(cancelled.cancel(), Cancel::Cancelled);
                assert!(moved.reset(TICK));
                local_timer().add(TICK, run_added.clone());
                drop(local_timer().prepare_sleep());
            });
            add(local_timer(), Box::new(run));
            assert!(was_woken(), "{name} calls the hook");
            drop(sleep);
            clock.advance(TICK);
            assert_eq!(
                (local_timer().turn().fired, runs.get()),
                (3, 3),
                "{name}: one added, one moved, and this"
            );
        });
    }
}

/// A sleep that the hook announces and leaves is ended by what is earlier still.
#[test]
fn a_sleep_that_a_hook_announces_outlasts_it() {
    with_a_hook(|_| {
        let (_, run) = counter();
        let left = Rc::new(RefCell::new(None));
        let place = Rc::clone(&left);
        let sleep = local_timer().prepare_sleep();
        when_woken(move || *place.borrow_mut() = Some(local_timer().prepare_sleep()));
        local_timer().add(TICK * 50, run.clone());
        assert!(was_woken());
        assert_eq!(left.borrow().as_ref().and_then(PreparedSleep::timeout), Some(TICK * 50));
        when_woken(|| ());
        local_timer().add(TICK * 20, run);
        assert!(was_woken(), "it would have been slept through");
        drop((sleep, left));
    });
}

#[test]
fn a_hook_may_be_called_from_inside_a_callback_and_a_destructor() {
    struct AddsWhenDropped(Rc<Cell<u32>>);

    impl Drop for AddsWhenDropped {
        fn drop(&mut self) {
            let runs = Rc::clone(&self.0);
            local_timer().add(TICK, move || runs.set(runs.get() + 1));
        }
    }

    with_a_hook(|clock| {
        let (runs, run) = counter();
        let inner = run.clone();
        let sleep = local_timer().prepare_sleep();
        local_timer().add(TICK, move || {
            when_woken(|| assert!(local_timer().turn().nested));
            let _sleep = local_timer().prepare_sleep();
            local_timer().add(TICK, inner.clone());
            assert!(was_woken());
        });
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 1);
        drop(sleep);

        let held = AddsWhenDropped(Rc::clone(&runs));
        let handle = local_timer().add(TICK * 100, move || drop(held));
        clock.advance(TICK);
        assert_eq!((local_timer().turn().fired, runs.get()), (1, 1));
        let _sleep = local_timer().prepare_sleep();
        let later = clock.clone();
        when_woken(move || {
            later.advance(TICK);
            assert_eq!(local_timer().turn().fired, 1);
        });
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        assert!(was_woken(), "what the destructor adds cannot wait");
        assert_eq!(runs.get(), 2);
    });
}

#[test]
fn a_hook_that_a_reset_calls_may_turn() {
    with_a_hook(|clock| {
        let (runs, run) = counter();
        let handle = local_timer().add(TICK * 100, run.clone());
        let periodic = local_timer().add_periodic(TICK * 50, run);
        for (handle, runs_after) in [(periodic, 1), (handle, 2)] {
            let _sleep = local_timer().prepare_sleep();
            let clock = clock.clone();
            when_woken(move || {
                clock.advance(TICK);
                assert_eq!(local_timer().turn().fired, 1);
            });
            assert!(handle.reset(TICK));
            assert!(was_woken());
            assert_eq!(runs.get(), runs_after);
        }
        assert_eq!(periodic.cancel(), Cancel::Cancelled);
    });
}

/// A shard that a periodic callback drains or drops, in the middle of one of its passes: all that it had is accounted for.
#[test]
fn a_shard_drained_inside_a_periodic_callback_keeps_the_sum() {
    in_virtual_time(|clock| {
        let mut shard = Shard::with_config(Config::new().tick(TICK).clock(clock)).expect("valid");
        let handles: Vec<TimerHandle> =
            (0..100).map(|id| shard.add(TICK * (1 + id % 3), id)).collect();
        let cancelled_elsewhere = &handles[..20];
        thread::scope(|scope| {
            let cancel = |handle: &TimerHandle| assert_eq!(handle.cancel(), Cancel::Cancelled);
            scope.spawn(move || cancelled_elsewhere.iter().for_each(cancel));
        });
        let shard = Rc::new(RefCell::new(shard));
        let (inside, drained) = (Rc::clone(&shard), Rc::new(Cell::new(0)));
        let all = Rc::clone(&drained);
        let periodic = local_timer().add_periodic(TICK, move || {
            let mut shard = inside.borrow_mut();
            // A few are fired, a few messages taken in, and the rest is left in the middle of it.
            shard.turn_within(7);
            (0..3).for_each(|_| _ = shard.next_expired());
            assert_sum(shard.counts());
            if local_timer().counts().runs > 3 {
                all.set(all.get() + shard.drain().len());
            }
        });
        for _ in 0..5 {
            clock.advance(TICK);
            assert_eq!(local_timer().turn().fired, 1);
            assert_sum(local_timer().counts());
        }
        let counts = shard.borrow().counts();
        assert_sum(counts);
        assert_eq!((counts.live, counts.held, counts.cancelled), (0, 0, 20));
        assert_eq!(counts.handed_back, drained.get() as u64);
        assert!(counts.fired > 0 && counts.handed_back > 0);
        assert!(handles.iter().all(|handle| handle.cancel() == Cancel::Ended));
        assert_eq!(periodic.cancel(), Cancel::Cancelled);
    });
}

/// Periodic ones that have run before included.
#[test]
fn a_thread_that_ends_drops_each_callback_once() {
    struct CountsDrops(Arc<AtomicUsize>);

    impl Drop for CountsDrops {
        fn drop(&mut self) {
            assert_eq!(local_timer().counts(), Counts::default(), "the timer has ended");
            assert!(local_timer().try_add(TICK, || {}).is_err());
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    let dropped = Arc::new(AtomicUsize::new(0));
    in_virtual_time(|clock| {
        for _ in 0..10 {
            let (once, again) =
                (CountsDrops(Arc::clone(&dropped)), CountsDrops(Arc::clone(&dropped)));
            local_timer().add(TICK * 10, move || drop(once));
            local_timer().add_periodic(TICK, move || _ = &again);
        }
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 10);
        assert_sum(local_timer().counts());
    });
    assert_eq!(dropped.load(Ordering::SeqCst), 20);
}
