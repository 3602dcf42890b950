//! A glommio executor that drives its thread's wheel: it is on time, also runs other tasks, and is
//! woken by other threads.
#![cfg(target_os = "linux")]

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

#[test]
fn the_runtime_drives_the_timer() {
    runtime::drives_the_timer(|task| match corewheel_glommio::run(task) {
        Ok(()) => true,
        Err(refused) if corewheel_glommio::is_refusal(&refused) => {
            println!("SKIPPED: the kernel refuses io_uring: {refused}");
            false
        }
        Err(error) => panic!("no runtime: {error}"),
    });
}
