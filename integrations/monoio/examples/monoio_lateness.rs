//! How late sleeps end in a monoio runtime: its own timer beside corewheel's, in one run.
//!
//! It prints 50th and 99th percentiles and ends with a verdict: no sleep is early, and each is one
//! timer.
//!
//! ```sh
//! cargo run --release -p corewheel-monoio --example monoio_lateness
//! ```

#[cfg(unix)]
#[path = "../../../examples/common/lateness.rs"]
mod lateness;

#[cfg(unix)]
fn main() -> std::io::Result<()> {
    corewheel_monoio::run(async {
        let spawn = |task| -> lateness::Task { Box::pin(monoio::spawn(task)) };
        lateness::compare(spawn, |delay| Box::pin(monoio::time::sleep(delay))).await;
    })
}

#[cfg(not(unix))]
fn main() {
    println!("SKIPPED: monoio needs Unix");
}
