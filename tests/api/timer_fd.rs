//! A timer behind a file descriptor (P9): readable when it wants a turn, at the deadline and for whoever asks, and silent
//! otherwise; no wake-up is lost.

use std::{
    cell::Cell,
    error::Error,
    io,
    os::fd::{AsFd, AsRawFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Clock, Config, ManualClock, ShardRef, TimerFd, TimerFdError, Turn, local_timer,
};
use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl},
    io::{Errno, FdFlags, fcntl_getfd},
};

use crate::{
    common::{on_a_thread, operations},
    wake_ups,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Long enough to see that nothing happens.
const A_WHILE: Duration = Duration::from_millis(30);

/// Longer than any test may take, shorter than a hang.
const TOO_LONG: Duration = Duration::from_secs(20);

fn never() {
    unreachable!("this callback must not run");
}

/// Whether it is readable, or becomes so in time.
fn is_readable(fd: &impl AsFd, in_time: Duration) -> bool {
    let timeout = Timespec::try_from(in_time).expect("a short time");
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
        Err(Errno::INTR) => is_readable(fd, in_time),
        ready => ready.expect("polled") == 1,
    }
}

/// A thread of its own, whose timer has an armed descriptor.
fn with_timer_fd(config: Config, test: impl FnOnce(TimerFd) + Send) {
    on_a_thread(|| {
        config.install().expect("a fresh thread");
        let timer = local_timer().timer_fd().expect("a descriptor");
        timer.arm();
        test(timer);
    });
}

/// Turns whenever it is readable, until a turn has fired something.
fn until_fired(timer: &TimerFd) -> Turn {
    loop {
        assert!(is_readable(timer, TOO_LONG), "it sleeps through a deadline");
        let turn = timer.turn();
        if turn.fired > 0 {
            return turn;
        }
    }
}

#[test]
fn it_is_closed_by_exec_and_does_not_block() {
    with_timer_fd(Config::new(), |timer| {
        assert!(fcntl_getfd(&timer).expect("flags").contains(FdFlags::CLOEXEC));
        assert!(fcntl_getfl(&timer).expect("flags").contains(OFlags::NONBLOCK));
        let again = local_timer().timer_fd().expect("the same");
        assert_eq!(again.as_raw_fd(), timer.as_raw_fd());
    });
}

#[test]
fn it_is_silent_when_nothing_is_due() {
    with_timer_fd(Config::new(), |timer| {
        assert!(!is_readable(&timer, A_WHILE), "nothing is pending");
        for delay in [HOUR, HOUR * 24 * 365 * 100, Duration::MAX] {
            local_timer().add(delay, never);
            timer.turn();
            assert!(!is_readable(&timer, A_WHILE), "due in {delay:?}");
        }
    });
}

#[test]
fn it_is_readable_at_the_deadline_by_every_clock_of_the_machine() {
    for clock in [Clock::monotonic(), Clock::fast(), Clock::boot_time()] {
        with_timer_fd(Config::new().clock(clock), |timer| {
            for delay in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(25)] {
                let begun = Instant::now();
                local_timer().add(delay, || ());
                timer.arm();
                assert_eq!(until_fired(&timer).fired, 1);
                assert!(begun.elapsed() >= delay, "early: {delay:?}");
                assert!(!is_readable(&timer, Duration::ZERO), "readable after its turn");
            }
        });
    }
}

#[test]
fn what_has_no_real_time_has_no_descriptor() {
    on_a_thread(|| {
        Config::new().clock(ManualClock::new()).install().expect("a fresh thread");
        let refused = local_timer().timer_fd().expect_err("no kernel knows that time");
        assert!(matches!(refused, TimerFdError::VirtualTime), "{refused}");
        assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::Unsupported);
    });
}

#[test]
fn what_the_owner_does_to_be_woken_earlier_makes_it_readable() {
    with_timer_fd(Config::new(), |timer| {
        let late = local_timer().add(HOUR, || ());
        timer.arm();
        let begun = Instant::now();
        local_timer().add(A_WHILE, || ());
        until_fired(&timer);
        assert!(begun.elapsed() >= A_WHILE);
        assert!(!is_readable(&timer, Duration::ZERO));
        assert!(late.reset(Duration::ZERO));
        until_fired(&timer);
    });
}

