//! What the interface promises, a module per part of it.
//!
//! One program, as it builds in a fraction of the time of many: `cargo test --test api callbacks::`. What wants a process of its own has
//! one, beside this directory: it counts allocations, measures time or memory, forks, takes all there is of something, runs for long, or
//! needs other features.
#![cfg(feature = "std")]
#![allow(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

#[path = "../common/lockstep.rs"]
mod lockstep;
#[path = "../model/mod.rs"]
mod model;
#[path = "../common/polling.rs"]
mod polling;
#[path = "../common/purgatory_stress.rs"]
mod purgatory_stress;
#[path = "../common/runtime.rs"]
mod runtime;

use model::common;
use runtime::wake_ups;

mod callbacks;
mod cancel_wait;
mod clock;
mod cores;
mod driving;
mod end;
mod future;
mod future_model;
mod future_timers;
mod handles;
mod limits;
mod metrics;
mod misuse;
mod passes;
mod purgatory;
mod purgatory_model;
mod shown;
mod slack;
mod sleep;
mod support;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
mod timer_fd;
mod virtual_time;
mod wheel_model;
