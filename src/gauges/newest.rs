//! Words that one thread writes together and any thread reads together, as they last were.
//!
//! There are two copies, written by turns. The version tells which is the newest: the writer fills the other one and then
//! raises it. A reader takes the newest copy, and looks at the version again: if it has not changed, the writer was at most
//! filling the other copy. So a writer never waits, and a reader tries again only if the writer has got through a whole
//! writing meanwhile.
//!
//! V1 The version publishes the copy that it points to (Release, Acquire). V2 A reader that has met a word of the writing after
//! that one sees that the version has changed: the writer's fence stands between raising the version and overwriting the copy
//! that it no longer points to, the reader's between the copy and its second look.
//!
//! loom: `what_is_counted_is_read_together`.

use crate::sync::{AtomicU64, Ordering, fence};

#[derive(Debug)]
pub(super) struct Newest<const N: usize> {
    version: AtomicU64,
    copies: [[AtomicU64; N]; 2],
}

impl<const N: usize> Default for Newest<N> {
    fn default() -> Self {
        let copy = || [(); N].map(|()| AtomicU64::new(0));
        Self { version: AtomicU64::new(0), copies: [copy(), copy()] }
    }
}

impl<const N: usize> Newest<N> {
    /// Writes all words, for the one thread that does.
    pub(super) fn tell(&self, words: &[u64; N]) {
        // Relaxed: this thread alone writes it.
        let version = self.version.load(Ordering::Relaxed) + 1;
        // Release: V2, pairs with the fence in `read`.
        fence(Ordering::Release);
        for (place, &word) in self.copy(version).iter().zip(words) {
            // Relaxed: V1 and V2 are what order them.
            place.store(word, Ordering::Relaxed);
        }
        // Release: V1, pairs with the Acquire in `read`.
        self.version.store(version, Ordering::Release);
    }

    /// All words of one writing.
    pub(super) fn read(&self) -> [u64; N] {
        loop {
            // Acquire: V1, pairs with the Release in `tell`.
            let version = self.version.load(Ordering::Acquire);
            // Relaxed: as in `tell`.
            let words = self.copy(version).each_ref().map(|word| word.load(Ordering::Relaxed));
            // Acquire: V2, pairs with the fence in `tell`.
            fence(Ordering::Acquire);
            // Relaxed: the fence is what orders it.
            if self.version.load(Ordering::Relaxed) == version {
                return words;
            }
        }
    }

    fn copy(&self, version: u64) -> &[AtomicU64; N] {
        &self.copies[usize::from(!version.is_multiple_of(2))]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_was_written_last_is_read() {
        let newest = Newest::<3>::default();
        assert_eq!(newest.read(), [0; 3]);
        for round in 1..5 {
            newest.tell(&[round, round * 2, round * 3]);
            assert_eq!(newest.read(), [round, round * 2, round * 3]);
        }
    }

    #[test]
    fn what_is_written_together_is_read_together() {
        let newest = Newest::<8>::default();
        let rounds = if cfg!(miri) { 50 } else { 200_000 };
        thread::scope(|scope| {
            scope.spawn(|| (1..=rounds).for_each(|round| newest.tell(&[round; 8])));
            let mut last = 0;
            while last < rounds {
                let words = newest.read();
                assert!(
                    words.iter().all(|&word| word == words[0]) && words[0] >= last,
                    "{words:?} after {last}"
                );
                last = words[0];
            }
        });
    }
}
