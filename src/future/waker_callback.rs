//! The callback of a future's timer: the waker of the latest poll.

#![allow(unsafe_code)]

use std::{ptr, task::Waker};

use crate::cross_core::callback::{IntoCallback, RunOnce, VTable};

/// A waker that serves as a timer's callback. The task is woken when the timer fires. If the wheel
/// ends while the timer is pending, the task is woken when the callback is dropped, so that the
/// task notices the end.
#[derive(Debug)]
pub struct WakerCallback(Waker);

impl WakerCallback {
    /// Clones `waker`. Panics if the clone panics.
    #[inline]
    pub(super) fn new(waker: &Waker) -> Self {
        Self(waker.clone())
    }

    /// Returns an identifier for comparison with the wakers of later polls. `original_waker` is the
    /// waker from which this callback was cloned.
    #[inline]
    pub(super) fn id(&self, original_waker: &Waker) -> WakerId {
        // Identifies `original_waker`, which the task's next poll usually passes again. But if the
        // clone has its own data pointer, identifies the clone: the original's data may be freed,
        // and a new waker may get the same address.
        let clone_has_own_data = self.0.data() != original_waker.data();
        WakerId::from_waker(if clone_has_own_data { &self.0 } else { original_waker })
    }
}

impl RunOnce for WakerCallback {
    fn run(self) {
        self.0.wake();
    }
}

/// The vtable of every `WakerCallback`. A static, because its address identifies the type.
static WAKER_CALLBACK_VTABLE: VTable = VTable::one_shot_run_after_wheel_end::<WakerCallback>();

// SAFETY: the inline vtable is for `WakerCallback`. The boxed vtable is not used, because a
// `WakerCallback` fits inline (asserted in `take_inline_closure`).
unsafe impl IntoCallback for WakerCallback {
    type Closure = Self;
    const INLINE_AND_BOXED_VTABLES: [&'static VTable; 2] = [&WAKER_CALLBACK_VTABLE; 2];

    fn into_closure(self) -> Self {
        self
    }
}

/// Identifies a waker without owning it. The identifier is valid while the waker's data lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakerId {
    data_addr: usize,
    vtable_addr: usize,
}

impl WakerId {
    #[inline]
    pub(super) fn from_waker(waker: &Waker) -> Self {
        Self { data_addr: waker.data().addr(), vtable_addr: ptr::from_ref(waker.vtable()).addr() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_waker_id_matches_only_its_waker() {
        let new_waker = |()| Waker::from(std::sync::Arc::new(NoopWake));
        let [one, other] = [(); 2].map(new_waker);
        let waker_id = WakerCallback::new(&one).id(&one);
        assert_eq!(waker_id, WakerId::from_waker(&one));
        assert_ne!(waker_id, WakerId::from_waker(&other));
    }

    struct NoopWake;

    impl std::task::Wake for NoopWake {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
