//! The end of a thread or shard ends each of its timers once, admitted or not (P11).

use std::{
    cell::Cell,
    future::{Future, pending},
    panic::panic_any,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    task::{Context, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Cancel, Config, ConfigError, Counts, DrainedTimer, ManualClock, Shard,
    TimerHandle, Turn, Wheel, future::drive, local_timer, purgatory::Purgatory,
};

use crate::support::{
    Counter, HOUR, Lockstep, Log, OnDrop, OpRecord, TICK, add_waiting, assert_ends_soon,
    assert_refuses, assert_stale, cancel_remotely, in_checked_virtual_time, in_virtual_time,
    manual_shard, must_not_run, on_a_thread, panics, run_after_wheel_ends, scaled,
    shard_with_clock, spawn_owner, turn_after, turn_and_expire,
};

#[test]
fn a_callback_dropped_at_thread_exit_finds_its_shard_ended() {
    let (mut owner, call_count): (Lockstep<()>, _) = (Lockstep::start(1), Counter::default());
    let own = owner.shards[0].clone();
    for delay in [HOUR, Duration::MAX] {
        let (shard, call_count) = (own.clone(), call_count.callback());
        let checks_on_drop = OnDrop(move || {
            assert_refuses(&shard, AddErrorReason::ShutDown);
            on_a_thread(|| assert_refuses(&shard, AddErrorReason::ShutDown));
            let timer = local_timer();
            assert_eq!((timer.len(), timer.turn(), timer.counts()), Default::default());
            call_count();
        });
        own.add(delay, move || drop(checks_on_drop));
    }
    owner.end(0);
    assert_eq!(call_count.get(), 2);
    assert_refuses(&own, AddErrorReason::ShutDown);
}

// ---- thread-locals that are dropped after the wheel

#[test]
fn calls_on_the_wheel_of_an_exiting_thread_are_defined() {
    run_after_wheel_ends(|| {
        let shard = local_timer().shard_ref();
        let handle = local_timer().add(HOUR, must_not_run);
        let local = local_timer().add_local(HOUR, must_not_run);
        move || {
            let (timer, runs) = (local_timer(), Counter::default());
            let error = timer.try_add(TICK, runs.callback()).expect_err("the wheel has ended");
            assert_eq!(error.reason(), AddErrorReason::ShutDown);
            assert!(error.to_string().contains("exiting"), "{error}");
            (error.into_inner())();
            assert_eq!(runs.get(), 1);
            let earlier: Instant = timer.now();
            assert!(panics(|| timer.add(TICK, must_not_run)));
            assert!(panics(|| timer.add(earlier, must_not_run)));
            assert!(panics(|| timer.add_periodic(TICK, must_not_run)));
            assert!(panics(|| timer.add_local(TICK, must_not_run)));
            assert_refuses(&shard, AddErrorReason::ShutDown);
            assert_eq!(timer.prepare_sleep().timeout(), Some(Duration::ZERO));
            assert_eq!((timer.turn(), timer.counts()), (Turn::default(), Counts::default()));
            assert_eq!((timer.len(), timer.is_empty()), (0, true));
            assert_eq!((timer.next_deadline(), timer.time_until_next()), (None, None));
            assert_eq!(Config::new().install(), Err(ConfigError::ThreadHasWheel));
            assert_stale(handle);
            assert_eq!((local.cancel(), local.is_pending()), (Cancel::Ended, false));
            assert_eq!((local.reset(TICK), local.share().cancel()), (false, Cancel::Ended));
            assert!(timer.now() >= earlier);
        }
    });
}

#[test]
fn a_thread_may_first_use_its_wheel_while_it_exits() {
    static TIMERS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static FIRST_USE: OnDrop<fn()> = const {
            OnDrop(|| {
                local_timer().add(Duration::ZERO, || ());
                let turn = local_timer().turn();
                TIMERS.store((turn.fired + turn.live) as u64, Ordering::Relaxed);
            })
        };
    }
    on_a_thread(|| FIRST_USE.with(|_| ()));
    assert_eq!(TIMERS.load(Ordering::Relaxed), 1);
}

