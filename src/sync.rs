//! `std`, loom or shuttle behind one set of names: the only file that knows which of them is in use.
//!
//! `Arc` and `Mutex` are `std`'s in all three: they guard the making and the end of a shard, never the race for a timer. The lock of
//! the default wake-up, which is only ever tried, is loom's as well.
//!
//! loom takes its flag and this crate's feature `loom`, which only `loom-tests` asks for: a program that checks itself under
//! `--cfg loom` gets an ordinary corewheel. `crossbeam_loom` is the flag under which `crossbeam-epoch` uses loom as well;
//! without it the registry, whose pointers are then not loom's, is an ordinary global.
//!
//! shuttle takes the flag and the feature of its name, for `shuttle-tests`. It runs all threads of a test in turn on one real
//! thread: what `std` gives them together (`OnceLock`, epochs) holds for them, for nothing is interrupted but at our atomics.

use std::sync::{Mutex, OnceLock};

#[cfg(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(shuttle, feature = "shuttle"))]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(loom, feature = "loom"))]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(loom, feature = "loom"))]
pub(crate) use loom::cell::UnsafeCell;

#[cfg(not(all(loom, feature = "loom")))]
pub(crate) use std::thread::{Thread, current as this_thread};

#[cfg(all(loom, feature = "loom"))]
pub(crate) use loom::thread::{Thread, current as this_thread};

/// A lock that nobody waits for: a `Mutex`. That it may be taken is shown to loom by a flag; that it orders what is done under it is not:
/// nobody relies on that.
#[derive(Debug)]
pub(crate) struct TryLock<T> {
    value: Mutex<T>,
    #[cfg(all(loom, feature = "loom"))]
    is_taken: AtomicBool,
}

impl<T> TryLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            #[cfg(all(loom, feature = "loom"))]
            is_taken: AtomicBool::new(false),
        }
    }

    /// Has the lock while it acts; `None` if somebody else has it.
    pub(crate) fn try_with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Relaxed: less than what `Mutex::try_lock` guarantees. (Not a swap: a thread that fails must write nothing, or loom lets others read that
        // after the lock has been given back.)
        #[cfg(all(loom, feature = "loom"))]
        if self
            .is_taken
            .compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return None;
        }
        let acted = self.value.try_lock().ok().map(|mut value| act(&mut value));
        // Relaxed: less than what the end of a `MutexGuard` guarantees.
        #[cfg(all(loom, feature = "loom"))]
        self.is_taken.store(false, Ordering::Relaxed);
        acted
    }
}

/// A cell as loom has them: accesses are closures.
#[cfg(not(all(loom, feature = "loom")))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(loom, feature = "loom")))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// A value that is set once and then seen by all threads: a `OnceLock`, whose guarantee is shown to loom by a flag.
#[derive(Debug)]
pub(crate) struct SetOnce<T> {
    value: OnceLock<T>,
    #[cfg(all(loom, feature = "loom"))]
    is_set: AtomicBool,
}

impl<T> SetOnce<T> {
    pub(crate) fn new() -> Self {
        Self {
            value: OnceLock::new(),
            #[cfg(all(loom, feature = "loom"))]
            is_set: AtomicBool::new(false),
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

/// Time does not pass in a model.
pub(crate) const IS_LOOM: bool = cfg!(all(loom, feature = "loom"));

/// All atomics are a model's, which interleaves them.
pub(crate) const IS_MODEL: bool = IS_LOOM || cfg!(all(shuttle, feature = "shuttle"));

/// Lets other threads go first.
pub(crate) fn yield_now() {
    #[cfg(all(loom, feature = "loom"))]
    loom::thread::yield_now();
    #[cfg(not(all(loom, feature = "loom")))]
    std::thread::yield_now();
}

/// `crossbeam-epoch` is made of loom's atomics: what happens to its pointers is part of a model.
pub(crate) const EPOCHS_ARE_LOOMS: bool = cfg!(all(crossbeam_loom, feature = "loom"));

/// Shows loom what a pointer of `crossbeam-epoch` guarantees where loom does not see it: whoever looks after a change sees
/// what came before the change.
///
/// Each call stands directly before the pointer's own operation. loom changes threads only before an operation of its own,
/// so for it the two are one; and its read-modify-writes take the newest value, as the pointer does.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    #[cfg(all(loom, feature = "loom", not(crossbeam_loom)))]
    changes: AtomicU32,
}

#[allow(clippy::unused_self)] // Without loom.
impl Handover {
    #[inline]
    pub(crate) fn change(&self) {
        // Release: what the store of the pointer guarantees; pairs with the Acquire of `look`.
        #[cfg(all(loom, feature = "loom", not(crossbeam_loom)))]
        self.changes.fetch_add(1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn look(&self) {
        // Acquire: what the load of the pointer guarantees; pairs with the Release of `change`.
        #[cfg(all(loom, feature = "loom", not(crossbeam_loom)))]
        self.changes.fetch_add(0, Ordering::Acquire);
    }
}

/// Where loom sees the epochs: that nobody looks at a value any more when an epoch lets go of it.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    #[cfg(all(crossbeam_loom, feature = "loom"))]
    over: AtomicU32,
}

#[allow(clippy::unused_self)] // Without loom.
impl Looks {
    /// A look at the value is over.
    #[inline]
    pub(crate) fn were_allowed(&self) {
        // Relaxed: nothing is ordered by asking. What happens before `are_over` cannot read what that stores.
        #[cfg(all(crossbeam_loom, feature = "loom"))]
        assert_eq!(self.over.load(Ordering::Relaxed), 0, "somebody looked at what was freed");
    }

    /// The value is let go of.
    #[inline]
    pub(crate) fn are_over(&self) {
        // Relaxed: nothing is published by it, see `were_allowed`.
        #[cfg(all(crossbeam_loom, feature = "loom"))]
        self.over.store(1, Ordering::Relaxed);
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

/// A thread's own value that is made when it is first used; where epochs are loom's, of a thread of the model.
macro_rules! lazy_per_thread {
    (static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(all(crossbeam_loom, feature = "loom")))]
        std::thread_local! { static $name: $type = $value; }
        #[cfg(all(crossbeam_loom, feature = "loom"))]
        loom::thread_local! { static $name: $type = $value; }
    };
}

/// A thread's own value, made of a constant: on a real thread its first use costs nothing.
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(any(all(loom, feature = "loom"), all(shuttle, feature = "shuttle"))))]
        std::thread_local! { $(#[$attribute])* static $name: $type = const { $value }; }
        #[cfg(all(loom, feature = "loom"))]
        loom::thread_local! { $(#[$attribute])* static $name: $type = $value; }
        #[cfg(all(shuttle, feature = "shuttle"))]
        shuttle::thread_local! { $(#[$attribute])* static $name: $type = $value; }
    };
}

pub(crate) use global;
pub(crate) use lazy_per_thread;
pub(crate) use per_thread;
