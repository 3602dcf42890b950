//! After a fork, each process has its own copy of every timer. In the child, the timers of threads
//! that the fork did not copy accept requests but never fire. Further tests end a process in a
//! callback, in its destructor, in a hook or in a clock.
#![cfg(all(feature = "cores", target_os = "linux", not(miri)))]
#![allow(unsafe_code, reason = "fork is not safe")]

mod common;

use std::{
    cell::Cell,
    env,
    hint::black_box,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use common::{HOUR, on_a_thread, run_alone};
use corewheel::{
    Cancel, Clock, Config, Core, Cores, Counts, PanicReport, PreparedSleep, ShardRef, TimerHandle,
    local_timer,
};

/// A child returns its failure, because a panic would print, and printing takes locks.
type CheckResult = Result<(), &'static str>;

fn ensure(holds: bool, what: &'static str) -> CheckResult {
    if holds { Ok(()) } else { Err(what) }
}

fn run_in_child_process(child: impl FnOnce() -> CheckResult) {
    // SAFETY: the child touches nothing that a missing thread could have left half-done, except
    // corewheel's data, which is under test. The allocator of glibc works after a fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "the fork failed");
    if pid == 0 {
        // SAFETY: sets the process's alarm, which kills a child that hangs.
        unsafe { libc::alarm(20) };
        let result = catch_unwind(AssertUnwindSafe(child)).unwrap_or(Err("it panicked"));
        if let Err(what) = result {
            // SAFETY: `what` is readable for its length.
            unsafe { libc::write(2, what.as_ptr().cast(), what.len()) };
        }
        // SAFETY: ends the process at once, and with it all borrows.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, 0), "the child failed or hung");
}

/// Runs `test` beside threads that turn their wheels.
fn test_beside_turning_threads(test: impl FnOnce(&[ShardRef]) + Send) {
    // Creating or ending a wheel takes a lock, which must be free during the fork.
    let _alone = run_alone();
    on_a_thread(|| {
        let turn_until_stopped = |core: Core| local_timer().run_until(|| core.is_stopping());
        let other_shards = Cores::builder().threads(3).start(turn_until_stopped).expect("started");
        test(other_shards.shards());
        other_shards.stop();
        assert!(other_shards.join().into_iter().all(|thread| thread.is_ok()));
    });
}

fn check_wheel_of_missing_thread(shard: &ShardRef, handle: TimerHandle) -> CheckResult {
    ensure(handle.is_pending(), "the timer is pending in the child")?;
    ensure(handle.reset(Duration::ZERO) && handle.reset(HOUR), "the timer can be reset")?;
    let new_timer = shard.try_add(Duration::ZERO, || {}).map_err(|_| "the wheel accepts an add")?;
    thread::sleep(Duration::from_millis(5));
    ensure(new_timer.is_pending(), "the added timer stays pending")?;
    ensure(new_timer.cancel_wait() == Ok(Cancel::Cancelled), "the added timer can be cancelled")?;
    ensure(handle.cancel() == Cancel::Cancelled, "the timer can be cancelled")?;
    ensure(!handle.is_pending() && !handle.reset(HOUR), "the cancelled timer has ended")?;
    ensure(handle.cancel_wait() == Ok(Cancel::Ended), "cancel_wait returns Ended")
}

fn check_own_timer(handle: TimerHandle) -> CheckResult {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = || {
        let ran = Arc::clone(&ran);
        move || _ = ran.fetch_add(1, Ordering::Relaxed)
    };
    local_timer().add(Duration::from_millis(2), count());
    let periodic = local_timer().add_periodic(Duration::from_millis(1), count());
    local_timer().run_until(|| ran.load(Ordering::Relaxed) >= 4);
    ensure(periodic.cancel() == Cancel::Cancelled, "new timers run")?;
    ensure(handle.reset(Duration::ZERO) && handle.is_pending(), "old timers can be reset")?;
    local_timer().run_until(|| !handle.is_pending());
    ensure(handle.cancel() == Cancel::Ended, "old timers run")?;
    let Counts { added, live, fired, cancelled, handed_back, .. } = local_timer().counts();
    ensure(added == live + fired + cancelled + handed_back, "the counts add up")
}

fn check_new_wheels() -> CheckResult {
    let own = local_timer().add(HOUR, || {});
    for _ in 0..20 {
        let thread = thread::spawn(|| {
            let (ran, runs) = mpsc::channel();
            let shard = local_timer().shard_ref();
            let add = thread::spawn(move || shard.add(Duration::ZERO, move || _ = ran.send(())));
            local_timer().run_until(|| runs.try_recv().is_ok());
            add.join().is_ok_and(|handle| handle.cancel() == Cancel::Ended)
        });
        ensure(thread.join().is_ok_and(|ran| ran), "a new thread has a wheel")?;
    }
    ensure(own.is_pending(), "the older timer is unaffected")
}

#[test]
fn each_process_has_its_own_copy_of_every_timer() {
    test_beside_turning_threads(|other_shards| {
        let remote_timers: Vec<_> =
            other_shards.iter().map(|shard| shard.add(HOUR, || {})).collect();
        let ran = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ran);
        let own = local_timer().add(HOUR, move || _ = count.fetch_add(1, Ordering::Relaxed));
        run_in_child_process(|| {
            for (shard, &handle) in other_shards.iter().zip(&remote_timers) {
                check_wheel_of_missing_thread(shard, handle)?;
            }
            check_own_timer(own)?;
            ensure(ran.load(Ordering::Relaxed) == 1, "the child's copy ran in the child")?;
            check_new_wheels()
        });
        assert_eq!((ran.load(Ordering::Relaxed), local_timer().len()), (0, 1));
        assert!(own.is_pending() && remote_timers.iter().all(|handle| handle.is_pending()));
        assert!(own.reset(Duration::ZERO));
        local_timer().run_until(|| !own.is_pending());
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert!(remote_timers.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
    });
}

#[test]
fn another_threads_running_callback_never_ends_in_the_child() {
    test_beside_turning_threads(|other_shards| {
        let ((run, runs), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
        let handle = other_shards[1].add(Duration::ZERO, move || {
            run.send(()).expect("the test listens");
            let _ = ended.recv();
        });
        runs.recv().expect("the callback runs");
        run_in_child_process(|| {
            ensure(!handle.is_pending() && !handle.reset(HOUR), "the callback runs")?;
            ensure([(); 3].map(|()| handle.cancel()) == [Cancel::Running; 3], "still running")
        });
        drop(end);
        assert!(handle.cancel_wait().is_ok());
        assert_eq!(handle.cancel(), Cancel::Ended);
    });
}

/// Reads `captured` in another thread while this thread runs the exit handlers of the process.
fn exit_while_a_thread_reads(captured: &[u64]) -> ! {
    static HAS_READ: AtomicUsize = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                // SAFETY: ends the process at once.
                let fail = || unsafe { libc::_exit(3) };
                if !black_box(captured).ends_with(&CLOSURE_CAPTURES) {
                    fail();
                }
                HAS_READ.fetch_add(1, Ordering::Relaxed);
            }
        });
        while HAS_READ.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        process::exit(0)
    })
}

