//! `Cores`: start, configuration, pinning, stop and join.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    io,
    panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind},
    rc::Rc,
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
    time::Duration,
};

use corewheel::{Config, ConfigError, Core, Cores, ManualClock, local_timer};

use crate::support::{
    Counter, HOUR, OnDrop, Poller, TICK, TOO_LONG, block_on, must_not_run, on_a_thread,
    panic_message, poll_with, wait_until, waker, waker_whose_clones_panic_in_drop,
};

fn start_cores<R: Send + 'static>(
    shards: usize,
    run: impl Fn(Core) -> R + Send + Sync + 'static,
) -> Cores<R> {
    Cores::builder().threads(shards).start(run).expect("started")
}

fn join_cores<R: Send + 'static>(cores: Cores<R>) -> Vec<R> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(cores.join()));
    let ended = receiver.recv_timeout(3 * TOO_LONG).expect("all threads end");
    ended.into_iter().map(|end| end.expect("no panic")).collect()
}

fn turn_until_stopped(core: &Core, budget: usize) {
    while !core.is_stopping() {
        local_timer().prepare_sleep().park();
        local_timer().turn_within(budget);
    }
}

// ---- start and join

#[test]
fn cores_default_to_one_thread_per_core_and_may_be_unpinned() {
    let cores = Cores::builder().start(|core| core.index()).expect("started");
    let available = thread::available_parallelism().expect("known").get();
    assert_eq!((cores.len(), cores.is_empty()), (available, false));
    assert_eq!((cores.pinned_cores().len(), join_cores(cores).len()), (available, available));
    let cores = Cores::builder().threads(2).pin(false).start(|core| core.pinned_to());
    let cores = cores.expect("started");
    assert_eq!(cores.pinned_cores(), [None; 2]);
    assert_eq!(join_cores(cores), [None; 2]);
}

#[test]
fn join_returns_results_in_index_order() {
    let cores = start_cores(16, |core| {
        // A thread with a lower index sleeps longer, and so returns later.
        thread::sleep(Duration::from_millis(5 * (16 - core.index() as u64)));
        (core.index(), thread::current().id())
    });
    assert_eq!(cores.len(), 16);
    let (order, threads): (Vec<_>, HashSet<_>) = join_cores(cores).into_iter().unzip();
    assert!(order.into_iter().eq(0..16) && threads.len() == 16);
    assert_eq!(
        join_cores(start_cores(0, |core| core.index())),
        [0],
        "zero shards start one thread"
    );
    let none = Cores::builder().start_with(Vec::<()>::new(), |_, ()| ()).expect("no thread");
    assert!(none.is_empty() && join_cores(none).is_empty());
}

#[test]
fn no_thread_runs_before_all_wheels_are_configured() {
    let configured = Counter::default();
    let seen = configured.clone();
    let config = move |index| {
        thread::sleep(Duration::from_millis(3 * index as u64));
        configured.increment();
        Config::new()
    };
    let cores = Cores::builder().threads(6).config(config).start(move |_| seen.get());
    assert_eq!(join_cores(cores.expect("started")), [6; 6]);
}

#[test]
fn each_thread_calls_config_and_has_its_own_wheel() {
    let (clock, made_on) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
    let (shared, written) = (clock.clone(), Arc::clone(&made_on));
    let config = move |index: usize| {
        written.lock().expect("no panic").push((index, thread::current().id()));
        Config::new().tick(TICK * (1 << index)).clock(&shared)
    };
    clock.advance(TICK / 2);
    let all_added = Barrier::new(4);
    let run = move |core: Core| {
        (0..=core.index()).for_each(|_| _ = local_timer().add(TICK / 4, must_not_run));
        all_added.wait();
        assert_eq!(Config::new().install(), Err(ConfigError::ThreadHasWheel));
        let until_next = local_timer().time_until_next();
        (local_timer().len(), until_next, (core.index(), thread::current().id()))
    };
    let cores = Cores::builder().threads(4).config(config).start(run).expect("started");
    let mut made_on_expected = HashSet::new();
    for (index, (len, until_next, ran_on)) in join_cores(cores).into_iter().enumerate() {
        let until = (TICK * (1 << index)).saturating_sub(TICK / 2);
        assert_eq!((len, until_next), (index + 1, Some(until)), "thread {index}");
        made_on_expected.insert(ran_on);
    }
    let made_on: HashSet<_> = made_on.lock().expect("no panic").drain(..).collect();
    assert_eq!(made_on, made_on_expected);
}

