#![doc = include_str!("guide/index.md")]
//!
//! This module exists in the documentation only.

#[doc = include_str!("guide/first_timer.md")]
pub mod first_timer {}

#[doc = include_str!("guide/ticks.md")]
pub mod ticks {}

#[doc = include_str!("guide/sleeping.md")]
#[cfg_attr(
    all(feature = "fd", any(target_os = "linux", target_os = "android")),
    doc = include_str!("guide/timer_fd.md")
)]
pub mod sleeping {}

#[doc = include_str!("guide/across_cores.md")]
pub mod across_cores {}

#[doc = include_str!("guide/async_code.md")]
pub mod async_code {}

#[doc = include_str!("guide/delayed_operations.md")]
pub mod delayed_operations {}

#[doc = include_str!("guide/shutdown.md")]
pub mod shutdown {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/costs.md")]
pub mod costs {}

#[doc = include_str!("guide/tuning.md")]
pub mod tuning {}

#[doc = include_str!("guide/comparison.md")]
pub mod comparison {}

#[doc = include_str!("guide/moving.md")]
pub mod moving {}
