//! Which callbacks are timed: one in so many, or none.

use std::cell::Cell;

/// See the module.
pub(super) struct Sampler {
    one_in: u32,
    /// Until the next one, itself included.
    left: Cell<u32>,
}

impl Sampler {
    pub(super) fn new(one_in: u32) -> Self {
        Self { one_in, left: Cell::new(one_in) }
    }

    /// Whether this callback is.
    #[inline]
    pub(super) fn takes_this(&self) -> bool {
        if self.one_in == 0 {
            return false;
        }
        let left = self.left.get() - 1;
        self.left.set(if left == 0 { self.one_in } else { left });
        left == 0
    }
}
