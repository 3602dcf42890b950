//! Timers for thread-per-core servers: each thread owns a hierarchical timing wheel and uses it
//! without locks. Any thread can cancel or reset a timer through its handle. Every timer ends
//! exactly once.
//!
//! ```
//! use corewheel::{Cancel, local_timer};
//! use std::{thread, time::Duration};
//!
//! // On a core's thread: run a callback in 30 seconds.
//! let idle = local_timer().add(Duration::from_secs(30), || println!("silent for 30 s"));
//!
//! // A packet came: reset the timer to 30 seconds from now.
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
//! The [guide] leads from a first timer to a tuned server. The guide also
//! [compares](guide::comparison) corewheel with other timers, and shows how to
//! [migrate](guide::moving) from tokio, Netty, Java, Kafka and Go. The parts of the crate are:
//!
//! * [`local_timer`]: the thread's own wheel. Most programs need only `local_timer`.
//! * [`TimerHandle`]: cancels, resets and queries a timer. [`TimerGuard`] cancels its timer when
//!   dropped. [`LocalHandle`] works only on the timer's own thread.
//! * [`ReusableTimer`]: keeps its callback and can be armed again after it has fired.
//! * [`When`]: a delay or an instant for an add or a reset. Slack lets timers share ticks; spread
//!   distributes timers over ticks.
//! * [`ShardRef`]: adds timers to another thread's wheel.
//! * [`Cores`]: one thread per core, pinned by default, each with its wheel.
//! * [`purgatory`]: operations that complete when a condition on a key holds, or time out.
//! * [`future`]: async [`sleep`](future::sleep), [`timeout`](future::timeout) and
//!   [`interval`](future::interval) for any executor; [`Timers`](future::Timers) for tasks that
//!   move between threads; [`VirtualTime`](future::VirtualTime) for tests.
//! * [`metrics`]: the counts and the lateness of each thread's timers;
//!   [`Watchdog`](metrics::Watchdog) reports a loop that hangs.
//! * [`Config`]: the tick length, the limits and the hooks of a wheel. [`Clock`]: the source of a
//!   wheel's time, such as [`ManualClock`] in tests.
//! * [`Shard`]: a wheel for a loop whose timers carry values, not callbacks.
//! * [`Wheel`]: the data structure alone. The caller passes the time as a tick number.
//!
//! # Driving a wheel
//!
//! A wheel starts no thread: its owner's loop drives it. The loop polls for events, at most until
//! the next deadline ([`LocalTimer::sleep_with`]), and serves them. Then the loop calls
//! [`LocalTimer::turn`], which runs the due callbacks. A thread that only runs timers calls
//! [`LocalTimer::run_until`]; a task of [`future::drive`] drives the wheel in any executor.
//! Lateness depends on how often the loop calls `turn`.
//!
//! A loop whose poll takes no timeout can poll a file descriptor, a `TimerFd`, instead. The
//! directory `integrations/` of the repository has packages for tokio, compio, smol, monoio,
//! glommio, `io_uring`, hyper, tower and quinn.
//!
//! # Time
//!
//! A delay counts from the time of the add or reset. Deadlines are rounded up to a tick, and a turn
//! rounds its own time down. So a timer can be early only if [`LocalTimer::turn_at`] gets an
//! instant in the future, or if the processor's counter fails under [`Clock::fast`]. Without slack
//! or spread, a timer with a delay of zero fires in the next turn. A timer that a callback adds
//! never fires in the same turn. A timer that is due after more than 584 years (2^64 ns) never
//! fires.
//!
//! Timers fire in tick order, regardless of which thread added them; the guide lists the
//! [exceptions](guide::ticks#never-early). The order within a tick is unspecified. A turn usually
//! consumes at most 1,024 messages from other threads. If a clock goes backwards, the wheel uses
//! the clock's highest reading so far.
//!
//! # Guarantees
//!
//! * **Exactly once.** A timer fires, is cancelled, or is handed back or dropped by its ending
//!   wheel. [`TimerHandle::cancel`] says at once, on any thread, whether this call has ended the
//!   timer.
//! * **No locks.** On a timer's own core, add, cancel, reset and turn take no lock. In the steady
//!   state, an owner's operations allocate nothing, and their only system call reads the clock.
//!   Callbacks that capture up to 32 bytes, aligned to at most 8, are stored inline. Remote cancels
//!   are lock-free. Remote adds and resets take no lock either, but an add may allocate a page. The
//!   owner never waits for another core.
//! * **No wheel or purgatory is borrowed while your code runs.** Callbacks and destructors may add,
//!   cancel and reset timers. Only a clock's function and the `Hash`, `Eq` and `Borrow` of keys
//!   must not. A turn inside a callback does nothing, and sets [`Turn::nested`].
//! * **Panics are contained.** A callback's panic is caught and reported ([`Config::panic_hook`]),
//!   and the rest of the turn runs. With `panic = "abort"` the process aborts.
//! * **Handles are plain values.** A [`TimerHandle`] has 16 bytes and is `Copy`. After the timer's
//!   end, a cancel returns [`Cancel::Ended`] and never affects another timer.
//!
//! After a [fork](guide::shutdown#forks), each process has its own copy of every timer.
//!
//! # Features
//!
//! On by default:
//!
//! * `std`: shards, handles, clocks and the wheels of threads. Depends on `crossbeam-epoch`,
//!   `crossbeam-queue` and, on Linux and Android, `libc`. Without any feature
//!   (`default-features = false`), the crate contains only [`Wheel`], needs `alloc` but not `std`,
//!   and has no dependencies. All other features need `std`.
//! * `cores`: [`Cores`] and `future::Timers::start`. Depends on `core_affinity`.
//! * `futures`: [`future`], which depends on `pin-project-lite`.
//! * `purgatory`: [`purgatory`].
//!
//! Off by default:
//!
//! * `fd`: `LocalTimer::timer_fd`, on Linux and Android. Depends on `rustix`.
//! * `metrics`: `metrics::Exporter`, for the `metrics` facade.
//! * `tracing`: events for caught panics, hanging loops and wheels without a loop; see [`metrics`].
//! * `origins`: `LocalTimer::live_timers_by_call_site`, which lists the call sites that added the
//!   live timers, at the cost of 16 bytes and one clock reading per timer.
//!
//! `doc/verification.md` lists the guarantees and their tests. `ARCHITECTURE.md` describes how
//! corewheel works.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// If a default feature is off, some doc links have no target, and some code is unused.
#![cfg_attr(
    not(all(feature = "std", feature = "cores", feature = "futures", feature = "purgatory")),
    allow(rustdoc::broken_intra_doc_links, dead_code, unused_imports)
)]