/// Starts up to 1,000 threads until one gets the shard number `number`, and cancels its timer.
fn cancel_successors_timer(number: u32) -> Option<Cancel> {
    let try_once = |_| {
        let (handle_sender, handle_receiver) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let (_, successor) = spawn_owner(Config::new(), move || {
            let is_next = local_timer().shard_ref().metrics().number == number;
            let handle = is_next.then(|| local_timer().add(HOUR, must_not_run));
            handle_sender.send(handle).expect("the caller waits");
            assert!(ended.recv().is_err());
        });
        let answer = handle_receiver.recv().expect("no panic").map(TimerHandle::cancel);
        drop(end);
        successor.join().expect("no panic");
        answer
    };
    (0..1_000).find_map(try_once)
}

/// The successor is a thread that reuses the shard number (P12).
#[test]
fn an_ended_thread_can_cancel_timers_of_its_successor() {
    let own_number = || local_timer().shard_ref().metrics().number;
    let exiting = run_after_wheel_ends(|| {
        let number = own_number();
        move || cancel_successors_timer(number)
    });
    let drained = on_a_thread(|| {
        local_timer().add(HOUR, || ());
        let number = own_number();
        assert_eq!(local_timer().drain().len(), 1);
        cancel_successors_timer(number)
    });
    assert_eq!([exiting, drained], [Some(Cancel::Cancelled); 2]);
}

// ---- drained wheels of threads

#[test]
fn drain_returns_the_pending_timers_of_a_thread() {
    in_checked_virtual_time(|clock| {
        let (start, log) = (clock.now(), Log::new());
        let one_shot = local_timer().add(TICK, log.writer("one-shot"));
        let private = local_timer().add_local(TICK * 2, log.writer("private"));
        let (repeats, core) = (log.clone(), local_timer().shard_ref());
        let periodic = local_timer().add_periodic(TICK * 3, move || repeats.write("periodic"));
        local_timer().add(TICK * 4, log.writer("cancelled")).cancel();
        // This destructor runs while the wheel is not borrowed.
        let at_drop = OnDrop({
            let dropped = log.clone();
            move || dropped.write(if local_timer().is_empty() { "dropped" } else { "borrowed" })
        });
        let remotely_cancelled = local_timer().add(TICK * 5, move || drop(at_drop));
        assert_eq!(cancel_remotely(remotely_cancelled), Cancel::Cancelled);
        let (moved, remote) = on_a_thread(|| (core.add(HOUR, || ()), core.add(TICK * 7, || ())));
        on_a_thread(|| assert!(moved.reset(TICK * 6)));

        let mut pending = local_timer().drain();
        assert_eq!(log.take(), ["dropped"]);
        pending.sort_unstable_by_key(DrainedTimer::deadline);
        let deadlines: Vec<_> = pending.iter().map(DrainedTimer::deadline).collect();
        assert_eq!(deadlines, [1, 2, 3, 6, 7].map(|ticks| start + TICK * ticks));
        let handles: Vec<_> = pending.iter().map(DrainedTimer::handle).collect();
        assert_eq!(handles, [one_shot, private.share(), periodic, moved, remote]);
        pending.into_iter().for_each(DrainedTimer::run);
        assert_eq!(log.take(), ["one-shot", "private", "periodic"]);
        let counts = local_timer().counts();
        assert_eq!((counts.added, counts.handed_back, counts.live), (7, 5, 0));
        assert_eq!((counts.cancelled, counts.remote_cancels), (2, 1));

        assert!(local_timer().drain().is_empty(), "the second drain");
        [remotely_cancelled, moved, remote].into_iter().for_each(assert_stale);
        clock.advance(TICK * 10);
        assert_eq!(local_timer().turn(), Turn::default());
        assert_eq!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO));
        assert_eq!((local_timer().next_deadline(), local_timer().len()), (None, 0));
        let refused = local_timer().try_add(TICK, || ()).map_err(|error| error.reason());
        assert_eq!(refused, Err(AddErrorReason::ShutDown));
        assert_refuses(&core, AddErrorReason::ShutDown);
        on_a_thread(|| assert_refuses(&core, AddErrorReason::ShutDown));
    });
}

