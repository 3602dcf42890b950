//! Timers for thread-per-core servers: every core owns a hierarchical timing wheel, adding and cancelling on that
//! core takes no lock, any thread cancels through a handle, and every timer ends exactly once.
//!
//! ```
//! use corewheel::{Cancel, local_timer};
//! use std::{thread, time::Duration};
//!
//! // On a core's thread: a callback in 30 seconds, and a handle that any thread may have.
//! let idle = local_timer().add(Duration::from_secs(30), || println!("silent for 30 s"));
//!
//! // A packet came: the same timer, half a minute from now.
//! assert!(idle.reset(Duration::from_secs(30)));
//!
//! // An admin's thread: the answer is there at once, and final.
//! let answer = thread::spawn(move || idle.cancel()).join().unwrap();
//! assert_eq!(answer, Cancel::Cancelled);
//!
//! // The core's loop, between polls:
//! local_timer().turn();
//! ```
//!
//! # Where to begin
//!
//! The [guide] goes from the first timer to a tuned server, [compares](guide::comparison) corewheel with other timers, and shows
//! how to [move](guide::moving) from tokio's, Netty's and others. The parts:
//!
//! * [`local_timer`]: the thread's own timer of callbacks. Most programs need nothing else.
//! * [`TimerHandle`]: cancel, reset, ask; [`TimerGuard`] cancels when it is dropped, [`LocalHandle`] never leaves its thread.
//! * [`ShardRef`]: adds to another thread's timer.
//! * [`Cores`]: one pinned thread per core, each with its timer.
//! * [`Purgatory`]: operations that complete early, when a condition on a key holds, or time out.
//! * [`future`]: async [`sleep`](future::sleep), [`timeout`](future::timeout) and [`interval`](future::interval) for any executor;
//!   [`Timers`](future::Timers) for one that moves tasks between threads; [`VirtualTime`](future::VirtualTime) for tests.
//! * [`metrics`]: what every shard does and how late its timers fire; [`Watch`](metrics::Watch) notices a loop that hangs.
//! * [`Config`], [`Clock`], [`ManualClock`]: tick, hooks, and virtual time for tests.
//! * [`Shard`]: the same engine for a loop whose timers are data, not callbacks.
//! * [`Wheel`]: the data structure alone, in ticks.
//!
//! # Driving a timer
//!
//! A timer has no thread of its own and never sleeps: the loop that owns it drives it. It asks how long it may
//! sleep ([`LocalTimer::prepare_sleep`]), polls, serves its events, and calls [`LocalTimer::turn`], which runs what is due.
//! A timer fires in the first turn that reaches its deadline, so it is as punctual as the loop.
//!
//! A loop that cannot be given a timeout, such as somebody else's, drives it by a file descriptor instead: `TimerFd`, with the feature
//! `fd`. There are packages for io_uring, tokio and compio beside this one, under `integrations/`.
//!
//! # Time
//!
//! A deadline is `ceil((now + delay) / tick)`, from a clock reading taken in the call; a turn's now is rounded down. So no
//! timer is ever early, at any distance and with any tick from a microsecond up. A delay of zero is due at the first tick that is not
//! before now, and fires in a later turn. Deadlines reach 584 years; what is beyond never comes. Timers fire in the order of their
//! ticks, whichever thread has added them, as far as the turn has met what was asked: up to 1 024 messages of those that were there
//! when it began. The order within a tick is unspecified. A clock that goes back is held, and counted.
//!
//! # What is promised
//!
//! * **Exactly once.** Every timer ends once: fired, cancelled, or handed back or dropped when its shard ends; [`Counts`]
//!   always add up. [`TimerHandle::cancel`] says at once whether that call ended it, from any thread.
//! * **No locks.** Adding, cancelling, resetting and turning on a timer's own core takes no lock, makes no system call but
//!   the clock's and allocates nothing in the steady state; callbacks that capture up to 32 bytes are stored in place. A
//!   cancel, a reset and an add from another core are lock-free (except that an adder makes a table under a lock, once per 131 072
//!   timers), and the owner never waits for another core.
//! * **Nothing is borrowed while your code runs.** Callbacks and destructors may add, cancel, reset, even turn
//!   (a turn inside a callback does nothing and says so).
//! * **A panic stays where it happened.** It is caught and reported ([`Config::on_panic`]), and the rest of the turn goes
//!   on. (With `panic = "abort"` it aborts, as everywhere.)
//! * **Handles are plain values.** 16 bytes, `Copy`; a stale one answers [`Cancel::Ended`] and never reaches another timer.
//!
//! # Forks
//!
//! Each process has its own copy of every timer. Those of the thread that forked go on in both. Those of other threads never
//! fire in the child: their handles still answer, cancel and move, in the child's copy only, and adding to them works and fires
//! nothing. A callback that ran on another thread at that moment runs for ever in the child, so
//! [`cancel_wait`](TimerHandle::cancel_wait) on it never returns. A wake hook that writes to a descriptor shared with the parent
//! wakes the parent, and so does a `TimerFd`, which is one timer for both. What another thread is in the middle of at that moment
//! stays so in the child: a timer that it was moving never fires there, one that it had cancelled and not said so yet stays live, and
//! memory that it was looking at, with all that is to be freed later, stays. If it was just unparking the thread that forked, that
//! thread's loop does not sleep any more in the child.
//!
//! Nothing here waits for another thread, but a fork can stop one in the few steps that others do wait for: the making or ending
//! of a thread's timer, the table that the first add from elsewhere makes for a shard, the handing on of pages that nobody looks
//! at any more. If it did, the child may hang in one of the same. A child that ends by `exec` or `_exit` without using timers of
//! other threads is always safe.
//!
//! # Features
//!
//! * `std`, on by default: all of the above. Without it (`default-features = false`) the crate is [`Wheel`] alone, `no_std` with
//!   `alloc`, has no dependencies, and runs wherever there is an allocator.
//!
//! * `fd`: `LocalTimer::timer_fd`, on Linux; `rustix` comes with it.
//! * `metrics`: `metrics::Exporter`, for the facade of that name.
//! * `tracing`: events for what is rare, see [`metrics`].
//! * `origins`: `LocalTimer::live_report`, where in the program the live timers were added; 16 bytes and one clock reading
//!   per timer.
//!
//! `loom` and `shuttle` are for this project's own models, and not part of the interface.
//!
//! `doc/verification.md` lists the promises with the tests that guard them; ARCHITECTURE.md describes how it works.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
// What is said above is said of the whole crate; without `std` most of it has nothing to link to.
#![cfg_attr(not(feature = "std"), allow(rustdoc::broken_intra_doc_links))]

