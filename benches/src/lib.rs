//! corewheel beside its peers.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "figures are read by people")]
#![allow(clippy::cast_possible_truncation, reason = "a run has few timers and ticks")]
#![allow(clippy::missing_panics_doc, reason = "a run that goes wrong has no result")]

pub mod alloc;
pub mod measure;
pub mod peers;
pub mod plan;
pub mod report;
pub mod run;
pub mod timers;
pub mod workloads;
