//! The end of a thread or shard (P11): every timer ends with it, once, whether it has arrived or
//! not. Later requests have a defined answer.

use std::{
    panic::panic_any,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Cancel, Config, ConfigError, Counts, ManualClock, PendingTimer, Shard,
    ShardRef, TimerHandle, Turn, Wheel, local_timer, purgatory::Purgatory,
};

use crate::support::{
    Counter, HOUR, Lockstep, Log, OnDrop, OpRecord, TICK, add_waiting, after_the_timer,
    assert_stale, cancel_elsewhere, ends_soon, expired, in_virtual_time, manual_shard, never,
    on_a_core, on_a_thread, operations, owner, panics, shard_by, turn_after,
};

/// Asserts that the callback comes back by value, and that `add` panics and drops it.
fn assert_shut_down(shard: &ShardRef) {
    let runs = Counter::default();
    let error = shard.try_add(TICK, runs.callback()).expect_err("it has ended");
    assert_eq!((error.reason(), runs.shared_by()), (AddErrorReason::ShutDown, 1));
    error.into_inner()();
    assert_eq!((runs.get(), runs.shared_by()), (1, 0));
    assert!(panics(|| shard.add(TICK, runs.callback())));
    assert_eq!(runs.shared_by(), 0);
}

// ---- a thread

#[test]
fn a_callback_dropped_at_the_end_finds_its_timer_ended() {
    let (mut owner, asked): (Lockstep<()>, _) = (Lockstep::start(1), Counter::default());
    let own = owner.shards[0].clone();
    for delay in [HOUR, Duration::MAX] {
        let (shard, asked) = (own.clone(), asked.callback());
        let asks = OnDrop(move || {
            assert_shut_down(&shard);
            on_a_thread(|| assert_shut_down(&shard));
            let timer = local_timer();
            assert_eq!((timer.len(), timer.turn(), timer.counts()), Default::default());
            asked();
        });
        own.add(delay, move || drop(asks));
    }
    owner.end(0);
    assert_eq!(asked.get(), 2);
    assert_shut_down(&own);
}

// ---- thread-locals that are dropped after the timer

#[test]
fn the_timer_of_an_exiting_thread_has_a_defined_answer_to_everything() {
    after_the_timer(|| {
        let shard = local_timer().shard_ref();
        let handle = local_timer().add(HOUR, never);
        let local = local_timer().add_local(HOUR, never);
        move || {
            let (timer, runs) = (local_timer(), Counter::default());
            let error = timer.try_add(TICK, runs.callback()).expect_err("it has ended");
            assert_eq!(error.reason(), AddErrorReason::ShutDown);
            assert!(error.to_string().contains("exiting"), "{error}");
            (error.into_inner())();
            assert_eq!(runs.get(), 1);
            let earlier: Instant = timer.now();
            assert!(panics(|| timer.add(TICK, never)));
            assert!(panics(|| timer.add(earlier, never)));
            assert!(panics(|| timer.add_periodic(TICK, never)));
            assert!(panics(|| timer.add_local(TICK, never)));
            assert_shut_down(&shard);
            assert_eq!(timer.prepare_sleep().timeout(), Some(Duration::ZERO));
            assert_eq!((timer.turn(), timer.counts()), (Turn::default(), Counts::default()));
            assert_eq!((timer.len(), timer.is_empty()), (0, true));
            assert_eq!((timer.next_deadline(), timer.time_until_next()), (None, None));
            assert_eq!(Config::new().install(), Err(ConfigError::AlreadyRunning));
            assert_stale(handle);
            assert_eq!((local.cancel(), local.is_pending()), (Cancel::Ended, false));
            assert_eq!((local.reset(TICK), local.share().cancel()), (false, Cancel::Ended));
            assert!(timer.now() >= earlier);
        }
    });
}

#[test]
fn a_thread_that_first_uses_its_timer_when_it_exits_exits() {
    thread_local! {
        static FIRST_USE: OnDrop<fn()> = const {
            OnDrop(|| {
                local_timer().add(Duration::ZERO, || ());
                local_timer().turn();
            })
        };
    }
    on_a_thread(|| FIRST_USE.with(|_| ()));
}

/// Returns the answer to a cancel of a timer of another thread whose timer has this number. Tries
/// until no other test has the number.
fn cancel_the_successors(number: u32) -> Option<Cancel> {
    let try_once = |_| {
        let (give, given) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let (_, next) = owner(Config::new(), move || {
            let is_next = local_timer().shard_ref().metrics().number == number;
            let handle = is_next.then(|| local_timer().add(HOUR, never));
            give.send(handle).expect("the exiting thread listens");
            assert!(ended.recv().is_err());
        });
        let answer = given.recv().expect("no panic").map(TimerHandle::cancel);
        drop(end);
        next.join().expect("no panic");
        answer
    };
    (0..1_000).find_map(try_once)
}

