//! `std`'s globals and thread locals.

/// Declares a global that is initialized by its first use.
macro_rules! global {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| $value);
    };
}

/// Declares a global that is initialized at compile time.
macro_rules! const_static {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: $type = $value;
    };
}

/// Declares a thread local that is initialized by its first use. All threads of a loom model share
/// the thread local, because loom runs them on one OS thread.
macro_rules! lazy_per_thread {
    (static $name:ident: $type:ty = $value:expr;) => {
        std::thread_local! { static $name: $type = $value; }
    };
}

pub(crate) use {const_static, global, lazy_per_thread};
