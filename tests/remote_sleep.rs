//! Sleeping while others add and move (P9): an announced sleep is ended by what is due before it ends, and by nothing that is
//! due later; and no wake-up is ever lost, however the owner sleeps.
#![cfg(feature = "std")]

mod common;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use common::{TICK, on_a_thread, operations};
use corewheel::{Cancel, Config, ManualClock, PreparedSleep, Shard, ShardRef, TimerHandle, local_timer};
use mio::{Events, Poll, Token, Waker};

const HOUR: Duration = Duration::from_secs(3_600);

/// Messages that wake a sleeping owner whatever they are about (P8).
const DEBT: usize = 1024;

/// Longer than any test may take, shorter than a hang.
const TOO_LONG: Duration = Duration::from_secs(20);

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

// ---- what ends a sleep

#[test]
fn an_add_that_is_due_before_the_sleep_ends_ends_it() {
    counting_wakes(|clock, wakes, shard| {
        assert_eq!(wakes.during(|| _ = shard.add(TICK * 50, never)), 1, "nothing was pending");
        let _ = local_timer().turn();
        // By the tick: 50 is what the sleep is for.
        for (delay, woken) in
            [(TICK * 51, 0), (HOUR, 0), (Duration::MAX, 0), (TICK * 50, 0), (TICK * 99 / 2, 0), (TICK * 49, 1)]
        {
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
            for (delay, woken) in
                [(HOUR, 0), (end, 0), (end.saturating_sub(TICK / 2), 0), (end.saturating_sub(TICK), 1)]
            {
                assert_eq!(reset(handle, delay), woken, "{delay:?}");
                assert_eq!(timeout(), Some(Duration::ZERO), "it is looked at before the next sleep");
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
        assert_eq!(wakes.during(|| _ = shard.add(Duration::ZERO, || {})), 1, "and the next sleep has its own");
    });
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

#[test]
fn a_cancel_wakes_nobody_and_a_debt_does() {
    counting_wakes(|_, wakes, shard| {
        let handles: Vec<_> = (0..DEBT).map(|_| local_timer().add(HOUR, never)).collect();
        let cancel =
            |handles: &[TimerHandle]| handles.iter().for_each(|it| assert_eq!(it.cancel(), Cancel::Cancelled));
        let first = local_timer().add(TICK, never);
        assert_eq!(wakes.during(|| cancel(&[first])), 0, "also of the one that is slept for");
        assert_eq!(wakes.during(|| cancel(&handles[1..])), 1, "1 024 of them");
        assert_eq!(timeout(), Some(Duration::ZERO));
        assert_eq!(local_timer().turn().collected, DEBT);
        // Of what else there is as well.
        let mut more = Vec::new();
        let adds = &mut more;
        assert_eq!(wakes.during(move || adds.extend((1..DEBT).map(|_| shard.add(HOUR * 2, never)))), 0);
        let _ = local_timer().turn();
        assert_eq!(wakes.during(|| more.iter().for_each(|handle| assert!(handle.reset(HOUR * 3)))), 0);
        let _ = local_timer().turn();
        more.push(on_a_thread(|| shard.add(HOUR * 2, never)));
        let _ = local_timer().turn();
        assert_eq!(wakes.during(|| more.iter().for_each(|handle| assert!(handle.reset(HOUR * 4)))), 1);
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

// ---- real sleeps

/// A way to sleep from which the hook of its configuration wakes.
trait Sleeper: Send {
    fn new() -> (Self, Config)
    where
        Self: Sized;
    fn sleep(&mut self, timeout: Option<Duration>);
}

struct Park;

impl Sleeper for Park {
    fn new() -> (Self, Config) {
        (Self, Config::new())
    }

    fn sleep(&mut self, timeout: Option<Duration>) {
        timeout.map_or_else(thread::park, thread::park_timeout);
    }
}

/// On Linux its waker is an eventfd.
struct Mio(Poll, Events);

impl Sleeper for Mio {
    fn new() -> (Self, Config) {
        let poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(7)).expect("a waker");
        (Self(poll, Events::with_capacity(8)), Config::new().on_wake(move || waker.wake().expect("woken")))
    }

    fn sleep(&mut self, timeout: Option<Duration>) {
        if let Err(error) = self.0.poll(&mut self.1, timeout) {
            assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
        }
    }
}

/// A byte on a socket, which is read with a timeout.
struct Socket(TcpStream);

impl Sleeper for Socket {
    fn new() -> (Self, Config) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut there = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        there.set_nodelay(true).expect("without delay");
        let (here, _) = listener.accept().expect("accepted");
        let wake = move || assert_eq!((&there).write(&[1]).expect("written"), 1);
        there = here;
        (Self(there), Config::new().on_wake(wake))
    }

    fn sleep(&mut self, timeout: Option<Duration>) {
        // Zero would mean for ever.
        let timeout = timeout.map(|timeout| timeout.max(Duration::from_micros(1)));
        self.0.set_read_timeout(timeout).expect("set");
        if let Err(error) = self.0.read(&mut [0; 64]) {
            assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
        }
    }
}

/// A thread that does nothing but sleep as long as it may and turn, until it is told to end; it returns its turns.
struct Owner {
    shard: ShardRef,
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<usize>,
}

impl Owner {
    fn start<S: Sleeper>(budget: usize) -> Self {
        let (sender, shards) = mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let (mut sleeper, config) = S::new();
            config.tick(Duration::from_micros(20)).install().expect("a fresh thread");
            local_timer().add(HOUR, never);
            sender.send(local_timer().shard_ref()).expect("it is waited for");
            let mut turns = 0;
            while !until.load(Ordering::Relaxed) {
                let sleep = local_timer().prepare_sleep();
                sleeper.sleep(sleep.timeout());
                drop(sleep);
                let _ = local_timer().turn_within(budget);
                turns += 1;
            }
            turns
        });
        Self { shard: shards.recv().expect("it has a timer"), over, thread }
    }

    fn end(self) -> usize {
        let over = Arc::clone(&self.over);
        self.shard.add(Duration::ZERO, move || over.store(true, Ordering::Relaxed));
        self.thread.join().expect("no panic")
    }
}

/// What is due at once runs at once, though the owner sleeps for an hour; and what is due later lets it sleep.
fn sleeps_and_wakes<S: Sleeper>() {
    let owner = Owner::start::<S>(usize::MAX);
    let (ran, runs) = mpsc::channel();
    let run = |sent: u32| {
        let ran = ran.clone();
        move || ran.send((sent, Instant::now())).expect("the test listens")
    };
    // It sleeps by then, or will look before it does.
    thread::sleep(Duration::from_millis(20));
    owner.shard.add(Duration::ZERO, run(1));
    assert_eq!(runs.recv_timeout(TOO_LONG).expect("woken by an add").0, 1);
    let moved = owner.shard.add(HOUR, run(2));
    thread::sleep(Duration::from_millis(20));
    assert!(moved.reset(Duration::ZERO));
    assert_eq!(runs.recv_timeout(TOO_LONG).expect("woken by a reset").0, 2);
    let (begun, delay) = (Instant::now(), Duration::from_millis(30));
    let moved = owner.shard.add(HOUR, run(3));
    thread::sleep(Duration::from_millis(5));
    assert!(moved.reset(delay));
    let (_, at) = runs.recv_timeout(TOO_LONG).expect("woken to sleep less");
    assert!(at - begun >= delay, "early");
    for _ in 0..200 {
        assert!(owner.shard.add(HOUR * 2, never).reset(HOUR * 3));
    }
    let turns = owner.end();
    assert!(turns < 60, "{turns} turns for what wakes a few times");
}

#[test]
fn a_sleeping_owner_is_woken_however_it_sleeps() {
    sleeps_and_wakes::<Park>();
    sleeps_and_wakes::<Mio>();
    sleeps_and_wakes::<Socket>();
}

/// Threads that add or move what is due at once and wait for it, at moments that shift against those at which the owner falls
/// asleep. One alone finds every wake-up that is lost; several meet in one.
fn no_wake_up_is_lost<S: Sleeper>(adders: u64, budget: usize, rounds: u64) {
    let owner = Owner::start::<S>(budget);
    thread::scope(|scope| {
        for adder in 0..adders {
            let shard = &owner.shard;
            scope.spawn(move || {
                let (ran, runs) = mpsc::channel();
                let mut random = fastrand::Rng::with_seed(adder);
                for round in 0..operations(rounds) {
                    let ran = ran.clone();
                    let run = move || ran.send(round).expect("it is waited for");
                    if random.bool() {
                        shard.add(Duration::ZERO, run);
                    } else {
                        let handle = shard.add(HOUR, run);
                        (0..random.u32(..200)).for_each(|_| std::hint::spin_loop());
                        assert!(handle.reset(Duration::ZERO));
                    }
                    assert_eq!(runs.recv_timeout(TOO_LONG), Ok(round), "a wake-up was lost");
                    (0..random.u32(..5_000)).for_each(|_| std::hint::spin_loop());
                }
            });
        }
    });
    owner.end();
}

#[test]
fn no_wake_up_is_lost_by_who_parks() {
    no_wake_up_is_lost::<Park>(1, usize::MAX, 2_000);
    no_wake_up_is_lost::<Park>(3, 2, 1_000);
}

#[test]
fn no_wake_up_is_lost_by_who_polls() {
    no_wake_up_is_lost::<Mio>(1, usize::MAX, 2_000);
    no_wake_up_is_lost::<Mio>(3, 2, 1_000);
}

#[test]
fn no_wake_up_is_lost_by_who_reads() {
    no_wake_up_is_lost::<Socket>(1, 1, 300);
    no_wake_up_is_lost::<Socket>(3, usize::MAX, 100);
}
