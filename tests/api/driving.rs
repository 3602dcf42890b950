//! Drivers of a thread's wheel, and the reports of a missing driver.

use std::{
    env,
    future::{pending, ready},
    pin::pin,
    process::Command,
    sync::mpsc,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    Cancel, Config, ManualClock, Shard, ShardRef,
    future::{Timers, VirtualTime, drive, interval, sleep, timeout},
    local_timer,
};

use tokio::{runtime, task::LocalSet};

use crate::{
    metrics::{next_stall, published_metrics, start_watchdog},
    runtime::{Task, assert_drives_the_wheel},
    support::{
        Counter, HOUR, Log, Poller, TICK, TOO_LONG, call_from_another_thread, configured_shard,
        in_checked_virtual_time, in_virtual_time, must_not_run, named_shard, on_a_thread,
        panic_message, panics, turn_after, turn_and_expire, with_counted_wakes,
    },
};

const DELAY: Duration = Duration::from_millis(5);

// ---- without a driver

#[test]
fn a_pending_future_without_a_driver_panics_with_advice() {
    on_a_thread(|| {
        let poller = Poller::new();
        let polls: [fn(&Poller); 4] = [
            |poller| _ = poller.poll(&mut sleep(DELAY)),
            |poller| _ = poller.poll(&mut timeout(DELAY, pending::<()>())),
            |poller| {
                let mut interval = interval(DELAY);
                assert!(poller.poll_pinned(pin!(interval.tick())).is_ready(), "the first tick");
                let _ = poller.poll_pinned(pin!(interval.tick()));
            },
            |poller| {
                let timers = Timers::new(&[local_timer().shard_ref()]);
                let _ = poller.poll(&mut timers.sleep(DELAY));
            },
        ];
        for poll in polls {
            let message = panic_message(|| poll(&Poller::new()));
            for name in [
                "future::drive",
                "timer_fd",
                "-monoio, -glommio, -smol",
                "register_driver",
                "corewheel_tokio::time",
                "future::Timers",
            ] {
                assert!(message.contains(name), "{message}");
            }
            assert!(!message.contains("Config::install"), "`install` drives nothing: {message}");
        }
        assert_eq!((local_timer().len(), poller.clones()), (0, 0));
        // A future that does not wait needs no driver.
        assert!(poller.poll(&mut sleep(Duration::ZERO)).is_ready());
        assert_eq!(poller.poll(&mut timeout(DELAY, ready(1))), Poll::Ready(Ok(1)));
        drop(sleep(DELAY));
    });
}

#[test]
fn only_calls_of_a_driving_loop_register_a_driver() {
    let registers: [(&str, fn()); 5] = [
        ("turn", || _ = local_timer().turn()),
        ("turn_within", || _ = local_timer().turn_within(1)),
        ("prepare_sleep", || drop(local_timer().prepare_sleep())),
        ("time_until_next", || _ = local_timer().time_until_next()),
        ("register_driver", || local_timer().register_driver()),
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
        ("install", || Config::new().install().expect("the first use")),
    ] {
        on_a_thread(|| {
            ask();
            assert!(panics(|| Poller::new().poll(&mut sleep(DELAY))), "{name}");
        });
    }
}

fn sleep_panics() -> bool {
    panics(|| Poller::new().poll(&mut sleep(HOUR)))
}

#[test]
fn dropping_drive_tasks_ends_only_their_registration() {
    on_a_thread(|| {
        drop(drive_task());
        assert!(sleep_panics(), "the dropped task was never polled");
        let tasks = [drive_task(), drive_task()];
        drop(tasks.into_iter().next());
        assert!(sleep_panics(), "both tasks are dropped");
        let (first, second) = (drive_task(), drive_task());
        drop(first);
        assert!(!sleep_panics(), "the second task is left");
        run_tasks_until_first_ends(Box::pin(sleep(DELAY)), [second]);
        assert!(sleep_panics(), "the task that turned is dropped");
        run_tasks_until_first_ends(Box::pin(sleep(DELAY)), [drive_task()]);
    });
    for register in [(|| local_timer().register_driver()) as fn(), || _ = local_timer().turn()] {
        on_a_thread(|| {
            register();
            drop(drive_task());
            assert!(!sleep_panics(), "the thread's own registration is left");
        });
    }
    on_a_thread(|| {
        Config::new().install().expect("the first use");
        drop(drive_task());
        assert!(sleep_panics(), "an installed configuration is no driver");
        local_timer().turn();
        assert!(!sleep_panics(), "the thread has turned");
    });
}

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
#[test]
fn dropping_timer_fds_ends_only_their_registration() {
    on_a_thread(|| {
        let timer = || local_timer().timer_fd().expect("a descriptor");
        drop(timer());
        assert!(sleep_panics());
        let (first, second) = (timer(), timer());
        first.turn();
        drop(first);
        assert!(!sleep_panics(), "the second descriptor is left");
        second.arm();
        drop(second);
        assert!(sleep_panics());
        let in_turn = timer();
        local_timer().add(Duration::ZERO, move || drop(in_turn));
        local_timer().turn();
        assert!(!sleep_panics(), "the thread has turned");
    });
    on_a_thread(|| {
        let timer = local_timer().timer_fd().expect("a descriptor");
        for _ in 0..3 {
            timer.turn();
            thread::sleep(2 * TICK);
        }
        drop(timer);
        assert!(sleep_panics());
        // This turn finds nothing due.
        local_timer().turn();
        assert!(!sleep_panics(), "the thread has turned");
    });
}