extern crate alloc;
// For the tests that the unit tests share with those in `tests/`.
#[cfg(test)]
extern crate self as corewheel;

#[cfg(feature = "std")]
mod callback;
#[cfg(feature = "std")]
mod clock;
#[cfg(feature = "std")]
mod config;
#[cfg(feature = "std")]
mod cores;
#[cfg(feature = "std")]
mod descriptor;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
pub mod future;
#[cfg(feature = "std")]
mod gate;
#[cfg(feature = "std")]
mod gauges;
#[cfg(all(feature = "std", any(doc, doctest)))]
pub mod guide;
#[cfg(feature = "std")]
mod handle;
#[cfg(feature = "std")]
mod hooks;
#[cfg_attr(not(feature = "std"), allow(dead_code, reason = "some bound what a shard does"))]
mod limits;
#[cfg(feature = "std")]
mod local;
#[cfg(feature = "std")]
mod mailbox;
#[cfg(feature = "std")]
pub mod metrics;
#[cfg(feature = "std")]
mod origin;
mod pages;
#[cfg(feature = "std")]
mod parker;
mod prefetch;
#[cfg(feature = "std")]
mod purgatory;
#[cfg(feature = "std")]
mod reclaim;
#[cfg(feature = "std")]
mod registry;
#[cfg(feature = "std")]
mod schedule;
#[cfg(feature = "std")]
mod shard;
#[cfg(feature = "std")]
mod shared;
#[cfg(feature = "std")]
mod slab;
mod spare;
#[cfg(feature = "std")]
mod state;
#[cfg(feature = "std")]
mod sync;
#[cfg(feature = "std")]
mod tick;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
mod timer_fd;
#[cfg(feature = "std")]
mod trace;
mod wheel;

#[cfg(feature = "std")]
pub use self::{
    clock::{Clock, ManualClock},
    config::Config,
    cores::{Core, Cores, CoresBuilder},
    error::{AddError, AddErrorReason, ConfigError, InsideCallback},
    gauges::Counts,
    handle::{Cancel, LocalHandle, TimerGuard, TimerHandle},
    hooks::{PanicPlace, PanicReport},
    local::{LocalTimer, ShardRef, Turn, local_timer},
    purgatory::{
        Completion, DelayedOperation, OperationId, Outcome, Purgatory, PurgatoryCounts,
        PurgatoryGroup, WatchKey, local_purgatory,
    },
    shard::{Expired, PreparedSleep, Shard},
};

pub use self::wheel::{Due, Key, Wheel};
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
pub use self::{descriptor::timerfd::TimerFdError, timer_fd::TimerFd};

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
