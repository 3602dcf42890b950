//! A glommio executor that drives its thread's wheel.
#![cfg(target_os = "linux")]

#[path = "../../../tests/common/runtime.rs"]
mod runtime;

#[test]
fn the_runtime_drives_the_wheel() {
    runtime::drives_the_wheel(|task| match corewheel_glommio::run(task) {
        Ok(()) => true,
        Err(refused) if corewheel_glommio::is_refusal(&refused) => {
            println!("SKIPPED: the kernel refuses io_uring: {refused}");
            false
        }
        Err(error) => panic!("no runtime: {error}"),
    });
}
