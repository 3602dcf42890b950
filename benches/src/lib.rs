//! corewheel beside its [`peers`] in several [`workloads`]: planned by [`plan`], run by [`run`],
//! shown by [`report`]. `cargo run --release -p corewheel-bench --bin compare -- --help` explains
//! the rest.
//!
//! What makes a comparison fair:
//!
//! * Every run is a fresh process. For each number of timers and each round the peers come one
//!   after the other, so that other load on the machine affects all of them.
//! * The loads are generic over [`Timers`](timers::Timers) and compiled for each peer. All get the
//!   same random numbers and keep their handles in the same kind of table; a payload is 24 bytes,
//!   moved in by adding and out by firing.
//! * A structure is new, filled outside of the timing, and warmed up until its timers have been
//!   replaced twice or the time for that is over. A timer that fires in the warm-up is added anew,
//!   so the number of live timers stays constant.
//! * Slacks and ranges share one process, each with its own thread and a new structure.
//! * In workloads of two cores a thread is pinned to each. Handles go to the other core in the same
//!   ring for all peers ([`workloads::xcancel`]), unless that way is compared
//!   ([`workloads::asked`]). Every peer reads the clock as often ([`across`]).
//! * The cost of a task's timeout ([`workloads::guarded`]) is the CPU time of all threads of the
//!   process. The cost of moving one with each packet ([`workloads::packets`]) is the CPU time of
//!   one thread. The CPU time of the same work without timeouts is subtracted; both take turns.
//! * The allocator counts in the runs about memory only.
//! * Everything is built as a user of the library builds it, without link-time optimisation. The
//!   peers that were written for the comparison are in this crate, so the compiler inlines them
//!   freely. Of corewheel and the published peers it inlines only generic or marked functions.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a run has few timers and ticks, and its figures are read by people"
)]
#![allow(missing_debug_implementations, reason = "nothing is printed that way")]
#![allow(missing_docs, reason = "only this package's programs and tests use the crate")]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "a run that goes wrong has no result"
)]

pub mod across;
pub mod alloc;
pub mod cores;
pub mod measure;
pub mod peers;
pub mod plan;
pub mod report;
pub mod run;
pub mod schemes;
pub mod timers;
pub mod workloads;
