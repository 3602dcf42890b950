//! A compio runtime that drives its thread's wheel, over io_uring and over a poller.
#![cfg(any(target_os = "linux", target_os = "android"))]

#[allow(clippy::duration_suboptimal_units, reason = "the library builds with an older Rust")]
#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{cell::RefCell, io, rc::Rc, thread, time::Duration};

use compio::{
    driver::{DriverType, ProactorBuilder},
    runtime::{Runtime, RuntimeBuilder},
};
use corewheel::{Config, ManualClock, future::sleep};
use futures::FutureExt;
use runtime::{Task, on_a_thread};

const DRIVERS: [DriverType; 2] = [DriverType::IoUring, DriverType::Poll];

/// Runs `future` with compio's `driver`. Returns `None` if the kernel does not support that driver.
fn run<F: Future>(driver: DriverType, future: F) -> Option<F::Output> {
    let mut proactor = ProactorBuilder::new();
    proactor.driver_type(driver);
    let runtime: io::Result<Runtime> = RuntimeBuilder::new().with_proactor(proactor).build();
    let runtime = match runtime {
        Err(error) if driver.is_iouring() => {
            println!("skipped: the kernel refuses io_uring: {error}");
            return None;
        }
        made => made.expect("a runtime"),
    };
    Some(corewheel_compio::run_in(runtime, future).expect("a descriptor"))
}

#[test]
fn the_runtime_drives_the_wheel() {
    for driver in DRIVERS {
        let run = move |task: Task<'_>| run(driver, task).is_some();
        runtime::drives_the_wheel(run, |task| compio::runtime::spawn(task).detach());
    }
}

#[test]
fn virtual_time_is_refused() {
    let refused = on_a_thread(|| {
        Config::new().clock(ManualClock::new()).install().expect("a fresh thread");
        corewheel_compio::run(async {}).expect_err("virtual time has no descriptor")
    });
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
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