const CLOSURE_CAPTURES: [u64; 3] = [1, 2, 3];

/// A value that is destroyed after the thread's wheel.
struct SlowToEnd;

impl Drop for SlowToEnd {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(100));
    }
}

struct ExitsWhenDropped([u64; 3]);

impl Drop for ExitsWhenDropped {
    fn drop(&mut self) {
        exit_while_a_thread_reads(&self.0);
    }
}

/// Runs `exit` in a child process, which runs only the test `name`. `process::exit` in a callback
/// or its destructor runs the destructors of thread-local values, such as the wheel.
fn assert_exits_with_success(name: &str, exit: impl FnOnce()) {
    const IS_CHILD: &str = "COREWHEEL_TEST_EXITS";
    thread_local! {
        static LAST: SlowToEnd = const { SlowToEnd };
    }
    if env::var_os(IS_CHILD).is_some() {
        LAST.with(|_| ());
        exit();
    }
    let _alone = run_alone();
    let this = env::current_exe().expect("the path of this program");
    let child = Command::new(this).args(["--exact", name]).env(IS_CHILD, "").output();
    let child = child.expect("started");
    let has_run = String::from_utf8_lossy(&child.stdout).contains("running 1 test");
    assert!(has_run && child.status.success(), "{child:?}");
}