#[test]
fn a_pending_future_panics_after_run_until() {
    on_a_thread(|| {
        local_timer().add(TICK, || ());
        local_timer().run_until_empty();
        assert!(sleep_panics(), "nothing drives the wheel");
        local_timer().register_driver();
        assert!(!sleep_panics());
        local_timer().add(TICK, || ());
        local_timer().run_until_empty();
        assert!(!sleep_panics(), "the thread's own registration is left");
    });
}

// ---- callbacks that no loop drives

fn overdue_time_of(name: &str) -> Duration {
    published_metrics(name).overdue
}

fn on_named_core<R: Send + 'static>(name: &str, test: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(test).expect("a thread");
    thread.join().expect("no panic")
}

#[test]
fn an_undriven_thread_publishes_each_add_cancel_and_reset_at_once() {
    const NAME: &str = "nothing drives it";
    on_named_core(NAME, || {
        let counts = || {
            let counts = published_metrics(NAME).counts;
            (counts.added, counts.live, counts.turns)
        };
        let timer = local_timer().add(HOUR, must_not_run);
        assert_eq!(counts(), (1, 1, 0));
        local_timer().add(HOUR, must_not_run);
        assert_eq!((counts(), overdue_time_of(NAME)), ((2, 2, 0), Duration::ZERO));
        assert!(timer.reset(Duration::from_millis(1)));
        thread::sleep(Duration::from_millis(20));
        assert!(overdue_time_of(NAME) >= Duration::from_millis(10), "{:?}", overdue_time_of(NAME));
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!((counts(), overdue_time_of(NAME)), ((2, 1, 0), Duration::ZERO));
    });
}

#[test]
fn a_shard_that_never_turns_publishes_its_first_add_at_once() {
    let loop_starts: [fn(&mut Shard<u32>); 4] = [
        |shard| {
            shard.turn();
            assert_eq!(shard.next_expired().map(|expired| expired.payload), Some(1));
        },
        |shard| {
            shard.turn();
            assert!(shard.next_expiry().is_some());
        },
        |shard| assert_eq!(shard.time_until_next(), Some(Duration::ZERO)),
        |shard| drop(shard.prepare_sleep()),
    ];
    for (number, start_loop) in loop_starts.into_iter().enumerate() {
        let name = format!("a shard that never turns {number}");
        let mut shard = Shard::with_config(Config::new().name(&name)).expect("valid");
        let start = Instant::now();
        shard.add(DELAY, 1);
        let counts = published_metrics(&name).counts;
        assert_eq!((counts.added, counts.live, counts.turns), (1, 1, 0));
        let late = overdue_time_of(&name);
        assert!(late <= start.elapsed().saturating_sub(DELAY), "{late:?}");
        thread::sleep(DELAY * 4);
        assert!(overdue_time_of(&name) >= DELAY * 2, "{:?}", overdue_time_of(&name));
        start_loop(&mut shard);
        // Now that a loop drives the shard, an add publishes no counts.
        let published_before = published_metrics(&name).counts.added;
        (0..3).for_each(|timer| _ = shard.add(HOUR, timer));
        assert_eq!(published_metrics(&name).counts.added, published_before);
    }
}

#[test]
fn a_watchdog_reports_a_timer_of_a_thread_that_never_turns() {
    const LIMIT: Duration = Duration::from_millis(20);
    let add: fn() = || _ = local_timer().add(DELAY, || ());
    let install_and_add: fn() = || {
        Config::new().install().expect("the first use");
        local_timer().add(DELAY, || ());
    };
    for (name, prepare, is_remote) in [
        ("watched without a driver", add, false),
        ("watched before its loop", install_and_add, false),
        ("watched for remote timers", || (), true),
    ] {
        let (_watchdog, stalls) = start_watchdog(LIMIT, name);
        let turn = with_undriven_thread(name, prepare, |shard| {
            if is_remote {
                shard.add(DELAY, || ());
            }
            let stall = next_stall(&stalls);
            assert!(!stall.is_in_turn && !stall.has_turned && stall.lasted > LIMIT, "{stall:?}");
            assert!(stall.to_string().contains("has never turned"), "{stall}");
            assert!(published_metrics(name).stalls >= 1 && overdue_time_of(name) > LIMIT, "{name}");
            assert!(stalls.recv_timeout(LIMIT * 2).is_err(), "{name}: reported twice");
        });
        assert_eq!(turn.fired, 1, "{name}");
    }
}

