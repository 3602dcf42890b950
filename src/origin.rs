//! Where in the program a timer was added, for whoever looks for those that nobody cancels. Without the feature `origins` it is
//! all empty, and costs nothing.

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
