//! `Cores`: pinned threads, each with its own timer, from start to join.

use std::{
    collections::HashSet,
    error::Error,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use corewheel::{Cancel, Config, ConfigError, Core, Cores, ManualClock, TimerHandle, local_timer};

use crate::common::{self, TICK};

fn never() {
    unreachable!("this callback must not run");
}

#[test]
fn by_default_there_is_a_thread_for_each_core() {
    let cores = Cores::builder().start(|core| core.index()).expect("started");
    let available = thread::available_parallelism().expect("known").get();
    assert_eq!(
        (cores.len(), cores.is_empty(), cores.pinned().len()),
        (available, false, available)
    );
    assert_eq!(cores.join().len(), available);
}

#[test]
fn more_shards_than_cores_work_and_return_in_order() {
    let run = |core: Core| {
        // The first threads return last.
        thread::sleep(Duration::from_millis(5 * (16 - core.index() as u64)));
        (core.index(), thread::current().id())
    };
    let cores = Cores::builder().shards(16).start(run).expect("started");
    assert_eq!(cores.len(), 16);
    let returned: Vec<_> =
        cores.join().into_iter().map(|returned| returned.expect("no panic")).collect();
    let none = Cores::builder().start_with(Vec::<()>::new(), |_, ()| ()).expect("nothing to start");
    assert!(none.is_empty() && none.join().is_empty());
    assert!(returned.iter().map(|(index, _)| *index).eq(0..16));
    assert_eq!(returned.iter().map(|(_, thread)| thread).collect::<HashSet<_>>().len(), 16);
}

#[test]
fn zero_shards_count_as_one() {
    let cores = Cores::builder().shards(0).start(|core| core.index()).expect("started");
    let returned: Vec<_> = cores.join().into_iter().map(Result::unwrap).collect();
    assert_eq!(returned, [0]);
}

#[test]
fn a_thread_that_panics_is_an_error_in_join_and_the_others_are_fine() {
    for panicking in 0..4 {
        let run = move |core: Core| {
            assert_ne!(core.index(), panicking, "as planned");
            local_timer().add(Duration::ZERO, || {});
            while !local_timer().is_empty() {
                local_timer().turn();
            }
            core.index()
        };
        let returned = Cores::builder().shards(4).start(run).expect("started").join();
        for (index, returned) in returned.into_iter().enumerate() {
            match returned {
                Ok(own) => assert!(own == index && index != panicking),
                Err(panic) => {
                    assert_eq!(index, panicking);
                    assert!(
                        panic
                            .downcast_ref::<String>()
                            .is_some_and(|message| message.contains("as planned"))
                    );
                }
            }
        }
    }
}

#[test]
fn nobody_runs_before_everybody_has_a_timer() {
    let configured = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&configured);
    let config = move |index| {
        thread::sleep(Duration::from_millis(3 * index));
        configured.fetch_add(1, Ordering::SeqCst);
        Config::new()
    };
    let config = move |index: usize| config(index as u64);
    let run = move |_: Core| seen.load(Ordering::SeqCst);
    let cores = Cores::builder().shards(6).config(config).start(run).expect("started");
    assert!(cores.join().into_iter().all(|seen| seen.expect("no panic") == 6));
}

#[test]
fn each_thread_has_its_own_timer_made_as_configured() {
    let clock = ManualClock::new();
    let shared = clock.clone();
    let config = move |index: usize| Config::new().tick(TICK * (1 << index)).clock(&shared);
    clock.advance(TICK / 2);
    let everybody_added = Barrier::new(4);
    let run = move |core: Core| {
        (0..=core.index()).for_each(|_| _ = local_timer().add(Duration::ZERO, never));
        everybody_added.wait();
        assert_eq!(Config::new().install(), Err(ConfigError::AlreadyRunning));
        (local_timer().len(), local_timer().time_until_next())
    };
    let cores = Cores::builder().shards(4).config(config).start(run).expect("started");
    for (index, returned) in cores.join().into_iter().enumerate() {
        let tick = TICK * (1 << index);
        assert_eq!(
            returned.expect("no panic"),
            (index + 1, Some(tick.saturating_sub(TICK / 2))),
            "of thread {index}"
        );
    }
}

#[test]
fn the_configuration_is_made_on_the_thread_that_gets_it() {
    let made_on = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&made_on);
    let config = move |index: usize| {
        written.lock().expect("sound").push((index, thread::current().id()));
        Config::new()
    };
    let cores = Cores::builder()
        .shards(3)
        .config(config)
        .start(|core| (core.index(), thread::current().id()));
    let ran_on: HashSet<_> =
        cores.expect("started").join().into_iter().map(Result::unwrap).collect();
    assert_eq!(made_on.lock().expect("sound").iter().copied().collect::<HashSet<_>>(), ran_on);
}