#[test]
fn what_a_callback_adds_is_armed_for() {
    with_timer_fd(Config::new(), |timer| {
        let fired = Rc::new(Cell::new(false));
        let noted = Rc::clone(&fired);
        let _first = local_timer().add(Duration::ZERO, move || {
            local_timer().add(A_WHILE, move || noted.set(true));
        });
        until_fired(&timer);
        assert!(!is_readable(&timer, A_WHILE / 2), "a wake for nothing");
        until_fired(&timer);
        assert!(fired.get());
    });
}

#[test]
fn a_budget_that_is_used_up_leaves_it_readable() {
    with_timer_fd(Config::new(), |timer| {
        (0..3).for_each(|_| _ = local_timer().add(Duration::ZERO, || ()));
        thread::sleep(Duration::from_millis(5));
        let mut fired = 0;
        while fired < 3 {
            assert!(is_readable(&timer, TOO_LONG));
            let turn = timer.turn_within(1);
            assert!(turn.fired <= 1);
            fired += turn.fired;
        }
        assert!(local_timer().is_empty());
    });
}

#[test]
fn nobody_has_to_read_it_and_an_edge_is_enough() {
    with_timer_fd(Config::new(), |timer| {
        let mut poll = Poll::new().expect("a poll");
        let mut events = Events::with_capacity(1);
        // mio asks for edges.
        poll.registry()
            .register(&mut SourceFd(&timer.as_raw_fd()), Token(0), Interest::READABLE)
            .expect("registered");
        for round in 0..50 {
            local_timer().add(Duration::from_micros(100 * (round % 7)), || ());
            loop {
                poll.poll(&mut events, Some(TOO_LONG)).expect("polled");
                assert!(!events.is_empty(), "an edge was lost in round {round}");
                if timer.turn().fired > 0 {
                    break;
                }
            }
        }
    });
}

#[test]
fn another_thread_that_cannot_wait_makes_it_readable() {
    with_timer_fd(Config::new(), |timer| {
        let shard = local_timer().shard_ref();
        let ask = |ask: &(dyn Fn(&ShardRef) + Sync)| {
            thread::scope(|scope| scope.spawn(|| ask(&shard)).join().expect("no panic"));
        };
        ask(&|shard| _ = shard.add(HOUR, never));
        until_quiet(&timer);
        ask(&|shard| _ = shard.run(|| ()));
        until_fired(&timer);
        let late = local_timer().add(HOUR, || ());
        timer.arm();
        ask(&|_| assert!(late.reset(HOUR * 2)));
        assert!(!is_readable(&timer, A_WHILE), "what is later can wait");
        ask(&|_| assert!(late.reset(Duration::ZERO)));
        until_fired(&timer);
    });
}

/// Takes in what waits to be taken in.
fn until_quiet(timer: &TimerFd) {
    while is_readable(timer, A_WHILE) {
        timer.turn();
    }
}

#[test]
fn a_debt_of_cancelled_timers_makes_it_readable() {
    with_timer_fd(Config::new(), |timer| {
        let handles: Vec<_> = (0..1_100).map(|_| local_timer().add(HOUR, never)).collect();
        timer.arm();
        thread::spawn(move || handles.into_iter().for_each(|handle| _ = handle.cancel()))
            .join()
            .expect("no panic");
        assert!(is_readable(&timer, TOO_LONG));
        assert_eq!(timer.turn().collected, 1_024);
        until_quiet(&timer);
        assert_eq!(timer.turn().live, 0);
    });
}

