//! Catches panics of user code.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs user code, such as the panic hook. If the code panics, catches the panic and does not
/// report it.
pub(crate) fn catch_panic_silently(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // If dropping the payload panics, the new panic's payload is leaked, because its drop could
        // panic again.
        catch_unwind(AssertUnwindSafe(|| drop(payload))).unwrap_or_else(mem::forget);
    }
}