#[test]
fn timers_are_cancelled_from_core_to_core() {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..4).map(|_| mpsc::channel::<Vec<TimerHandle>>()).unzip();
    let receivers: Vec<_> =
        receivers.into_iter().map(|receiver| Mutex::new(Some(receiver))).collect();
    let (senders, everybody_cancelled) = (Mutex::new(senders), Barrier::new(4));
    let run = move |core: Core| {
        let next = senders.lock().expect("sound")[(core.index() + 1) % 4].clone();
        let handles = receivers[core.index()].lock().expect("sound").take().expect("one each");
        next.send((0..100).map(|_| local_timer().add(Duration::from_secs(600), never)).collect())
            .expect("listens");
        let given = handles.recv().unwrap_or_default();
        let cancelled = given.iter().filter(|handle| handle.cancel() == Cancel::Cancelled).count();
        everybody_cancelled.wait();
        let turn = local_timer().turn();
        (
            cancelled,
            turn.collected,
            turn.live,
            given.iter().all(|handle| handle.cancel() == Cancel::Ended),
        )
    };
    let cores = Cores::builder().shards(4).start(run).expect("started");
    assert!(
        cores.join().into_iter().all(|returned| returned.expect("no panic") == (100, 100, 0, true))
    );
}

#[test]
fn handles_of_cores_that_have_ended_are_stale() {
    let run = |_: Core| local_timer().add(Duration::from_secs(600), never);
    let cores = Cores::builder().shards(4).start(run).expect("started");
    let handles: Vec<_> = cores.join().into_iter().map(Result::unwrap).collect();
    assert!(
        handles.into_iter().all(|handle| handle.cancel() == Cancel::Ended && !handle.is_pending())
    );
}

// ---- what cannot be started

/// Starts five threads of which one is badly configured; nobody may run, and all have ended when the error is there.
fn start_badly(config: impl Fn(usize) -> Config + Send + Sync + 'static) -> io::Result<()> {
    let ran = Arc::new(AtomicBool::new(false));
    let written = Arc::clone(&ran);
    let run = move |_: Core| written.store(true, Ordering::SeqCst);
    let started = catch_unwind(AssertUnwindSafe(|| {
        Cores::builder().shards(5).config(config).start(run).map(drop)
    }));
    assert!(!ran.load(Ordering::SeqCst), "no thread enters `run`");
    assert_eq!(Arc::strong_count(&ran), 1, "no thread is left");
    started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[test]
fn an_invalid_configuration_is_an_error_with_its_cause_and_no_thread_runs() {
    for invalid in 0..5 {
        let tick = Duration::from_nanos(999);
        let error =
            start_badly(
                move |index| {
                    if index == invalid { Config::new().tick(tick) } else { Config::new() }
                },
            )
            .expect_err("a tick is too short");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ConfigError>());
        assert_eq!(inner, Some(&ConfigError::TickTooShort { tick }));
        assert_eq!(error.to_string(), ConfigError::TickTooShort { tick }.to_string());
    }
}

#[test]
fn a_configuration_for_a_timer_in_use_is_an_error() {
    let error = start_badly(|index| {
        if index == 3 {
            local_timer().turn();
        }
        Config::new()
    })
    .expect_err("the timer is in use");
    assert!(
        error
            .get_ref()
            .is_some_and(|inner| inner.downcast_ref() == Some(&ConfigError::AlreadyRunning))
    );
}

#[test]
fn a_configuration_that_panics_passes_its_panic_on_and_no_thread_runs() {
    let started = catch_unwind(|| {
        start_badly(|index| {
            assert_ne!(index, 2, "as planned");
            Config::new()
        })
    });
    let panic = started.expect_err("it panics");
    assert!(panic.downcast_ref::<String>().is_some_and(|message| message.contains("as planned")));
}

// ---- pinning

/// The cores this thread may run on, as Linux tells.
#[cfg(target_os = "linux")]
fn allowed() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("Linux tells").trim().to_owned()
}

#[test]
#[cfg(target_os = "linux")]
fn each_thread_is_pinned_to_the_core_it_says() {
    let before = allowed();
    let cores =
        Cores::builder().shards(6).start(|core| (core.pinned_to(), allowed())).expect("started");
    let pinned = cores.pinned().to_vec();
    assert_eq!(pinned.len(), 6);
    for (returned, pinned) in cores.join().into_iter().zip(pinned) {
        let (own, allowed) = returned.expect("no panic");
        assert_eq!(own, pinned);
        assert_eq!(Some(allowed), pinned.map(|core| core.to_string()));
    }
    assert_eq!(allowed(), before, "the starting thread goes where it could");
}

