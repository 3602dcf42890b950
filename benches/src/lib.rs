//! Compares corewheel with other timers in several [`workloads`]. A peer is one of the compared
//! timers, including corewheel's layers, such as `Shard`. [`plan`] lists the runs, [`run`] does
//! them, and [`report`] shows the results. For the usage, call `cargo run --release -p
//! corewheel-bench --bin compare -- --help`.
//!
//! What makes a comparison fair:
//!
//! * Every run is a new process. In each round the peers run one after another, so that slow
//!   changes of the machine's load affect all of them.
//! * Most loads are generic over [`TimerSet`](timers::TimerSet) and compiled for each peer, with
//!   the same random delays and payloads of 24 bytes.
//! * Where single operations are measured, a peer is filled and warmed up before the timing. A
//!   timer that fires is added again, so the number of live timers is constant.
//! * The settings of a workload share a process; each has its own thread and a new peer.
//! * In workloads of two cores, threads are pinned. In [`workloads::xcancel`] all peers hand over
//!   handles through the same kind of ring. The peers of [`across`] read the clock in each add.
//! * The cost of a timeout is CPU time: of the process in [`workloads::guarded`], of one thread in
//!   [`workloads::packets`]. The CPU time of the same work without timeouts, measured alternately,
//!   is subtracted.
//! * The allocator counts only in runs that measure memory.
//! * The build has no link-time optimization. The compiler inlines the peers of this crate freely.
//!   From corewheel and published peers, the compiler inlines only generic functions, small
//!   functions, and functions marked `#[inline]`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts are small, and figures are rounded"
)]
#![allow(missing_debug_implementations, reason = "these types are never printed")]
#![allow(missing_docs, reason = "only this package's programs and tests use the crate")]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "a failed run has no result"
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
