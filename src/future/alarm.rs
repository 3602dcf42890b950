//! What a timer of a future calls: the waker of the last poll.

use std::{ptr, task::Waker};

use crate::local::LocalTimer;

/// A waker in a callback's place. It is called when its timer fires, or when the thread ends that would have fired it: then
/// the future looks and finds out. If the timer is cancelled, it is dropped.
#[derive(Debug)]
pub struct Alarm(Option<Waker>);

impl Alarm {
    /// For the task of `waker`, and what that is called. It may panic, since cloning a waker may.
    pub(super) fn new(waker: &Waker) -> (Self, WakerName) {
        let clone = waker.clone();
        // A clone may have another table, and who polls again does so with the same original. But only what the clone keeps
        // alive is sure to stay what it is.
        let kept = if clone.data() == waker.data() { waker } else { &clone };
        let name = WakerName::of(kept);
        (Self(Some(clone)), name)
    }

    pub(super) fn ring(mut self) {
        self.0.take().into_iter().for_each(Waker::wake);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // Callbacks that are dropped by a thread whose timer has ended were pending when it ended. (Or cancelled and not yet
        // collected: a wake too many.)
        if self.0.is_some() && LocalTimer::has_ended() {
            self.0.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// Tells a waker from others, without owning it. It holds as long as what the waker refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakerName {
    data: usize,
    functions: usize,
}

impl WakerName {
    pub(super) fn of(waker: &Waker) -> Self {
        Self { data: waker.data().addr(), functions: ptr::from_ref(waker.vtable()).addr() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_fits_where_callbacks_are_stored_in_place() {
        assert!(size_of::<Alarm>() <= size_of::<[u64; 4]>());
    }

    #[test]
    fn a_name_is_that_of_the_waker_it_was_made_for_and_of_no_other() {
        let woken = |()| Waker::from(std::sync::Arc::new(Nobody));
        let [one, other] = [(); 2].map(woken);
        let (_alarm, name) = Alarm::new(&one);
        assert_eq!(name, WakerName::of(&one));
        assert_ne!(name, WakerName::of(&other));
    }

    /// Not of size zero: an `Arc` of its own is an address of its own in any case.
    struct Nobody;

    impl std::task::Wake for Nobody {
        fn wake(self: std::sync::Arc<Self>) {}
    }
}