/// A drained timer refers to its purgatory, which may have ended.
#[test]
fn a_drained_timer_does_not_reach_another_purgatory() {
    in_virtual_time(|_| {
        let (seen, ended) = (OpRecord::new(), Purgatory::new());
        add_waiting(&ended, seen.op(), [1], 5);
        let pending = local_timer().drain();
        drop(ended);
        let other = Purgatory::new();
        assert!(other.try_complete_else_watch(seen.op(), [1], TICK).is_err());
        assert_eq!(pending.len(), 1);
        assert!(!panics(|| pending.into_iter().for_each(DrainedTimer::run)));
    });
}

/// The purgatory has freed the records of operations that ended after the drain.
#[test]
fn a_drained_timer_may_run_after_the_end_of_its_operation() {
    in_virtual_time(|_| {
        let (seen, own) = (OpRecord::new(), Purgatory::new());
        (0..20_000).for_each(|key| _ = add_waiting(&own, seen.op(), [key], 5));
        let pending = local_timer().drain();
        assert_eq!((pending.len(), own.drain().len()), (20_000, 20_000));
        pending.into_iter().for_each(DrainedTimer::run);
        assert_eq!(seen.completions(), []);
    });
}

#[test]
fn a_callback_cannot_drain_its_wheel() {
    in_virtual_time(|clock| {
        local_timer().add(TICK, || drop(local_timer().drain()));
        local_timer().add(TICK * 2, || ());
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!((local_timer().counts().panicked, local_timer().len()), (1, 1));
        assert_eq!(local_timer().drain().len(), 1);
    });
}

// ---- shards

#[test]
fn calls_on_a_drained_shard_have_defined_results() {
    let (mut shard, clock) = manual_shard();
    let handles = [1, 2].map(|id| shard.add(TICK * id, id));
    assert_eq!(shard.drain().len(), 2);
    handles.into_iter().for_each(assert_stale);
    assert_eq!((shard.cancel(handles[0]), shard.reset(handles[0], TICK)), (None, false));
    clock.advance(TICK * 10);
    assert_eq!(turn_and_expire(&mut shard), []);
    assert_eq!((shard.next_deadline(), shard.len()), (None, 0));
    assert_eq!(shard.prepare_sleep().timeout(), Some(Duration::ZERO), "nothing could end a sleep");
    assert!(panics(|| shard.add(TICK, 5)));
}

/// Drains shards until the wheel of a new thread reuses the number of a drained shard.
#[test]
fn a_drained_shard_cannot_reach_timers_of_its_successor() {
    let reached = (0..1_000).find_map(|_| {
        let mut drained = Shard::<u32>::new();
        drop(drained.drain());
        let number = drained.metrics().number;
        on_a_thread(move || {
            let core = local_timer().shard_ref();
            if core.metrics().number != number {
                return None;
            }
            let add = || on_a_thread(|| core.add(HOUR, || ()));
            let arrived = add();
            let _ = local_timer().turn();
            let handles = [add(), arrived, local_timer().add(HOUR, || ())];
            let mut reaches = |it| drained.reset(it, Duration::ZERO) | drained.cancel(it).is_some();
            let mut reached = || handles.map(&mut reaches);
            let before = reached();
            let _ = local_timer().turn();
            let after = reached();
            assert!(handles.into_iter().all(TimerHandle::is_pending) && local_timer().len() == 3);
            Some([before, after])
        })
    });
    assert_eq!(reached, Some([[false; 3]; 2]));
}

