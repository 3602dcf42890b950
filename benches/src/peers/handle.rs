//! Handles of the peers that were written for the comparison.

/// Names a node. It is stale, and finds nothing, once its generation has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(super) index: u32,
    pub(super) generation: u32,
}
