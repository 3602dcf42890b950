//! Sleeping while others add and move (P9), in virtual time: an announced sleep is ended by what is due before it ends, and by
//! nothing that is due later.

use std::{
    sync::{
        Arc, Barrier, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use corewheel::{
    Cancel, Config, ManualClock, PreparedSleep, Shard, ShardRef, TimerHandle, local_timer,
};

use crate::common::{TICK, on_a_thread};

const HOUR: Duration = Duration::from_secs(3_600);

/// Messages that wake a sleeping owner whatever they are about (P8).
const DEBT: usize = 1024;

fn never() {
    unreachable!("this callback must not run");
}

/// How often the wake hook was called.
#[derive(Clone, Default)]
struct Wakes(Arc<AtomicUsize>);

impl Wakes {
    fn config(&self) -> Config {
        let wakes = self.clone();
        Config::new().on_wake(move || _ = wakes.0.fetch_add(1, Ordering::SeqCst))
    }

    /// Since the last time it was asked.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }

    /// How often the owner is woken while it sleeps and another thread does this.
    fn during(&self, ask: impl FnOnce() + Send) -> usize {
        let sleep = local_timer().prepare_sleep();
        assert_ne!(sleep.timeout(), Some(Duration::ZERO));
        on_a_thread(ask);
        self.take()
    }
}

/// In virtual time, with a wake hook that counts.
fn counting_wakes<R: Send>(test: impl FnOnce(&ManualClock, &Wakes, &ShardRef) -> R + Send) -> R {
    let (clock, wakes) = (ManualClock::new(), Wakes::default());
    let config = wakes.config().tick(TICK).clock(&clock);
    on_a_thread(|| {
        config.install().expect("a fresh thread");
        test(&clock, &wakes, &local_timer().shard_ref())
    })
}

fn timeout() -> Option<Duration> {
    local_timer().prepare_sleep().timeout()
}

#[test]
fn an_add_that_is_due_before_the_sleep_ends_ends_it() {
    counting_wakes(|clock, wakes, shard| {
        assert_eq!(wakes.during(|| _ = shard.add(TICK * 50, never)), 1, "nothing was pending");
        let _ = local_timer().turn();
        // By the tick: 50 is what the sleep is for.
        for (delay, woken) in [
            (TICK * 51, 0),
            (HOUR, 0),
            (Duration::MAX, 0),
            (TICK * 50, 0),
            (TICK * 99 / 2, 0),
            (TICK * 49, 1),
        ] {
            assert_eq!(wakes.during(|| _ = shard.add(delay, || {})), woken, "{delay:?}");
            assert_eq!(timeout(), Some(Duration::ZERO), "it is looked at before the next sleep");
            let _ = local_timer().turn();
        }
        clock.advance(TICK * 10);
        assert_eq!(timeout(), Some(TICK * 39));
        assert_eq!(wakes.during(|| _ = shard.add(Duration::ZERO, || {})), 1);
    });
}

#[test]
fn a_reset_to_before_the_end_of_the_sleep_ends_it() {
    counting_wakes(|_, wakes, shard| {
        let own = [(); 4].map(|()| local_timer().add(TICK * 50, never));
        let periodic = local_timer().add_periodic(TICK * 60, never);
        let there = on_a_thread(|| shard.add(TICK * 55, never));
        let _ = local_timer().turn();
        let reset = |handle: TimerHandle, delay| wakes.during(move || assert!(handle.reset(delay)));
        // A tick that a timer was reset away from may still end a sleep: each has its own.
        for (handle, end) in [(own[0], TICK * 50), (there, TICK * 49), (periodic, TICK * 48)] {
            for (delay, woken) in [
                (HOUR, 0),
                (end, 0),
                (end.saturating_sub(TICK / 2), 0),
                (end.saturating_sub(TICK), 1),
            ] {
                assert_eq!(reset(handle, delay), woken, "{delay:?}");
                assert_eq!(
                    timeout(),
                    Some(Duration::ZERO),
                    "it is looked at before the next sleep"
                );
                let _ = local_timer().turn();
            }
            assert!(handle.reset(HOUR));
            let _ = local_timer().turn();
        }
        // The one that is slept for is no exception.
        own[1..].iter().for_each(|handle| assert!(handle.reset(TICK * 100)));
        assert!(own[1].reset(TICK * 50));
        assert_eq!(reset(own[1], TICK * 70), 0);
        let _ = local_timer().turn();
        assert_eq!(reset(own[1], TICK * 10), 1);
    });
}

#[test]
fn one_wake_is_enough_for_a_sleep() {
    counting_wakes(|_, wakes, shard| {
        let woken = wakes.during(|| {
            for ticks in (1..100).rev() {
                assert!(shard.add(TICK * ticks, never).reset(TICK * ticks));
            }
        });
        assert_eq!(woken, 1);
        let _ = local_timer().turn();
        assert_eq!(
            wakes.during(|| _ = shard.add(Duration::ZERO, || {})),
            1,
            "and the next sleep has its own"
        );
    });
}

/// Nobody relies on a thread that has begun to wake the owner and is held up: not another thread, and not the owner, which may have
/// something to do before it sleeps.
#[test]
fn a_waker_that_is_held_up_holds_up_nobody_else() {
    let (clock, calls) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
    let (counted, held_up) = (Arc::clone(&calls), Arc::new(Barrier::new(2)));
    let held = Arc::clone(&held_up);
    let hook = move || {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            held.wait();
            held.wait();
        }
    };
    on_a_thread(|| {
        Config::new().tick(TICK).clock(&clock).on_wake(hook).install().expect("a fresh thread");
        let shard = local_timer().shard_ref();
        let _sleep = local_timer().prepare_sleep();
        thread::scope(|scope| {
            scope.spawn(|| shard.add(TICK * 9, never));
            held_up.wait();
            local_timer().add(TICK * 8, never);
            assert_eq!(calls.load(Ordering::SeqCst), 2, "the owner's own timer");
            on_a_thread(|| shard.add(TICK * 7, never));
            assert_eq!(calls.load(Ordering::SeqCst), 2, "the sleep is over by now");
            let _next = local_timer().prepare_sleep();
            held_up.wait();
        });
        let _ = local_timer().turn();
        let _sleep = local_timer().prepare_sleep();
        on_a_thread(|| shard.add(TICK * 6, never));
        assert_eq!(calls.load(Ordering::SeqCst), 3, "the end of that call ended no later sleep");
    });
    let (calls, woken) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(3)));
    let (counted, together) = (Arc::clone(&calls), Arc::clone(&woken));
    let hook = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        together.wait();
    };
    on_a_thread(|| {
        Config::new().tick(TICK).clock(&clock).on_wake(hook).install().expect("a fresh thread");
        let shard = local_timer().shard_ref();
        let _sleep = local_timer().prepare_sleep();
        thread::scope(|scope| {
            for ticks in [5, 4] {
                let shard = &shard;
                scope.spawn(move || shard.add(TICK * ticks, never));
            }
            woken.wait();
        });
        assert_eq!(calls.load(Ordering::SeqCst), 2, "both were in it at the same time");
    });
}

