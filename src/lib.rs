//! Timers for thread-per-core servers: each thread owns a hierarchical timing wheel and uses it
//! without locks. Any thread cancels or moves a timer through a handle. Every timer ends exactly
//! once.
//!
//! ```
//! use corewheel::{Cancel, local_timer};
//! use std::{thread, time::Duration};
//!
//! // On a core's thread: a callback in 30 seconds.
//! let idle = local_timer().add(Duration::from_secs(30), || println!("silent for 30 s"));
//!
//! // A packet came: the same timer, 30 seconds from now.
//! assert!(idle.reset(Duration::from_secs(30)));
//!
//! // On any other thread: the answer comes at once and is final.
//! let answer = thread::spawn(move || idle.cancel()).join().unwrap();
//! assert_eq!(answer, Cancel::Cancelled);
//!
//! // In the core's loop, between polls:
//! local_timer().turn();
//! ```
//!
//! # Where to begin
//!
//! The [guide] leads from the first timer to a tuned server. It [compares](guide::comparison)
//! corewheel with other timers, and shows how to [move](guide::moving) from tokio, Netty, Java,
//! Kafka and Go. The parts:
//!
//! * [`local_timer`]: the thread's own wheel of callbacks. Most programs need nothing else.
//! * [`TimerHandle`]: cancel, reset and query a timer. [`TimerGuard`] cancels when it is dropped,
//!   and [`LocalHandle`] stays on its thread.
//! * [`When`]: what an add or a reset takes: a delay or an instant, perhaps with slack or spread.
//! * [`ShardRef`]: adds timers to another thread's wheel.
//! * [`Cores`]: one pinned thread per core, each with its wheel.
//! * [`Purgatory`]: operations that complete early when a condition on a key holds, or time out.
//! * [`future`]: async [`sleep`](future::sleep), [`timeout`](future::timeout) and
//!   [`interval`](future::interval) for any executor; [`Timers`](future::Timers) for tasks that
//!   move between threads; [`VirtualTime`](future::VirtualTime) for tests.
//! * [`metrics`]: the counts and the lateness of every shard; [`Watch`](metrics::Watch) reports a
//!   loop that hangs.
//! * [`Config`], [`Clock`], [`ManualClock`]: tick, hooks, and virtual time for tests.
//! * [`Shard`]: the same engine for a loop whose timers are values, not callbacks.
//! * [`Wheel`]: the data structure alone, in ticks.
//!
//! # Driving a wheel
//!
//! A wheel has no thread and never sleeps: the loop that owns it drives it. The loop polls for as
//! long as it may sleep ([`LocalTimer::sleep_with`]), serves its events, and calls
//! [`LocalTimer::turn`], which runs the due callbacks. A thread of nothing but timers calls
//! [`LocalTimer::run_until`]; a task of [`future::drive`] drives the wheel in any executor. A timer
//! fires in the first turn that reaches its deadline, so it is as punctual as the loop.
//!
//! A loop that takes no timeout polls a file descriptor instead: `TimerFd`, with the feature `fd`.
//! The directory `integrations/` of the repository has packages for tokio, compio, smol, monoio,
//! glommio, `io_uring`, hyper, tower and quinn.
//!
//! # Time
//!
//! A deadline is `ceil((now + delay) / tick)`, from a clock reading taken in the call. A turn
//! rounds its own reading down. So no timer is ever early, at any distance, with any tick from a
//! microsecond up. A delay of zero is due at once and fires in the next turn, not in a turn in
//! progress. Deadlines reach 584 years; later ones never fire.
//!
//! Timers fire in tick order, regardless of which thread added them. The order within a tick is
//! unspecified. A turn processes at most 1,024 messages from other threads; later ones are ordered
//! in the next turn. A clock that goes backwards is clamped, and counted.
//!
//! # Guarantees
//!
//! * **Exactly once.** Every timer ends once: fired, cancelled, or handed back or dropped when its
//!   shard ends. The [`Counts`] always add up. [`TimerHandle::cancel`] says at once, on any thread,
//!   whether that call ended the timer.
//! * **No locks.** On a timer's own core, add, cancel, reset and turn take no lock, make no system
//!   call except the clock's, and allocate nothing in the steady state. Callbacks that capture up
//!   to 32 bytes are stored inline. Remote adds, cancels and resets are lock-free. The owner never
//!   waits for another core.
//! * **Nothing is borrowed while your code runs.** Callbacks and destructors may add, cancel,
//!   reset, and even turn. A turn inside a callback does nothing and says so.
//! * **Panics are contained.** A panic is caught and reported ([`Config::on_panic`]), and the rest
//!   of the turn runs. With `panic = "abort"` the process aborts.
//! * **Handles are plain values.** They have 16 bytes and are `Copy`. A stale handle answers
//!   [`Cancel::Ended`] and never reaches another timer.
//!
//! # Forks
//!
//! Each process has its own copy of every timer.
//!
//! * Timers of the thread that forked continue in both processes.
//! * Timers of other threads never fire in the child. Their handles still answer there, for the
//!   child's copy only, and adding to those threads works and fires nothing.
//! * A callback that ran on another thread during the fork counts as running in the child for ever,
//!   so [`cancel_wait`](TimerHandle::cancel_wait) on it never returns.
//! * A wake hook that writes to a descriptor shared with the parent wakes the parent. So does a
//!   `TimerFd`, which is one timer for both processes.
//! * An operation that another thread had begun stays unfinished in the child. A timer that it was
//!   moving never fires, and a timer that it had cancelled may stay live. The memory that it was
//!   reading is never freed, nor any memory that is retired later. If it was unparking the forking
//!   thread, that thread's loop no longer sleeps.
//!
//! A few steps take a lock: making or ending a thread's wheel, the table of remote adds, and
//! handing on retired pages. If the fork stops another thread in one of them, the child may hang in
//! the same step. A child that calls `exec` or `_exit` without using timers of other threads is
//! always safe.
//!
//! # Features
//!
//! * `std`, on by default: everything above. Without it (`default-features = false`) the crate is
//!   [`Wheel`] alone, `no_std` with `alloc` and without dependencies.
//! * `fd`: `LocalTimer::timer_fd`, on Linux. It depends on `rustix`.
//! * `metrics`: `metrics::Exporter`, for the `metrics` facade.
//! * `tracing`: events for caught panics and hanging loops, see [`metrics`].
//! * `origins`: `LocalTimer::live_report`, the code that added the live timers. It costs 16 bytes
//!   and one clock reading per timer.
//!
//! `loom` and `shuttle` are for this project's own models, and not part of the interface.
//!
//! `doc/verification.md` lists the promises with the tests that guard them. `ARCHITECTURE.md`
//! describes how corewheel works.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
// The text above covers the whole crate. Without `std` most of its links have no target.
#![cfg_attr(not(feature = "std"), allow(rustdoc::broken_intra_doc_links))]

