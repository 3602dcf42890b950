//! `std` or loom behind one set of names: the only file that knows which of the two is in use.
//!
//! `Arc` and `Mutex` are `std`'s in both worlds: they guard the making and the end of a shard, never the race for a timer.
//!
//! loom takes its flag and this crate's feature `loom`, which only `loom-tests` asks for: a program that checks itself under
//! `--cfg loom` gets an ordinary corewheel. `crossbeam_loom` is the flag under which `crossbeam-epoch` uses loom as well;
//! without it the registry, whose pointers are then not loom's, is an ordinary global.

use std::sync::OnceLock;

#[cfg(not(all(loom, feature = "loom")))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(loom, feature = "loom"))]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A value that is set once and then seen by all threads: a `OnceLock`, whose guarantee is shown to loom by a flag.
#[derive(Debug)]
pub(crate) struct SetOnce<T> {
    value: OnceLock<T>,
    #[cfg(all(loom, feature = "loom"))]
    is_set: loom::sync::atomic::AtomicBool,
}

impl<T> SetOnce<T> {
    pub(crate) fn new() -> Self {
        Self {
            value: OnceLock::new(),
            #[cfg(all(loom, feature = "loom"))]
            is_set: loom::sync::atomic::AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire: what `OnceLock::get` guarantees; pairs with the Release of `get_or_set`.
        #[cfg(all(loom, feature = "loom"))]
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.value.get()
    }

    pub(crate) fn get_or_set(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.value.get_or_init(make);
        // Release: what `OnceLock::get_or_init` guarantees; pairs with the Acquire of `get`.
        #[cfg(all(loom, feature = "loom"))]
        self.is_set.store(true, Ordering::Release);
        value
    }
}

/// A global that is made when it is first used; where epochs are loom's, once per execution of a model.
macro_rules! global {
    (static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(all(crossbeam_loom, feature = "loom")))]
        static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| $value);
        #[cfg(all(crossbeam_loom, feature = "loom"))]
        loom::lazy_static! { static ref $name: $type = $value; }
    };
}

/// A thread's own value, made of a constant: on a real thread its first use costs nothing.
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(all(loom, feature = "loom")))]
        std::thread_local! { $(#[$attribute])* static $name: $type = const { $value }; }
        #[cfg(all(loom, feature = "loom"))]
        loom::thread_local! { $(#[$attribute])* static $name: $type = $value; }
    };
}

pub(crate) use global;
pub(crate) use per_thread;
