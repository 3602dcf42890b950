//! The peers, which are other timers, included as source files, because `corewheel-bench` needs a
//! newer Rust and more packages.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::cast_possible_truncation,
    reason = "the sources are shared with a library that uses all of them"
)]

#[path = "../../benches/src/peers/floor.rs"]
mod floor;
#[path = "../../benches/src/peers/heap4.rs"]
mod heap4;
#[path = "../../benches/src/peers/linked64.rs"]
mod linked64;
#[path = "../../benches/src/peers/table.rs"]
mod table;
#[path = "../../benches/src/peers/tokio.rs"]
mod tokio;

pub(crate) use self::{
    floor::Floor,
    heap4::Heap4,
    linked64::Linked64,
    tokio::{DelayQueuePeer, TokioSleep},
};
