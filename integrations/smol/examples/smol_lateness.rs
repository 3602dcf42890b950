//! How late sleeps end in a smol executor: its own timer beside corewheel's, in one run.
//!
//! It prints 50th and 99th percentiles and ends with a verdict: no sleep is early, and each is one
//! timer.
//!
//! ```sh
//! cargo run --release -p corewheel-smol --example smol_lateness
//! ```

#[path = "../../../examples/common/lateness.rs"]
mod lateness;

use std::rc::Rc;

use smol::{LocalExecutor, Timer};

fn main() {
    let tasks = Rc::new(LocalExecutor::new());
    let spawner = Rc::clone(&tasks);
    corewheel_smol::run(&tasks, async {
        let spawn = |task| -> lateness::Task { Box::pin(spawner.spawn(task)) };
        lateness::compare(spawn, |delay| Box::pin(async move { _ = Timer::after(delay).await }))
            .await;
    });
}
