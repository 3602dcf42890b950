//! Shared helpers: concurrency primitives, snapshots, prefetching, and tables of pages.

pub(crate) mod pages;
pub(crate) mod prefetch;
#[cfg(feature = "std")]
pub(crate) mod snapshot;
#[cfg(feature = "std")]
pub(crate) mod sync;
