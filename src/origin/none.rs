//! Nobody wants to know.

/// Where a timer was added.
#[derive(Clone, Copy, Debug)]
pub struct Origin;

impl Origin {
    #[inline]
    pub(crate) fn caller() -> Self {
        Self
    }
}

/// Where the timers of a shard were added.
#[derive(Debug)]
pub(crate) struct Origins;

impl Origins {
    pub(crate) const fn new() -> Self {
        Self
    }

    #[allow(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "as the other one")]
    pub(crate) fn reserve(&mut self, _timers: u32) {}

    #[inline]
    #[allow(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "as the other one")]
    pub(crate) fn set(&mut self, _index: u32, _origin: Origin, _now: impl FnOnce() -> u64) {}

    #[inline]
    #[allow(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "as the other one")]
    pub(crate) fn drop_page(&mut self, _page: u32) {}
}
