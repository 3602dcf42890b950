//! Catches panics of user code.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs user code, such as the panic hook. If the code panics, catches the panic and does not
/// report it.
pub(crate) fn catch_panic_silently(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // If dropping the payload panics, leaks the second panic's payload, because dropping the
        // second payload could panic too.
        catch_unwind(AssertUnwindSafe(|| drop(payload))).unwrap_or_else(mem::forget);
    }
}
