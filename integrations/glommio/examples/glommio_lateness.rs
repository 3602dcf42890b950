//! How late sleeps end in a glommio executor: its own timer beside corewheel's, in one run.
//!
//! It prints 50th and 99th percentiles and ends with a verdict: no sleep is early, and each is one
//! timer.
//!
//! ```sh
//! cargo run --release -p corewheel-glommio --example glommio_lateness
//! ```

#[cfg(target_os = "linux")]
#[path = "../../../examples/common/lateness.rs"]
mod lateness;

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    let measured = corewheel_glommio::run(async {
        let spawn = |task| -> lateness::Task { Box::pin(glommio::spawn_local(task)) };
        lateness::compare(spawn, |delay| Box::pin(glommio::timer::sleep(delay))).await;
    });
    match measured {
        Err(error) if corewheel_glommio::is_refusal(&error) => {
            println!("SKIPPED: the kernel refuses io_uring: {error}");
            Ok(())
        }
        measured => measured,
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("SKIPPED: glommio needs Linux");
}
