//! The operations of one core, the keys that they watch, and nothing that runs an operation's code.
//!
//! An operation is one record: the operation, its timer and its first watch. Further watches have
//! separate records, as have the watches of other cores' operations. All refer to one another by
//! index.
//!
//! The watches of a key form a doubly linked list in the order in which they came. An operation
//! that completes leaves all its lists at once, in one step per key. An event walks along a list by
//! a *cursor*, which moves on when its watch is unlinked, so the walk survives whatever the
//! operations do.
//!
//! The keys form a hash table: an array of heads, and a chain through the records of the keys.

use std::{
    mem,
    num::{NonZeroU32, NonZeroU64},
};

use super::operation::{Completion, Id, PurgatoryCounts};
use crate::{
    cross_core::handle::LocalHandle,
    limits::{SLOTS_KEPT, TURNS_PER_INTERVAL},
};

/// The index of nothing.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct Table<K, Op> {
    operations: Slab<Parked<Op>>,
    watches: Slab<FurtherWatch>,
    remote: Slab<RemoteWatch>,
    keys: Slab<KeyWatches<K>>,
    /// The first key of each chain, by the low bits of the hash. A power of two, or empty.
    heads: Vec<u32>,
    /// Where the events in progress are, the outermost one first.
    cursors: Vec<Watch>,
    /// Keys that are to be dropped when the table is not borrowed.
    dropped: Vec<K>,
    last_number: NonZeroU64,
    /// How many watches are linked.
    linked: usize,
    /// Turns since the interval for [`trim`](Self::trim) began.
    turns: u32,
    /// The counts of endings. [`counts`](Self::counts) fills in the others.
    pub(super) ended: PurgatoryCounts,
}

/// An operation that waits.
pub(super) struct Parked<Op> {
    number: NonZeroU64,
    /// `None` while its `try_complete` runs: the operation is checked out.
    pub(super) operation: Option<Op>,
    /// `None` while it is being added.
    pub(super) timer: Option<LocalHandle>,
    first_watch: Links,
    /// The head of the list of its other watches on this core, the latest first.
    further: u32,
    /// The head of the list of its watches that other cores have confirmed, the latest first.
    remote: u32,
    /// How it was completed while it was checked out.
    pub(super) completed: Option<Completion>,
    /// There was another event while it was checked out.
    pub(super) check_again: bool,
}

/// A watch that is not the first one of an operation of this core.
struct FurtherWatch {
    number: NonZeroU64,
    links: Links,
    operation: Id,
    /// The core of the operation, [`OWN_CORE`] for this one.
    core: u32,
    /// The next further watch of the same operation.
    next_of_operation: u32,
}

const OWN_CORE: u32 = u32::MAX;

/// A watch of an operation of this core on another core.
pub(super) struct RemoteWatch {
    pub(super) core: u32,
    pub(super) watch: Id,
    /// The next remote watch of the same operation.
    pub(super) next_of_operation: u32,
}

/// A key that is watched.
struct KeyWatches<K> {
    key: K,
    hash: u64,
    /// The next key of the chain.
    next: u32,
    first: Watch,
    last: Watch,
}

/// A watch in the list of its key.
#[derive(Clone, Copy)]
struct Links {
    key: u32,
    previous: Watch,
    next: Watch,
}

impl Links {
    const UNLINKED: Self = Self { key: NONE, previous: Watch::NONE, next: Watch::NONE };
}

/// Where a watch is: an index plus 1, and a bit that says of which slab.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Watch(NonZeroU32);

enum Place {
    /// In the operation of this index.
    First(u32),
    Further(u32),
}

impl Watch {
    /// No slab has as many slots.
    const NONE: Self = Self(NonZeroU32::MAX);
    const FURTHER: u32 = 1 << 31;

    #[inline]
    fn first(operation: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(operation))
    }

    #[inline]
    fn further(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index) | Self::FURTHER)
    }

    #[inline]
    fn place(self) -> Place {
        let number = self.0.get();
        if number & Self::FURTHER == 0 {
            Place::First(number - 1)
        } else {
            Place::Further((number & !Self::FURTHER) - 1)
        }
    }
}