#[test]
fn an_error_of_start_is_an_ordinary_error() {
    let error = start_badly(|_| Config::new().tick(Duration::ZERO)).expect_err("a tick of zero");
    let boxed: Box<dyn Error + Send + Sync> = error.into();
    assert!(!boxed.to_string().is_empty());
}

/// Makes the kernel refuse to pin this thread and those that it starts from now on, as some containers do.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(unsafe_code, reason = "only the kernel can refuse")]
mod refusal {
    use std::{ffi, io, ptr};

    /// An instruction of the kernel's packet filter, which also judges system calls.
    #[repr(C)]
    struct Instruction {
        code: u16,
        if_true: u8,
        if_false: u8,
        operand: u32,
    }

    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const Instruction,
    }

    unsafe extern "C" {
        fn prctl(option: ffi::c_int, ...) -> ffi::c_int;
    }

    const PR_SET_SECCOMP: ffi::c_int = 22;
    const SECCOMP_MODE_FILTER: ffi::c_ulong = 2;
    const PR_SET_NO_NEW_PRIVS: ffi::c_int = 38;
    const SCHED_SETAFFINITY: u32 = if cfg!(target_arch = "x86_64") { 203 } else { 122 };

    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const FAIL_WITH_EPERM: u32 = 0x0005_0001;

    /// An error where the kernel does not filter system calls.
    pub(crate) fn refuse_to_pin() -> io::Result<()> {
        let instruction =
            |code, if_false, operand| Instruction { code, if_true: 0, if_false, operand };
        let filter = [
            // The number of the system call stands first in what a filter sees.
            instruction(LOAD_WORD, 0, 0),
            instruction(JUMP_IF_EQUAL, 1, SCHED_SETAFFINITY),
            instruction(RETURN, 0, FAIL_WITH_EPERM),
            instruction(RETURN, 0, ALLOW),
        ];
        let program = Program { length: 4, instructions: filter.as_ptr() };
        let (one, zero): (ffi::c_ulong, ffi::c_ulong) = (1, 0);
        // SAFETY: takes numbers only, and forbids this thread what it does not do: to gain privileges.
        let forbidden = unsafe { prctl(PR_SET_NO_NEW_PRIVS, one, zero, zero, zero) };
        // SAFETY: the program and its instructions live through the call, which copies them.
        let installed =
            unsafe { prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ptr::from_ref(&program)) };
        if (forbidden, installed) == (0, 0) { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn a_core_that_cannot_be_pinned_is_reported_and_runs() {
    common::on_a_thread(|| {
        if let Err(error) = refusal::refuse_to_pin() {
            println!("not tried: this kernel cannot be told to refuse pinning ({error})");
            return;
        }
        let run = |core: Core| {
            local_timer().add(Duration::ZERO, || {});
            while !local_timer().is_empty() {
                local_timer().turn();
            }
            (core.index(), core.pinned_to())
        };
        let cores = Cores::builder().shards(3).start(run).expect("not fatal");
        assert_eq!(cores.pinned(), [None; 3]);
        let returned: Vec<_> = cores.join().into_iter().map(Result::unwrap).collect();
        assert_eq!(returned, [(0, None), (1, None), (2, None)]);
    });
}

#[test]
fn each_thread_gets_the_seat_that_was_prepared_for_it() {
    let seats: Vec<_> = (0..4).map(|seat| Box::new(seat * 10)).collect();
    let cores =
        Cores::builder().start_with(seats, |core, seat| (core.index(), *seat)).expect("it starts");
    let ended: Vec<_> = cores.join().into_iter().map(|end| end.expect("no panic")).collect();
    assert_eq!(ended, [(0, 0), (1, 10), (2, 20), (3, 30)]);
}

#[test]
fn more_shards_than_can_be_are_refused_before_any_thread_starts() {
    let refused = Cores::builder().shards(20_000).start(|_| ()).expect_err("too many");
    let cause = refused
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<ConfigError>())
        .expect("a ConfigError");
    assert_eq!(cause, &ConfigError::TooManyShards { max: 16_384 });
}

/// Whether the threads end, each with what it has to say; in a time that only one that hangs takes.
fn ended<R: Send + 'static>(cores: Cores<R>) -> Vec<R> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(cores.join()));
    let ended = told.recv_timeout(Duration::from_secs(60)).expect("a thread goes on");
    ended.into_iter().map(|end| end.expect("no panic")).collect()
}

fn sleep_and_turn(core: &Core) {
    while !core.is_stopping() {
        local_timer().prepare_sleep().park();
        local_timer().turn();
    }
}

