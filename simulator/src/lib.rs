//! A simulation of corewheel, which `doc/simulation.md` explains.
//!
//! * `plan`: an episode as data, drawn from choices.
//! * `model`: predicts the answer of each call.
//! * `ledger`: counts of dropped payloads, planned panics and wake-ups.
//! * `handover`, `core`: the threads of the cores. Only the thread that has the model runs, so an
//!   episode is deterministic. A callback can also pass the model to another core.
//! * `episode`, `campaign`: one episode; many episodes and the shrinking of a failure.
//! * `coverage`: the operations and faults of a run.

#![allow(clippy::missing_errors_doc, reason = "an error is a failure of the library")]

mod campaign;
mod core;
mod coverage;
mod episode;
mod handover;
mod ledger;
mod model;
mod plan;

pub use self::campaign::{Found, episode, run_drawn_episode, simulate};
pub use self::coverage::Coverage;
pub use self::episode::Failure;
pub use self::plan::Choose;