/// The operation of a watch that an event has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watcher {
    /// An operation of this core.
    Own(Id),
    /// An operation of another core, and its watch here.
    Other { core: u32, operation: Id, watch: Id },
}

/// The next step of an event.
pub(super) enum Next<Op> {
    /// Has the operation of this index check its condition. It is checked out, so it keeps its
    /// place.
    Check(u32, Op),
    /// Tells another core to check its operation, which has this watch here.
    Tell { core: u32, operation: Id, watch: Id },
    /// There is no watch left, or the operation is checked out already and checks again.
    Nothing,
}

impl<K, Op> Table<K, Op> {
    pub(super) fn new() -> Self {
        Self {
            operations: Slab::new(),
            watches: Slab::new(),
            remote: Slab::new(),
            keys: Slab::new(),
            heads: Vec::new(),
            cursors: Vec::new(),
            dropped: Vec::new(),
            last_number: NonZeroU64::MIN,
            linked: 0,
            turns: 0,
            ended: PurgatoryCounts::default(),
        }
    }

    #[inline]
    fn next_number(&mut self) -> NonZeroU64 {
        self.last_number = self.last_number.saturating_add(1);
        self.last_number
    }

    /// Parks an operation that has no timer yet.
    #[inline]
    pub(super) fn insert(&mut self, operation: Op) -> Id {
        let number = self.next_number();
        let index = self.operations.insert(Parked {
            number,
            operation: Some(operation),
            timer: None,
            first_watch: Links::UNLINKED,
            further: NONE,
            remote: NONE,
            completed: None,
            check_again: false,
        });
        Id { number, index }
    }

    /// Returns the operation at a place.
    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Parked<Op> {
        match self.operations.get_mut(index) {
            Some(parked) => parked,
            None => unreachable!("an operation is removed once"),
        }
    }

    /// Returns the operation of that name if it waits.
    #[inline]
    pub(super) fn get(&mut self, id: Id) -> Option<&mut Parked<Op>> {
        self.operations.get_mut(id.index).filter(|parked| parked.number == { id.number })
    }

