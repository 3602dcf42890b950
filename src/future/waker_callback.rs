//! The callback of a future's timer: the waker of the latest poll.

#![allow(unsafe_code)]

use std::{cell::Cell, ptr, task::Waker};

use crate::{
    cross_core::callback::{IntoCallback, RunOnce, VTable},
    local::ThreadWheel,
};

/// A waker that serves as a timer's callback. The task is woken when the timer fires, and when the
/// wheel ends. The waker of a cancelled timer is dropped without a wake, unless the wheel ends
/// before the drop.
#[derive(Debug)]
pub struct WakerCallback(pub(super) Option<Waker>);

impl WakerCallback {
    /// Clones `waker`. Panics if the clone panics.
    #[inline]
    pub(super) fn new(waker: &Waker) -> Self {
        Self(Some(waker.clone()))
    }

    /// Returns an identifier for comparison with the wakers of later polls. `original_waker` is the
    /// waker from which this callback was cloned.
    #[inline]
    pub(super) fn id(&self, original_waker: &Waker) -> WakerId {
        // Identifies `original_waker`, which the task's next poll usually passes again. But if the
        // clone has its own data pointer, identifies the clone: the original's data may be freed,
        // and a new waker may get the same address.
        let cloned_waker = self.0.as_ref().filter(|clone| clone.data() != original_waker.data());
        WakerId::from_waker(cloned_waker.unwrap_or(original_waker))
    }
}

impl RunOnce for WakerCallback {
    fn run(mut self) {
        self.0.take().into_iter().for_each(Waker::wake);
    }
}

/// The vtable of every `WakerCallback`. A static, because its address identifies the type.
static WAKER_CALLBACK_VTABLE: VTable = VTable::one_shot::<WakerCallback>();

// SAFETY: the inline vtable is for `WakerCallback`. The boxed vtable is not used, because a
// `WakerCallback` fits inline (asserted in `CallbackPtr::take_inline_closure`).
unsafe impl IntoCallback for WakerCallback {
    type Closure = Self;
    const INLINE_AND_BOXED_VTABLES: [&'static VTable; 2] = [&WAKER_CALLBACK_VTABLE; 2];

    fn into_closure(self) -> Self {
        self
    }
}

impl Drop for WakerCallback {
    #[inline]
    fn drop(&mut self) {
        // A wheel that ends drops its callbacks, and each drop wakes the callback's task, so that
        // the task notices the end. For a cancelled timer, this wake is needless but harmless.
        let Some(waker) = self.0.take() else { return };
        // Waking or dropping the waker runs user code. While user code drops other callbacks,
        // `WAKES_ON_DROP` must be `None`, as it is outside `with_wake_on_drop`.
        let scope = WakesOnDropScope::enter(None);
        if scope.previous_value.unwrap_or_else(ThreadWheel::has_ended) {
            waker.wake();
        } else {
            drop(waker);
        }
    }
}

thread_local! {
    /// `Some(true)` if dropping a `WakerCallback` on this thread wakes its task. `None` outside
    /// [`with_wake_on_drop`], where a drop wakes the task only if this thread's wheel has ended.
    static WAKES_ON_DROP: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Calls `action`. During the call, dropping a `WakerCallback` wakes its task only if `wakes_task`
/// is true. For a cancelled or refused timer, `wakes_task` must be false. Otherwise, a poll that
/// drops the timer's callback would wake its own task again and again.
#[inline]
pub(super) fn with_wake_on_drop<R>(wakes_task: bool, action: impl FnOnce() -> R) -> R {
    let _scope = WakesOnDropScope::enter(Some(wakes_task));
    action()
}

/// Sets `WAKES_ON_DROP`, and restores the previous value when this guard is dropped.
struct WakesOnDropScope {
    previous_value: Option<bool>,
}

impl WakesOnDropScope {
    #[inline]
    fn enter(wakes_task: Option<bool>) -> Self {
        Self { previous_value: WAKES_ON_DROP.replace(wakes_task) }
    }
}

impl Drop for WakesOnDropScope {
    #[inline]
    fn drop(&mut self) {
        WAKES_ON_DROP.set(self.previous_value);
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