#[test]
fn a_stall_is_reported_once_when_the_next_deadline_changes() {
    const LIMIT: Duration = Duration::from_millis(20);
    const NAME: &str = "watched while it cancels";
    on_named_core(NAME, || {
        let (_watchdog, stalls) = start_watchdog(LIMIT, NAME);
        let timers = [1, 2, 3].map(|ticks| local_timer().add(TICK * ticks, must_not_run));
        next_stall(&stalls);
        for timer in timers {
            timer.cancel();
            assert!(stalls.recv_timeout(LIMIT * 2).is_err(), "reported twice");
        }
    });
}

/// Calls `test` with the shard of a thread that runs no loop, and then turns that thread's wheel
/// once.
fn with_undriven_thread(
    name: &str,
    prepare: fn(),
    test: impl FnOnce(&ShardRef),
) -> corewheel::Turn {
    let ((sender, shard), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
    let owner = thread::Builder::new().name(name.to_owned()).spawn(move || {
        prepare();
        sender.send(local_timer().shard_ref()).expect("the test waits");
        let _ = ended.recv();
        local_timer().turn()
    });
    test(&shard.recv().expect("the thread runs"));
    drop(end);
    owner.expect("a thread").join().expect("no panic")
}

#[test]
fn a_remote_timer_that_no_loop_drives_is_overdue() {
    const NAME: &str = "nothing drives its remote timers";
    let drop_driver = || drop(drive_task());
    for prepare in [|| (), || local_timer().register_driver(), drop_driver] as [fn(); 3] {
        let turn = with_undriven_thread(NAME, prepare, |shard| {
            shard.add(HOUR, || ());
            thread::sleep(DELAY);
            assert_eq!(overdue_time_of(NAME), Duration::ZERO);
            let timer = shard.add(HOUR, || ());
            assert!(timer.reset(DELAY));
            thread::sleep(DELAY * 4);
            assert!(overdue_time_of(NAME) >= DELAY * 2, "{:?}", overdue_time_of(NAME));
        });
        assert_eq!((turn.fired, turn.live), (1, 1));
    }
    // The timer that the thread itself adds does not hide a remote timer that is added later.
    on_named_core(NAME, || {
        call_from_another_thread(|shard| shard.add(HOUR, || ()));
        thread::sleep(DELAY);
        local_timer().add(HOUR, must_not_run);
        assert_eq!(overdue_time_of(NAME), Duration::ZERO);
        call_from_another_thread(|shard| shard.add(Duration::ZERO, || ()));
        thread::sleep(DELAY);
        assert!(overdue_time_of(NAME) >= DELAY / 2);
        local_timer().turn();
        assert_eq!(overdue_time_of(NAME), Duration::ZERO);
    });
    // A due timer that a dropped driver has not admitted is overdue.
    on_named_core(NAME, || {
        let driver = drive_task();
        call_from_another_thread(|shard| shard.add(Duration::ZERO, || ()));
        drop(driver);
        thread::sleep(DELAY);
        assert!(overdue_time_of(NAME) >= DELAY / 2);
    });
    // A timer that the driver's last turn has left to the next turn is overdue, too.
    on_named_core(NAME, || {
        let driver = drive_task();
        call_from_another_thread(|shard| (0..2).for_each(|_| _ = shard.add(Duration::ZERO, || ())));
        let turn = local_timer().turn_within(1);
        assert_eq!((turn.fired, turn.behind), (1, true));
        drop(driver);
        thread::sleep(DELAY);
        assert!(overdue_time_of(NAME) >= DELAY / 2);
    });
    // A due timer that arrives between the last turn and the end of `run_until` is overdue, too.
    for (delay, is_overdue) in [(Duration::ZERO, true), (HOUR, false)] {
        on_named_core(NAME, move || {
            local_timer().add(Duration::ZERO, || ());
            local_timer().run_until(|| {
                let has_turned = local_timer().is_empty();
                if has_turned {
                    call_from_another_thread(|shard| shard.add(delay, || ()));
                }
                has_turned
            });
            thread::sleep(DELAY);
            assert_eq!(overdue_time_of(NAME) >= DELAY / 2, is_overdue);
        });
    }
}

/// The remote add and the last turn read the same time.
#[test]
fn a_remote_timer_that_is_due_at_the_last_turn_is_overdue() {
    const NAME: &str = "nothing drives it in virtual time";
    on_named_core(NAME, || {
        let clock = ManualClock::new();
        Config::new().clock(&clock).install().expect("the first use");
        clock.advance(TICK);
        local_timer().add(Duration::ZERO, || ());
        local_timer().run_until_empty();
        call_from_another_thread(|shard| shard.add(Duration::ZERO, || ()));
        clock.advance(TICK);
        assert!(overdue_time_of(NAME) >= TICK / 2, "{:?}", overdue_time_of(NAME));
    });
}

#[test]
fn a_shard_that_never_turns_looks_for_an_overdue_timer_in_one_of_256_adds() {
    let (mut shard, clock) = named_shard("a shard with many adds");
    (0..5_000).for_each(|timer| _ = shard.add(HOUR, timer));
    shard.add(TICK, 0);
    clock.advance(TICK * 500);
    (0..256).for_each(|timer| _ = shard.add(HOUR, timer));
    assert_eq!(shard.metrics().overdue, TICK * 499);
    drop(shard.drain());
    assert_eq!(shard.metrics().overdue, Duration::ZERO, "a shard that has ended needs no turn");
}

/// Returns a command that runs only `test`, with the environment variable `in_child` set.
fn child_command(test: &str, in_child: &str) -> Command {
    let mut child = Command::new(env::current_exe().expect("this program"));
    child.args(["--exact", test, "--nocapture"]).env(in_child, "1");
    child
}

#[cfg(target_os = "linux")]
#[test]
fn a_report_that_standard_error_refuses_ends_no_process() {
    const TEST: &str = "driving::a_report_that_standard_error_refuses_ends_no_process";
    const IN_CHILD: &str = "COREWHEEL_REPORT_IS_REFUSED";
    if env::var_os(IN_CHILD).is_some() {
        return on_a_thread(|| _ = local_timer().add(HOUR, must_not_run));
    }
    let full_device =
        std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let output = child_command(TEST, IN_CHILD).stderr(full_device).output().expect("a process");
    assert!(output.status.success(), "{output:?}");
}

/// The test runs itself in a child process, and so captures no other test's standard error.
#[test]
fn the_next_add_reports_an_overdue_timer_without_a_driver_once() {
    const TEST: &str = "driving::the_next_add_reports_an_overdue_timer_without_a_driver_once";
    const IN_CHILD: &str = "COREWHEEL_ADDS_WITHOUT_A_DRIVER";
    if env::var_os(IN_CHILD).is_some() {
        return add_without_a_driver();
    }
    let output = child_command(TEST, IN_CHILD).output().expect("a process");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).expect("text");
    let lines: Vec<_> = text.lines().filter(|line| line.contains("corewheel: ")).collect();
    let expected = [
        "a thread that never turns ends",
        "the last driver is dropped",
        "reported once",
        "remote, reported once",
        "registered",
        "remote, registered",
        "installed",
        "remote, installed",
        "run before",
        "remote, run before",
    ];
    let expected = expected.map(|name| format!("'{name}'"));
    let expected = expected.iter().map(|name| (name.as_str(), "local_timer().turn()"));
    let thread = "local_timer().turn()";
    let blocked_or_ended = "at least one of them overdue by 1.";
    let last = [
        ("'run before, the thread ends'", blocked_or_ended),
        ("'the loop is blocked'", blocked_or_ended),
        ("'corewheel-driver'", "capture a clone of the `ShardRef`"),
        ("'a shard'", "Shard::turn"),
        ("'corewheel-0'", thread),
        ("'its clock stands still'", "move the clock"),
        ("'its clock stands still, shorter sleeps'", "move the clock"),
        ("'an unpark does not end its wait'", "Config::wake_hook"),
        ("unnamed thread", thread),
    ];
    let expected = expected.chain(last);
    assert_eq!(lines.len(), expected.clone().count(), "{text}");
    assert!(lines[0].contains("dropped 2 pending timer(s), because no loop turned"), "{text}");
    assert!(lines[lines.len() - 1].contains("an unnamed thread (ThreadId("), "{text}");
    for (line, (name, call)) in lines.into_iter().zip(expected) {
        assert!(line.contains(name) && line.contains(call), "{line}");
        assert!(!line.contains("per_worker"), "it is a thread's own wheel: {line}");
    }
}