    /// Removes an operation that was taken out, with its watches on this core. Returns the latest
    /// of its watches on other cores.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> u32 {
        let parked = self.at(index);
        let Parked { first_watch, remote, mut further, .. } = *parked;
        debug_assert!(parked.operation.is_none(), "it would be dropped here");
        self.operations.free(index);
        if first_watch.key != NONE {
            self.unlink(Watch::first(index), first_watch);
        }
        while further != NONE {
            let Some(FurtherWatch { links, next_of_operation, .. }) = self.watches.take(further)
            else {
                break;
            };
            self.unlink(Watch::further(further), links);
            further = next_of_operation;
        }
        remote
    }

    /// Notes a watch of an operation on another core. Returns false if the operation has completed.
    pub(super) fn add_remote(&mut self, operation: Id, core: u32, watch: Id) -> bool {
        let Some(next_of_operation) = self.get(operation).map(|parked| parked.remote) else {
            return false;
        };
        let latest = self.remote.insert(RemoteWatch { core, watch, next_of_operation });
        self.get(operation).into_iter().for_each(|parked| parked.remote = latest);
        true
    }

    /// Removes a watch on another core.
    pub(super) fn take_remote(&mut self, index: u32) -> Option<RemoteWatch> {
        self.remote.take(index)
    }

    /// Unlinks the watch of another core's operation, if it is still there.
    pub(super) fn unwatch(&mut self, watch: Id) {
        let found = self.watches.get(watch.index).filter(|found| found.number == { watch.number });
        if let Some(&FurtherWatch { links, .. }) = found {
            self.watches.free(watch.index);
            self.unlink(Watch::further(watch.index), links);
        }
    }

    #[inline]
    fn links(&mut self, watch: Watch) -> Option<&mut Links> {
        match watch.place() {
            Place::First(index) => Some(&mut self.operations.get_mut(index)?.first_watch),
            Place::Further(index) => Some(&mut self.watches.get_mut(index)?.links),
        }
    }

    /// Takes a watch out of its list. A key that loses its last watch is dropped later.
    #[inline]
    fn unlink(&mut self, watch: Watch, Links { key, previous, next }: Links) {
        self.linked -= 1;
        for cursor in &mut self.cursors {
            if *cursor == watch {
                *cursor = next;
            }
        }
        if previous == Watch::NONE && next == Watch::NONE {
            self.remove_key(key);
            return;
        }
        if let Some(links) = self.links(previous) {
            links.next = next;
        } else if let Some(watches) = self.keys.get_mut(key) {
            watches.first = next;
        }
        if let Some(links) = self.links(next) {
            links.previous = previous;
        } else if let Some(watches) = self.keys.get_mut(key) {
            watches.last = previous;
        }
    }

    #[inline]
    fn remove_key(&mut self, index: u32) {
        let Some(KeyWatches { key, hash, next, .. }) = self.keys.take(index) else { return };
        let head = self.chain(hash);
        if self.heads[head] == index {
            self.heads[head] = next;
        } else {
            let mut at = self.heads[head];
            while let Some(other) = self.keys.get_mut(at) {
                at = other.next;
                if at == index {
                    other.next = next;
                    break;
                }
            }
        }
        self.drop_later(key);
    }

    fn drop_later(&mut self, key: K) {
        if mem::needs_drop::<K>() {
            self.dropped.push(key);
        }
    }

    /// Returns a key that is to be dropped now that the table is not borrowed.
    pub(super) fn take_dropped(&mut self) -> Option<K> {
        self.dropped.pop()
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The low bits choose the chain.
    fn chain(&self, hash: u64) -> usize {
        hash as usize & self.heads.len().wrapping_sub(1)
    }

    #[cold]
    fn double_heads(&mut self) {
        let len = (self.heads.len() * 2).max(1);
        self.heads.clear();
        self.heads.resize(len, NONE);
        let mask = len as u64 - 1;
        for (slot, index) in self.keys.slots.iter_mut().zip(0..) {
            if let Slot::Used(watches) = slot {
                #[allow(clippy::cast_possible_truncation)] // It is below the number of heads.
                let head = (watches.hash & mask) as usize;
                watches.next = mem::replace(&mut self.heads[head], index);
            }
        }
    }

    /// Takes the next step of an event.
    #[inline]
    pub(super) fn step(&mut self, event: &mut Event) -> Next<Op> {
        if mem::take(&mut event.is_suspended) {
            event.next = self.cursors.pop().unwrap_or(Watch::NONE);
        }
        let next = match self.next_watcher(event) {
            Some(Watcher::Own(Id { index, .. })) => match self.check_out(index) {
                Some(operation) => Next::Check(index, operation),
                None => Next::Nothing,
            },
            Some(Watcher::Other { core, operation, watch }) => {
                Next::Tell { core, operation, watch }
            }
            None => Next::Nothing,
        };
        if event.next != Watch::NONE {
            event.is_suspended = true;
            self.cursors.push(event.next);
        }
        next
    }

    /// Takes an operation out to check its condition. One that is checked out already will check
    /// again.
    #[inline]
    pub(super) fn check_out(&mut self, index: u32) -> Option<Op> {
        let parked = self.operations.get_mut(index)?;
        let operation = parked.operation.take();
        parked.check_again = operation.is_none();
        operation
    }

    /// Returns the next watch of an event and moves on.
    #[inline]
    fn next_watcher(&self, event: &mut Event) -> Option<Watcher> {
        let at = mem::replace(&mut event.next, Watch::NONE);
        let (number, watcher, next) = match at.place() {
            Place::First(index) => {
                let parked = self.operations.get(index)?;
                let number = parked.number;
                (number, Watcher::Own(Id { number, index }), parked.first_watch.next)
            }
            Place::Further(index) => {
                let &FurtherWatch { number, links, operation, core, .. } =
                    self.watches.get(index)?;
                let watcher = if core == OWN_CORE {
                    Watcher::Own(operation)
                } else {
                    Watcher::Other { core, operation, watch: Id { number, index } }
                };
                (number, watcher, links.next)
            }
        };
        // Later watches were added during the event. An operation that was being added before the
        // event adds no watch during it, because the event is inside that call.
        if number > event.last_number {
            return None;
        }
        event.next = next;
        Some(watcher)
    }

    /// Returns the operations of other cores that watch a key here, once for each watch.
    pub(super) fn operations_of_others(&self) -> impl Iterator<Item = (u32, Id)> {
        let others = self.watches.iter().filter(|(watch, _)| watch.core != OWN_CORE);
        others.map(|(watch, _)| (watch.core, watch.operation))
    }

    /// Returns the names of all operations of this core.
    pub(super) fn ids(&self) -> impl Iterator<Item = Id> {
        self.operations.iter().map(|(parked, index)| Id { number: parked.number, index })
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len as usize
    }

    pub(super) fn count(&mut self, how: Completion) {
        match how {
            Completion::Condition => self.ended.by_condition += 1,
            Completion::Forced => self.ended.forced += 1,
            Completion::Expired => self.ended.expired += 1,
        }
    }

    pub(super) fn counts(&self) -> PurgatoryCounts {
        PurgatoryCounts {
            live: self.len() as u64,
            watches: self.linked as u64,
            keys: u64::from(self.keys.len),
            ..self.ended
        }
    }

    /// Returns true if no operation waits and [`trim`](Self::trim) may find memory to free.
    #[inline]
    pub(super) fn has_spare_memory(&self) -> bool {
        self.operations.len == 0 && self.is_spacious()
    }

    fn is_spacious(&self) -> bool {
        self.operations.is_spacious()
            || self.watches.is_spacious()
            || self.remote.is_spacious()
            || self.keys.is_spacious()
    }

    /// Counts a turn, and at the end of an interval frees the memory that the interval did not
    /// need. Before a long sleep it frees all spare memory at once. Returns true if there is more
    /// to free.
    pub(super) fn trim(&mut self, is_long_sleep: bool) -> bool {
        self.turns += 1;
        if is_long_sleep || self.turns >= TURNS_PER_INTERVAL {
            self.turns = 0;
            self.operations.end_interval(is_long_sleep);
            self.watches.end_interval(is_long_sleep);
            self.remote.end_interval(is_long_sleep);
            self.keys.end_interval(is_long_sleep);
            if self.keys.slots.capacity() == 0 {
                self.heads = Vec::new();
            }
        }
        self.is_spacious()
    }
}

