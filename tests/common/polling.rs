//! Futures polled by hand, with wakers that count.
#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that counts its calls.
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

    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    /// Number of calls of the waker.
    pub(crate) fn woken(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    /// Number of clones of the waker beside its own.
    pub(crate) fn clones(&self) -> usize {
        Arc::strong_count(&self.wakes) - 2
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which parks while it waits.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