fn add_without_a_driver() {
    let millis = Duration::from_millis;
    let run: fn() = || {
        local_timer().add(TICK, || ());
        local_timer().run_until_empty();
    };
    on_named_core("a thread that never turns ends", move || {
        let timers = [(); 3].map(|()| local_timer().add(HOUR, must_not_run));
        assert_eq!(timers[0].cancel(), Cancel::Cancelled);
    });
    on_named_core("the last driver is dropped", move || {
        drop(drive(|_| pending::<()>()));
        local_timer().add(millis(1), || ());
        thread::sleep(millis(200));
    });
    for (name, wait, prepare) in [
        ("reported once", millis(200), (|| ()) as fn()),
        ("driven", millis(200), || _ = local_timer().turn()),
        ("about to be driven", millis(200), || local_timer().register_driver()),
        ("registered", millis(1_100), || local_timer().register_driver()),
        ("installed", millis(1_100), || Config::new().install().expect("the first use")),
        ("run before", millis(1_100), run),
    ] {
        on_named_core(name, move || {
            prepare();
            local_timer().add(millis(1), || ());
            // A timer added with a past deadline is not reported.
            local_timer().add(local_timer().now() - HOUR, || ()).cancel();
            thread::sleep(wait);
            (0..3).for_each(|_| _ = local_timer().add(HOUR, must_not_run));
        });
        with_undriven_thread(&format!("remote, {name}"), prepare, |shard| {
            shard.add(millis(1), || ());
            thread::sleep(wait);
            (0..3).for_each(|_| _ = shard.add(HOUR, || ()));
        });
    }
    on_named_core("run before, the thread ends", move || {
        run();
        local_timer().add(millis(1), || ());
        thread::sleep(millis(1_100));
    });
    on_named_core("run before, the thread ends soon: not reported", move || {
        run();
        local_timer().add(millis(1), must_not_run);
        thread::sleep(millis(200));
    });
    on_named_core("the loop is blocked", move || {
        let blocks = async move {
            sleep(DELAY).await;
            local_timer().add(millis(1), || ());
            thread::sleep(millis(1_100));
        };
        run_tasks_until_first_ends(Box::pin(blocks), [drive_task()]);
    });
    add_in_callbacks_of_a_timers_driver();
    // Another loop drives the wheel before or after `run_until_empty`.
    for (before, after) in [(true, false), (false, true)] {
        on_named_core("run before, and turned", move || {
            (0..usize::from(before)).for_each(|_| _ = local_timer().turn());
            run();
            (0..usize::from(after)).for_each(|_| _ = local_timer().turn());
            local_timer().add(millis(1), || ());
            thread::sleep(millis(1_100));
            (0..3).for_each(|_| _ = local_timer().add(HOUR, must_not_run));
        });
    }
    for (name, has_begun, wait) in [
        ("a shard", false, 1_100),
        ("a shard whose loop may still start", false, 900),
        ("a shard that has turned", true, 1_100),
    ] {
        let (mut shard, clock) = named_shard(name);
        if has_begun {
            shard.turn();
        }
        shard.add(TICK, 1);
        clock.advance(TICK * wait);
        (0..3).for_each(|timer| _ = shard.add(HOUR, timer));
    }
    // No timer is overdue at any of these adds.
    on_named_core("no report", || {
        call_from_another_thread(|shard| shard.add(HOUR, || ()));
        thread::sleep(Duration::from_millis(200));
        local_timer().add(HOUR, must_not_run);
        local_timer().add(local_timer().now() - HOUR, must_not_run).cancel();
        call_from_another_thread(|shard| shard.add(shard.now() - HOUR, || ()));
        drop(local_timer().drain());
    });
    let run_and_drop_driver = || run_tasks_until_first_ends(Box::pin(sleep(DELAY)), [drive_task()]);
    on_named_core("no report at the end", move || {
        run_and_drop_driver();
        assert!(local_timer().add(TICK, || ()).reset(HOUR));
        let cancelled = local_timer().add(TICK, || ());
        thread::sleep(Duration::from_millis(200));
        call_from_another_thread(|_| assert_eq!(cancelled.cancel(), Cancel::Cancelled));
    });
    on_named_core("no report of a late request", move || {
        run_and_drop_driver();
        local_timer().add(HOUR, must_not_run);
        thread::sleep(Duration::from_millis(200));
        call_from_another_thread(|shard| shard.run(|| ()));
    });
    on_named_core("no report of a registered driver", || {
        local_timer().register_driver();
        local_timer().add(HOUR, must_not_run);
    });
    let ends_at_once = |_| _ = local_timer().add(TICK, || ());
    let cores = corewheel::Cores::builder().threads(1).start(ends_at_once).expect("started");
    drop(cores.join());
    // A `VirtualTime` drives its cores even before their first turns.
    let time = VirtualTime::new();
    time.shards()[0].add(TICK, || ());
    time.clock().advance(HOUR);
    time.shards()[0].add(TICK, || ());
    drop(time);
    for (name, step, delay, checks) in [
        ("its clock stands still", Duration::ZERO, HOUR, 4),
        ("its clock stands still, shorter sleeps", Duration::ZERO, TICK * 100, 13),
        ("its clock moves", TICK, HOUR, 4),
        ("no timer can fire", Duration::ZERO, Duration::MAX, 4),
    ] {
        on_named_core(name, move || {
            let (clock, mut remaining_checks) = (ManualClock::new(), checks);
            let config = Config::new().clock(&clock).drop_cancelled_within(millis(1_000));
            config.install().expect("the first use");
            let timer = local_timer().add(delay, must_not_run);
            let cancelled = local_timer().add(HOUR, must_not_run);
            // After a remote cancel, the sleeps are at most as long as `drop_cancelled_within`.
            call_from_another_thread(|_| assert_eq!(cancelled.cancel(), Cancel::Cancelled));
            local_timer().run_until(|| {
                clock.advance(step);
                remaining_checks -= 1;
                remaining_checks < 0
            });
            timer.cancel();
        });
    }
    let wait_after_a_wake_up: fn(Duration) = |wait| {
        local_timer().sleep_with(|_| {
            call_from_another_thread(|shard| shard.run(|| ()));
            thread::sleep(wait);
        });
        local_timer().turn();
    };
    on_named_core("an unpark does not end its wait", move || {
        [0, 1_100, 1_100].into_iter().map(millis).for_each(wait_after_a_wake_up);
    });
    on_named_core("a short wait after an unpark: not reported", move || {
        wait_after_a_wake_up(millis(100));
        local_timer().sleep_with(|_| thread::sleep(millis(1_100)));
    });
    #[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
    on_named_core("a `TimerFd` was triggered: not reported", move || {
        let _timer_fd = local_timer().timer_fd().expect("a descriptor");
        wait_after_a_wake_up(millis(1_100));
    });
    on_named_core("a park after a wake-up: not reported", move || {
        let sleep = local_timer().prepare_sleep();
        call_from_another_thread(|shard| shard.run(|| ()));
        thread::sleep(millis(1_100));
        sleep.park();
        local_timer().turn();
    });
    on_named_core("a hook was called: not reported", move || {
        Config::new().wake_hook(|| ()).install().expect("the first use");
        wait_after_a_wake_up(millis(1_100));
    });
    thread::spawn(|| local_timer().add(HOUR, must_not_run)).join().expect("no panic");
}

