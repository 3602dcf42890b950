//! A simulation of corewheel, which `doc/simulation.md` explains. A seed, or the bytes of a fuzzer,
//! choose the steps. A failure is shrunk to few steps.
//!
//! * `plan`: an episode as data, drawn from choices.
//! * `model`: what must be true. It foresees each answer.
//! * `ledger`: counts of payloads that are dropped and panics that are thrown, on both sides.
//! * `handover`, `core`: each core is a thread, as a remote call takes another path through the
//!   library than the owner's call. The threads hand the model on, and only the thread that has it
//!   runs, so an episode is deterministic. A callback can hand the model on as well.
//! * `episode`, `campaign`: one episode, many episodes, and a failure made small.
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

pub use self::campaign::{Found, drawn, episode, simulate};
pub use self::coverage::Coverage;
pub use self::episode::Failure;
pub use self::model::Bug;
pub use self::plan::Choose;
