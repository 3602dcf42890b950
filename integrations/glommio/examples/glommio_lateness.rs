//! Compares how late sleeps end in glommio: glommio's own timer against corewheel.
//!
//! ```sh
//! cargo run --release -p corewheel-glommio --example glommio_lateness
//! ```

#[path = "../../../examples/common/lateness.rs"]
mod lateness;

use lateness::LocalTask as Task;

fn main() -> std::io::Result<()> {
    use corewheel::future::sleep;
    use glommio::timer;

    let measured = corewheel_glommio::run(async {
        let spawn = |task| -> Task { Box::pin(glommio::spawn_local(task)) };
        let own = |delay| -> Task { Box::pin(timer::sleep(delay)) };
        lateness::compare("glommio", "exact", spawn, own, |delay| Box::pin(sleep(delay))).await;
    });
    match measured {
        Err(error) if corewheel_glommio::is_io_uring_unavailable(&error) => {
            lateness::print_skipped("glommio", &error);
            Ok(())
        }
        measured => measured,
    }
}
