//! Compares how late sleeps end in a multi-thread runtime: tokio's timer against corewheel.
//!
//! ```sh
//! cargo run --release -p corewheel-tokio --example tokio_workers_lateness
//! ```

#[path = "../../../examples/common/lateness.rs"]
mod lateness;

use std::{io, pin::Pin};

use tokio::{runtime, time};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

fn main() -> io::Result<()> {
    let runtime = runtime::Builder::new_multi_thread().enable_time().build()?;
    runtime.block_on(async {
        let spawn = |task| -> Task {
            let task = tokio::spawn(task);
            Box::pin(async { task.await.expect("no panic") })
        };
        let own = |delay| -> Task { Box::pin(time::sleep(delay)) };
        let corewheel = |delay| -> Task { Box::pin(corewheel_tokio::time::sleep(delay)) };
        lateness::compare("tokio, multi-thread", "1 ms", spawn, own, corewheel).await;
        Ok(())
    })
}
