#![doc = include_str!("index.md")]
//!
//! This module exists in the documentation only.

#[doc = include_str!("first_timer.md")]
pub mod first_timer {}

#[doc = include_str!("ticks.md")]
pub mod ticks {}

#[doc = include_str!("sleeping.md")]
#[cfg_attr(
    all(feature = "fd", any(target_os = "linux", target_os = "android")),
    doc = include_str!("timer_fd.md")
)]
pub mod sleeping {}

#[doc = include_str!("across_cores.md")]
pub mod across_cores {}

#[doc = include_str!("async_code.md")]
pub mod async_code {}

#[doc = include_str!("delayed_operations.md")]
pub mod delayed_operations {}

#[doc = include_str!("shutdown.md")]
pub mod shutdown {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("costs.md")]
pub mod costs {}

#[doc = include_str!("tuning.md")]
pub mod tuning {}

#[doc = include_str!("comparison.md")]
pub mod comparison {}

#[doc = include_str!("moving.md")]
pub mod moving {}