/// Only the timers of a wheel that no loop will turn are reported, and only once.
fn add_in_callbacks_of_a_timers_driver() {
    let timers = Timers::per_worker().expect("a `TimersDriver`");
    let (sender, ran) = mpsc::channel();
    let run = |callback: fn()| {
        let sender_clone = sender.clone();
        timers.shards()[0].run(move || {
            callback();
            sender_clone.send(()).expect("the test waits");
        });
        ran.recv().expect("the callback runs");
    };
    run(|| _ = local_timer().len());
    run(|| {
        local_timer().add(Duration::ZERO, || ());
        local_timer().run_until_empty();
    });
    (0..2).for_each(|_| run(|| _ = local_timer().add(HOUR, must_not_run)));
}

// ---- `sleep_with` and `run_until`

#[test]
fn sleep_with_is_woken_only_until_its_closure_returns() {
    with_counted_wakes(|_, wakes, shard| {
        local_timer().add(TICK * 5, || ());
        let woken = local_timer().sleep_with(|timeout| {
            assert_eq!(timeout, Some(TICK * 5));
            on_a_thread(|| shard.add(TICK, || ()));
            wakes.take()
        });
        assert_eq!(woken, 1);
        on_a_thread(|| shard.run(|| ()));
        assert!(panics(|| local_timer().sleep_with(|_| panic!("a wait that panics"))));
        on_a_thread(|| shard.run(|| ()));
        assert_eq!(wakes.take(), 0, "the owner is awake");
    });
    let wakes = Counter::default();
    let (mut shard, _) = configured_shard(Config::new().wake_hook(wakes.callback()));
    let handle = shard.add(TICK * 5, ());
    let woken = shard.sleep_with(|timeout| {
        assert_eq!(timeout, Some(TICK * 5));
        assert!(on_a_thread(|| handle.reset(TICK)));
        wakes.take()
    });
    assert_eq!((woken, turn_and_expire(&mut shard).len()), (1, 0));
    assert!(on_a_thread(|| handle.reset(Duration::ZERO)));
    assert_eq!(wakes.take(), 0, "the owner is awake");
}

