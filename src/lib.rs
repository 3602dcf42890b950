//! Timers for thread-per-core servers: every core owns a hierarchical timing wheel, adding and cancelling on the own
//! core takes no lock, any thread cancels through a handle, and every timer ends exactly once.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod arena;
mod callback;
mod clock;
mod config;
mod cores;
mod error;
mod handle;
mod hooks;
mod limits;
mod local;
mod mailbox;
mod paged;
mod parker;
mod reclaim;
mod registry;
mod shard;
mod shared;
mod slab;
mod state;
mod sync;
mod tick;
mod wheel;

pub use self::{
    clock::{Clock, ManualClock},
    config::Config,
    cores::{Core, Cores, CoresBuilder},
    error::{AddError, AddErrorReason, ConfigError},
    handle::{Cancel, LocalHandle, TimerGuard, TimerHandle},
    hooks::{PanicPlace, PanicReport},
    local::{LocalTimer, Turn, local_timer},
    shard::{Counts, Expired, Shard, Sleep},
    wheel::{Key, Wheel},
};
