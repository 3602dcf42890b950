//! A group of words that one thread publishes, and any thread reads as one consistent snapshot.
//!
//! The snapshot has two copies of the words, written alternately. The version's parity selects the
//! newest copy: the writer fills the other copy and then raises the version. A reader reads the
//! version, the newest copy, and the version again. If the version has changed, the reader tries
//! again. A writer never waits.
//!
//! V1: a store of the version publishes the copy that the new version selects (Release, Acquire).
//! V2: if a reader loads the version and then a newer word, the reader's second load of the version
//! returns a changed version. So the reader tries again. Two fences ensure V2. In `publish`, a
//! fence orders the previous call's store of the version before this call's stores to the copy. In
//! `read`, a fence separates the loads of the copy from the second load of the version.
//!
//! Loom model: `counts_are_read_as_a_consistent_snapshot` in `loom-tests/tests/metrics.rs`.

use crate::util::sync::{AtomicU64, Ordering, fence};

/// `N` words that one thread publishes together, and any thread reads together.
#[derive(Debug)]
pub(crate) struct Snapshot<const N: usize> {
    version: AtomicU64,
    copies: [[AtomicU64; N]; 2],
}

impl<const N: usize> Default for Snapshot<N> {
    fn default() -> Self {
        let zeroed_copy = || [(); N].map(|()| AtomicU64::new(0));
        Self { version: AtomicU64::new(0), copies: [zeroed_copy(), zeroed_copy()] }
    }
}

impl<const N: usize> Snapshot<N> {
    /// Publishes all words. Only one thread may call `publish`.
    pub(crate) fn publish(&self, words: &[u64; N]) {
        // Relaxed: only this thread writes the version.
        let version = self.version.load(Ordering::Relaxed) + 1;
        // Release: for rule V2, pairs with the fence in `read`.
        fence(Ordering::Release);
        for (published_word, &word) in self.copy_of_version(version).iter().zip(words) {
            // Relaxed: the module's rules V1 and V2 order the words.
            published_word.store(word, Ordering::Relaxed);
        }
        // Release: for rule V1, pairs with the Acquire in `read`.
        self.version.store(version, Ordering::Release);
    }

    /// Returns the words of one call of `publish`, or zeros before the first call.
    pub(crate) fn read(&self) -> [u64; N] {
        loop {
            // Acquire: for rule V1, pairs with the Release in `publish`.
            let version = self.version.load(Ordering::Acquire);
            // Relaxed: the module's rules V1 and V2 order the words.
            let words =
                self.copy_of_version(version).each_ref().map(|word| word.load(Ordering::Relaxed));
            // Acquire: for rule V2, pairs with the fence in `publish`.
            fence(Ordering::Acquire);
            // Relaxed: the fence above orders this load.
            if self.version.load(Ordering::Relaxed) == version {
                return words;
            }
        }
    }

    fn copy_of_version(&self, version: u64) -> &[AtomicU64; N] {
        &self.copies[usize::from(!version.is_multiple_of(2))]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_read_returns_the_last_published_words() {
        let snapshot = Snapshot::<3>::default();
        assert_eq!(snapshot.read(), [0; 3]);
        for round in 1..5 {
            snapshot.publish(&[round, round * 2, round * 3]);
            assert_eq!(snapshot.read(), [round, round * 2, round * 3]);
        }
    }

    #[test]
    fn words_published_together_are_read_together() {
        let snapshot = Snapshot::<8>::default();
        let rounds = if cfg!(miri) { 50 } else { 200_000 };
        thread::scope(|scope| {
            scope.spawn(|| (1..=rounds).for_each(|round| snapshot.publish(&[round; 8])));
            let mut last = 0;
            while last < rounds {
                let words = snapshot.read();
                assert!(
                    words.iter().all(|&word| word == words[0]) && words[0] >= last,
                    "{words:?} after {last}"
                );
                last = words[0];
            }
        });
    }
}
