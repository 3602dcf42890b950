//! The concurrency primitives of `std` or loom, behind one interface.
//!
//! Only this module chooses the library. It chooses loom under `--cfg loom` with the feature
//! `models`. Only the package in `models/`, which builds this source for the models, has that
//! feature. So a program that tests itself under `--cfg loom` gets an ordinary corewheel.
//!
//! `crossbeam_loom` is the flag under which `crossbeam-epoch` uses loom too. Without it the
//! registry, whose pointers loom does not see, is an ordinary global.
//!
//! `Arc` and `Mutex` are `std`'s everywhere: they guard the creation and the end of a shard, never
//! the race for a timer. Under loom, `TryLock`, the lock of the default wake-up, has a flag that
//! loom sees.

mod hint;
#[cfg(all(loom, feature = "models"))]
mod loom;
#[cfg(not(all(loom, feature = "models")))]
mod native;

pub(crate) use self::hint::{Hint, UnmodelledFlag};
#[cfg(all(loom, feature = "models"))]
pub(crate) use self::loom::*;
#[cfg(not(all(loom, feature = "models")))]
pub(crate) use self::native::*;
