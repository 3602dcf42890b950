//! Tests of a current-thread tokio runtime that drives its thread's wheel.
#![cfg(any(target_os = "linux", target_os = "android"))]

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{
    cell::{Cell, RefCell},
    future::pending,
    io,
    panic::{self, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};

use corewheel::{Clock, Config, ManualClock, future::sleep, local_timer};
use corewheel_tokio::time;
use runtime::{Task, on_a_thread};
use tokio::{
    runtime::{Builder, Runtime},
    task::{self, LocalSet},
};

#[test]
fn the_runtime_drives_the_wheel() {
    let run = |task: Task<'_>| {
        corewheel_tokio::run(task).expect("a runtime");
        true
    };
    runtime::assert_drives_the_wheel(run, |task| drop(tokio::task::spawn_local(task)));
}

#[test]
fn run_accepts_system_clocks_and_refuses_virtual_time() {
    for clock in [Clock::fast(), Clock::boot_time()] {
        on_a_thread(|| {
            Config::new().clock(clock).install().expect("a fresh thread");
            corewheel_tokio::run(sleep(Duration::from_millis(3))).expect("a runtime");
        });
    }
    on_a_thread(|| {
        Config::new().clock(ManualClock::new()).install().expect("a fresh thread");
        let refused = corewheel_tokio::run(async {}).expect_err("virtual time has no descriptor");
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    });
}

#[test]
fn a_second_driver_does_not_stop_the_first() {
    on_a_thread(|| {
        let slept = corewheel_tokio::run(async {
            let errors = [
                corewheel_tokio::spawn_driver().map(drop).expect_err("`run` drives the wheel"),
                corewheel_tokio::run(async {}).expect_err("`run` drives the wheel"),
            ];
            for error in errors {
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
                assert!(error.to_string().contains("a driver already"), "{error}");
            }
            sleep(Duration::from_millis(5)).await;
        });
        slept.expect("a runtime");
    });
}

#[test]
fn a_thread_with_two_runtimes_has_one_driver() {
    on_a_thread(|| {
        let runtime = Builder::new_current_thread().enable_io().build().expect("a runtime");
        let set = LocalSet::new();
        let sleeps_on_its_own_wheel = || {
            set.block_on(&runtime, async {
                let added = local_timer().counts().added;
                time::sleep(Duration::from_millis(2)).await;
                assert_eq!(local_timer().counts().added, added + 1);
            });
        };
        let driver = set.block_on(&runtime, async { corewheel_tokio::spawn_driver() });
        sleeps_on_its_own_wheel();
        let error = corewheel_tokio::run(async {}).expect_err("the other runtime drives the wheel");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        sleeps_on_its_own_wheel();
        driver.expect("the first driver").abort();
        set.block_on(&runtime, task::yield_now());
        corewheel_tokio::run(time::sleep(Duration::from_millis(2))).expect("the only driver");
    });
}

#[test]
fn a_driver_also_wakes_sleeps_spawned_before_it() {
    on_a_thread(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let task = tokio::task::spawn_local(sleep(Duration::from_millis(5)));
            let _driver = corewheel_tokio::spawn_driver().expect("the first driver");
            task.await.expect("no panic");
        });
    });
}

#[test]
fn destructors_of_unfinished_tasks_use_the_threads_wheel() {
    struct Waits(Arc<AtomicU64>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let mut sleep = time::sleep(Duration::from_secs(1));
            assert!(
                Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending()
            );
            self.0.store(local_timer().counts().added, Relaxed);
        }
    }
    on_a_thread(|| {
        let added = Arc::new(AtomicU64::new(0));
        let waits = Waits(Arc::clone(&added));
        let other_waits = Waits(Arc::clone(&added));
        let run = corewheel_tokio::run(async {
            task::spawn_local(async {
                let _waits = waits;
                pending::<()>().await;
            });
            task::spawn(async {
                let _waits = other_waits;
                pending::<()>().await;
            });
        });
        run.expect("a runtime");
        assert_eq!(added.load(Relaxed), 2);
    });
}

#[test]
fn run_in_turns_the_wheel_before_its_tasks_and_callbacks_may_spawn() {
    let test = || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        corewheel_tokio::run_in(&runtime, async {
            let log = Rc::new(RefCell::new(Vec::new()));
            let (fires, spawned) = (Rc::clone(&log), Rc::clone(&log));
            local_timer().add(Duration::from_millis(1), move || {
                fires.borrow_mut().push("timer");
                task::spawn_local(async move { spawned.borrow_mut().push("task of a callback") });
            });
            thread::sleep(Duration::from_millis(3)); // blocks, as a computation would
            task::yield_now().await;
            log.borrow_mut().push("task");
            tokio::time::sleep(Duration::from_millis(1)).await;
            log.take()
        })
    };
    let log: io::Result<_> = thread::spawn(test).join().expect("no panic");
    assert_eq!(log.expect("a runtime"), ["timer", "task", "task of a callback"]);
}

#[test]
fn a_panic_shows_the_callers_line() {
    thread_local! {
        static WHERE: Cell<Option<(String, u32)>> = const { Cell::new(None) };
    }
    fn runtime() -> Runtime {
        Builder::new_current_thread().build().expect("a runtime without I/O")
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        WHERE.set(info.location().map(|at| (at.file().to_owned(), at.line())));
        before(info);
    }));
    let calls: [(u32, fn()); 3] = [
        (line!(), || runtime().block_on(async { _ = corewheel_tokio::run(async {}) })),
        (line!(), || _ = corewheel_tokio::run_in(&runtime(), async {})),
        (line!(), || _ = corewheel_tokio::spawn_driver()),
    ];
    for (line, misuse) in calls {
        on_a_thread(move || {
            assert!(catch_unwind(misuse).is_err(), "line {line}");
            assert_eq!(WHERE.take(), Some((file!().to_owned(), line)));
        });
    }
}