#[test]
fn run_until_checks_before_it_sleeps_and_is_woken_remotely() {
    let (sender, shard) = mpsc::channel();
    let owner = thread::spawn(move || {
        local_timer().run_until_empty();
        local_timer().run_until(|| true);
        assert_eq!(local_timer().counts().turns, 0, "neither call turns");
        let start = Instant::now();
        local_timer().add(DELAY, || ());
        local_timer().run_until_empty();
        assert!(start.elapsed() >= DELAY);
        let fired = local_timer().counts().fired;
        sender.send(local_timer().shard_ref()).expect("the test waits");
        local_timer().run_until(|| local_timer().counts().fired > fired);
        local_timer().counts().turns
    });
    let shard = shard.recv().expect("the owner runs");
    thread::sleep(DELAY);
    shard.run(|| ());
    let turns = owner.join().expect("no panic");
    assert!(turns < 20, "the owner does not sleep: {turns} turns");
}

#[test]
fn run_until_returns_after_a_drain() {
    on_a_thread(|| {
        local_timer().add(TICK * 1_000, || ());
        assert_eq!(local_timer().drain().len(), 1);
        local_timer().run_until(|| false);
    });
}

#[test]
fn run_until_empty_runs_timers_that_other_threads_have_added() {
    on_a_thread(|| {
        let (shard, runs) = (local_timer().shard_ref(), Counter::default());
        on_a_thread({
            let runs = runs.clone();
            // More requests than a turn consumes. Half of the timers are due at once.
            move || {
                for delay in [Duration::ZERO, DELAY].into_iter().cycle().take(3_000) {
                    shard.add(delay, runs.callback());
                }
            }
        });
        local_timer().run_until_empty();
        assert_eq!(runs.get(), 3_000);
    });
}

