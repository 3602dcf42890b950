//! `TimerFd` (P9): the descriptor becomes readable when its wheel needs a turn.

use std::{
    future::pending,
    os::fd::{AsFd, AsRawFd},
    thread,
    time::{Duration, Instant},
};

use corewheel::{Clock, Config, TimerFd, Turn, future::drive, local_timer, purgatory::Purgatory};
use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl},
    io::{Errno, FdFlags, fcntl_getfd},
};

use crate::{
    driving::run_until_unparked,
    operation::{OpRecord, add_waiting},
    polling::Poller,
    purgatory::JoinedCores,
    support::{
        Counter, HOUR, TOO_LONG, call_from_another_thread, cancel_all_remotely, must_not_run,
        on_a_thread, run_after_wheel_ends, scaled, spawn_repeating_owner,
    },
    wake_ups,
};

/// The test waits this long before it concludes that a descriptor is unreadable.
const SHORT_WAIT: Duration = Duration::from_millis(30);

fn is_readable(fd: &impl AsFd, max_wait: Duration) -> bool {
    let timeout = Timespec::try_from(max_wait).expect("a short time");
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
        Err(Errno::INTR) => is_readable(fd, max_wait),
        ready => ready.expect("polled") == 1,
    }
}

/// Runs `test` on a new thread whose wheel has an armed descriptor.
fn with_timer_fd(config: Config, test: impl FnOnce(TimerFd) + Send) {
    on_a_thread(|| {
        config.install().expect("a new thread");
        let timer = local_timer().timer_fd().expect("a descriptor");
        timer.arm();
        test(timer);
    });
}

fn turn_until_fired(timer: &TimerFd) -> Turn {
    loop {
        assert!(is_readable(timer, TOO_LONG), "unreadable at a deadline");
        let turn = timer.turn();
        if turn.fired > 0 {
            return turn;
        }
    }
}

#[test]
fn the_descriptor_has_its_flags_and_is_unreadable_when_idle() {
    with_timer_fd(Config::new(), |timer| {
        assert!(fcntl_getfd(&timer).expect("flags").contains(FdFlags::CLOEXEC));
        assert!(fcntl_getfl(&timer).expect("flags").contains(OFlags::NONBLOCK));
        let second_reference = local_timer().timer_fd().expect("the same descriptor");
        assert_eq!(second_reference.as_raw_fd(), timer.as_raw_fd());
        assert!(!is_readable(&timer, SHORT_WAIT), "without a timer");
        for delay in [HOUR, HOUR * 24 * 365 * 100, Duration::MAX] {
            local_timer().add(delay, must_not_run);
            timer.turn();
            assert!(!is_readable(&timer, SHORT_WAIT), "due in {delay:?}");
        }
    });
}

/// The second cancel need not wake the owner, because the first cancel has shortened the next
/// sleeps.
#[test]
fn remote_cancels_make_the_descriptor_readable_in_time() {
    with_timer_fd(Config::new().drop_cancelled_within(SHORT_WAIT), |timer| {
        let drops = Counter::default();
        let timers = [(); 2].map(|()| local_timer().add(HOUR, drops.callback()));
        timer.turn();
        for (handle, left) in timers.into_iter().zip([1, 0]) {
            cancel_all_remotely(&[handle]);
            while drops.other_refs() > left {
                assert!(is_readable(&timer, TOO_LONG), "unreadable while a payload is held");
                timer.turn();
            }
        }
    });
}

#[test]
fn the_descriptor_is_readable_at_the_deadline_of_each_clock() {
    for clock in [Clock::monotonic(), Clock::fast(), Clock::boot_time()] {
        with_timer_fd(Config::new().clock(clock), |timer| {
            for delay in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(25)] {
                let start = Instant::now();
                local_timer().add(delay, || ());
                timer.arm();
                assert_eq!(turn_until_fired(&timer).fired, 1);
                assert!(start.elapsed() >= delay, "early: {delay:?}");
                assert!(!is_readable(&timer, Duration::ZERO), "readable after its turn");
            }
        });
    }
}

