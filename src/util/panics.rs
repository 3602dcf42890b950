//! Catches panics of user code.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs user code, such as the panic hook, and catches its panic without a report.
pub(crate) fn catch_panic_silently(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // If the drop of the payload panics, the payload of this second panic is leaked, because
        // the drop of that payload could panic too.
        catch_unwind(AssertUnwindSafe(|| drop(payload))).unwrap_or_else(mem::forget);
    }
}