/// A cancel of a remotely added timer does not wake the owner.
#[test]
fn run_until_empty_returns_after_a_remote_cancel_of_a_remote_timer() {
    for delay in [HOUR, Duration::MAX] {
        let ((sender, shard), (ended, end)) = (mpsc::channel(), mpsc::channel());
        let owner = thread::spawn(move || {
            sender.send(local_timer().shard_ref()).expect("the test waits");
            local_timer().run_until(|| !local_timer().is_empty());
            ended.send(0).expect("the test waits");
            local_timer().run_until_empty();
            ended.send(local_timer().counts().cancelled).expect("the test waits");
        });
        let shard: ShardRef = shard.recv().expect("the thread runs");
        let timer = shard.add(delay, || ());
        shard.run(|| ());
        assert_eq!(end.recv(), Ok(0));
        thread::sleep(DELAY * 4); // The owner falls asleep.
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(end.recv_timeout(TOO_LONG), Ok(1));
        owner.join().expect("no panic");
    }
}

#[test]
fn run_until_panics_in_a_callback_if_it_would_sleep() {
    in_checked_virtual_time(|clock| {
        local_timer().add(HOUR, || ());
        local_timer().add(TICK, || {
            local_timer().run_until(|| true);
            assert!(panics(|| local_timer().run_until_empty()));
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(local_timer().counts().panicked, 0);
    });
}

/// Calls `run_until` on this thread, which another thread then unparks without a request to the
/// wheel.
pub(crate) fn run_until_unparked() {
    let (owner, end) = (thread::current(), Instant::now() + DELAY);
    thread::spawn(move || {
        thread::sleep(DELAY * 2);
        owner.unpark();
    });
    local_timer().run_until(|| Instant::now() >= end);
}

#[test]
fn a_sleeping_drive_task_continues_after_run_until() {
    on_a_thread(|| {
        let waits = async {
            tokio::time::sleep(DELAY).await; // The driving task sleeps without a timeout.
            run_until_unparked();
            tokio::time::timeout(TOO_LONG, sleep(DELAY)).await.expect("the driving task runs");
        };
        run_tasks_until_first_ends(Box::pin(waits), [drive_task()]);
    });
}

/// After both the driver and `run_until` have ended, the wheel has no driver.
#[test]
fn a_driver_may_register_or_end_during_run_until() {
    for ends_first in [false, true] {
        on_a_thread(|| {
            let (mut task, mut checks) = (None, 0);
            local_timer().run_until(|| {
                local_timer().add(Duration::ZERO, || ());
                checks += 1;
                task = if checks == 2 {
                    Some(drive_task())
                } else {
                    task.take().filter(|_| !ends_first)
                };
                assert!(checks == 1 || !sleep_panics(), "`run_until` drives the wheel");
                checks == 4
            });
            assert_eq!((task.is_none(), sleep_panics()), (ends_first, ends_first));
            drop(task);
            assert!(sleep_panics());
        });
    }
}

#[test]
fn a_panic_in_run_until_ends_its_driving() {
    on_a_thread(|| {
        let mut checks = 0;
        let run = || {
            local_timer().run_until(|| {
                local_timer().add(Duration::ZERO, || ());
                checks += 1;
                assert!(checks == 1, "the second check panics");
                false
            });
        };
        assert!(panics(run));
        // After the panic, `run_until` no longer drives the wheel.
        drop(drive_task());
        assert!(sleep_panics());
    });
}

// ---- `future::drive`

/// Runs the tasks in a tokio runtime on this thread until `first` ends.
fn run_tasks_until_first_ends<const N: usize>(first: Task<'_>, others: [Task<'static>; N]) {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let tasks = LocalSet::new();
    for task in others {
        tasks.spawn_local(task);
    }
    tasks.block_on(&runtime, first);
}

fn drive_task() -> Task<'static> {
    let drive = drive(tokio::time::sleep);
    Box::pin(async move { _ = drive.await })
}

#[test]
fn a_drive_task_passes_the_tests_of_runtime_drivers() {
    let run = |task: Task<'_>| {
        run_tasks_until_first_ends(task, [drive_task()]);
        true
    };
    assert_drives_the_wheel(run, |task| drop(tokio::task::spawn_local(task)));
}