/// Its own requests need no other wake-up, and those of a circle of hooks neither.
#[test]
fn a_hook_that_asks_is_not_called_inside_itself() {
    let refs = Arc::new(Mutex::new(Vec::<ShardRef>::new()));
    let calls = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let clock = ManualClock::new();
    let config = |at: usize| {
        let (calls, refs) = (Arc::clone(&calls[at]), Arc::clone(&refs));
        Config::new().tick(TICK).clock(&clock).on_wake(move || {
            calls.fetch_add(1, Ordering::SeqCst);
            let refs = refs.lock().expect("sound").clone();
            for shard in refs {
                shard.add(TICK, || {});
            }
        })
    };
    on_a_thread(|| {
        config(0).install().expect("a fresh thread");
        refs.lock().expect("sound").push(local_timer().shard_ref());
        let sleep = local_timer().prepare_sleep();
        on_a_thread(|| {
            config(1).install().expect("a fresh thread");
            let own = local_timer().shard_ref();
            refs.lock().expect("sound").push(own.clone());
            let other_sleep = local_timer().prepare_sleep();
            on_a_thread(|| own.add(TICK, || {}));
            assert_eq!([&calls[0], &calls[1]].map(|calls| calls.load(Ordering::SeqCst)), [1, 1]);
            drop(other_sleep);
            clock.advance(TICK * 2);
            assert_eq!(
                local_timer().turn().fired,
                3,
                "what was asked from outside, and by each hook"
            );
        });
        drop(sleep);
        assert_eq!(local_timer().turn().fired, 2);
    });
    // Or each would keep the shard that keeps it.
    refs.lock().expect("sound").clear();
}

/// However many there are in a circle, it comes to an end, and each that is no deeper inside than hooks are called is called once.
#[test]
fn hooks_of_a_circle_are_called_once_each() {
    for (cores, called) in [(4, 4), (30, 30), (100, 32)] {
        let (refs, calls) =
            (Arc::new(Mutex::new(Vec::<ShardRef>::new())), Arc::new(AtomicUsize::new(0)));
        let (awake, asleep) = (Barrier::new(cores + 1), Barrier::new(cores + 1));
        thread::scope(|scope| {
            for _ in 0..cores {
                let (refs, calls, awake, asleep) =
                    (Arc::clone(&refs), Arc::clone(&calls), &awake, &asleep);
                scope.spawn(move || {
                    let (own, all) = (Arc::new(OnceLock::<usize>::new()), Arc::clone(&refs));
                    let at = Arc::clone(&own);
                    let next = move || {
                        calls.fetch_add(1, Ordering::SeqCst);
                        let shard =
                            at.get().map(|at| all.lock().expect("sound")[(at + 1) % cores].clone());
                        shard.expect("it sleeps by now").run(|| ());
                    };
                    Config::new().on_wake(next).install().expect("a fresh thread");
                    let place = {
                        let mut refs = refs.lock().expect("sound");
                        refs.push(local_timer().shard_ref());
                        refs.len() - 1
                    };
                    own.set(place).expect("once");
                    let sleep = local_timer().prepare_sleep();
                    asleep.wait();
                    awake.wait();
                    drop(sleep);
                });
            }
            asleep.wait();
            let first = refs.lock().expect("sound")[0].clone();
            first.run(|| ());
            assert_eq!(calls.load(Ordering::SeqCst), called, "of {cores}");
            awake.wait();
        });
        refs.lock().expect("sound").clear();
    }
}

