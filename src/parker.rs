//! Sleeping and being woken, without ever missing it.
//!
//! The owner announces its sleep and then looks once more whether something is asked of it; whoever asks something
//! that cannot wait does it first and then looks whether the owner sleeps. Between the two steps of each stands a
//! sequentially consistent fence, so at least one of them sees the other (Dekker's argument):
//!
//! ```text
//! owner                             asking thread
//! asleep = true                     the request is in the mailbox
//! ---- fence (F1) ----              ---- fence (F2) ----
//! is there a request?               asleep? then wake
//! ```
//!
//! If F1 comes first in the fences' total order, the asking thread sees `asleep` and wakes; otherwise the owner sees
//! the request and does not sleep. The wake itself must be one that a sleep begun later also notices: `unpark`,
//! a write to an eventfd and a `mio::Waker` all are.
//!
//! # Models
//!
//! `loom-tests/tests/sleep.rs`.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether the owner has announced a sleep.
#[derive(Debug)]
pub(crate) struct Parker {
    asleep: AtomicBool,
}

impl Default for Parker {
    fn default() -> Self {
        Self { asleep: AtomicBool::new(false) }
    }
}

impl Parker {
    /// The owner announces that it is going to sleep; afterwards it must look for requests once more.
    pub(crate) fn announce(&self) {
        // Relaxed: ordered by the fence.
        self.asleep.store(true, Ordering::Relaxed);
        // SeqCst (F1): the announcement comes before the owner's last look.
        fence(Ordering::SeqCst);
    }

    /// The owner is awake again.
    pub(crate) fn awake(&self) {
        // Relaxed: a waker that still sees it asleep wakes it once for nothing.
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Whether a sleep is announced. For the owner.
    pub(crate) fn is_asleep(&self) -> bool {
        // Relaxed: the owner's own store, or a waker's that has ended the sleep.
        self.asleep.load(Ordering::Relaxed)
    }

    /// For a thread whose request is in place: whether it must wake the owner. One of several is told so.
    pub(crate) fn must_wake(&self) -> bool {
        // SeqCst (F2): the request comes before this look.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence; the swap only picks one waker.
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }
}
