//! A compio runtime that drives its thread's wheel, over io_uring and over a poller.
#![cfg(any(target_os = "linux", target_os = "android"))]

#[allow(clippy::duration_suboptimal_units, reason = "the library builds with an older Rust")]
#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{
    cell::RefCell,
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    process::Command,
    rc::Rc,
    thread,
    time::Duration,
};

use compio::{
    driver::{DriverType, ProactorBuilder},
    runtime::{Runtime, RuntimeBuilder},
};
use corewheel::{Config, ManualClock, future::sleep, local_timer};
use futures::FutureExt;
use runtime::{Task, on_a_thread};

const DRIVERS: [DriverType; 2] = [DriverType::IoUring, DriverType::Poll];

/// Creates a runtime with compio's `driver`. Returns `None` if the kernel does not support that
/// driver.
fn new_runtime(driver: DriverType) -> Option<Runtime> {
    let mut proactor = ProactorBuilder::new();
    proactor.driver_type(driver);
    let runtime: io::Result<Runtime> = RuntimeBuilder::new().with_proactor(proactor).build();
    match runtime {
        Err(error) if driver.is_iouring() => {
            println!("skipped: the kernel refuses io_uring: {error}");
            None
        }
        made => Some(made.expect("a runtime")),
    }
}

fn run<F: Future>(driver: DriverType, future: F) -> Option<F::Output> {
    Some(corewheel_compio::run_in(new_runtime(driver)?, future).expect("a descriptor"))
}

#[test]
fn the_runtime_drives_the_wheel() {
    for driver in DRIVERS {
        let run = move |task: Task<'_>| run(driver, task).is_some();
        runtime::assert_drives_the_wheel(run, |task| compio::runtime::spawn(task).detach());
    }
}

/// Asks cargo, because the development dependencies enable drivers too.
#[test]
fn the_default_features_enable_a_driver() {
    let cargo = Command::new(env!("CARGO"))
        .args(["tree", "--edges", "normal", "--format", "{p} {f}", "--locked", "--offline"])
        .output()
        .expect("cargo runs");
    let tree = String::from_utf8_lossy(&cargo.stdout);
    let driver = tree.lines().find(|line| line.contains("compio-driver "));
    assert!(driver.is_some_and(|line| line.contains("io-uring")), "{cargo:?}");
}

#[test]
fn virtual_time_is_refused() {
    let refused = on_a_thread(|| {
        Config::new().clock(ManualClock::new()).install().expect("a fresh thread");
        corewheel_compio::run(async {}).expect_err("virtual time has no descriptor")
    });
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}

/// Replaces the wheel's descriptor by the poller, which refuses it, because a poller cannot wait
/// for itself.
#[test]
#[allow(unsafe_code)]
fn a_driver_that_fails_ends_the_run() {
    let failed = on_a_thread(|| {
        let future = async {
            let timer = local_timer().timer_fd().expect("a descriptor").as_raw_fd();
            // SAFETY: the wheel's driver keeps the descriptor open, and `ManuallyDrop` never closes
            // it.
            let mut timer = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(timer) });
            let poller = Runtime::current().as_raw_fd();
            // SAFETY: the runtime keeps the descriptor open.
            let poller = unsafe { BorrowedFd::borrow_raw(poller) };
            rustix::io::dup2(poller, &mut timer).expect("two open descriptors");
            compio::time::sleep(Duration::from_secs(1)).await;
        };
        let runtime = new_runtime(DriverType::Poll).expect("every kernel has a poller");
        corewheel_compio::run_in(runtime, future).expect_err("no timer can fire")
    });
    assert_eq!(failed.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_second_driver_does_not_stop_the_first() {
    for driver in DRIVERS {
        on_a_thread(move || {
            run(driver, async {
                sleep(Duration::from_millis(5)).await;
                drop(corewheel_compio::spawn_driver().expect("a driver"));
                sleep(Duration::from_millis(5)).await;
            });
        });
    }
}

#[test]
fn a_driver_also_wakes_sleeps_spawned_before_it() {
    on_a_thread(|| {
        Runtime::new().expect("a runtime").block_on(async {
            let task = compio::runtime::spawn(sleep(Duration::from_millis(5)));
            let _driver = corewheel_compio::spawn_driver().expect("a descriptor");
            task.await.expect("no panic");
        });
    });
}

#[test]
fn a_timer_fires_before_the_runtime_wakes_more_tasks() {
    for driver in DRIVERS {
        on_a_thread(move || {
            let ended = Rc::new(RefCell::new(Vec::new()));
            run(driver, async {
                let note = |name| {
                    let ended = Rc::clone(&ended);
                    move |()| ended.borrow_mut().push(name)
                };
                let theirs = compio::time::sleep(Duration::from_millis(1)).map(note("theirs"));
                let theirs = compio::runtime::spawn(theirs);
                let ours =
                    compio::runtime::spawn(sleep(Duration::from_millis(1)).map(note("ours")));
                let _busy = compio::runtime::spawn(async {
                    thread::sleep(Duration::from_millis(5));
                });
                ours.await.expect("no panic");
                theirs.await.expect("no panic");
            });
            assert!(["", "ours theirs"].contains(&&*ended.borrow().join(" ")), "{ended:?}");
        });
    }
}
