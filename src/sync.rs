//! The primitives of concurrency under one set of names: `std`'s, shuttle's or loom's.
//!
//! This is the only module that knows which of them is in use. loom takes its flag and this crate's feature `loom`, which
//! only `loom-tests` enables: a program that checks itself under `--cfg loom` gets an ordinary corewheel. shuttle works
//! alike. `crossbeam_loom` is the flag under which `crossbeam-epoch` uses loom too; without it the registry, whose pointers
//! loom does not see, is an ordinary global.
//!
//! `Arc` and `Mutex` are `std`'s everywhere: they guard the creation and the end of a shard, never the race for a timer.
//! The lock of the default wake-up, which is only ever tried, is loom's under loom.

mod hint;
#[cfg(all(loom, feature = "loom"))]
mod loom;
#[cfg(not(all(loom, feature = "loom")))]
mod native;

pub(crate) use self::hint::{Hint, Unseen};
#[cfg(all(loom, feature = "loom"))]
pub(crate) use self::loom::*;
#[cfg(not(all(loom, feature = "loom")))]
pub(crate) use self::native::*;
