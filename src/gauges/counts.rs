//! What a shard counts, as its users see it and as it is told to other threads.

use crate::limits::COUNTED;

/// The words of [`Counts`] that the owner tells.
pub(crate) const WORDS: usize = COUNTED;

/// What has become of a shard's timers since it was made.
///
/// At every moment its owner can observe, and in every reading by another thread, `added == live + fired + cancelled +
/// handed_back`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Timers added. (What corewheel itself sends another core is one that is due at once: a letter of a
    /// [`PurgatoryGroup`](crate::PurgatoryGroup), and [`Cores::stop`](crate::Cores::stop). They are counted here and as fired.)
    pub added: u64,
    /// Timers that fired and so ended.
    pub fired: u64,
    /// Timers that were cancelled, on this core or (once the owner has seen it) from elsewhere. A periodic timer
    /// ends only so, or with its shard.
    pub cancelled: u64,
    /// Of these, those that other cores have cancelled.
    pub cancelled_elsewhere: u64,
    /// Timers handed back when the shard was drained.
    pub handed_back: u64,
    /// Timers that have not ended; a periodic one is live through its runs.
    pub live: u64,
    /// Of the live ones, those that another core has cancelled and the owner has not taken in yet. Exact for the owner, but for timers
    /// that a third thread is moving at that moment; other threads are told of at most 48.
    pub held: u64,
    /// Messages from other cores that the owner has not taken in: timers cancelled, moved, and added. Exact for the owner, and up to 3 072
    /// for other threads; of a flood they are told that it is at least so many, until its last one is taken in.
    pub queued: u64,
    /// Resets on this core.
    pub resets: u64,
    /// Resets from other cores, as the owner met them: of a timer that was reset several times in between, one.
    pub resets_elsewhere: u64,
    /// Callbacks run and payloads handed out: one for each timer that fired, and each run of a periodic one.
    pub runs: u64,
    /// Panics caught in callbacks, destructors, delayed operations and the wake hook.
    pub panicked: u64,
    /// Readings of the clock that were earlier than one before.
    pub clock_regressions: u64,
    /// Turns begun.
    pub turns: u64,
    /// Of these, those that left something to the next one: a budget was used up, or more than 1 024 messages waited.
    pub overruns: u64,
    /// Entries of the wheel placed, moved, taken out or fired: the wheel's work.
    pub touched: u64,
}

impl Counts {
    /// What the owner tells: all but what others count themselves, the mailbox and the panics, and the turns.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let words = [
            self.added,
            self.live,
            self.fired,
            self.cancelled,
            self.cancelled_elsewhere,
            self.handed_back,
            self.held,
            self.queued,
            self.resets,
            self.resets_elsewhere,
            self.runs,
            self.clock_regressions,
            self.overruns,
            self.touched,
        ];
        // In models, the first two.
        std::array::from_fn(|place| words[place])
    }

    /// What was told.
    pub(crate) fn from_words(words: [u64; WORDS]) -> Self {
        let word = |place: usize| words.get(place).copied().unwrap_or(0);
        Self {
            added: word(0),
            live: word(1),
            fired: word(2),
            cancelled: word(3),
            cancelled_elsewhere: word(4),
            handed_back: word(5),
            held: word(6),
            queued: word(7),
            resets: word(8),
            resets_elsewhere: word(9),
            runs: word(10),
            clock_regressions: word(11),
            overruns: word(12),
            touched: word(13),
            ..Self::default()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let words = std::array::from_fn(|place| place as u64 + 1);
        let counts = Counts::from_words(words);
        assert_eq!(counts.to_words(), words);
        assert_eq!((counts.panicked, counts.turns), (0, 0), "not told, but counted by all");
    }
}
