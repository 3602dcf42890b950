//! The part of a shard that every thread may touch: the nodes, the mailbox, and how to wake the owner.

use crate::{
    hooks::Hooks,
    limits::DEBT_MAX,
    mailbox::{Mailbox, Push},
    parker::{Announcement, Parker},
    reclaim::Seen,
    slab::Slab,
    state::Cancel,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slab: Slab,
    pub(crate) mailbox: Mailbox,
    pub(crate) parker: Parker,
    pub(crate) hooks: Hooks,
}

/// What a cancel from another thread did.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Remote {
    pub(crate) answer: Cancel,
    /// The caller must call the owner's wake hook, when nothing of ours is borrowed any more.
    pub(crate) wake: bool,
}

impl Shared {
    pub(crate) fn new(hooks: Hooks) -> Self {
        Self { slab: Slab::default(), mailbox: Mailbox::default(), parker: Parker::default(), hooks }
    }

    /// Announces the owner's sleep. `None` if it must not sleep: so much is in the mailbox, or it is being woken right now.
    pub(crate) fn announce_sleep(&self) -> Option<Announcement> {
        let reachable = self.hooks.sleeper_is_this_thread();
        let announcement = self.parker.announce();
        if reachable && self.mailbox.depth() < DEBT_MAX {
            return Some(announcement);
        }
        self.parker.awake(&announcement);
        None
    }
}

/// What a thread that is not the owner may do: pinned, so that no page goes while it looks.
impl Seen<'_, Shared> {
    /// Cancels a timer: one claim, and one push if it was won.
    #[inline]
    pub(crate) fn cancel(&self, index: u32, generation: u64) -> Remote {
        let cancelled = self.slab.with(index, self.pinned(), |node| {
            let answer = node.state.cancel(generation);
            let wake = answer == Cancel::Cancelled
                && match self.mailbox.push(index, &node.link) {
                    // The debt passes this number once per batch; an owner that announces its sleep later looks at it itself.
                    Push::Queued(depth) => depth == DEBT_MAX && self.parker.must_wake(),
                    Push::Closed => false,
                };
            Remote { answer, wake }
        });
        // No page: the timer has ended, and the page with it; or a shard that had this number before had more pages.
        cancelled.unwrap_or(Remote { answer: Cancel::Ended, wake: false })
    }

    pub(crate) fn is_pending(&self, index: u32, generation: u64) -> bool {
        self.slab.with(index, self.pinned(), |node| node.state.is_pending(generation)).unwrap_or(false)
    }
}
