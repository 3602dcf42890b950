//! The code that added each timer, to find timers that are never cancelled. Without the feature
//! `origins` it is empty and costs nothing.

#[cfg(feature = "origins")]
mod kept;
#[cfg(not(feature = "origins"))]
mod none;

#[cfg(feature = "origins")]
pub(crate) use self::kept::{Added, Origin};
#[cfg(feature = "origins")]
pub use self::kept::{LivePlace, LiveReport};
#[cfg(not(feature = "origins"))]
pub(crate) use self::none::{Added, Origin};