/// A timer that is moved ahead and back while the sleep lasts: what it was moved to last counts.
#[test]
fn a_reset_whose_message_is_on_its_way_wakes_too() {
    counting_wakes(|_, wakes, shard| {
        let own = local_timer().add(TICK * 50, never);
        let woken = |handle: TimerHandle| {
            wakes.during(move || {
                for delay in [HOUR, TICK * 500, TICK * 60] {
                    assert!(handle.reset(delay));
                }
                assert!(handle.reset(TICK * 20));
            })
        };
        assert_eq!(woken(own), 1);
        let there = on_a_thread(|| shard.add(TICK * 50, never));
        assert!(own.reset(TICK * 50));
        let _ = local_timer().turn();
        assert_eq!(woken(there), 1);
    });
}

/// In a loop that asks for its sleep first and serves one more request: who adds elsewhere wakes nobody, as the sleep is over
/// before that is due, and then this thread moves it.
#[test]
fn a_reset_here_of_what_has_not_arrived_wakes_too() {
    counting_wakes(|clock, wakes, shard| {
        local_timer().add(TICK * 50, never);
        let sleep = local_timer().prepare_sleep();
        let there = on_a_thread(|| shard.add(TICK * 60, || {}));
        assert_eq!(wakes.take(), 0);
        assert!(there.reset(TICK * 10));
        assert_eq!(wakes.take(), 1);
        drop(sleep);
        clock.advance(TICK * 10);
        assert_eq!(local_timer().turn().fired, 1);
    });
}

#[test]
fn a_cancel_wakes_nobody_and_a_debt_does() {
    counting_wakes(|_, wakes, shard| {
        let handles: Vec<_> = (0..DEBT).map(|_| local_timer().add(HOUR, never)).collect();
        let cancel = |handles: &[TimerHandle]| {
            handles.iter().for_each(|it| assert_eq!(it.cancel(), Cancel::Cancelled))
        };
        let first = local_timer().add(TICK, never);
        assert_eq!(wakes.during(|| cancel(&[first])), 0, "also of the one that is slept for");
        assert_eq!(wakes.during(|| cancel(&handles[1..])), 1, "1 024 of them");
        assert_eq!(timeout(), Some(Duration::ZERO));
        assert_eq!(local_timer().turn().collected, DEBT);
        // Of what else there is as well.
        let mut more = Vec::new();
        let adds = &mut more;
        assert_eq!(
            wakes.during(move || adds.extend((1..DEBT).map(|_| shard.add(HOUR * 2, never)))),
            0
        );
        let _ = local_timer().turn();
        // Twice, of which the second time sends no message.
        let move_twice =
            |handle: &TimerHandle| assert!(handle.reset(HOUR * 3) && handle.reset(HOUR * 3));
        assert_eq!(wakes.during(|| more.iter().for_each(move_twice)), 0);
        let _ = local_timer().turn();
        more.push(on_a_thread(|| shard.add(HOUR * 2, never)));
        let _ = local_timer().turn();
        assert_eq!(
            wakes.during(|| more.iter().for_each(|handle| assert!(handle.reset(HOUR * 4)))),
            1
        );
    });
}

#[test]
fn a_wake_is_for_who_sleeps() {
    counting_wakes(|_, wakes, shard| {
        let add = || on_a_thread(|| _ = shard.add(Duration::ZERO, || {}));
        add();
        assert_eq!(wakes.take(), 0, "no sleep was announced");
        let sleep = local_timer().prepare_sleep();
        assert_eq!(sleep.timeout(), Some(Duration::ZERO));
        add();
        assert_eq!(wakes.take(), 0, "it was told not to sleep");
        drop(sleep);
        let _ = local_timer().turn();
        drop(local_timer().prepare_sleep());
        add();
        assert_eq!(wakes.take(), 0, "the sleep is over");
    });
}

#[test]
fn a_shard_of_payloads_is_woken_by_a_reset() {
    let (clock, wakes) = (ManualClock::new(), Wakes::default());
    let mut shard = Shard::with_config(wakes.config().tick(TICK).clock(&clock)).expect("valid");
    let handle = shard.add(TICK * 50, ());
    let slept = |sleep: PreparedSleep<'_>, delay: Duration| {
        assert!(on_a_thread(|| handle.reset(delay)));
        assert!(sleep.timeout().is_some());
        wakes.take()
    };
    assert_eq!(slept(shard.prepare_sleep(), TICK * 60), 0);
    shard.turn();
    assert!(shard.next_expired().is_none());
    assert_eq!(slept(shard.prepare_sleep(), TICK * 65), 0);
    shard.turn();
    assert!(shard.next_expired().is_none());
    assert_eq!(slept(shard.prepare_sleep(), TICK * 10), 1);
}
