//! Who watches which key, on one core: a list per key, in the order in which they came.
//!
//! A watch is a node of its list and of its operation's, so that an operation which completes leaves all lists at once, in
//! a step per key, and nothing has to be searched or swept later. With its generation it takes 40 bytes.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::arena::{Arena, Id};
use crate::limits::SLOTS_KEPT;

const NOWHERE: u32 = Arena::<Watch>::NOWHERE;

/// Who is told of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watcher {
    pub(super) operation: Id,
    /// The core of the operation; `HERE` for one of this core.
    core: u32,
}

impl Watcher {
    const HERE: u32 = u32::MAX;

    /// An operation of this core.
    pub(super) fn own(operation: Id) -> Self {
        Self { operation, core: Self::HERE }
    }

    /// One of another core.
    pub(super) fn other(core: u32, operation: Id) -> Self {
        Self { operation, core }
    }

    /// The operation's core, if it is another one.
    pub(super) fn elsewhere(self) -> Option<u32> {
        (self.core != Self::HERE).then_some(self.core)
    }
}

/// Watches and the keys that are watched.
#[derive(Debug)]
pub(super) struct Watches<K> {
    all: Arena<Watch>,
    lists: Arena<List<K>>,
    /// Where the list of a key is.
    by_key: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
struct Watch {
    watcher: Watcher,
    list: u32,
    previous: u32,
    next: u32,
    /// The next watch of the same operation.
    sibling: u32,
}

#[derive(Debug)]
struct List<K> {
    key: K,
    hash: u64,
    first: u32,
    last: u32,
    len: u32,
}

/// What is left of a watch.
#[derive(Debug)]
#[must_use = "a key is to be dropped when nothing is borrowed"]
pub(super) struct Removed<K> {
    /// Where the next watch of the same operation is.
    pub(super) sibling: u32,
    /// If nobody watches it any more.
    pub(super) key: Option<K>,
}

impl<K> Default for Watches<K> {
    fn default() -> Self {
        let (by_key, hasher) = (HashTable::new(), DefaultHashBuilder::default());
        Self { all: Arena::default(), lists: Arena::default(), by_key, hasher }
    }
}

impl<K: Hash + Eq> Watches<K> {
    /// One more watches `key`; `sibling` is where another watch of the same operation is. The key comes back if others watch it: it
    /// is to be dropped when nothing is borrowed.
    pub(super) fn add(&mut self, key: K, watcher: Watcher, sibling: u32) -> (Id, Option<K>) {
        let hash = self.hasher.hash_one(&key);
        let (list, spare) = match self.find(hash, &key) {
            Some(list) => (list, Some(key)),
            None => (self.start_list(key, hash), None),
        };
        let previous = self.lists.at(list).map_or(NOWHERE, |(_, list)| list.last);
        let id = self.all.insert(Watch { watcher, list, previous, next: NOWHERE, sibling });
        if let Some(previous) = self.all.at_mut(previous) {
            previous.next = id.index();
        }
        if let Some(list) = self.lists.at_mut(list) {
            if list.len == 0 {
                list.first = id.index();
            }
            list.last = id.index();
            list.len += 1;
        }
        (id, spare)
    }

    fn find(&self, hash: u64, key: &K) -> Option<u32> {
        let is_of = |&list: &u32| self.lists.at(list).is_some_and(|(_, list)| list.key == *key);
        self.by_key.find(hash, is_of).copied()
    }

    fn start_list(&mut self, key: K, hash: u64) -> u32 {
        let list =
            self.lists.insert(List { key, hash, first: NOWHERE, last: NOWHERE, len: 0 }).index();
        let lists = &self.lists;
        self.by_key
            .insert_unique(hash, list, |&list| lists.at(list).map_or(0, |(_, list)| list.hash));
        list
    }

    /// A watch ends, if it has not.
    pub(super) fn remove(&mut self, id: Id) -> Option<Removed<K>> {
        self.all.get(id)?;
        self.remove_at(id.index())
    }

    /// The watch that is there ends.
    #[inline]
    pub(super) fn remove_at(&mut self, index: u32) -> Option<Removed<K>> {
        let Watch { list, previous, next, sibling, .. } = self.all.remove_at(index)?;
        if let Some(previous) = self.all.at_mut(previous) {
            previous.next = next;
        }
        if let Some(next) = self.all.at_mut(next) {
            next.previous = previous;
        }
        Some(Removed { sibling, key: self.leave(list, previous, next) })
    }

    /// A watch between these two has left its list; the key, if it was the last one.
    fn leave(&mut self, index: u32, previous: u32, next: u32) -> Option<K> {
        let list = self.lists.at_mut(index)?;
        list.len -= 1;
        if previous == NOWHERE {
            list.first = next;
        }
        if next == NOWHERE {
            list.last = previous;
        }
        if list.len == 0 { self.end_list(index) } else { None }
    }