/// An event in progress: its walk along the watches of a key.
pub(super) struct Event {
    next: Watch,
    /// The next watch is in the table's cursors, because other code may unlink it now.
    is_suspended: bool,
    /// Watches with later numbers were added during the event.
    last_number: NonZeroU64,
}

impl Event {
    /// Returns true if no step is left.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        !self.is_suspended
    }
}

impl<K: Eq, Op> Table<K, Op> {
    #[inline]
    fn find(&self, hash: u64, key: &K) -> Option<(u32, &KeyWatches<K>)> {
        let mut at = *self.heads.get(self.chain(hash))?;
        loop {
            let watches = self.keys.get(at)?;
            if watches.hash == hash && watches.key == *key {
                return Some((at, watches));
            }
            at = watches.next;
        }
    }

    /// Appends a watch to the list of a key, which `find` has found or not.
    #[inline]
    fn link(&mut self, watch: Watch, found: Option<u32>, hash: u64, key: K) -> Links {
        self.linked += 1;
        let Some(watches) = found.and_then(|index| self.keys.get_mut(index)) else {
            return self.insert_key(watch, hash, key);
        };
        let previous = mem::replace(&mut watches.last, watch);
        if let Some(links) = self.links(previous) {
            links.next = watch;
        }
        self.drop_later(key);
        Links { key: found.unwrap_or(NONE), previous, next: Watch::NONE }
    }

    /// Begins the list of a key.
    #[inline]
    fn insert_key(&mut self, watch: Watch, hash: u64, key: K) -> Links {
        if self.keys.len as usize == self.heads.len() {
            self.double_heads();
        }
        let head = self.chain(hash);
        let next = self.heads[head];
        let index = self.keys.insert(KeyWatches { key, hash, next, first: watch, last: watch });
        self.heads[head] = index;
        Links { key: index, previous: Watch::NONE, next: Watch::NONE }
    }