#[cfg(all(feature = "std", not(target_has_atomic = "64")))]
compile_error!(
    "corewheel needs 64-bit atomics, which this target lacks. Without the feature `std` there is `Wheel`, which needs none."
);

extern crate alloc;
// The unit tests share modules with the tests in `tests/`, which name the crate.
#[cfg(test)]
extern crate self as corewheel;

#[cfg(feature = "std")]
mod clock;
#[cfg(feature = "std")]
mod config;
#[cfg(feature = "std")]
mod cross_core;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
pub mod future;
#[cfg(feature = "std")]
mod gauges;
#[cfg(all(feature = "std", any(doc, doctest)))]
pub mod guide;
#[cfg_attr(not(feature = "std"), allow(dead_code, reason = "some bound what a shard does"))]
mod limits;
#[cfg(feature = "std")]
mod local;
#[cfg(feature = "std")]
pub mod metrics;
#[cfg(feature = "std")]
mod purgatory;
#[cfg(feature = "std")]
mod shard;
#[cfg(feature = "std")]
mod trace;
mod util;
mod wheel;
#[cfg(feature = "std")]
mod when;

pub use self::wheel::{Due, Key, Wheel};
#[cfg(feature = "std")]
pub use self::{
    clock::{Clock, ManualClock},
    config::Config,
    cross_core::{
        handle::{Cancel, LocalHandle, TimerGuard, TimerHandle, TimerStatus},
        hooks::{PanicPlace, PanicReport},
    },
    error::{AddError, AddErrorReason, ConfigError, InsideCallback},
    gauges::Counts,
    local::{
        LocalTimer, ShardRef, Turn,
        cores::{Core, Cores, CoresBuilder},
        local_timer,
    },
    purgatory::{
        Completion, DelayedOperation, OperationId, Outcome, Purgatory, PurgatoryCounts,
        PurgatoryGroup, WatchKey, local_purgatory,
    },
    shard::{Expired, Expiry, PreparedSleep, Shard},
    when::When,
};
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub use self::{cross_core::descriptor::TimerFdError, local::timer_fd::TimerFd};

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
