//! The empty origin, without the feature `origins`.

/// The call that added a timer.
#[derive(Clone, Copy, Debug)]
pub struct Origin;

impl Origin {
    #[inline]
    pub(crate) fn caller() -> Self {
        Self
    }
}

/// The call that added a timer, and the time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added(());

impl Added {
    #[inline]
    pub(crate) fn new(_origin: Origin, _now: impl FnOnce() -> u64) -> Self {
        Self(())
    }

    #[allow(clippy::unused_self, reason = "as the other one")]
    pub(crate) fn at(self, _now: impl FnOnce() -> u64) -> Self {
        self
    }
}
