//! Compares how late sleeps end in a current-thread runtime: tokio's timer against corewheel.
//!
//! ```sh
//! cargo run --release -p corewheel-tokio --example tokio_lateness
//! ```

#[path = "../../../examples/common/lateness.rs"]
mod lateness;

use lateness::LocalTask as Task;

fn main() -> std::io::Result<()> {
    use corewheel::future::sleep;
    use tokio::{runtime, task, time};

    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    corewheel_tokio::run_in(&runtime, async {
        let spawn = |task| -> Task {
            let task = task::spawn_local(task);
            Box::pin(async { task.await.expect("no panic") })
        };
        let own = |delay| -> Task { Box::pin(time::sleep(delay)) };
        lateness::compare("tokio, per core", "1 ms", spawn, own, |delay| Box::pin(sleep(delay)))
            .await;
    })
}