#[test]
fn captures_outlive_a_process_that_exits_in_their_callback() {
    assert_exits_with_success("captures_outlive_a_process_that_exits_in_their_callback", || {
        let captured = CLOSURE_CAPTURES;
        let callback = move || exit_while_a_thread_reads(&captured);
        local_timer().add_periodic(Duration::from_millis(1), callback);
        local_timer().run_until(|| false);
    });
}

/// The clock's function breaks its contract: it uses corewheel, and so makes the thread's wheel
/// while `install` makes another one.
#[test]
fn captures_outlive_an_exit_in_a_wheel_that_a_clock_has_made() {
    thread_local!(static IS_FIRST: Cell<bool> = const { Cell::new(true) });
    assert_exits_with_success("captures_outlive_an_exit_in_a_wheel_that_a_clock_has_made", || {
        let elapsed = || {
            if IS_FIRST.replace(false) {
                local_timer().register_driver();
            }
            Duration::ZERO
        };
        let _ = Config::new().clock(Clock::from_fn(Instant::now(), elapsed)).install();
        let captured = CLOSURE_CAPTURES;
        let callback = move || {
            let drained = catch_unwind(|| drop(local_timer().drain()));
            assert!(drained.is_err(), "a drain inside a turn");
            exit_while_a_thread_reads(&captured)
        };
        let handle = local_timer().add_periodic(Duration::from_millis(1), callback);
        assert!(handle.is_pending() && handle.reset(Duration::ZERO));
        local_timer().run_until(|| false);
    });
}

/// The captures are so large that the allocator unmaps them when they are freed.
fn large_captures() -> Vec<u64> {
    [vec![0; 1 << 18], CLOSURE_CAPTURES.to_vec()].concat()
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("as planned");
    }
}

#[test]
fn captures_outlive_a_process_that_exits_in_their_wake_hook() {
    thread_local!(static SLEEP: Cell<Option<PreparedSleep<'static>>> = const { Cell::new(None) });
    assert_exits_with_success("captures_outlive_a_process_that_exits_in_their_wake_hook", || {
        let captured = large_captures();
        let hook = move || exit_while_a_thread_reads(&captured);
        Config::new().wake_hook(hook).install().expect("a new thread");
        SLEEP.set(Some(local_timer().prepare_sleep()));
        local_timer().add(Duration::ZERO, || ());
    });
}

#[test]
fn captures_outlive_a_process_that_exits_in_their_panic_hook() {
    assert_exits_with_success("captures_outlive_a_process_that_exits_in_their_panic_hook", || {
        let captured = large_captures();
        let hook = move |_: &PanicReport<'_>| exit_while_a_thread_reads(&captured);
        Config::new().panic_hook(hook).install().expect("a new thread");
        let panics = PanicsWhenDropped;
        let handle = local_timer().add(HOUR, move || _ = &panics);
        // Because of the queued message, the cancel moves the callback out of its node.
        assert!(on_a_thread(|| handle.reset(HOUR)));
        handle.cancel();
    });
}

#[test]
fn captures_outlive_a_process_that_exits_in_their_clock() {
    assert_exits_with_success("captures_outlive_a_process_that_exits_in_their_clock", || {
        let (captured, clock_calls) = (large_captures(), AtomicUsize::new(0));
        let elapsed = move || {
            if clock_calls.fetch_add(1, Ordering::Relaxed) == 20 {
                exit_while_a_thread_reads(&captured)
            }
            Duration::ZERO
        };
        Config::new().clock(Clock::from_fn(Instant::now(), elapsed)).install().expect("new");
        loop {
            local_timer().turn();
        }
    });
}

#[test]
fn captures_outlive_a_process_that_exits_in_their_destructor() {
    assert_exits_with_success("captures_outlive_a_process_that_exits_in_their_destructor", || {
        let captured = ExitsWhenDropped(CLOSURE_CAPTURES);
        local_timer().add(HOUR, move || _ = &captured).cancel();
    });
}
