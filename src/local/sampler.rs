//! Selects the callbacks to measure: one in every `one_in`, or none.

use std::cell::Cell;

/// A counter that selects one in every `one_in` callbacks; zero selects none.
pub(super) struct Sampler {
    one_in: u32,
    /// Callbacks up to the next selected one, inclusive.
    left: Cell<u32>,
}

impl Sampler {
    pub(super) fn new(one_in: u32) -> Self {
        Self { one_in, left: Cell::new(one_in) }
    }

    /// Returns true if this callback is to be measured.
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
