//! corewheel beside its peers.
#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

pub mod measure;
pub mod peers;
pub mod plan;
pub mod report;
pub mod run;
pub mod timers;
pub mod workloads;
