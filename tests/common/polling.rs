//! Polling by hand, with wakers that count.
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

/// How often a waker was called.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Who polls: a waker, and how often it was called.
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

    /// How often it was woken so far.
    pub(crate) fn woken(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    /// How many clones of its waker there are beside its own.
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

/// Runs a future on this thread, which sleeps while it waits.
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
