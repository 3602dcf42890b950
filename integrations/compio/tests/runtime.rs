//! A compio runtime that drives its thread's timer, over io_uring where the kernel allows it and over a poller.
#![cfg(any(target_os = "linux", target_os = "android"))]

#[allow(clippy::duration_suboptimal_units, reason = "the library builds with an older Rust")]
#[path = "../../../tests/common/wake_ups.rs"]
mod wake_ups;

use std::{
    cell::Cell,
    io,
    rc::Rc,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use compio::{
    driver::{DriverType, ProactorBuilder},
    runtime::{Runtime, RuntimeBuilder},
};
use corewheel::{Config, ManualClock, local_timer};
use futures::{channel::oneshot, future::join_all};

/// As `corewheel_compio::run`, waiting in a way of one's own. `None` if the kernel has no such way.
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

/// On a thread for each way of waiting.
fn each_way(test: fn(DriverType)) {
    for driver in [DriverType::IoUring, DriverType::Poll] {
        thread::spawn(move || test(driver)).join().expect("no panic");
    }
}

/// Sleeps by this thread's timer.
async fn sleep(delay: Duration) {
    let (bell, rung) = oneshot::channel();
    local_timer().add(delay, move || _ = bell.send(()));
    rung.await.expect("it fires");
}

#[test]
fn timers_fire_and_never_early() {
    each_way(|driver| {
        let sleeps = [30, 10, 0, 20].map(Duration::from_millis).map(|delay| async move {
            let begun = Instant::now();
            sleep(delay).await;
            assert!(begun.elapsed() >= delay, "early");
        });
        run(driver, join_all(sleeps));
    });
}

#[test]
fn more_than_a_turn_takes_fires_all_the_same() {
    each_way(|driver| {
        _ = run(driver, async {
            let fired = Rc::new(Cell::new(0));
            for _ in 0..10_000 {
                let fired = Rc::clone(&fired);
                local_timer().add(Duration::from_millis(5), move || fired.set(fired.get() + 1));
            }
            while fired.get() < 10_000 {
                sleep(Duration::from_millis(1)).await;
            }
        });
    });
}

#[test]
fn the_runtime_is_woken_from_other_threads() {
    each_way(|driver| {
        let (sender, shard) = mpsc::channel();
        let (end, over) = oneshot::channel();
        let thread = thread::spawn(move || {
            run(driver, async {
                sender.send(local_timer().shard_ref()).expect("it is waited for");
                over.await.expect("it is ended");
            });
        });
        // A kernel without io_uring has no such runtime.
        let Ok(shard) = shard.recv() else { return };
        wake_ups::none_is_lost(&shard, 1, 2_000);
        end.send(()).expect("it is waited for");
        thread.join().expect("no panic");
    });
}

#[test]
fn virtual_time_is_refused() {
    let refused = thread::spawn(|| {
        Config::new().clock(ManualClock::new()).install().expect("a fresh thread");
        corewheel_compio::run(async {})
    });
    let refused =
        refused.join().expect("no panic").expect_err("the kernel does not know that time");
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}

/// Whether it stays or goes.
#[test]
fn a_second_driver_harms_nobody() {
    each_way(|driver| {
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
