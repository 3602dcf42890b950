//! Finds the number of an entry by the hash of its key: a table of chains.
//!
//! It has its final size from the start, so it never has to be built anew, which would stall the core for as long as
//! a million keys take. The chains lead through the entries themselves; the table is zeroed memory, which costs nothing
//! before it is used.

/// The number of an entry, plus one; 0 is the end of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link(u32);

/// What has a place in a chain.
pub(crate) trait Chained {
    fn hash(&self) -> u64;
    fn next(&mut self) -> &mut Link;
}

/// Where the entries are, by number.
pub(crate) trait Entries {
    type Entry: Chained;
    fn entry(&mut self, number: usize) -> &mut Self::Entry;
}

#[derive(Debug)]
pub(crate) struct Index {
    chains: Box<[u32]>,
}

impl Link {
    fn to(number: usize) -> Self {
        // Nobody has four billion entries on a core: see `args`.
        Self(u32::try_from(number + 1).unwrap_or_default())
    }

    fn number(self) -> Option<usize> {
        (self.0 > 0).then(|| self.0 as usize - 1)
    }
}

impl Index {
    /// For so many entries.
    pub(crate) fn new(entries: usize) -> Self {
        Self { chains: vec![0; entries.max(1).next_power_of_two()].into() }
    }

    /// The number of the entry with this hash that `is_it`.
    pub(crate) fn find<E: Entries>(
        &self,
        entries: &mut E,
        hash: u64,
        is_it: impl Fn(&E::Entry) -> bool,
    ) -> Option<usize> {
        let mut link = Link(self.chains[self.chain(hash)]);
        while let Some(number) = link.number() {
            let entry = entries.entry(number);
            if entry.hash() == hash && is_it(entry) {
                return Some(number);
            }
            link = *entry.next();
        }
        None
    }

    /// Puts an entry that is not in it at the head of its chain.
    pub(crate) fn insert(&mut self, entries: &mut impl Entries, number: usize) {
        let entry = entries.entry(number);
        let chain = self.chain(entry.hash());
        *entry.next() = Link(self.chains[chain]);
        self.chains[chain] = Link::to(number).0;
    }

    /// Takes an entry that is in it out.
    pub(crate) fn remove(&mut self, entries: &mut impl Entries, number: usize) {
        let entry = entries.entry(number);
        let (chain, next) = (self.chain(entry.hash()), *entry.next());
        let mut link = Link(self.chains[chain]);
        if link.number() == Some(number) {
            self.chains[chain] = next.0;
            return;
        }
        while let Some(before) = link.number() {
            let place = entries.entry(before).next();
            link = *place;
            if link.number() == Some(number) {
                *place = next;
                return;
            }
        }
    }

    /// By the lower half of the hash; the upper one has chosen the core.
    #[allow(clippy::cast_possible_truncation)]
    fn chain(&self, hash: u64) -> usize {
        hash as u32 as usize & (self.chains.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Chained, Entries, Index, Link};

    #[derive(Default)]
    struct Entry {
        hash: u64,
        name: u32,
        next: Link,
    }

    impl Chained for Entry {
        fn hash(&self) -> u64 {
            self.hash
        }

        fn next(&mut self) -> &mut Link {
            &mut self.next
        }
    }

    impl Entries for Vec<Entry> {
        type Entry = Entry;

        fn entry(&mut self, number: usize) -> &mut Entry {
            &mut self[number]
        }
    }

    /// With so few chains, and hashes that are equal now and then, every chain has a middle.
    #[test]
    fn what_was_inserted_is_found_until_it_is_removed() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut index, mut entries, mut model) = (Index::new(8), Vec::new(), BTreeMap::new());
        for name in 0..100 {
            entries.push(Entry { hash: u64::from(name % 40), name, next: Link::default() });
        }
        for _ in 0..20_000 {
            let number = random.usize(0..entries.len());
            let (hash, name) = (entries[number].hash, entries[number].name);
            assert_eq!(
                index.find(&mut entries, hash, |entry| entry.name == name),
                model.get(&name).copied()
            );
            if model.remove(&name).is_some() {
                index.remove(&mut entries, number);
            } else {
                index.insert(&mut entries, number);
                model.insert(name, number);
            }
        }
    }
}