/// Tries to start five threads, and returns the error. Asserts that no thread has called `run` and
/// that all have ended.
fn start_error(config: impl Fn(usize) -> Config + Send + Sync + 'static) -> io::Error {
    let ran = Counter::default();
    let run = ran.callback();
    let started = catch_unwind(AssertUnwindSafe(|| {
        Cores::builder().threads(5).config(config).start(move |_| run()).map(drop)
    }));
    assert_eq!((ran.get(), ran.other_refs()), (0, 0));
    started.unwrap_or_else(|panic| resume_unwind(panic)).expect_err("a configuration is invalid")
}

fn config_error(error: &io::Error) -> Option<&ConfigError> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

#[test]
fn no_thread_runs_if_a_configuration_is_invalid_or_panics() {
    for invalid in 0..5 {
        let tick = Duration::from_nanos(999);
        let ticks = move |index| if index == invalid { tick } else { TICK };
        let error = start_error(move |index| Config::new().tick(ticks(index)));
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(config_error(&error), Some(&ConfigError::TickOutOfRange { tick }));
        assert_eq!(error.to_string(), ConfigError::TickOutOfRange { tick }.to_string());
    }
    let error = start_error(|index| {
        if index == 3 {
            local_timer().turn();
        }
        Config::new()
    });
    assert_eq!(config_error(&error), Some(&ConfigError::ThreadHasWheel));
    let panics = |index| if index == 2 { panic!("as planned") } else { Config::new() };
    assert_eq!(panic_message(|| start_error(panics)), "as planned");
    let error = Cores::builder().threads(20_000).start(|_| ()).expect_err("too many");
    assert_eq!(config_error(&error), Some(&ConfigError::TooManyShards));
}

/// `start` continues the panic of one thread, and drops the panics of the others.
#[test]
fn a_panicking_panic_payload_does_not_abort_a_failed_start() {
    let start = || start_error(|_| panic_any(OnDrop(|| panic!("as planned"))));
    let payload = catch_unwind(start).expect_err("each thread panics");
    assert_eq!(panic_message(|| drop(payload)), "as planned");
}

// ---- pinning

#[cfg(target_os = "linux")]
#[test]
fn each_thread_is_pinned_to_the_core_it_reports() {
    let allowed_cores = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("a file of Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("a line of Linux").trim().to_owned()
    };
    let before = allowed_cores();
    let cores = start_cores(6, move |core| (core.pinned_to(), allowed_cores()));
    let pinned = cores.pinned_cores().to_vec();
    assert_eq!(pinned.len(), 6);
    for ((own, allowed_cores), pinned) in join_cores(cores).into_iter().zip(pinned) {
        assert_eq!((own, Some(allowed_cores)), (pinned, pinned.map(|core| core.to_string())));
    }
    assert_eq!(allowed_cores(), before, "the starting thread is not pinned");
}

