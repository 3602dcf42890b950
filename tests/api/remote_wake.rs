//! Real sleeps while others add and move (P9): no wake-up is ever lost, however the owner sleeps.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{Config, ShardRef, local_timer};
use mio::{Events, Poll, Token, Waker};

use crate::{common::operations, wake_ups};

const HOUR: Duration = Duration::from_secs(3_600);

/// Longer than any test may take, shorter than a hang.
const TOO_LONG: Duration = Duration::from_secs(20);

fn never() {
    unreachable!("this callback must not run");
}

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
        (
            Self(poll, Events::with_capacity(8)),
            Config::new().on_wake(move || waker.wake().expect("woken")),
        )
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
        let mut there =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
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
            assert!(matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ));
        }
    }
}

/// A thread that does nothing but sleep as long as it may and turn, until it is told to end; it returns its turns.
struct Owner {
    shard: ShardRef,
    over: Arc<AtomicBool>,
    /// It has announced its sleep, and has not ended it.
    sleeps: Arc<AtomicBool>,
    thread: thread::JoinHandle<usize>,
}

impl Owner {
    fn start<S: Sleeper>(budget: usize) -> Self {
        let (sender, shards) = mpsc::channel();
        let (over, sleeps) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let (until, announced) = (Arc::clone(&over), Arc::clone(&sleeps));
        let thread = thread::spawn(move || {
            let (mut sleeper, config) = S::new();
            config.tick(Duration::from_micros(20)).install().expect("a fresh thread");
            local_timer().add(HOUR, never);
            sender.send(local_timer().shard_ref()).expect("it is waited for");
            let mut turns = 0;
            while !until.load(Ordering::Relaxed) {
                let sleep = local_timer().prepare_sleep();
                announced.store(sleep.timeout() > Some(HOUR / 2), Ordering::Relaxed);
                sleeper.sleep(sleep.timeout());
                announced.store(false, Ordering::Relaxed);
                drop(sleep);
                let _ = local_timer().turn_within(budget);
                turns += 1;
            }
            turns
        });
        Self { shard: shards.recv().expect("it has a timer"), over, sleeps, thread }
    }

    /// Waits until it sleeps, with nothing to do for long.
    fn settle(&self) {
        let begun = Instant::now();
        while !self.sleeps.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < TOO_LONG, "it does not fall asleep");
            thread::sleep(Duration::from_millis(1));
        }
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
    owner.settle();
    owner.shard.add(Duration::ZERO, run(1));
    assert_eq!(runs.recv_timeout(TOO_LONG).expect("woken by an add").0, 1);
    let moved = owner.shard.add(HOUR, run(2));
    owner.settle();
    assert!(moved.reset(Duration::ZERO));
    assert_eq!(runs.recv_timeout(TOO_LONG).expect("woken by a reset").0, 2);
    let (begun, delay) = (Instant::now(), Duration::from_millis(30));
    let moved = owner.shard.add(HOUR, run(3));
    thread::sleep(Duration::from_millis(5));
    assert!(moved.reset(delay));
    let (_, at) = runs.recv_timeout(TOO_LONG).expect("woken to sleep less");
    assert!(at - begun >= delay, "early");
    owner.settle();
    for _ in 0..200 {
        assert!(owner.shard.add(HOUR * 2, never).reset(HOUR * 3));
    }
    let turns = owner.end();
    assert!(turns < 30, "{turns} turns for what wakes a few times");
}

#[test]
fn a_sleeping_owner_is_woken_however_it_sleeps() {
    sleeps_and_wakes::<Park>();
    sleeps_and_wakes::<Mio>();
    sleeps_and_wakes::<Socket>();
}

fn no_wake_up_is_lost<S: Sleeper>(askers: u64, budget: usize, rounds: u64) {
    let owner = Owner::start::<S>(budget);
    wake_ups::none_is_lost(&owner.shard, askers, operations(rounds).min(5 * rounds));
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
