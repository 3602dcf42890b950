//! A glommio executor that drives its thread's wheel.
#![cfg(target_os = "linux")]

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

use runtime::Task;

#[test]
fn the_runtime_drives_the_wheel() {
    let run = |task: Task<'_>| match corewheel_glommio::run(task) {
        Ok(()) => true,
        Err(refused) if corewheel_glommio::is_io_uring_unavailable(&refused) => {
            println!("SKIPPED: the kernel refuses io_uring: {refused}");
            false
        }
        Err(error) => panic!("no runtime: {error}"),
    };
    runtime::assert_drives_the_wheel(run, |task| _ = glommio::spawn_local(task).detach());
}
