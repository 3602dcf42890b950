//! Who drives a thread's timer: each documented loop adds and spawns first and drives later, and a future on a thread that no
//! loop drives says so.

use std::{
    pin::{Pin, pin},
    sync::mpsc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use corewheel::{
    Config, Cores, ManualClock,
    future::{Sleep, Timers, VirtualTime, interval, sleep, timeout},
    local_timer,
};

use crate::{
    common::{TICK, on_a_thread},
    polling::Poller,
    support::{Log, panics},
};

const DELAY: Duration = Duration::from_millis(5);

/// Adds a callback before the thread has a driver; returns the log that it writes.
fn add_first() -> Log<&'static str> {
    let log = Log::new();
    local_timer().add(DELAY, log.writes("fired"));
    log
}

/// Polls a task that nothing wakes.
fn is_ready(task: &mut Pin<&mut Sleep>) -> bool {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

// ---- without a driver

#[test]
fn a_future_that_waits_without_a_driver_panics_and_names_what_to_call() {
    on_a_thread(|| {
        let poller = Poller::new();
        let polls: [fn(&Poller); 4] = [
            |poller| _ = poller.poll(&mut sleep(DELAY)),
            |poller| _ = poller.poll(&mut timeout(DELAY, std::future::pending::<()>())),
            |poller| {
                let mut interval = interval(DELAY);
                assert!(
                    poller.poll_pinned(pin!(interval.tick())).is_ready(),
                    "the first is at once"
                );
                let _ = poller.poll_pinned(pin!(interval.tick()));
            },
            |poller| {
                let timers = Timers::new(&[local_timer().shard_ref()]);
                let _ = poller.poll(&mut timers.sleep(DELAY));
            },
        ];
        for poll in polls {
            let panic = std::panic::catch_unwind(|| poll(&Poller::new())).expect_err("no driver");
            let message = panic.downcast_ref::<&str>().expect("a message");
            for name in ["future::drive", "timer_fd", "Config::install", "register_driver"] {
                assert!(message.contains(name), "{message}");
            }
        }
        assert_eq!((local_timer().len(), poller.clones()), (0, 0));
    });
}

#[test]
fn a_future_that_does_not_wait_needs_no_driver() {
    on_a_thread(|| {
        let poller = Poller::new();
        assert!(poller.poll(&mut sleep(Duration::ZERO)).is_ready());
        assert_eq!(poller.poll(&mut timeout(DELAY, std::future::ready(1))), Poll::Ready(Ok(1)));
        drop(sleep(DELAY));
    });
}

/// The other thread drives the timer, and this one needs no driver.
#[test]
fn a_future_of_another_threads_timer_needs_no_driver_here() {
    let cores = Cores::builder().shards(1).start(|core| {
        while !core.is_stopping() {
            local_timer().prepare_sleep().park();
            local_timer().turn();
        }
    });
    let cores = cores.expect("threads");
    let timers = Timers::new(cores.shards());
    on_a_thread(|| assert!(Poller::new().poll(&mut timers.sleep(DELAY)).is_pending()));
    cores.stop();
    cores.join();
}

#[test]
fn what_a_loop_calls_registers_it() {
    let registers: [(&str, fn()); 6] = [
        ("turn", || _ = local_timer().turn()),
        ("turn_within", || _ = local_timer().turn_within(1)),
        ("prepare_sleep", || drop(local_timer().prepare_sleep())),
        ("time_until_next", || _ = local_timer().time_until_next()),
        ("register_driver", || local_timer().register_driver()),
        ("install", || Config::new().install().expect("the first use")),
    ];
    for (name, register) in registers {
        on_a_thread(|| {
            register();
            assert!(Poller::new().poll(&mut sleep(DELAY)).is_pending(), "{name}");
        });
    }
    for (name, ask) in [
        ("len", (|| _ = local_timer().len()) as fn()),
        ("next_deadline", || _ = local_timer().next_deadline()),
        ("add", || _ = local_timer().add(DELAY, || ())),
        ("shard_ref", || _ = local_timer().shard_ref()),
    ] {
        on_a_thread(|| {
            ask();
            assert!(panics(|| Poller::new().poll(&mut sleep(DELAY))), "{name}");
        });
    }
}

// ---- each documented loop, after an add or a spawn

#[test]
fn a_loop_of_nothing_but_timers_drives_what_was_added_before() {
    on_a_thread(|| {
        let log = add_first();
        while !local_timer().is_empty() {
            local_timer().prepare_sleep().park();
            local_timer().turn();
        }
        assert_eq!(log.take(), ["fired"]);
    });
}

#[test]
fn a_poll_drives_what_was_added_before() {
    use mio::{Events, Poll, Token, Waker};
    on_a_thread(|| {
        let mut poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
        let wake = move || waker.wake().expect("the poll is alive");
        Config::new().on_wake(wake).install().expect("the first use");
        let (log, mut events) = (add_first(), Events::with_capacity(8));
        let mut task = pin!(sleep(DELAY));
        assert!(!is_ready(&mut task));
        while !local_timer().is_empty() {
            let prepared = local_timer().prepare_sleep();
            poll.poll(&mut events, prepared.timeout()).expect("no signal");
            drop(prepared);
            local_timer().turn();
        }
        assert!(is_ready(&mut task));
        assert_eq!(log.take(), ["fired"]);
    });
}

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
#[test]
fn a_descriptor_drives_what_was_added_before() {
    use rustix::event::{PollFd, PollFlags, poll};
    on_a_thread(|| {
        let (log, mut task) = (add_first(), pin!(sleep(DELAY)));
        let timer = local_timer().timer_fd().expect("a descriptor");
        assert!(!is_ready(&mut task), "polled before it is armed");
        timer.arm();
        while !local_timer().is_empty() {
            poll(&mut [PollFd::new(&timer, PollFlags::IN)], None).expect("no signal");
            timer.turn();
        }
        assert!(is_ready(&mut task));
        assert_eq!(log.take(), ["fired"]);
    });
}

/// The loop polls first, so it says that it will turn.
#[test]
fn an_executor_that_polls_before_it_turns_registers_by_hand() {
    on_a_thread(|| {
        let (log, mut task) = (add_first(), pin!(sleep(DELAY)));
        local_timer().register_driver();
        while !is_ready(&mut task) {
            local_timer().prepare_sleep().park();
            local_timer().turn();
        }
        assert_eq!(log.take(), ["fired"]);
    });
}

/// The loop asks before it polls, and needs no further call.
#[test]
fn an_executor_that_asks_before_it_polls_is_recognised() {
    on_a_thread(|| {
        let (log, mut task) = (add_first(), pin!(sleep(DELAY)));
        loop {
            let timeout = local_timer().time_until_next();
            if is_ready(&mut task) {
                break;
            }
            std::thread::sleep(timeout.unwrap_or_default());
            local_timer().turn();
        }
        assert_eq!(log.take(), ["fired"]);
    });
}

#[test]
fn a_core_drives_what_was_added_before() {
    let (sender, fired) = mpsc::channel();
    let cores = Cores::builder().shards(1).start(move |core| {
        let sender = sender.clone();
        local_timer().add(DELAY, move || sender.send(()).expect("the test waits"));
        let mut task = pin!(sleep(DELAY));
        assert!(!is_ready(&mut task));
        while !core.is_stopping() {
            local_timer().prepare_sleep().park();
            local_timer().turn();
        }
        assert!(is_ready(&mut task));
    });
    let cores = cores.expect("threads");
    fired.recv().expect("the core runs");
    cores.stop();
    assert!(cores.join().iter().all(Result::is_ok));
}

#[test]
fn virtual_time_drives_what_was_spawned_before() {
    let time = VirtualTime::new();
    let task = time.spawn(|| async {
        sleep(DELAY).await;
        "over"
    });
    assert_eq!(time.run(), 0);
    assert_eq!(task.take(), Some("over"));
}

/// A loop in virtual time, as a test writes it.
#[test]
fn a_test_with_a_clock_of_its_own_drives_what_was_added_before() {
    on_a_thread(|| {
        let clock = ManualClock::new();
        Config::new().tick(TICK).clock(&clock).install().expect("the first use");
        let (log, mut task) = (add_first(), pin!(sleep(DELAY)));
        assert!(!is_ready(&mut task));
        while let Some(wait) = local_timer().time_until_next() {
            clock.advance(wait);
            local_timer().turn();
        }
        assert!(is_ready(&mut task));
        assert_eq!(log.take(), ["fired"]);
    });
}
