//! Simulates corewheel in *episodes*: each is a deterministic run of simulated cores, which are
//! threads with timers. `doc/simulation.md` explains the simulation.
//!
//! * `plan`: the settings and steps of an episode, drawn from a seed or the bytes of a fuzzer.
//! * `model`: predicts the answer of each call.
//! * `ledger`: counts dropped payloads, planned panics and wake-ups.
//! * `handover`, `core`: the threads of the cores. Only the thread that has the model runs, so an
//!   episode is deterministic. A callback can also pass the model to another core.
//! * `episode`: runs one episode.
//! * `campaign`: runs many episodes, and shrinks the steps of one that fails.
//! * `coverage`: counts the operations and faults of a run.

#![allow(clippy::missing_errors_doc, reason = "an error is a failure of the library")]

mod campaign;
mod core;
mod coverage;
mod episode;
mod handover;
mod ledger;
mod model;
mod plan;

pub use self::campaign::{ShrunkFailure, episode, run_drawn_episode, simulate};
pub use self::coverage::Coverage;
pub use self::episode::Failure;
pub use self::plan::Choose;
