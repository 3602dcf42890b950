//! A simulation of corewheel: virtual cores that do everything to their timers and to one another's, in virtual time, while
//! clocks go back, jump and stall, callbacks panic, shards and threads end, and floods come. All is drawn from a seed, and held
//! to a model at each step. What fails is shrunk to the few steps that it takes.
//!
//! # How it works
//!
//! * `plan`: an episode is data, some thousand steps of four cores, drawn from a seed.
//! * `conductor`, `core`, `here`: each core is a thread with a timer and two shards, since what another core asks takes another
//!   path through the library than what the owner does. The threads hand the *world* on, and only who has it runs; so it is as
//!   deterministic as one thread. A callback can hand it on in its middle.
//! * `model`: what must be true. It foresees each answer.
//! * `ledger`: what is counted on both sides, payloads that are dropped and panics that are thrown.
//! * `coverage`, `table`: what has been done. `shrink`: making a failure small.
//!
//! The seed of an episode says it all: it is the same again in another process, and after other episodes.

mod asking;
mod bug;
mod campaign;
mod conductor;
mod core;
mod coverage;
mod here;
mod ledger;
mod model;
mod plan;
mod shrink;
mod table;

pub use self::{
    bug::Bug,
    campaign::{Extent, Found, episode, simulate},
    conductor::Failure,
    coverage::Coverage,
};
