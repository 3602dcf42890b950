//! The parts of a shard that its owner shares with other threads.

pub(crate) mod admission;
pub(crate) mod call_site;
pub(crate) mod callback;
pub(crate) mod descriptor;
pub(crate) mod handle;
pub(crate) mod hooks;
pub(crate) mod mailbox;
pub(crate) mod parker;
pub(crate) mod reclaim;
pub(crate) mod registry;
pub(crate) mod shared;
pub(crate) mod slab;
pub(crate) mod state;
