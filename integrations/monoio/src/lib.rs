//! corewheel in monoio: [`run`] makes a runtime whose thread's [`local_timer`](corewheel::local_timer) works as it does
//! everywhere. [`drive`] does the same in a runtime of yours.
//!
//! ```
//! use corewheel::{Config, Cores, future::sleep};
//! use std::time::Duration;
//!
//! let cores = Cores::builder().shards(2).config(|_| corewheel_monoio::hook(Config::new()));
//! let cores = cores.start(|core| {
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
//! monoio has no wait for a foreign descriptor, so the driver sleeps by monoio's own timer: in whole milliseconds, rounded up.

#![cfg(unix)]

use std::{convert::Infallible, io};

use corewheel::Config;
use monoio::{FusionDriver, RuntimeBuilder, time};

/// Runs `future` on this thread, in a monoio runtime that drives the thread's timer. Returns the output of the future. Tasks that
/// are left then are dropped.
///
/// To change the timer, or the runtime, spawn [`drive`] in a runtime of yours.
///
/// # Errors
///
/// If the runtime cannot be made, or the thread has a timer already, without the [`hook`] of this package.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    let driver = drive(Config::new())?;
    let mut runtime = RuntimeBuilder::<FusionDriver>::new().enable_timer().build()?;
    Ok(runtime.block_on(async {
        monoio::spawn(driver);
        future.await
    }))
}

/// Gives `config` a wake hook for monoio. For threads whose timer is made before [`run`] or [`drive`], as in
/// [`Cores`](corewheel::Cores). Call it on the thread itself, and install the result there.
pub fn hook(config: Config) -> Config {
    corewheel_drive::hook(config)
}

/// Returns a future that drives this thread's timer and never ends. Spawn it on the thread's runtime, which has its timer enabled.
///
/// A thread without a timer gets one as `config` says. Later drivers of the thread go on with it.
///
/// # Errors
///
/// If the thread has a timer already, without the [`hook`] of this package, or `config` cannot be used.
pub fn drive(config: Config) -> io::Result<impl Future<Output = Infallible>> {
    corewheel_drive::drive(config, time::sleep)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