/// The task `first` advances the clock to the deadline of `second`.
#[test]
fn drive_turns_again_after_the_tasks_that_a_turn_woke() {
    in_virtual_time(|clock| {
        let log = Log::new();
        let second = async {
            sleep(DELAY * 2).await;
            log.write("timer");
        };
        let (written, time) = (log.clone(), clock.clone());
        let first = async move {
            sleep(DELAY).await;
            time.advance(DELAY);
            tokio::time::sleep(DELAY / 2).await;
            written.write("event of the executor");
        };
        // Spawned after the driver, which therefore announces its sleep first.
        let clock = clock.clone();
        let time = async move {
            tokio::time::sleep(DELAY / 2).await;
            clock.advance(DELAY);
        };
        run_tasks_until_first_ends(
            Box::pin(second),
            [Box::pin(first), drive_task(), Box::pin(time)],
        );
        assert_eq!(log.take(), ["timer"]);
    });
}

#[test]
fn a_drive_task_fires_at_most_1024_timers_per_poll() {
    in_checked_virtual_time(|clock| {
        let (poller, mut drives) = (Poller::new(), Box::pin(drive(|_| pending::<()>())));
        let runs = Counter::default();
        (0..5_000).for_each(|_| _ = local_timer().add(TICK, runs.callback()));
        clock.advance(TICK);
        while !local_timer().is_empty() {
            let woken = poller.wake_count();
            assert!(poller.poll(&mut drives).is_pending());
            assert!((1..=1_024).contains(&runs.take()));
            assert_eq!(poller.wake_count(), woken + 1, "the task yields");
        }
    });
}

#[test]
fn a_drive_task_that_would_wait_for_its_own_wheel_panics() {
    on_a_thread(|| {
        let (poller, mut drives) = (Poller::new(), Box::pin(drive(sleep)));
        local_timer().add(HOUR, || ());
        let polls = || (0..3).for_each(|_| assert!(poller.poll(&mut drives).is_pending()));
        let message = panic_message(polls);
        assert!(message.contains("the executor's own sleep function"), "{message}");
        // The wheel still works, because only the sleep function of the task was wrong.
        run_tasks_until_first_ends(Box::pin(sleep(DELAY)), [drive_task()]);
    });
}

#[test]
fn a_drive_task_whose_sleep_panics_leaves_another_loop_registered() {
    on_a_thread(|| {
        let poller = Poller::new();
        local_timer().register_driver();
        let sleep_that_panics = |_| async { panic!("the executor, as it should here") };
        let mut drives = Box::pin(drive(sleep_that_panics));
        local_timer().add(HOUR, || ());
        assert!(poller.poll(&mut drives).is_pending());
        assert!(panics(|| poller.poll(&mut drives)));
        drop(drives);
        drop(poller.poll_pending(sleep(DELAY)));
    });
}

#[test]
fn a_drive_task_sleeps_after_a_drain() {
    on_a_thread(|| {
        let (poller, mut drives) = (Poller::new(), Box::pin(drive(|_| pending::<()>())));
        assert!(poller.poll(&mut drives).is_pending());
        drop(local_timer().drain());
        let before = poller.wake_count();
        (0..100).for_each(|_| assert!(poller.poll(&mut drives).is_pending()));
        let woken = poller.wake_count() - before;
        assert!(woken <= 50, "one poll in two begins a sleep: {woken}");
    });
}

#[test]
fn a_dropped_drive_task_releases_its_waker() {
    on_a_thread(|| {
        let (poller, mut drives) = (Poller::new(), Box::pin(drive(|_| pending::<()>())));
        for clones in [0, 1] {
            assert!(poller.poll(&mut drives).is_pending());
            assert_eq!(poller.clones(), clones, "the second poll announces a sleep");
        }
        drop(drives);
        assert_eq!(poller.clones(), 0);
        run_tasks_until_first_ends(Box::pin(sleep(DELAY)), [drive_task()]);
        let turns = local_timer().counts().turns;
        assert!(turns < 20, "the driver does not sleep: {turns} turns");
    });
}

#[test]
fn a_drive_task_takes_over_when_another_is_dropped() {
    for dropped in [0, 1] {
        in_virtual_time(|_| {
            let (pollers, shard) = ([Poller::new(), Poller::new()], local_timer().shard_ref());
            let mut tasks = [(); 2].map(|()| Some(Box::pin(drive(|_| pending::<()>()))));
            for (poller, task) in pollers.iter().zip(&mut tasks) {
                let task = task.as_mut().expect("not dropped");
                (0..2).for_each(|_| assert!(poller.poll(task).is_pending()));
            }
            drop(tasks[dropped].take());
            let (poller, other) = (&pollers[1 - dropped], tasks[1 - dropped].as_mut());
            let (other, woken) = (other.expect("not dropped"), poller.wake_count());
            assert_eq!((woken, pollers[dropped].clones()), (2, 0), "the drop wakes the other task");
            // The two polls turn, yield, and announce a sleep.
            (0..2).for_each(|_| assert!(poller.poll(other).is_pending()));
            let woken = poller.wake_count();
            on_a_thread(|| shard.add(TICK, must_not_run));
            assert_eq!(poller.wake_count(), woken + 1);
        });
    }
}