/// Makes the kernel refuse a system call of this thread and of the threads that it starts. Returns
/// an error if the kernel has no system call filters.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(unsafe_code, reason = "only the kernel can refuse")]
fn refuse(system_call: libc::c_long) -> io::Result<()> {
    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, PR_SET_NO_NEW_PRIVS,
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter,
    };
    let instruction =
        |code, jf, k| sock_filter { code: u16::try_from(code).expect("16 bits"), jt: 0, jf, k };
    let refused = u32::try_from(system_call).expect("a small number");
    let refusal = SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let mut filter = [
        // The number of the system call is the first word of the filter's input.
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, refused),
        instruction(BPF_RET | BPF_K, 0, refusal),
        instruction(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes only numbers, and this thread needs no new privileges.
    let no_new_privs_result = unsafe { libc::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its instructions live through the call, which copies them.
    let filter_result =
        unsafe { libc::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program) };
    if (no_new_privs_result, filter_result) == (0, 0) {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn a_thread_that_cannot_be_pinned_reports_it_and_runs() {
    on_a_thread(|| {
        if let Err(error) = refuse(libc::SYS_sched_setaffinity) {
            println!("skipped: the kernel has no system call filters ({error})");
            return;
        }
        let cores = start_cores(3, |core| {
            local_timer().add(Duration::ZERO, || {});
            local_timer().run_until_empty();
            (core.index(), core.pinned_to())
        });
        assert_eq!(cores.pinned_cores(), [None; 3]);
        assert_eq!(join_cores(cores), [(0, None), (1, None), (2, None)]);
    });
}

#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn a_failed_start_returns_its_error_although_arguments_panic_in_drop() {
    on_a_thread(|| {
        if let Err(error) = refuse(libc::SYS_clone3).and_then(|()| refuse(libc::SYS_clone)) {
            println!("skipped: the kernel has no system call filters ({error})");
            return;
        }
        let args = [(); 2].map(|()| OnDrop(|| panic!("as planned"))).into();
        let started = Cores::builder().start_with(args, |_, _| ()).map(drop);
        let error = started.expect_err("no thread can be started");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    });
}

// ---- stop

#[test]
fn stopped_threads_run_submitted_closures_and_end() {
    for (budget, submitted, rounds) in
        [(usize::MAX, 0, 300), (usize::MAX, 200, 20), (usize::MAX, 5_000, 20), (3, 200, 20)]
    {
        for round in 0..rounds {
            let cores = start_cores(2, move |core| turn_until_stopped(&core, budget));
            let runs = Counter::default();
            if round % 3 > 0 {
                thread::sleep(Duration::from_micros(round));
            }
            for shard in cores.shards().iter().cycle().take(submitted) {
                shard.run(runs.callback());
            }
            cores.stop();
            cores.stop();
            join_cores(cores);
            assert_eq!(runs.get(), submitted);
        }
    }
}

#[test]
fn closures_submitted_by_a_callback_before_its_stop_run() {
    let (cores, runs) = (
        Arc::new(start_cores(2, |core| turn_until_stopped(&core, usize::MAX))),
        Counter::default(),
    );
    let (own, ran) = (Arc::clone(&cores), runs.clone());
    cores.shards()[0].add(TICK, move || {
        (0..3).for_each(|_| _ = own.shards()[0].run(ran.callback()));
        own.stop();
    });
    wait_until("the callback is dropped", || Arc::strong_count(&cores) == 1);
    assert_eq!(join_cores(Arc::into_inner(cores).expect("no other reference")).len(), 2);
    assert_eq!(runs.get(), 3);
}

thread_local! {
    static CORE: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
    static WAS_STOPPING: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The first turn leaves the closure that calls `stop` in the mailbox, so the second turn consumes
/// a message of the stop request before it fires due timers.
#[test]
fn closures_submitted_before_a_stop_behind_a_left_message_run_before_it() {
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let cores = Arc::new(start_cores(1, move |core| {
        let core = Rc::new(core);
        CORE.set(Some(Rc::clone(&core)));
        receiver.lock().expect("one thread").recv().expect("two closures are submitted");
        local_timer().turn_within(1);
        turn_until_stopped(&core, usize::MAX);
        CORE.take();
        WAS_STOPPING.get()
    }));
    let own = Arc::clone(&cores);
    cores.shards()[0].run(|| ());
    cores.shards()[0].run(move || {
        own.shards()[0].run(|| {
            CORE.with_borrow(|core| WAS_STOPPING.set(core.as_ref().map(|core| core.is_stopping())));
        });
        own.stop();
    });
    sender.send(()).expect("the thread waits");
    wait_until("the closure is dropped", || Arc::strong_count(&cores) == 1);
    assert_eq!(join_cores(Arc::into_inner(cores).expect("no other reference")), [Some(false)]);
}

#[test]
fn a_thread_with_a_full_wheel_stops() {
    let cores = Cores::builder().threads(2).config(|_| Config::new().limit(1)).start(|core| {
        local_timer().add(HOUR, must_not_run);
        assert!(local_timer().try_add(TICK, || ()).is_err());
        turn_until_stopped(&core, usize::MAX);
        local_timer().len()
    });
    let cores = cores.expect("started");
    cores.stop();
    assert_eq!(join_cores(cores), [1; 2]);
}

#[test]
fn a_thread_that_drains_its_wheel_before_or_after_the_stop_sees_it() {
    for drains_first in [true, false] {
        let barrier = Arc::new(Barrier::new(2));
        let other = Arc::clone(&barrier);
        let cores = start_cores(1, move |core| {
            if drains_first {
                drop(local_timer().drain());
            }
            other.wait();
            other.wait();
            drop(local_timer().drain());
            core.is_stopping()
        });
        barrier.wait();
        cores.stop();
        barrier.wait();
        assert_eq!(join_cores(cores), [true]);
    }
}

/// The stop request is a timer, so the drain hands it back.
#[test]
fn a_thread_that_keeps_its_drained_timers_sees_the_stop() {
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let cores = start_cores(1, move |core| {
        local_timer().turn();
        let poller = Poller::new();
        let _waiting = poller.poll_pending(Box::pin(core.stopped()));
        receiver.lock().expect("one thread").recv().expect("the stop is requested");
        let pending = local_timer().drain();
        let kept = (pending.len(), core.is_stopping(), poller.wake_count());
        drop(pending);
        (kept, poller.wake_count())
    });
    cores.stop();
    sender.send(()).expect("the thread waits");
    assert_eq!(join_cores(cores), [((1, true, 0), 1)]);
}

#[test]
fn a_stop_wakes_all_futures_that_wait_for_it() {
    let cores = start_cores(1, |core| {
        let [first, second, dropped] = [(); 3].map(|()| Poller::new());
        let mut waits = [Box::pin(core.stopped()), Box::pin(core.stopped())];
        drop(dropped.poll_pending(Box::pin(core.stopped())));
        assert_eq!(dropped.clones(), 0, "the dropped future keeps its waker");
        assert!(first.poll(&mut waits[0]).is_pending() && second.poll(&mut waits[1]).is_pending());
        // Only the waker of the latest poll is called.
        assert!(second.poll(&mut waits[0]).is_pending());
        turn_until_stopped(&core, usize::MAX);
        assert_eq!((first.wake_count(), second.wake_count(), dropped.wake_count()), (0, 2, 0));
        assert!(waits.iter_mut().all(|wait| first.poll(wait).is_ready()));
        block_on(core.stopped());
    });
    cores.stop();
    join_cores(cores);
}

#[test]
fn a_stop_wakes_the_other_futures_although_a_waker_panics() {
    let cores = start_cores(1, |core| {
        let mut waits = [Box::pin(core.stopped()), Box::pin(core.stopped())];
        let other = Poller::new();
        assert!(poll_with(&waker(|| panic!("as planned")), &mut waits[0]).is_pending());
        assert!(other.poll(&mut waits[1]).is_pending());
        turn_until_stopped(&core, usize::MAX);
        (other.wake_count(), local_timer().counts().panicked)
    });
    cores.stop();
    assert_eq!(join_cores(cores), [(1, 1)]);
}

#[test]
fn panics_of_destructors_of_waiting_wakers_are_contained() {
    let cores = start_cores(1, |core| {
        let mut waits = [Box::pin(core.stopped()), Box::pin(core.stopped())];
        for wait in &mut waits {
            let panics = OnDrop(|| panic!("as planned"));
            assert!(poll_with(&waker(move || _ = &panics), wait).is_pending());
        }
        let [changed, dropped] = waits;
        assert!(Poller::new().poll(&mut { changed }).is_pending());
        drop(dropped);
        assert_eq!(local_timer().counts().panicked, 2);
    });
    join_cores(cores);
}

/// A poll after the stop needs no waker.
#[test]
fn a_panicking_drop_of_an_unneeded_waker_is_contained() {
    let cores = start_cores(1, |core| {
        turn_until_stopped(&core, usize::MAX);
        let waker = waker_whose_clones_panic_in_drop();
        assert!(poll_with(&waker, &mut Box::pin(core.stopped())).is_ready());
        local_timer().counts().panicked
    });
    cores.stop();
    assert_eq!(join_cores(cores), [1]);
}

#[test]
fn a_stop_wakes_a_future_although_the_wheel_has_ended() {
    let (sender, receiver) = mpsc::channel();
    let cores = start_cores(1, move |core| {
        drop(local_timer().drain());
        sender.send(()).expect("the test waits");
        block_on(core.stopped());
    });
    receiver.recv().expect("the thread runs");
    cores.stop();
    join_cores(cores);
}

#[test]
fn only_the_first_stop_sends_a_request() {
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    let cores = start_cores(1, move |core| {
        receiver.lock().expect("one thread").recv().expect("`stop` was called");
        core.run_timers();
        local_timer().counts().added
    });
    (0..3).for_each(|_| cores.stop());
    sender.send(()).expect("the thread waits");
    assert_eq!(join_cores(cores), [3]);
}

#[test]
fn run_timers_panics_on_another_thread() {
    let (sender, receiver) = mpsc::channel();
    let cores = start_cores(1, move |core| {
        sender.send(core.clone()).expect("the test waits");
        core.run_timers();
    });
    let core = receiver.recv().expect("the thread runs");
    let message = panic_message(move || core.run_timers());
    assert_eq!(message, "`run_timers` is for this core's own thread");
    cores.stop();
    join_cores(cores);
}

#[test]
fn a_stop_after_the_end_of_a_thread_stops_the_others() {
    let (sender, receiver) = mpsc::channel();
    let cores = start_cores(2, move |core| {
        if core.index() == 0 {
            return sender.send(()).expect("the test waits");
        }
        turn_until_stopped(&core, usize::MAX);
    });
    receiver.recv().expect("the first thread runs");
    cores.stop();
    assert_eq!(join_cores(cores).len(), 2);
}
