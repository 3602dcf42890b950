//! corewheel in tokio, in both of its shapes. tokio's own timer is not needed.
//!
//! * **A current-thread runtime per core**: [`run`], on Linux, or [`spawn_local`] in a `LocalSet` of yours. The thread's
//!   [`local_timer`](corewheel::local_timer) works as it does everywhere, and its callbacks run between the tasks.
//! * **One multi-thread runtime**: [`Shards`], timers on threads of their own. A task adds to the shard of its worker, and the
//!   callback wakes it.
//! * **A program written for `tokio::time`**: [`time`] has the same names, for both shapes.
//!
//! Callbacks wake tasks by whatever tokio has for that: a `Notify`, a `oneshot`, a waker.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod local;
mod shards;
pub mod time;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use self::local::{run, spawn_local};
pub use self::shards::Shards;