#[test]
fn the_hook_is_called_as_well() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&wakes);
    let config = Config::new().on_wake(move || {
        hook.fetch_add(1, Ordering::SeqCst);
        panic!("it panics, and the descriptor is readable all the same");
    });
    with_timer_fd(config, |timer| {
        let shard = local_timer().shard_ref();
        thread::spawn(move || _ = shard.run(|| ())).join().expect("no panic");
        until_fired(&timer);
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_dropped_one_is_not_woken_and_a_new_one_sees_what_came() {
    with_timer_fd(Config::new(), |timer| {
        let descriptor = timer.as_fd().try_clone_to_owned().expect("another descriptor of it");
        drop(timer);
        let shard = local_timer().shard_ref();
        thread::spawn(move || _ = shard.run(|| ())).join().expect("no panic");
        assert!(!is_readable(&descriptor, A_WHILE));
        let again = local_timer().timer_fd().expect("the same");
        again.arm();
        assert!(is_readable(&descriptor, TOO_LONG));
        assert_eq!(until_fired(&again).fired, 1);
    });
}

#[test]
fn it_is_silent_in_a_thread_whose_timer_has_ended() {
    struct Late(Cell<Option<TimerFd>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let timer = self.0.take().expect("it was put there");
            timer.arm();
            assert!(!is_readable(&timer, A_WHILE));
            assert_eq!(timer.turn(), Turn::default());
        }
    }
    thread_local!(static LATE: Late = const { Late(Cell::new(None)) });
    on_a_thread(|| {
        // Made before the timer, it is dropped after it.
        LATE.with(|late| late.0.set(None));
        local_timer().add(Duration::ZERO, || ());
        LATE.with(|late| late.0.set(Some(local_timer().timer_fd().expect("a descriptor"))));
    });
}

/// A thread that polls its descriptor and turns until it is told to end.
fn start(budget: usize) -> (ShardRef, Arc<AtomicBool>, thread::JoinHandle<()>) {
    let (sender, shards) = mpsc::channel();
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let thread = thread::spawn(move || {
        Config::new().tick(Duration::from_micros(20)).install().expect("a fresh thread");
        let timer = local_timer().timer_fd().expect("a descriptor");
        sender.send(local_timer().shard_ref()).expect("it is waited for");
        timer.arm();
        while !until.load(Ordering::Relaxed) {
            assert!(is_readable(&timer, 2 * TOO_LONG), "nobody asks any more");
            timer.turn_within(budget);
        }
    });
    (shards.recv().expect("it has a timer"), over, thread)
}

fn no_wake_up_is_lost(askers: u64, budget: usize, rounds: u64) {
    let (shard, over, thread) = start(budget);
    wake_ups::none_is_lost(&shard, askers, operations(rounds).min(5 * rounds));
    shard.run(move || over.store(true, Ordering::Relaxed));
    thread.join().expect("no panic");
}

#[test]
fn no_wake_up_is_lost_by_who_polls_the_descriptor() {
    no_wake_up_is_lost(1, usize::MAX, 3_000);
    no_wake_up_is_lost(3, 2, 1_000);
}

/// Each reason is a sentence, and an error of the system's kind for who passes it on.
#[test]
fn a_refusal_says_why() {
    let sentence = |error: &TimerFdError| error.to_string();
    let none = TimerFdError::NoTimer(AddErrorReason::ShutDown);
    assert!(sentence(&TimerFdError::VirtualTime).contains("virtual"));
    assert!(
        sentence(&none).ends_with(&AddErrorReason::ShutDown.to_string()) && none.source().is_none()
    );
    assert_eq!(io::Error::from(TimerFdError::VirtualTime).kind(), io::ErrorKind::Unsupported);
    assert_eq!(io::Error::from(none).kind(), io::ErrorKind::Other);
    let system = TimerFdError::System(io::Error::from_raw_os_error(24));
    assert!(sentence(&system).contains("descriptor") && system.source().is_some());
    assert_eq!(io::Error::from(system).raw_os_error(), Some(24));
}

/// It had announced the sleep, which is over now.
#[test]
fn one_that_goes_leaves_the_sleep_to_another_one() {
    with_timer_fd(Config::new(), |timer| {
        let second = local_timer().timer_fd().expect("the same descriptor");
        second.arm();
        drop(second);
        assert!(is_readable(&timer, TOO_LONG), "to announce it again");
        assert_eq!(timer.turn().fired, 0);
        let fired = Rc::new(Cell::new(false));
        let seen = Rc::clone(&fired);
        local_timer().add_local(Duration::from_millis(5), move || seen.set(true));
        while !fired.get() {
            assert!(is_readable(&timer, TOO_LONG));
            timer.turn();
        }
        let silent = local_timer().timer_fd().expect("the same descriptor");
        drop(silent);
        assert!(!is_readable(&timer, A_WHILE), "one that has announced nothing leaves nothing");
    });
}
