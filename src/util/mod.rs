//! Shared helpers: concurrency primitives, snapshots, prefetching, tables of pages, and caught
//! panics.

pub(crate) mod pages;
#[cfg(feature = "std")]
pub(crate) mod panics;
pub(crate) mod prefetch;
#[cfg(feature = "std")]
pub(crate) mod snapshot;
#[cfg(feature = "std")]
pub(crate) mod sync;
