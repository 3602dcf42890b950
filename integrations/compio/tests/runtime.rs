//! A compio runtime that drives its thread's wheel, over io_uring if the kernel allows it, and over
//! a poller.
#![cfg(any(target_os = "linux", target_os = "android"))]

#[allow(clippy::duration_suboptimal_units, reason = "the library builds with an older Rust")]
#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::{io, time::Duration};

use compio::{
    driver::{DriverType, ProactorBuilder},
    runtime::{Runtime, RuntimeBuilder},
};
use corewheel::{Config, ManualClock, future::sleep};
use runtime::on_a_thread;

const DRIVERS: [DriverType; 2] = [DriverType::IoUring, DriverType::Poll];

/// Runs like `corewheel_compio::run`, with a choice of the driver. Returns `None` if the kernel
/// does not support it.
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
    Some(runtime.block_on(async {
        let _driver = corewheel_compio::spawn().expect("a descriptor");
        future.await
    }))
}

#[test]
fn the_runtime_drives_the_timer() {
    for driver in DRIVERS {
        runtime::drives_the_timer(move |task| run(driver, task).is_some());
    }
}

#[test]
fn virtual_time_is_refused() {
    let refused = on_a_thread(|| {
        Config::new().clock(ManualClock::new()).install().expect("a fresh thread");
        corewheel_compio::run(async {}).expect_err("the kernel does not know that time")
    });
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}

/// This holds whether the second driver stays or is dropped.
#[test]
fn a_second_driver_harms_nobody() {
    for driver in DRIVERS {
        on_a_thread(move || {
            run(driver, async {
                let stays = corewheel_compio::spawn().expect("a driver");
                sleep(Duration::from_millis(5)).await;
                drop(stays);
                sleep(Duration::from_millis(5)).await;
                drop(corewheel_compio::spawn().expect("a driver"));
                sleep(Duration::from_millis(5)).await;
            });
        });
    }
}

#[test]
fn a_task_that_was_spawned_before_the_driver_is_driven() {
    on_a_thread(|| {
        Runtime::new().expect("a runtime").block_on(async {
            let task = compio::runtime::spawn(sleep(Duration::from_millis(5)));
            let _driver = corewheel_compio::spawn().expect("a descriptor");
            task.await.expect("it does not panic");
        });
    });
}
