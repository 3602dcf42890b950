//! Compares how late sleeps end in monoio: monoio's own timer against corewheel.
//!
//! ```sh
//! cargo run --release -p corewheel-monoio --example monoio_lateness
//! ```

#[path = "../../../examples/common/lateness.rs"]
mod lateness;

use lateness::LocalTask as Task;

fn main() -> std::io::Result<()> {
    use corewheel::future::sleep;
    use monoio::time;

    corewheel_monoio::run(async {
        let spawn = |task| -> Task { Box::pin(monoio::spawn(task)) };
        let own = |delay| -> Task { Box::pin(time::sleep(delay)) };
        lateness::compare("monoio", "1 ms", spawn, own, |delay| Box::pin(sleep(delay))).await;
    })
}
