//! Who watches which key, on one core: a list per key, in the order in which they came.
//!
//! A watch is a node of its list and of its operation's, so that an operation which completes leaves all lists at once, in
//! a step per key, and nothing has to be searched or swept later.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
};

use super::arena::{Arena, Id};

/// Who is told of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watcher {
    /// An operation of this core.
    Own(Id),
    /// One of another core.
    Other { core: u32, operation: Id },
}

/// Watches and the keys that are watched.
#[derive(Debug)]
pub(super) struct Watches<K> {
    all: Arena<Watch>,
    lists: Arena<List<K>>,
    by_key: HashMap<K, Id>,
}

#[derive(Debug)]
struct Watch {
    watcher: Watcher,
    list: Id,
    previous: Option<Id>,
    next: Option<Id>,
    /// The next watch of the same operation.
    sibling: Option<Id>,
}

#[derive(Debug)]
struct List<K> {
    key: K,
    first: Id,
    last: Id,
    len: usize,
}

impl<K> Default for Watches<K> {
    fn default() -> Self {
        Self { all: Arena::default(), lists: Arena::default(), by_key: HashMap::new() }
    }
}

impl<K: Hash + Eq + Clone> Watches<K> {
    /// One more watches `key`; `sibling` is another watch of the same operation.
    pub(super) fn add(&mut self, key: K, watcher: Watcher, sibling: Option<Id>) -> Id {
        match self.by_key.entry(key) {
            Entry::Occupied(occupied) => {
                let list = *occupied.get();
                let last = self.lists.get(list).map(|list| list.last);
                let id = self.all.insert(Watch { watcher, list, previous: last, next: None, sibling });
                if let Some(last) = last.and_then(|last| self.all.get_mut(last)) {
                    last.next = Some(id);
                }
                if let Some(list) = self.lists.get_mut(list) {
                    list.last = id;
                    list.len += 1;
                }
                id
            }
            Entry::Vacant(vacant) => {
                let watch = Watch { watcher, list: Id::NONE, previous: None, next: None, sibling };
                let id = self.all.insert(watch);
                let list = self.lists.insert(List { key: vacant.key().clone(), first: id, last: id, len: 1 });
                vacant.insert(list);
                if let Some(watch) = self.all.get_mut(id) {
                    watch.list = list;
                }
                id
            }
        }
    }

    /// A watch ends, if it has not; the next one of the same operation.
    pub(super) fn remove(&mut self, id: Id) -> Option<Id> {
        let Watch { list, previous, next, sibling, .. } = self.all.remove(id)?;
        if let Some(previous) = previous.and_then(|previous| self.all.get_mut(previous)) {
            previous.next = next;
        }
        if let Some(next) = next.and_then(|next| self.all.get_mut(next)) {
            next.previous = previous;
        }
        self.leave(list, previous, next);
        sibling
    }

    /// A watch between these two has left its list.
    fn leave(&mut self, id: Id, previous: Option<Id>, next: Option<Id>) {
        let Some(list) = self.lists.get_mut(id) else { return };
        list.len -= 1;
        match (previous, next) {
            (None, None) => {
                if let Some(list) = self.lists.remove(id) {
                    self.by_key.remove(&list.key);
                }
            }
            (None, Some(next)) => list.first = next,
            (Some(previous), None) => list.last = previous,
            (Some(_), Some(_)) => (),
        }
    }

    /// All watches of an operation end, from its last one on.
    pub(super) fn remove_all(&mut self, mut watch: Option<Id>) {
        while let Some(id) = watch {
            watch = self.remove(id);
        }
    }

    /// The watches on `key` and whose they are, appended to `watchers` in the order in which they came.
    pub(super) fn of(&self, key: &K, watchers: &mut Vec<(Id, Watcher)>) {
        let list = self.by_key.get(key).and_then(|&list| self.lists.get(list));
        let mut at = list.map(|list| list.first);
        while let Some((id, watch)) = at.and_then(|id| Some((id, self.all.get(id)?))) {
            watchers.push((id, watch.watcher));
            at = watch.next;
        }
    }

    /// The operations of other cores that watch a key here, once for each watch.
    pub(super) fn of_others(&self) -> impl Iterator<Item = (u32, Id)> {
        self.all.values().filter_map(|watch| match watch.watcher {
            Watcher::Own(_) => None,
            Watcher::Other { core, operation } => Some((core, operation)),
        })
    }

    /// How many watch `key`.
    pub(super) fn len_of(&self, key: &K) -> usize {
        self.by_key.get(key).and_then(|&list| self.lists.get(list)).map_or(0, |list| list.len)
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

    fn watchers(watches: &Watches<u32>, key: u32) -> Vec<Watcher> {
        let mut found = Vec::new();
        watches.of(&key, &mut found);
        assert_eq!(found.len(), watches.len_of(&key));
        found.into_iter().map(|(_, watcher)| watcher).collect()
    }

    #[test]
    fn watchers_come_in_order_and_leave_from_everywhere() {
        for gone in 0..4 {
            let mut watches = Watches::default();
            let who = [0, 1, 2, 3].map(|core| Watcher::Other { core, operation: Id::NONE });
            let ids = who.map(|watcher| watches.add(7, watcher, None));
            assert_eq!(watchers(&watches, 7), who);
            watches.remove(ids[gone]);
            watches.remove(ids[gone]);
            let rest: Vec<_> =
                who.iter().copied().enumerate().filter(|&(at, _)| at != gone).map(|(_, who)| who).collect();
            assert_eq!(watchers(&watches, 7), rest);
            for id in ids {
                watches.remove(id);
            }
            assert_eq!((watches.len(), watches.keys()), (0, 0));
        }
    }

    #[test]
    fn an_operation_leaves_all_its_keys() {
        let mut watches = Watches::default();
        let other = watches.add(2, Watcher::Own(Id::NONE), None);
        let mut last = None;
        for key in [1, 2, 3, 2] {
            last = Some(watches.add(key, Watcher::Own(Id::NONE), last));
        }
        assert_eq!((watches.len(), watches.keys(), watches.len_of(&2)), (5, 3, 3));
        watches.remove_all(last);
        assert_eq!((watches.len(), watches.keys(), watches.len_of(&2)), (1, 1, 1));
        watches.remove(other);
        assert_eq!(watches.keys(), 0);
    }
}