#[cfg(all(feature = "std", not(target_has_atomic = "64")))]
compile_error!(
    "corewheel needs 64-bit atomics, which this target lacks. Without the feature `std`, the crate contains only `Wheel`, which needs none."
);

extern crate alloc;
// Unit tests and `tests/` share modules that refer to the crate by name.
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
#[cfg(feature = "futures")]
pub mod future;
#[cfg(feature = "std")]
mod gauges;
#[cfg(all(feature = "cores", feature = "futures", feature = "purgatory", any(doc, doctest)))]
pub mod guide;
mod limits;
#[cfg(feature = "std")]
mod local;
#[cfg(feature = "std")]
pub mod metrics;
#[cfg(feature = "purgatory")]
pub mod purgatory;
#[cfg(feature = "std")]
mod shard;
#[cfg(feature = "std")]
mod trace;
mod util;
mod wheel;
#[cfg(feature = "std")]
mod when;

#[cfg(feature = "cores")]
pub use self::local::cores::{Core, Cores, CoresBuilder};
pub use self::wheel::{DueEntries, Key, Wheel};
#[cfg(feature = "std")]
pub use self::{
    clock::{Clock, ManualClock},
    config::Config,
    cross_core::{
        handle::{Cancel, LocalHandle, TimerGuard, TimerHandle, TimerStatus},
        hooks::{PanicPlace, PanicReport},
    },
    error::{AddError, AddErrorReason, ConfigError, InsideCallbackError},
    gauges::Counts,
    local::{
        LocalTimer, ShardRef, Turn,
        drained_timer::DrainedTimer,
        local_timer,
        reusable_timer::{ReusableTimer, TimerEnd},
    },
    shard::{Expired, Expiry, PreparedSleep, Shard},
    when::When,
};
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub use self::{cross_core::descriptor::TimerFdError, local::timer_fd::TimerFd};

#[cfg(all(doctest, feature = "cores"))]
#[doc = include_str!("../README.md")]
struct Readme;