/// The number of the ended timer belongs to another thread (P12).
#[test]
fn an_exiting_or_drained_thread_owns_no_timer_of_its_successor() {
    let own_number = || local_timer().shard_ref().metrics().number;
    let exiting = after_the_timer(|| {
        let number = own_number();
        move || cancel_the_successors(number)
    });
    let drained = on_a_thread(|| {
        local_timer().add(HOUR, || ());
        let number = own_number();
        assert_eq!(local_timer().drain().len(), 1);
        cancel_the_successors(number)
    });
    assert_eq!([exiting, drained], [Some(Cancel::Cancelled); 2]);
}

// ---- a thread's wheel that is drained

#[test]
fn a_drained_wheel_hands_back_what_is_pending() {
    on_a_core(|clock| {
        let (begun, log) = (clock.now(), Log::new());
        local_timer().add(TICK, log.writes("one-shot"));
        local_timer().add_local(TICK * 2, log.writes("private"));
        let (repeats, core) = (log.clone(), local_timer().shard_ref());
        local_timer().add_periodic(TICK * 3, move || repeats.write("periodic"));
        local_timer().add(TICK * 4, log.writes("cancelled")).cancel();
        // Its destructor runs while nothing is borrowed.
        let at_drop = OnDrop({
            let dropped = log.clone();
            move || dropped.write(if local_timer().is_empty() { "dropped" } else { "borrowed" })
        });
        let elsewhere = local_timer().add(TICK * 5, move || drop(at_drop));
        assert_eq!(cancel_elsewhere(elsewhere), Cancel::Cancelled);
        let (moved, remote) = on_a_thread(|| (core.add(HOUR, || ()), core.add(TICK * 7, || ())));
        on_a_thread(|| assert!(moved.reset(TICK * 6)));

        let mut pending = local_timer().drain();
        assert_eq!(log.take(), ["dropped"]);
        pending.sort_unstable_by_key(PendingTimer::deadline);
        let deadlines: Vec<_> = pending.iter().map(PendingTimer::deadline).collect();
        assert_eq!(deadlines, [1, 2, 3, 6, 7].map(|ticks| begun + TICK * ticks));
        pending.into_iter().for_each(PendingTimer::run);
        assert_eq!(log.take(), ["one-shot", "private", "periodic"]);
        let Counts { added, handed_back, cancelled, live, .. } = local_timer().counts();
        assert_eq!((added, handed_back, cancelled, live), (7, 5, 2, 0));

        // What remains behaves as in a thread that exits.
        assert!(local_timer().drain().is_empty(), "once");
        [elsewhere, moved, remote].into_iter().for_each(assert_stale);
        clock.advance(TICK * 10);
        assert_eq!(local_timer().turn(), Turn::default());
        assert_eq!(local_timer().prepare_sleep().timeout(), Some(Duration::ZERO));
        assert_eq!((local_timer().next_deadline(), local_timer().len()), (None, 0));
        let refused = [
            local_timer().try_add(TICK, || ()).map_err(|error| error.reason()),
            core.try_add(TICK, || ()).map_err(|error| error.reason()),
            on_a_thread(|| core.try_add(TICK, || ()).map_err(|error| error.reason())),
        ];
        assert_eq!(refused, [Err(AddErrorReason::ShutDown); 3]);
    });
}

/// What a drain returns names its purgatory, which may have ended.
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
        assert!(!panics(|| pending.into_iter().for_each(PendingTimer::run)));
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

// ---- a shard

/// The simulator compares what a drain hands back, and the answers to handles and adds after it.
#[test]
fn a_drained_shard_has_a_defined_answer_to_everything() {
    let (mut shard, clock) = manual_shard();
    let handles = [1, 2].map(|id| shard.add(TICK * id, id));
    assert_eq!(shard.drain().len(), 2);
    handles.into_iter().for_each(assert_stale);
    assert_eq!((shard.cancel(handles[0]), shard.reset(handles[0], TICK)), (None, false));
    clock.advance(TICK * 10);
    assert_eq!(expired(&mut shard), []);
    assert_eq!((shard.next_deadline(), shard.len()), (None, 0));
    assert_eq!(shard.prepare_sleep().timeout(), Some(Duration::ZERO), "nothing would end it");
    assert!(panics(|| shard.add(TICK, 5)));
}

