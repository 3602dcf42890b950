//! A monoio runtime that drives its thread's wheel.
#![cfg(unix)]

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use std::time::Duration;

use corewheel::{Config, ManualClock, future::sleep};
use runtime::{Task, on_a_thread};

#[test]
fn the_runtime_drives_the_wheel() {
    let run = |task: Task<'_>| corewheel_monoio::run(task).is_ok();
    runtime::drives_the_wheel(run, |task| drop(monoio::spawn(task)));
}

#[test]
fn timers_in_virtual_time_fire_without_a_descriptor() {
    on_a_thread(|| {
        let clock = ManualClock::new();
        Config::new().clock(&clock).install().expect("a fresh thread");
        let run = corewheel_monoio::run(async move {
            let sleeps = monoio::spawn(sleep(Duration::from_millis(5)));
            monoio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(Duration::from_millis(5));
            sleeps.await;
        });
        run.expect("a runtime");
    });
}

#[test]
fn drive_works_in_legacy_and_io_uring_runtimes() {
    use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};
    async fn sleeps() {
        Config::new().tick(Duration::from_micros(100)).install().expect("a fresh thread");
        monoio::spawn(corewheel_monoio::drive());
        sleep(Duration::from_millis(3)).await;
    }
    on_a_thread(|| {
        let runtime = RuntimeBuilder::<LegacyDriver>::new().enable_timer().build();
        runtime.expect("a runtime").block_on(sleeps());
    });
    on_a_thread(|| match RuntimeBuilder::<IoUringDriver>::new().enable_timer().build() {
        Ok(mut runtime) => runtime.block_on(sleeps()),
        Err(refused) => println!("SKIPPED: the kernel refuses io_uring: {refused}"),
    });
}
