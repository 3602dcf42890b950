//! A monoio runtime closes its descriptors. The test counts all descriptors of its process, so it
//! runs alone in the process.
#![cfg(target_os = "linux")]

use std::{fs, thread, time::Duration};

use corewheel::future::sleep;

fn count_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("Linux").count()
}

/// monoio never drops a task that waits for a descriptor.
#[test]
fn a_run_leaks_no_descriptor() {
    let before = count_descriptors();
    for _ in 0..10 {
        let run = || corewheel_monoio::run(sleep(Duration::from_millis(1)));
        thread::spawn(run).join().expect("no panic").expect("a runtime");
    }
    assert_eq!(count_descriptors(), before);
    // After a panic of a task, monoio does not drop the main future either.
    for _ in 0..10 {
        let run = || {
            corewheel_monoio::run(async {
                monoio::spawn(async { panic!("a task, as it should here") }).await;
            })
        };
        thread::spawn(run).join().expect_err("a panic");
    }
    assert_eq!(count_descriptors(), before);
}