    fn end_list(&mut self, index: u32) -> Option<K> {
        let ended = self.lists.remove_at(index)?;
        if let Ok(entry) = self.by_key.find_entry(ended.hash, |&list| list == index) {
            entry.remove();
        }
        if self.by_key.is_empty() && self.by_key.capacity() > SLOTS_KEPT {
            self.by_key = HashTable::new();
        }
        Some(ended.key)
    }

    /// The watches on `key` and whose they are, appended to `watchers` in the order in which they came.
    pub(super) fn of(&self, key: &K, watchers: &mut Vec<(Id, Watcher)>) {
        let mut at = self.list_of(key).map_or(NOWHERE, |list| list.first);
        while let Some((id, watch)) = self.all.at(at) {
            watchers.push((id, watch.watcher));
            at = watch.next;
        }
    }

    fn list_of(&self, key: &K) -> Option<&List<K>> {
        let list = self.find(self.hasher.hash_one(key), key)?;
        self.lists.at(list).map(|(_, list)| list)
    }

    /// The operations of other cores that watch a key here, once for each watch.
    pub(super) fn of_others(&self) -> impl Iterator<Item = (u32, Id)> {
        self.all
            .values()
            .filter_map(|watch| Some((watch.watcher.elsewhere()?, watch.watcher.operation)))
    }

    /// How many watch `key`.
    pub(super) fn len_of(&self, key: &K) -> usize {
        self.list_of(key).map_or(0, |list| list.len as usize)
    }

    /// How many watches there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many keys are watched.
    pub(super) fn keys(&self) -> usize {
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(count: usize) -> Vec<Id> {
        let mut arena = Arena::default();
        (0..count).map(|number| arena.insert(number)).collect()
    }

    fn watchers(watches: &Watches<u32>, key: u32) -> Vec<Watcher> {
        let mut found = Vec::new();
        watches.of(&key, &mut found);
        assert_eq!(found.len(), watches.len_of(&key));
        found.into_iter().map(|(_, watcher)| watcher).collect()
    }

    #[test]
    fn a_watch_takes_40_bytes() {
        assert_eq!(size_of::<Option<Watch>>(), 32, "and 8 for the generation");
    }

    #[test]
    fn watchers_come_in_order_and_leave_from_everywhere() {
        for gone in 0..4 {
            let mut watches = Watches::default();
            let operation = operations(1)[0];
            let who = [0, 1, 2, 3].map(|core| Watcher::other(core, operation));
            let ids = who.map(|watcher| watches.add(7, watcher, NOWHERE).0);
            assert_eq!(watchers(&watches, 7), who);
            assert!(watches.remove(ids[gone]).is_some_and(|removed| removed.key.is_none()));
            assert!(watches.remove(ids[gone]).is_none());
            let rest: Vec<_> = who
                .iter()
                .copied()
                .enumerate()
                .filter(|&(at, _)| at != gone)
                .map(|(_, who)| who)
                .collect();
            assert_eq!(watchers(&watches, 7), rest);
            assert_eq!(watches.of_others().count(), 3);
            let keys: Vec<_> = ids.into_iter().filter_map(|id| watches.remove(id)?.key).collect();
            assert_eq!(
                (watches.len(), watches.keys(), keys),
                (0, 0, vec![7]),
                "the last one leaves the key"
            );
        }
    }

    #[test]
    fn an_operation_leaves_all_its_keys() {
        let [one, two] = operations(2)[..] else { unreachable!("there are two") };
        let mut watches = Watches::default();
        let (other, _) = watches.add(2, Watcher::own(two), NOWHERE);
        let mut last = NOWHERE;
        for key in [1, 2, 3, 2] {
            last = watches.add(key, Watcher::own(one), last).0.index();
        }
        assert_eq!((watches.len(), watches.keys(), watches.len_of(&2)), (5, 3, 3));
        let mut keys = Vec::new();
        while let Some(Removed { sibling, key }) = watches.remove_at(last) {
            last = sibling;
            keys.extend(key);
        }
        assert_eq!(keys, [3, 1]);
        assert_eq!(
            (watches.len(), watches.keys(), watchers(&watches, 2)),
            (1, 1, vec![Watcher::own(two)])
        );
        assert!(watches.remove(other).is_some());
        assert_eq!(watches.keys(), 0);
    }

    #[test]
    fn many_keys_are_told_apart_and_their_memory_goes_back() {
        let operation = operations(1)[0];
        let mut watches = Watches::default();
        // Miri takes hours for so many.
        let many = if cfg!(miri) { 100 } else { 5_000 };
        let ids: Vec<_> =
            (0..many).map(|key| watches.add(key, Watcher::own(operation), NOWHERE).0).collect();
        assert!((0..many).all(|key| watches.len_of(&key) == 1) && watches.len_of(&many) == 0);
        assert!(ids.into_iter().all(|id| watches.remove(id).is_some()));
        assert_eq!((watches.by_key.capacity(), watches.len(), watches.keys()), (0, 0, 0));
    }
}
