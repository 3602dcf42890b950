//! The counters of a shard. A macro defines each counter both as a public field and as a 64-bit
//! word that the owner publishes.

use std::fmt;

use crate::limits::IS_LOOM;

/// The number of fields that an owner publishes together: all, or two in loom models.
pub(super) const WORD_COUNT: usize =
    if IS_LOOM { 2 } else { size_of::<Counts>() / size_of::<u64>() };

/// Declares [`Counts`] and its conversion to words, in the order of the fields.
macro_rules! counts {
    ($(#[$attribute:meta])* pub struct Counts { $($(#[$doc:meta])* pub $field:ident: u64,)* }) => {
        $(#[$attribute])*
        pub struct Counts { $($(#[$doc])* pub $field: u64,)* }

        impl Counts {
            /// Returns the fields as words; in loom models only the first two fields.
            #[inline]
            pub(crate) fn to_words(self) -> [u64; WORD_COUNT] {
                let words = [$(self.$field),*];
                *words.first_chunk().expect("no word lacks a field")
            }

            /// Converts words to fields. In loom models, sets the fields that have no word to zero.
            pub(crate) fn from_words(words: [u64; WORD_COUNT]) -> Self {
                let mut words = words.into_iter();
                Self { $($field: words.next().unwrap_or(0)),* }
            }
        }
    };
}

counts! {
    /// The counts of a shard's timers, messages and turns. A remote add, reset or cancel usually
    /// queues a *message* for the shard's owner, which consumes it in a turn.
    ///
    /// `added == live + fired + cancelled + handed_back` holds in every reading.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::local_timer;
    /// use std::time::Duration;
    ///
    /// local_timer().add(Duration::from_secs(30), || ());
    /// local_timer().add(Duration::from_secs(30), || ()).cancel();
    /// let counts = local_timer().counts();
    /// assert_eq!((counts.added, counts.live, counts.cancelled), (2, 1, 1));
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Counts {
        /// Timers added. A remote add is counted when the owner consumes its message, when the owner
        /// cancels or resets the timer before that, or at the end of the wheel. Each closure of
        /// [`ShardRef::run`](crate::ShardRef) also counts as a timer, and so do some internal
        /// messages, such as a batch of a [`PurgatoryGroup`](crate::purgatory::PurgatoryGroup).
        pub added: u64,
        /// Timers that were added and have not ended, plus the cancelled timers in `uncollected`. A
        /// periodic timer is live during its runs too.
        pub live: u64,
        /// One-shot timers that fired, and periodic timers that
        /// [`Shard::next_expired`](crate::Shard::next_expired) ended. A run after which a periodic
        /// timer continues counts only in `runs`.
        pub fired: u64,
        /// Timers that were cancelled. A remote cancel is counted when the owner consumes its
        /// message. Includes periodic timers that were cancelled during a run, although
        /// [`cancel`](crate::TimerHandle::cancel) returned `Running`.
        pub cancelled: u64,
        /// The timers in `cancelled` that other threads cancelled, or that the owner of a
        /// [`Shard`](crate::Shard) cancelled by
        /// [`TimerHandle::cancel`](crate::TimerHandle::cancel). In a wheel of `Timers::per_worker`,
        /// counts only cancels that were sent as messages.
        pub remote_cancels: u64,
        /// Timers that were pending when the shard was drained or dropped.
        pub handed_back: u64,
        /// Timers that other threads have cancelled, and that the owner has not unlinked yet. The
        /// owner reads the exact number, and other threads read an approximate number.
        pub uncollected: u64,
        /// Unconsumed messages from other threads about added, reset and cancelled timers. Other
        /// threads may read an inexact number if 3,072 or more messages are queued.
        pub queued: u64,
        /// Resets by the owner.
        pub resets: u64,
        /// Resets by other threads that the owner has processed. Several resets of a timer usually
        /// count as one. A reset of a timer whose add the owner has not counted yet is part of the
        /// add, and does not count.
        pub remote_resets: u64,
        /// Callbacks that were run, and payloads that were handed out. A periodic timer counts once
        /// per run.
        pub runs: u64,
        /// Panics caught in callbacks, destructors, delayed operations, wakers and the wake hook.
        pub panicked: u64,
        /// Clock readings that were earlier than a previous reading.
        pub clock_regressions: u64,
        /// Turns begun.
        pub turns: u64,
        /// Turns that did not finish, usually because a budget was used up or more than 1,024
        /// messages waited. The next turn continues.
        pub turns_behind: u64,
        /// How often a pass moved a timer to another slot of the wheel, because its deadline is
        /// farther than the first level reaches, or because it was reset to a later deadline. If
        /// the owner moves a timer to apply a remote reset, the move counts only in
        /// `remote_resets`.
        pub relinked: u64,
    }
}

/// Shows how many timers were added, and what became of them:
/// `added 5, live 1, fired 3, cancelled 1, handed back 0`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { added, live, fired, cancelled, handed_back, .. } = self;
        write!(
            f,
            "added {added}, live {live}, fired {fired}, cancelled {cancelled}, \
             handed back {handed_back}"
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_round_trip_through_words() {
        let words = std::array::from_fn(|index| index as u64 + 1);
        assert_eq!(Counts::from_words(words).to_words(), words);
    }
}
