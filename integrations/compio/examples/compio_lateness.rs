//! Compares how late sleeps end in compio: compio's own timer against corewheel.
//!
//! ```sh
//! cargo run --release -p corewheel-compio --example compio_lateness
//! ```

#[path = "../../../examples/common/lateness.rs"]
mod lateness;

use lateness::LocalTask as Task;

fn main() -> std::io::Result<()> {
    use compio::{runtime, time};
    use corewheel::future::sleep;

    corewheel_compio::run(async {
        let spawn = |task| -> Task {
            let task = runtime::spawn(task);
            Box::pin(async { task.await.expect("no panic") })
        };
        let own = |delay| -> Task { Box::pin(time::sleep(delay)) };
        lateness::compare("compio", "exact", spawn, own, |delay| Box::pin(sleep(delay))).await;
    })
}