#[test]
fn an_earlier_add_or_reset_rearms_the_descriptor() {
    with_timer_fd(Config::new(), |timer| {
        let late = local_timer().add(HOUR, || ());
        timer.arm();
        let start = Instant::now();
        local_timer().add(SHORT_WAIT, || ());
        turn_until_fired(&timer);
        assert!(start.elapsed() >= SHORT_WAIT);
        assert!(!is_readable(&timer, Duration::ZERO));
        assert!(late.reset(Duration::ZERO));
        turn_until_fired(&timer);
        // An add inside a callback rearms the descriptor, too.
        let fired = Counter::default();
        let (fires, start) = (fired.callback(), Instant::now());
        local_timer().add(Duration::ZERO, move || _ = local_timer().add(SHORT_WAIT, fires));
        turn_until_fired(&timer);
        let is_early = is_readable(&timer, SHORT_WAIT / 2) && start.elapsed() < SHORT_WAIT;
        assert!(!is_early, "an idle wake-up");
        turn_until_fired(&timer);
        assert_eq!(fired.get(), 1);
    });
}

#[test]
fn the_descriptor_stays_readable_after_an_exhausted_budget() {
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
fn edge_triggered_polling_needs_no_read() {
    with_timer_fd(Config::new(), |timer| {
        let (mut poll, mut events) = (Poll::new().expect("a poll"), Events::with_capacity(1));
        // mio registers descriptors as edge-triggered.
        let fd = timer.as_raw_fd();
        let registered = poll.registry().register(&mut SourceFd(&fd), Token(0), Interest::READABLE);
        registered.expect("registered");
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
fn only_earlier_remote_requests_make_the_descriptor_readable() {
    with_timer_fd(Config::new(), |timer| {
        call_from_another_thread(|shard| shard.add(HOUR, must_not_run));
        while is_readable(&timer, SHORT_WAIT) {
            timer.turn();
        }
        call_from_another_thread(|shard| shard.run(|| ()));
        turn_until_fired(&timer);
        let late = local_timer().add(HOUR, || ());
        timer.arm();
        on_a_thread(|| assert!(late.reset(HOUR * 2)));
        assert!(!is_readable(&timer, SHORT_WAIT), "a later deadline");
        on_a_thread(|| assert!(late.reset(Duration::ZERO)));
        turn_until_fired(&timer);
    });
}

#[test]
fn the_wake_hook_also_runs_and_may_panic() {
    let wakes = Counter::default();
    let called = wakes.callback();
    let hook = move || {
        called();
        panic!("as planned");
    };
    with_timer_fd(Config::new().wake_hook(hook), |timer| {
        call_from_another_thread(|shard| shard.run(|| ()));
        turn_until_fired(&timer);
        assert_eq!(wakes.get(), 1);
    });
}

#[test]
fn dropping_a_timer_fd_ends_its_announced_sleep() {
    with_timer_fd(Config::new(), |timer| {
        let descriptor = timer.as_fd().try_clone_to_owned().expect("a duplicate");
        drop(timer);
        call_from_another_thread(|shard| shard.run(|| ()));
        assert!(!is_readable(&descriptor, SHORT_WAIT));
        let second_reference = local_timer().timer_fd().expect("the same descriptor");
        second_reference.arm();
        assert!(is_readable(&descriptor, TOO_LONG));
        assert_eq!(turn_until_fired(&second_reference).fired, 1);
    });
    // If another `TimerFd` remains, the descriptor becomes readable, so that the loop announces a
    // new sleep.
    with_timer_fd(Config::new(), |timer| {
        let second = local_timer().timer_fd().expect("the same descriptor");
        second.arm();
        drop(second);
        assert!(is_readable(&timer, TOO_LONG));
        assert_eq!(timer.turn().fired, 0);
        local_timer().add(Duration::from_millis(5), || ());
        turn_until_fired(&timer);
        drop(local_timer().timer_fd().expect("the same descriptor"));
        assert!(!is_readable(&timer, SHORT_WAIT), "the descriptor was not armed");
    });
}

#[test]
fn the_descriptor_is_readable_after_a_drive_task_is_dropped() {
    with_timer_fd(Config::new(), |timer| {
        let (poller, mut task) = (Poller::new(), Box::pin(drive(|_| pending::<()>())));
        (0..2).for_each(|_| assert!(poller.poll(&mut task).is_pending()));
        assert!(!is_readable(&timer, Duration::ZERO));
        drop(task);
        assert!(is_readable(&timer, Duration::ZERO));
    });
}

#[test]
fn the_descriptor_is_readable_after_run_until() {
    with_timer_fd(Config::new(), |timer| {
        run_until_unparked();
        assert!(is_readable(&timer, TOO_LONG));
    });
}

#[test]
fn the_descriptor_is_unreadable_after_its_wheel_has_ended() {
    run_after_wheel_ends(|| {
        local_timer().add(Duration::ZERO, || ());
        let timer = local_timer().timer_fd().expect("a descriptor");
        move || {
            timer.arm();
            assert!(!is_readable(&timer, SHORT_WAIT));
            assert_eq!(timer.turn(), Turn::default());
        }
    });
}

#[test]
fn the_descriptor_is_unreadable_after_a_drain() {
    with_timer_fd(Config::new(), |timer| {
        local_timer().add(HOUR, must_not_run);
        timer.arm();
        assert_eq!(local_timer().drain().len(), 1);
        timer.turn();
        assert!(!is_readable(&timer, Duration::ZERO));
    });
}

#[test]
fn arming_the_descriptor_of_a_drained_wheel_sends_queued_events() {
    let cores = JoinedCores::start_with(2, |_, config| config.clock(Clock::monotonic()));
    cores.run_on(0, |own| {
        let timer = local_timer().timer_fd().expect("a descriptor");
        drop(local_timer().drain());
        own.notify(&1);
        timer.arm();
        assert_eq!(own.counts().unsent_messages, 0);
    });
}

/// A long sleep frees only a part of the memory, so the sleep lasts only a second.
#[test]
fn the_descriptor_is_readable_in_a_second_while_a_purgatory_frees_memory() {
    const KEYS: u64 = 140_000;
    with_timer_fd(Config::new(), |timer| {
        let (purgatory, met) = (Purgatory::new(), OpRecord::new());
        for key in 0..KEYS {
            add_waiting(&purgatory, met.op(), [key, KEYS], 1_000_000);
        }
        met.meet_condition();
        assert_eq!(purgatory.check_and_complete(&KEYS), 140_000);
        timer.turn();
        let armed_at = Instant::now();
        assert!(is_readable(&timer, TOO_LONG), "the memory is kept until the next timer");
        println!("readable after {:?}", armed_at.elapsed());
        timer.turn();
        assert!(!is_readable(&timer, Duration::ZERO), "the next part is freed a second later");
    });
}

#[test]
fn no_wake_up_is_lost_by_a_loop_that_polls_the_descriptor() {
    for (requesters, budget, rounds) in [(1, usize::MAX, 3_000), (3, 2, 1_000)] {
        let config = Config::new().tick(Duration::from_micros(20));
        let (shard, end) = spawn_repeating_owner(config, move || {
            let timer = local_timer().timer_fd().expect("a descriptor");
            timer.arm();
            move || {
                assert!(is_readable(&timer, 2 * TOO_LONG), "a wake-up was lost");
                timer.turn_within(budget);
            }
        });
        wake_ups::assert_no_wake_up_is_lost(&shard, requesters, scaled(rounds).min(5 * rounds));
        end();
    }
}

/// After a turn at a future instant, delays count from that instant. If the descriptor became
/// readable before the deadline, an edge-triggered loop would see no later edge.
#[test]
fn the_descriptor_is_readable_at_a_deadline_after_a_turn_in_the_future() {
    with_timer_fd(Config::new(), |timer| {
        let now = local_timer().now();
        local_timer().turn_at(now + Duration::from_millis(50));
        local_timer().add(Duration::from_millis(10), || ());
        timer.arm();
        let (mut poll, mut events) = (Poll::new().expect("a poll"), Events::with_capacity(1));
        let fd = timer.as_raw_fd();
        let registered = poll.registry().register(&mut SourceFd(&fd), Token(0), Interest::READABLE);
        registered.expect("registered");
        poll.poll(&mut events, Some(TOO_LONG)).expect("polled");
        assert!(local_timer().now() >= now + Duration::from_millis(60));
        assert_eq!(timer.turn().fired, 1);
    });
}
