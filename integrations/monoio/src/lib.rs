//! corewheel in monoio: [`run`] creates a runtime that drives its thread's
//! [`local_timer`](corewheel::local_timer). [`drive`] drives it in an existing runtime.
//!
//! ```
//! use corewheel::{Cores, future::sleep};
//! use std::time::Duration;
//!
//! let cores = Cores::builder().shards(2).start(|core| {
//!     corewheel_monoio::run(async move {
//!         monoio::spawn(sleep(Duration::from_millis(5))).await;
//!         core.index()
//!     })
//! })?;
//! for (index, core) in cores.join().into_iter().enumerate() {
//!     assert_eq!(core.unwrap()?, index);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! monoio cannot wait for a foreign descriptor, so the driver sleeps by monoio's own timer, which
//! rounds up to milliseconds.

#![cfg(unix)]

use std::{convert::Infallible, io, time::Duration};

use corewheel::Config;
use monoio::{FusionDriver, RuntimeBuilder, time};

/// The tick of [`run`]. monoio's timer rounds sleeps up to milliseconds. A tick of a millisecond
/// would round each deadline up a second time.
const TICK: Duration = Duration::from_micros(20);

/// Runs `future` on this thread, in a monoio runtime that drives the thread's wheel. Returns the
/// output of the future. Unfinished tasks are then dropped.
///
/// A thread without a wheel gets one with a tick of 20 us. For another tick, install a [`Config`]
/// before. For another configuration of the runtime, create one and spawn [`drive`] on it.
///
/// # Errors
///
/// If the runtime cannot be created.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    // Fails if the thread already has a wheel, which then stays.
    let _ = Config::new().tick(TICK).install();
    let mut runtime = RuntimeBuilder::<FusionDriver>::new().enable_timer().build()?;
    Ok(runtime.block_on(async {
        monoio::spawn(drive());
        future.await
    }))
}

/// Returns a future that drives this thread's wheel and never ends. Spawn it on the thread's
/// runtime, which must have its timer enabled.
///
/// See [`corewheel::future::drive`].
#[track_caller]
pub fn drive() -> impl Future<Output = Infallible> {
    corewheel::future::drive(time::sleep)
}