    /// Adds a watch of an operation of this core. Returns false if the operation has completed.
    #[inline]
    pub(super) fn watch(&mut self, operation: Id, hash: u64, key: K) -> bool {
        let Some(parked) = self.get(operation) else {
            self.drop_later(key);
            return false;
        };
        let next_of_operation = parked.further;
        if parked.first_watch.key == NONE {
            let found = self.find(hash, &key).map(|(index, _)| index);
            let links = self.link(Watch::first(operation.index), found, hash, key);
            self.at(operation.index).first_watch = links;
        } else {
            let further = self.add_further(hash, key, operation, OWN_CORE, next_of_operation).index;
            self.at(operation.index).further = further;
        }
        true
    }

    /// Adds a watch of another core's operation.
    pub(super) fn watch_for_other(&mut self, core: u32, operation: Id, hash: u64, key: K) -> Id {
        self.add_further(hash, key, operation, core, NONE)
    }

    fn add_further(
        &mut self,
        hash: u64,
        key: K,
        operation: Id,
        core: u32,
        next_of_operation: u32,
    ) -> Id {
        // The code of the key may panic here, where nothing has changed yet.
        let found = self.find(hash, &key).map(|(index, _)| index);
        let (number, links) = (self.next_number(), Links::UNLINKED);
        let index =
            self.watches.insert(FurtherWatch { number, links, operation, core, next_of_operation });
        let links = self.link(Watch::further(index), found, hash, key);
        self.watches.get_mut(index).into_iter().for_each(|watch| watch.links = links);
        Id { number, index }
    }

    /// Begins an event on a key. `None` if the key has no watch.
    #[inline]
    pub(super) fn begin_event(&self, hash: u64, key: &K) -> Option<Event> {
        let next = self.find(hash, key)?.1.first;
        Some(Event { next, is_suspended: false, last_number: self.last_number })
    }

    /// Returns the watches on a key in the order in which they came.
    pub(super) fn watchers(&self, hash: u64, key: &K) -> impl Iterator<Item = Watcher> {
        let mut event = self.begin_event(hash, key);
        std::iter::from_fn(move || self.next_watcher(event.as_mut()?))
    }
}

/// Values by index.
struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// The first free slot. [`NONE`] if all are in use.
    free: u32,
    len: u32,
    /// The most slots that were needed at once in this interval, as far as the slab has become
    /// empty.
    peak: usize,
}

enum Slot<T> {
    Used(T),
    Free { next: u32 },
}

