//! The loads, each generic over the peer, and what they measure.
//!
//! Virtual time: a tick is a millisecond, and a load moves it. All peers get the same random numbers.

pub mod asked;
pub mod churn;
pub mod drain;
pub mod flood;
pub mod guarded;
pub mod idle;
pub mod late;
pub mod mailbox;
pub mod memory;
pub mod pause;
pub mod purgatory;
pub mod reset;
pub mod scaling;
pub mod spread;
pub mod steady;
pub mod within;
pub mod xcancel;

use std::thread;

/// A timeout of 30 s in ticks of 1 ms.
pub const TIMEOUT: u64 = 30_000;

/// A million operations a second, on ticks of 1 ms.
pub const OPERATIONS_PER_TICK: usize = 1000;

const SEED: u64 = 1;

/// Runs it in a thread of its own.
pub fn in_thread<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(run).join().expect("a run that does not panic"))
}