#[test]
fn threads_end_when_they_are_asked_to_asleep_or_on_their_way_to_it() {
    for round in 0..300 {
        let cores =
            Cores::builder().shards(2).start(|core| sleep_and_turn(&core)).expect("it starts");
        if round % 3 > 0 {
            thread::sleep(Duration::from_micros(round));
        }
        cores.stop();
        cores.stop();
        assert_eq!(ended(cores).len(), 2);
    }
}

/// Also by a loop that takes in a few of many messages at a time.
#[test]
fn what_was_asked_before_the_end_has_been_done() {
    for (budget, asked) in [(usize::MAX, 200), (usize::MAX, 5_000), (3, 200)] {
        for _ in 0..20 {
            let run = move |core: Core| {
                while !core.is_stopping() {
                    local_timer().prepare_sleep().park();
                    local_timer().turn_within(budget);
                }
            };
            let (cores, runs) = (
                Cores::builder().shards(2).start(run).expect("it starts"),
                Arc::new(AtomicUsize::new(0)),
            );
            for shard in cores.shards().iter().cycle().take(asked) {
                let runs = Arc::clone(&runs);
                shard.run(move || _ = runs.fetch_add(1, Ordering::Relaxed));
            }
            cores.stop();
            ended(cores);
            assert_eq!(runs.load(Ordering::Relaxed), asked);
        }
    }
}

/// Also by the thread itself, in a callback: what that has asked for is not late for the last turn.
#[test]
fn what_a_core_has_asked_of_itself_before_the_end_has_been_done() {
    let runs = Arc::new(AtomicUsize::new(0));
    let cores = Arc::new(
        Cores::builder().shards(1).start(|core| sleep_and_turn(&core)).expect("it starts"),
    );
    let (asking, ran) = (Arc::clone(&cores), Arc::clone(&runs));
    // By a timer, so that nothing from elsewhere has been taken in that turn.
    cores.shards()[0].add(TICK, move || {
        for _ in 0..3 {
            let ran = Arc::clone(&ran);
            asking.shards()[0].run(move || _ = ran.fetch_add(1, Ordering::Relaxed));
        }
        asking.stop();
    });
    while Arc::strong_count(&cores) > 1 {
        thread::yield_now();
    }
    ended(Arc::into_inner(cores).expect("the callback has let go of it"));
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

#[test]
fn threads_that_are_not_to_be_pinned_are_not() {
    let cores =
        Cores::builder().shards(2).pin(false).start(|core| core.pinned_to()).expect("it starts");
    assert_eq!(cores.pinned(), [None; 2]);
    assert_eq!(ended(cores), [None; 2]);
}

#[test]
fn nobody_is_asked_to_end_who_was_not() {
    let cores = Cores::builder().shards(2).start(|core| {
        local_timer().add(TICK, || ());
        while !local_timer().is_empty() {
            local_timer().prepare_sleep().park();
            local_timer().turn();
        }
        core.is_stopping()
    });
    assert_eq!(ended(cores.expect("it starts")), [false; 2]);
}

#[test]
fn a_timer_that_is_full_is_asked_to_end_all_the_same() {
    let config = |_| Config::new().limit(1);
    let cores = Cores::builder().shards(2).config(config).start(|core| {
        local_timer().add(Duration::from_secs(3_600), never);
        assert!(local_timer().try_add(TICK, || ()).is_err());
        sleep_and_turn(&core);
        local_timer().len()
    });
    let cores = cores.expect("it starts");
    cores.stop();
    assert_eq!(ended(cores), [1; 2]);
}

#[test]
fn asking_threads_that_have_ended_changes_nothing() {
    let (tell, told) = mpsc::channel();
    let cores = Cores::builder().shards(2).start(move |core| {
        if core.index() == 0 {
            return tell.send(()).expect("somebody waits");
        }
        sleep_and_turn(&core);
    });
    let cores = cores.expect("it starts");
    told.recv().expect("one returns at once");
    cores.stop();
    assert_eq!(ended(cores).len(), 2);
}

#[test]
fn a_core_can_ask_all_of_them_itself() {
    let cores = Cores::builder().shards(2).start(|core| sleep_and_turn(&core)).expect("it starts");
    let cores = Arc::new(cores);
    let asking = Arc::clone(&cores);
    let (tell, told) = mpsc::channel();
    cores.shards()[1].run(move || {
        asking.stop();
        drop(asking);
        tell.send(()).expect("somebody waits");
    });
    told.recv_timeout(Duration::from_secs(60)).expect("it has been run");
    assert_eq!(ended(Arc::into_inner(cores).expect("the callback has let go of it")).len(), 2);
}