/// Tries until the number of the drained shard goes to the timer of this test's thread.
#[test]
fn a_drained_shard_does_not_reach_its_successor() {
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

/// P4: the garbage of a shard is dropped by a thread that ends one, never by one that cancels.
#[test]
fn a_thread_that_cancels_never_drops_the_garbage_of_a_shard() {
    let (is_over, dropped_by) = (AtomicBool::new(false), Log::new());
    let mut living = Shard::new();
    let handle = living.add(HOUR, ());
    thread::scope(|scope| {
        let canceller = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                handle.cancel();
            }
            thread::current().id()
        });
        for _ in 0..2_000 {
            let dropped = dropped_by.clone();
            let captured = OnDrop(move || dropped.write(thread::current().id()));
            let config = Config::new().on_wake(move || _ = &captured);
            drop(Shard::<()>::with_config(config).expect("valid"));
        }
        is_over.store(true, Ordering::Relaxed);
        let canceller = canceller.join().expect("no panic");
        let dropped_by = dropped_by.take();
        assert!(!dropped_by.is_empty() && !dropped_by.contains(&canceller));
    });
}

/// P5: the drain of a wheel may free the hooks of other shards.
#[test]
fn a_hook_that_a_drain_drops_may_use_the_wheel() {
    let (is_over, panicked) = (AtomicBool::new(false), Log::new());
    let mut living = Shard::new();
    let handle = living.add(HOUR, ());
    thread::scope(|scope| {
        // Delays the end of the shards' memory until the drain.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                handle.status();
            }
        });
        for _ in 0..200 {
            on_a_thread(|| {
                local_timer().add(HOUR, never);
                for _ in 0..4 {
                    let panicked = panicked.clone();
                    let captured = OnDrop(move || panicked.write(panics(|| local_timer().len())));
                    let config = Config::new().on_wake(move || _ = &captured);
                    drop(Shard::<()>::with_config(config).expect("valid"));
                }
                assert_eq!(local_timer().drain().len(), 1);
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(!panicked.take().contains(&true));
}

/// No caller is left for a report, and no reason to abort.
#[test]
fn a_thrown_value_that_panics_harms_no_thread_that_is_exiting() {
    let is_dropped = after_the_timer(|| {
        let (own, throws) = (Purgatory::new(), OnDrop(|| panic_any(OnDrop(|| panic!("twice")))));
        add_waiting(&own, OpRecord::new().op_with(|| (), move || _ = &throws), [1], 60_000);
        let mut own = Some(own);
        move || own.take().is_some()
    });
    assert!(is_dropped);
}

// ---- bugs of other systems (`doc/history.md`)

/// When it is dropped, makes a shard and ends it, and cancels a timer of the one that is ending.
struct EndsAShard(ManualClock, Option<TimerHandle>);

impl Drop for EndsAShard {
    fn drop(&mut self) {
        let mut other = shard_by(&self.0);
        other.add(TICK, ());
        assert_eq!(other.drain().len(), 1);
        assert!(self.1.is_none_or(|handle| handle.cancel() == Cancel::Ended));
    }
}

/// DPDK eb63c85d: stopping all timers took a lock and then called what took it again. Here two
/// threads end shards while a third one looks at what they leave behind: so each frees what the
/// other one could not free, and its hooks with it.
#[test]
fn bug_20_stopping_all_timers_took_a_lock_twice() {
    ends_soon(|| {
        let (clock, is_over) = (ManualClock::new(), AtomicBool::new(false));
        let looked_at = shard_by(&clock).add(TICK, ());
        // Makes shards whose payloads and hooks end others, and ends them.
        let end_shards = || {
            for round in 0..operations(100).min(3_000) {
                let captured = EndsAShard(clock.clone(), None);
                let config = Config::new().clock(&clock).on_wake(move || _ = &captured);
                let mut shard = Shard::with_config(config).expect("valid");
                let first = shard.add(TICK, EndsAShard(clock.clone(), None));
                let second = shard.add(HOUR, EndsAShard(clock.clone(), Some(first)));
                assert!(round % 3 > 0 || cancel_elsewhere(second) == Cancel::Cancelled);
                if round % 2 == 0 {
                    assert!(!shard.drain().is_empty());
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(looked_at.cancel(), Cancel::Ended);
                }
            });
            let enders = [0; 2].map(|_| scope.spawn(end_shards));
            let ended = enders.map(|ender| ender.join().is_ok());
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(ended, [true; 2], "no assertion failed");
        });
    });
}

/// glommio #239.
#[test]
fn bug_41_timers_that_had_not_fired_leaked_with_their_executor() {
    // Ticks to be due in: near, far, further and never.
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
