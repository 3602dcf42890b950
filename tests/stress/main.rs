//! More threads than cores, by the real clock.
#![cfg(feature = "std")]

#[path = "../common/mod.rs"]
mod common;

mod future;
mod timers;