/// P4: a cancel never frees the memory of an ended shard.
#[test]
fn a_cancelling_thread_never_drops_hooks_of_ended_shards() {
    let (stop, dropped_by) = (AtomicBool::new(false), Log::new());
    let mut living = Shard::new();
    let handle = living.add(HOUR, ());
    thread::scope(|scope| {
        let canceller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                handle.cancel();
            }
            thread::current().id()
        });
        for _ in 0..2_000 {
            let dropped = dropped_by.clone();
            let captured = OnDrop(move || dropped.write(thread::current().id()));
            let config = Config::new().wake_hook(move || _ = &captured);
            drop(Shard::<()>::with_config(config).expect("valid"));
        }
        stop.store(true, Ordering::Relaxed);
        let canceller = canceller.join().expect("no panic");
        let dropped_by = dropped_by.take();
        assert!(!dropped_by.is_empty() && !dropped_by.contains(&canceller));
    });
}

/// `LocalTimer::drain` may free ended shards, and so drop their wake hooks. P5: the destructor of
/// such a hook may use the wheel.
#[test]
fn a_hook_dropped_by_a_drain_may_use_the_wheel() {
    static DRAIN_HAS_DROPPED: AtomicBool = AtomicBool::new(false);
    thread_local!(static DRAINS: Cell<bool> = const { Cell::new(false) });
    let (stop, panicked) = (AtomicBool::new(false), Log::new());
    let mut living = Shard::new();
    let handle = living.add(HOUR, ());
    thread::scope(|scope| {
        // Delays the freeing of the shards' memory until the drain.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                handle.status();
            }
        });
        let round = || {
            local_timer().add(HOUR, must_not_run);
            for _ in 0..4 {
                let panicked = panicked.clone();
                let captured = OnDrop(move || {
                    DRAIN_HAS_DROPPED.fetch_or(DRAINS.get(), Ordering::Relaxed);
                    panicked.write(panics(|| local_timer().len()));
                });
                let config = Config::new().wake_hook(move || _ = &captured);
                drop(Shard::<()>::with_config(config).expect("valid"));
            }
            DRAINS.set(true);
            assert_eq!(local_timer().drain().len(), 1);
            DRAINS.set(false);
        };
        let drain_has_dropped = (0..20_000).any(|_| {
            on_a_thread(round);
            DRAIN_HAS_DROPPED.load(Ordering::Relaxed)
        });
        stop.store(true, Ordering::Relaxed);
        assert!(drain_has_dropped, "no drain has dropped a hook");
    });
    assert!(!panicked.take().contains(&true));
}

#[test]
fn a_panicking_panic_payload_does_not_abort_an_exiting_thread() {
    let is_dropped = run_after_wheel_ends(|| {
        let (own, throws) = (Purgatory::new(), OnDrop(|| panic_any(OnDrop(|| panic!("twice")))));
        add_waiting(&own, OpRecord::new().op_with(|| (), move || _ = &throws), [1], 60_000);
        let mut own = Some(own);
        move || own.take().is_some()
    });
    assert!(is_dropped);
}

/// After a wheel has ended, an executor in another thread-local may drop the tasks that drove it.
#[test]
fn panicking_wakers_of_driving_tasks_do_not_abort_an_exiting_thread() {
    struct PanicsOnDrop;
    impl Wake for PanicsOnDrop {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("planned");
        }
    }
    let panics = Counter::default();
    let ended = run_after_wheel_ends(|| {
        let count = panics.callback();
        Config::new().panic_hook(move |_| count()).install().expect("a new thread");
        let mut tasks = [(); 2].map(|()| {
            let mut task = Box::pin(drive(|_| pending::<()>()));
            let waker = Waker::from(Arc::new(PanicsOnDrop));
            for _ in 0..4 {
                assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            Some(task)
        });
        move || tasks.each_mut().map(Option::take).len()
    });
    assert_eq!((ended, panics.get()), (2, 2));
}

