//! Tests of the public interface. All modules share one binary, which builds faster than many.
//! To run one module: `cargo test --test api callbacks::`. Tests that need their own process or
//! other features are in the parent directory.
#![cfg(all(feature = "cores", feature = "futures", feature = "purgatory"))]
#![allow(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

#[path = "../common/implements.rs"]
mod implements;
#[path = "../common/lockstep.rs"]
mod lockstep;
#[path = "../model/mod.rs"]
mod model;
#[path = "../common/operation.rs"]
mod operation;
#[path = "../common/polling.rs"]
mod polling;
#[path = "../common/runtime.rs"]
mod runtime;
#[path = "../common/support.rs"]
mod support;

use model::common;
use runtime::wake_ups;

mod across_cores;
mod callbacks;
mod cancel_wait;
mod clock;
mod contents;
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
mod periodic;
mod purgatory;
mod purgatory_kafka;
mod purgatory_model;
mod reusable_timer;
mod shown;
mod sleep;
#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
mod timer_fd;
mod virtual_time;
mod wheel_model;
mod when;
mod worker_timers;
