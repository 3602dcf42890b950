//! Helpers that poll futures by hand, with wakers that count wakes.
#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker},
    thread,
};

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Clone)]
pub(crate) struct Poller {
    wakes: Arc<Wakes>,
    waker: Waker,
}

impl Poller {
    pub(crate) fn new() -> Self {
        let wakes = Arc::new(Wakes::default());
        Self { waker: Waker::from(Arc::clone(&wakes)), wakes }
    }

    pub(crate) fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        self.poll_pinned(Pin::new(future))
    }

    pub(crate) fn poll_pinned<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut self.context())
    }

    /// Polls a future, asserts that it is pending, and returns it.
    pub(crate) fn poll_pending<F: Future + Unpin>(&self, mut future: F) -> F {
        assert!(self.poll(&mut future).is_pending());
        future
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    pub(crate) fn wake_count(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    /// Returns how often the waker was called since the previous call.
    pub(crate) fn take_wake_count(&self) -> usize {
        self.wakes.0.swap(0, Ordering::SeqCst)
    }

    /// Number of clones of the poller's waker.
    pub(crate) fn clones(&self) -> usize {
        Arc::strong_count(&self.wakes) - 2
    }
}

struct OnWake<F>(F);

impl<F: Fn() + Send + Sync> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

pub(crate) fn poll_with<F: Future + Unpin>(waker: &Waker, future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

pub(crate) fn waker(run: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(OnWake(run)))
}

/// Returns a waker that does nothing, except that each clone panics when it is dropped.
pub(crate) fn waker_whose_clones_panic_in_drop() -> Waker {
    const CLONE: RawWakerVTable =
        RawWakerVTable::new(|_| unreachable!(), |_| (), |_| (), |_| panic!("as planned"));
    const ORIGINAL: RawWakerVTable =
        RawWakerVTable::new(|data| RawWaker::new(data, &CLONE), |_| (), |_| (), |_| ());
    // SAFETY: there is no data, and the functions use none.
    #[allow(unsafe_code)]
    unsafe {
        Waker::new(std::ptr::null(), &ORIGINAL)
    }
}

/// Polls a future until it is ready. Parks this thread between polls.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let thread = thread::current();
    let waker = waker(move || thread.unpark());
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