impl<T> Slab<T> {
    const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0, peak: 0 }
    }

    #[inline]
    fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        let index = self.free;
        match self.slots.get_mut(index as usize) {
            Some(slot) => {
                if let Slot::Free { next } = *slot {
                    self.free = next;
                }
                *slot = Slot::Used(value);
                index
            }
            None => self.push(value),
        }
    }

    fn push(&mut self, value: T) -> u32 {
        let index =
            u32::try_from(self.slots.len()).ok().filter(|&index| index < Watch::FURTHER - 2);
        self.slots.push(Slot::Used(value));
        index.unwrap_or_else(|| panic!("2^31 operations or watches"))
    }

    #[inline]
    fn get(&self, index: u32) -> Option<&T> {
        match self.slots.get(index as usize)? {
            Slot::Used(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    #[inline]
    fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.slots.get_mut(index as usize)? {
            Slot::Used(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// Drops the value of a slot that is in use, and frees the slot.
    #[inline]
    fn free(&mut self, index: u32) {
        self.slots[index as usize] = Slot::Free { next: self.free };
        self.note_free(index);
    }

    /// Frees a slot and returns its value.
    #[inline]
    fn take(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = match mem::replace(slot, Slot::Free { next: self.free }) {
            Slot::Used(value) => value,
            Slot::Free { .. } => unreachable!("a slot is freed once"),
        };
        self.note_free(index);
        Some(value)
    }

    #[inline]
    fn note_free(&mut self, index: u32) {
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.slots.len() > SLOTS_KEPT {
            self.clear();
        }
    }

    /// Forgets the slots of an empty slab, so that their number says again how many were needed.
    #[cold]
    fn clear(&mut self) {
        self.peak = self.peak.max(self.slots.len());
        self.slots.clear();
        self.free = NONE;
    }

    fn is_spacious(&self) -> bool {
        self.len == 0 && self.slots.capacity() > SLOTS_KEPT
    }

    /// Frees the memory of an empty slab if it is more than twice the peak of the interval, or if
    /// `all` of it is to be freed.
    fn end_interval(&mut self, all: bool) {
        let used = if self.len == 0 { 0 } else { self.slots.len() };
        let peak = mem::replace(&mut self.peak, used);
        let needed = if all { 0 } else { 2 * peak };
        if self.is_spacious() && self.slots.capacity() > needed {
            *self = Self::new();
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&T, u32)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| match slot {
            Slot::Used(value) => Some((value, index)),
            Slot::Free { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations and keys are numbers, and the hash of a key has two bits.
    type Numbers = Table<u32, u32>;

    fn hash(key: u32) -> u64 {
        u64::from(key % 4)
    }

    fn watch(table: &mut Numbers, operation: Id, keys: &[u32]) {
        for &key in keys {
            assert!(table.watch(operation, hash(key), key));
        }
    }

    fn add(table: &mut Numbers, keys: &[u32]) -> Id {
        let id = table.insert(0);
        watch(table, id, keys);
        id
    }

    fn remove(table: &mut Numbers, id: Id) {
        table.at(id.index).operation = None;
        assert_eq!(table.remove(id.index), NONE);
    }

    fn watchers(table: &Numbers, key: u32) -> Vec<Id> {
        let watchers = table.watchers(hash(key), &key);
        watchers
            .map(|watcher| match watcher {
                Watcher::Own(id) | Watcher::Other { operation: id, .. } => id,
            })
            .collect()
    }

    fn assert_empty(table: &Numbers) {
        let PurgatoryCounts { live, watches, keys, .. } = table.counts();
        assert_eq!((live, watches, keys, table.cursors.len()), (0, 0, 0, 0));
        assert!(table.heads.iter().all(|&head| head == NONE));
    }

    #[test]
    fn records_are_small() {
        assert_eq!(size_of::<Slot<Parked<[u64; 3]>>>(), size_of::<Option<[u64; 3]>>() + 48);
        assert_eq!(size_of::<Slot<FurtherWatch>>(), 40);
        assert_eq!(size_of::<Slot<KeyWatches<u64>>>(), 32);
        assert_eq!(size_of::<Option<Id>>(), 12);
    }

    /// The first watch of each is in its own record; the second one is apart.
    #[test]
    fn watches_are_in_order_and_unlink_from_everywhere() {
        for gone in 0..4 {
            let mut table = Numbers::new();
            let mut ids: Vec<Id> = (0..4).map(|_| add(&mut table, &[7, 3, 7])).collect();
            let twice = |ids: &[Id]| ids.iter().flat_map(|&id| [id; 2]).collect::<Vec<_>>();
            assert_eq!((watchers(&table, 7), watchers(&table, 3)), (twice(&ids), ids.clone()));
            remove(&mut table, ids.remove(gone));
            assert_eq!((watchers(&table, 7), watchers(&table, 3)), (twice(&ids), ids.clone()));
            for id in ids {
                remove(&mut table, id);
            }
            assert_empty(&table);
        }
    }

    #[test]
    fn keys_of_one_chain_are_told_apart() {
        let mut table = Numbers::new();
        let ids: Vec<Id> = (0..40).map(|key| add(&mut table, &[key])).collect();
        for gone in [36, 0, 20, 16, 4] {
            remove(&mut table, ids[gone]);
        }
        for (key, &id) in (0..).zip(&ids) {
            let is_gone = [36, 0, 20, 16, 4].contains(&key);
            assert_eq!(watchers(&table, key), if is_gone { vec![] } else { vec![id] });
        }
    }

    #[test]
    fn a_name_never_means_another_operation() {
        let mut table = Numbers::new();
        let first = add(&mut table, &[1]);
        remove(&mut table, first);
        let second = add(&mut table, &[1]);
        assert_eq!({ first.index }, { second.index });
        assert!(table.get(first).is_none() && table.get(second).is_some());
        // Also after the memory was freed.
        remove(&mut table, second);
        while table.trim(true) {}
        let third = add(&mut table, &[1]);
        assert!(table.get(first).is_none() && table.get(second).is_none());
        assert!(!table.watch(first, 0, 0) && table.get(third).is_some());
    }

    #[test]
    fn a_watch_of_another_core_ends_once() {
        let mut table = Numbers::new();
        let elsewhere = Id { number: NonZeroU64::MIN, index: 5 };
        let watch = table.watch_for_other(3, elsewhere, hash(1), 1);
        assert_eq!(table.operations_of_others().collect::<Vec<_>>(), [(3, elsewhere)]);
        table.unwatch(watch);
        assert_empty(&table);
        let next = table.watch_for_other(3, elsewhere, hash(1), 1);
        table.unwatch(watch);
        assert_eq!(watchers(&table, 1), [elsewhere]);
        table.unwatch(next);
        assert_empty(&table);
    }

    /// Takes a step of an event and checks the operation in. Returns its index.
    fn step(table: &mut Numbers, event: &mut Event) -> Option<u32> {
        let Next::Check(index, operation) = table.step(event) else { return None };
        table.at(index).operation = Some(operation);
        Some(index)
    }

    /// Before each step of an event, another watch of the key goes or comes.
    #[test]
    fn an_event_survives_what_happens_during_it() {
        for gone in 0..5 {
            let mut table = Numbers::new();
            let ids: Vec<Id> = (0..5).map(|_| add(&mut table, &[9])).collect();
            let mut outer = table.begin_event(hash(9), &9).expect("it is watched");
            let mut seen = vec![step(&mut table, &mut outer).expect("the first")];
            let mut inner = table.begin_event(hash(9), &9).expect("it is watched");
            assert_eq!(step(&mut table, &mut inner), Some(ids[0].index));
            remove(&mut table, ids[gone]);
            let late = add(&mut table, &[9]);
            let mut seen_inside = vec![ids[0].index];
            while !inner.is_over() {
                seen_inside.extend(step(&mut table, &mut inner));
            }
            while !outer.is_over() {
                seen.extend(step(&mut table, &mut outer));
            }
            let left = ids.iter().map(|id| id.index);
            let left: Vec<u32> = left
                .enumerate()
                .filter(|&(at, _)| at == 0 || at != gone)
                .map(|(_, id)| id)
                .collect();
            assert_eq!((&seen, &seen_inside), (&left, &left), "without {gone}");
            assert!(table.cursors.is_empty() && watchers(&table, 9).contains(&late));
        }
    }

    fn round(table: &mut Numbers, operations: u32) {
        let ids: Vec<Id> = (0..operations).map(|key| add(table, &[key, 1, 2])).collect();
        for id in ids {
            remove(table, id);
        }
    }

    fn capacities(table: &Numbers) -> [usize; 4] {
        let (keys, heads) = (table.keys.slots.capacity(), table.heads.len());
        [table.operations.slots.capacity(), table.watches.slots.capacity(), keys, heads]
    }

    #[test]
    fn equal_rounds_keep_their_memory_and_smaller_ones_do_not() {
        let mut table = Numbers::new();
        round(&mut table, 100);
        let large = capacities(&table);
        for _ in 0..10 * TURNS_PER_INTERVAL {
            assert!(table.trim(false), "there is memory to free");
            round(&mut table, 100);
            assert_eq!(capacities(&table), large);
        }
        for _ in 0..2 * TURNS_PER_INTERVAL {
            table.trim(false);
            round(&mut table, 10);
        }
        let small = capacities(&table);
        assert!(
            small.iter().zip(large).all(|(&small, large)| small < large),
            "{small:?} {large:?}"
        );
        for _ in 0..2 * TURNS_PER_INTERVAL {
            table.trim(false);
        }
        assert!(!table.trim(false), "there is nothing to free");
        assert_eq!(capacities(&table), [0; 4]);
    }

    #[test]
    fn a_long_sleep_frees_all_memory_that_nothing_uses() {
        let mut table = Numbers::new();
        round(&mut table, 100);
        let stays = add(&mut table, &[5]);
        table.trim(true);
        assert_eq!((table.watches.slots.capacity(), watchers(&table, 5)), (0, vec![stays]));
        remove(&mut table, stays);
        assert!(!table.trim(true));
        assert_eq!(capacities(&table), [0; 4]);
    }
}
