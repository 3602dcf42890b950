//! Compares how late sleeps end in smol: smol's own timer against corewheel.
//!
//! ```sh
//! cargo run --release -p corewheel-smol --example smol_lateness
//! ```

#[path = "../../../examples/common/lateness.rs"]
mod lateness;

use std::rc::Rc;

use corewheel::future::sleep;
use lateness::LocalTask as Task;
use smol::{LocalExecutor, Timer};

fn main() {
    let tasks = Rc::new(LocalExecutor::new());
    let spawner = Rc::clone(&tasks);
    corewheel_smol::run(&tasks, async {
        let spawn = |task| -> Task { Box::pin(spawner.spawn(task)) };
        let own = |delay| -> Task { Box::pin(async move { _ = Timer::after(delay).await }) };
        lateness::compare("smol", "exact", spawn, own, |delay| Box::pin(sleep(delay))).await;
    });
}
