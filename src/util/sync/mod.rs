//! The concurrency primitives of `std` or loom, behind one interface.
//!
//! This module chooses loom under `--cfg loom` with the feature `models`, which only the package in
//! `models/` has. So in a program that tests its own code under `--cfg loom`, corewheel still uses
//! `std`'s primitives.
//!
//! Under `--cfg crossbeam_loom`, `crossbeam-epoch` uses loom too, so the registry of shards
//! contains loom types. Without `crossbeam_loom`, the registry is an ordinary `static`.
//!
//! `Arc` and `Mutex` are `std`'s even under loom, so the models do not interleave their operations.

mod hint;
#[cfg(all(loom, feature = "models"))]
mod loom;
#[cfg(not(all(loom, feature = "models")))]
mod native;
#[cfg(not(all(loom, feature = "models", crossbeam_loom)))]
mod statics;

pub(crate) use self::hint::{AtomicHint, UnmodelledBool, UnmodelledU64};
#[cfg(all(loom, feature = "models"))]
pub(crate) use self::loom::*;
#[cfg(not(all(loom, feature = "models")))]
pub(crate) use self::native::*;
#[cfg(not(all(loom, feature = "models", crossbeam_loom)))]
pub(crate) use self::statics::*;
pub(crate) use crate::limits::IS_LOOM;

/// Locks a mutex, even a poisoned one. No critical section of this crate panics in the middle of a
/// change, so the data is consistent.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