/// The destructor of a cancelled callback runs on the cancelling thread, and may still run after
/// the wheel has ended.
#[test]
fn a_panic_of_a_cancelled_callback_is_not_reported_to_a_successor() {
    let panics_of_successor = || {
        let (end, ended) = mpsc::channel::<()>();
        let (shard, owner) = spawn_owner(Config::new(), move || assert!(ended.recv().is_err()));
        let successor = Arc::new(Mutex::new(None));
        let (mut wheel, place) = (Some((end, owner)), Arc::clone(&successor));
        let replaces_wheel = OnDrop(move || {
            let (end, owner) = wheel.take().expect("dropped once");
            drop(end);
            owner.join().expect("no panic");
            *place.lock().expect("no panic") = Some(Shard::<()>::new());
            panic!("planned");
        });
        let handle = shard.add(HOUR, move || _ = &replaces_wheel);
        assert_eq!(handle.cancel(), Cancel::Cancelled);
        let successor =
            successor.lock().expect("no panic").take().expect("the callback is dropped");
        let is_successor = successor.metrics().number == shard.metrics().number;
        is_successor.then(|| successor.counts().panicked)
    };
    assert_eq!((0..1_000).find_map(|_| panics_of_successor()), Some(0));
}

// ---- bugs of other systems (`doc/history.md`)

/// A payload that, when dropped, creates and drains a shard, and cancels a timer of the shard whose
/// end drops it.
struct EndShardOnDrop(ManualClock, Option<TimerHandle>);

impl Drop for EndShardOnDrop {
    fn drop(&mut self) {
        let mut other = shard_with_clock(&self.0);
        other.add(TICK, ());
        assert_eq!(other.drain().len(), 1);
        assert!(self.1.is_none_or(|handle| handle.cancel() == Cancel::Ended));
    }
}

/// DPDK eb63c85d: stopping all timers locked a mutex twice. Here two threads end shards. A third
/// thread's cancels delay the freeing of hooks, so that each of the two threads also frees hooks of
/// the other's shards.
#[test]
fn bug_20_shards_that_end_each_other_do_not_hang() {
    assert_ends_soon(|| {
        let (clock, stop) = (ManualClock::new(), AtomicBool::new(false));
        let ended_timer = shard_with_clock(&clock).add(TICK, ());
        let end_shards = || {
            for round in 0..scaled(100).min(3_000) {
                let captured = EndShardOnDrop(clock.clone(), None);
                let config = Config::new().clock(&clock).wake_hook(move || _ = &captured);
                let mut shard = Shard::with_config(config).expect("valid");
                let first = shard.add(TICK, EndShardOnDrop(clock.clone(), None));
                let second = shard.add(HOUR, EndShardOnDrop(clock.clone(), Some(first)));
                assert!(round % 3 > 0 || cancel_remotely(second) == Cancel::Cancelled);
                if round % 2 == 0 {
                    assert!(!shard.drain().is_empty());
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(ended_timer.cancel(), Cancel::Ended);
                }
            });
            let enders = [0; 2].map(|_| scope.spawn(end_shards));
            let ended = enders.map(|ender| ender.join().is_ok());
            stop.store(true, Ordering::SeqCst);
            assert_eq!(ended, [true; 2], "no panic");
        });
    });
}

/// Checks for the bug of glommio #239.
#[test]
fn bug_41_pending_timers_are_dropped_with_their_wheel() {
    const DELAYS: [u64; 6] = [1, 2, 77, 150_000, 1 << 30, 1 << 50];
    let (drops, mut wheel) = (Counter::default(), Wheel::new());
    for delay in DELAYS {
        for copy in 0..300 {
            let key = wheel.insert(delay + copy, drops.on_drop());
            assert!(copy % 3 > 0 || wheel.reset(key, delay * 2));
        }
    }
    drop(wheel.advance(100).next());
    drop(wheel);
    assert_eq!(drops.get(), 300 * DELAYS.len());
}
