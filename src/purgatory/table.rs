//! The operations of one core and the watches on its keys, and nothing that runs an operation's
//! code.
//!
//! An operation and its first watch are one record. Its further watches, and the watches of other
//! cores' operations, are records of their own. All refer to one another by index.
//!
//! The watches of a key form a ring in the order in which they came. The first watch holds the key.
//! An operation that completes leaves all its rings at once, in one step per watch. An event walks
//! along a ring by a *cursor*, which moves on when its watch is unlinked, so the walk survives
//! whatever the operations do.
//!
//! The first watches form a hash table: an array of chains that run through their records.

use std::{mem, num::NonZeroU64};

use super::operation::{Completion, Id, PurgatoryCounts};
use crate::{
    cross_core::handle::LocalHandle,
    limits::{SPARE_SLOTS_MAX, TURNS_PER_INTERVAL},
};

/// The index of nothing.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct Table<K, Op> {
    operations: Slab<Parked<K, Op>>,
    further: Slab<Watch<K>>,
    remote: Slab<RemoteWatch>,
    /// The first watch of the first key of each chain, by the low bits of the hash. A power of two,
    /// or empty.
    chains: Vec<WatchIndex>,
    /// How many keys are watched, and by how many watches.
    keys: usize,
    watches: usize,
    /// Where the events in progress are, the outermost one first.
    cursors: Vec<WatchIndex>,
    /// Keys that are to be dropped when the table is not borrowed.
    dropped: Vec<K>,
    last_number: NonZeroU64,
    /// Turns since the interval for [`trim`](Self::trim) began.
    turns: u32,
    /// The counts of endings. [`counts`](Self::counts) fills in the others.
    pub(super) ended: PurgatoryCounts,
}

/// An operation that waits.
pub(super) struct Parked<K, Op> {
    /// It is linked if the operation watches a key of this core. It has the operation's number.
    first_watch: Watch<K>,
    /// `None` while its `try_complete` runs: the operation is checked out.
    pub(super) operation: Option<Op>,
    pub(super) timer: LocalHandle,
    /// Its latest watch that another core has confirmed, from which the earlier ones follow.
    remote: u32,
    /// How it was completed while it was checked out.
    pub(super) completed: Option<Completion>,
    /// There was another event while it was checked out.
    pub(super) check_again: bool,
}

/// A watch on a key of this core.
struct Watch<K> {
    /// The number of the operation if that is of this core. `None` if the record is free.
    number: Option<NonZeroU64>,
    operation: Id,
    /// The core of the operation, [`OWN_CORE`] for this one.
    core: u32,
    next_of_operation: WatchIndex,
    /// The key and its hash, if this is the first watch of the key.
    key: Option<K>,
    hash: u32,
    /// The first watch of the next key of the chain, if this is the first watch of its key.
    next_key: WatchIndex,
    /// The neighbours in the ring of the key, which begins and ends at the first watch.
    /// [`WatchIndex::NONE`] if it is not linked.
    previous: WatchIndex,
    next: WatchIndex,
}

/// Where a watch is: in the operation of an index, or in a record of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WatchIndex(u32);

impl WatchIndex {
    const NONE: Self = Self(NONE);

    #[inline]
    fn in_operation(index: u32) -> Self {
        Self(index << 1)
    }

    #[inline]
    fn further(index: u32) -> Self {
        Self(index << 1 | 1)
    }

    #[inline]
    fn is_further(self) -> bool {
        self.0 & 1 != 0
    }

    #[inline]
    fn index(self) -> u32 {
        self.0 >> 1
    }
}

const OWN_CORE: u32 = u32::MAX;

impl<K> Watch<K> {
    #[inline]
    fn unlinked(number: NonZeroU64, operation: Id, core: u32) -> Self {
        Self {
            number: Some(number),
            operation,
            core,
            next_of_operation: WatchIndex::NONE,
            key: None,
            hash: 0,
            next_key: WatchIndex::NONE,
            previous: WatchIndex::NONE,
            next: WatchIndex::NONE,
        }
    }
}

/// A watch of an operation of this core on another core.
#[derive(Clone, Copy)]
pub(super) struct RemoteWatch {
    pub(super) core: u32,
    pub(super) watch: Id,
    pub(super) next_of_operation: u32,
}

/// A key that is to be watched, and its first watch if it is watched already.
pub(super) struct KeyEntry<K> {
    key: K,
    hash: u32,
    first: Option<WatchIndex>,
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
            further: Slab::new(),
            remote: Slab::new(),
            chains: Vec::new(),
            keys: 0,
            watches: 0,
            cursors: Vec::new(),
            dropped: Vec::new(),
            last_number: NonZeroU64::MIN,
            turns: 0,
            ended: PurgatoryCounts::default(),
        }
    }

    #[inline]
    fn next_number(&mut self) -> NonZeroU64 {
        self.last_number = self.last_number.saturating_add(1);
        self.last_number
    }

    /// Returns the index of the next operation to be parked.
    #[inline]
    pub(super) fn next_index(&self) -> u32 {
        self.operations.next_index()
    }

    /// Returns the operation at a place.
    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Parked<K, Op> {
        self.operations.at(index)
    }

    /// Returns the operation of that name if it waits.
    #[inline]
    pub(super) fn get(&mut self, id: Id) -> Option<&mut Parked<K, Op>> {
        let parked = self.operations.records.get_mut(id.index as usize)?;
        (parked.first_watch.number == Some(id.number)).then_some(parked)
    }

    /// Removes an operation that was taken out, with its watches on this core. Returns the latest
    /// of its watches on other cores.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, an event costs 20 instructions more")]
    pub(super) fn remove(&mut self, index: u32) -> u32 {
        let parked = self.at(index);
        debug_assert!(parked.operation.is_none(), "it would stay in a free record");
        let remote = parked.remote;
        parked.first_watch.number = None;
        if parked.first_watch.next != WatchIndex::NONE {
            let mut further = self.unlink(WatchIndex::in_operation(index));
            while further != WatchIndex::NONE {
                let next = self.unlink(further);
                self.further.free(further.index());
                further = next;
            }
        }
        self.operations.free(index);
        remote
    }

    /// Records the watch that core `core` holds for an operation of this core. Returns false if the
    /// operation has completed.
    pub(super) fn add_remote(&mut self, operation: Id, core: u32, watch: Id) -> bool {
        let latest = self.remote.next_index();
        let Some(parked) = self.get(operation) else { return false };
        let next_of_operation = mem::replace(&mut parked.remote, latest);
        self.remote.insert(latest, RemoteWatch { core, watch, next_of_operation });
        true
    }

    /// Removes a watch on another core.
    pub(super) fn take_remote(&mut self, index: u32) -> RemoteWatch {
        let watch = *self.remote.at(index);
        self.remote.free(index);
        watch
    }

    /// Unlinks the watch of another core's operation, if it is still there.
    pub(super) fn unwatch(&mut self, watch: Id) {
        let found = self.further.records.get(watch.index as usize);
        if found.is_some_and(|found| found.number == Some(watch.number)) {
            self.unlink(WatchIndex::further(watch.index));
            self.further.free(watch.index);
        }
    }

    #[inline]
    fn watch_at(&self, index: WatchIndex) -> Option<&Watch<K>> {
        let at = index.index() as usize;
        if index.is_further() {
            self.further.records.get(at)
        } else {
            self.operations.records.get(at).map(|parked| &parked.first_watch)
        }
    }

    #[inline]
    fn linked(&mut self, index: WatchIndex) -> &mut Watch<K> {
        if index.is_further() {
            self.further.at(index.index())
        } else {
            &mut self.operations.at(index.index()).first_watch
        }
    }

    /// Returns the watch after this one, or none if this is the last one of its key.
    #[inline]
    fn after(&self, watch: &Watch<K>, index: WatchIndex) -> WatchIndex {
        if watch.next == index {
            return WatchIndex::NONE;
        }
        let next = self.watch_at(watch.next).filter(|next| next.key.is_none());
        next.map_or(WatchIndex::NONE, |_| watch.next)
    }

    /// Takes a watch out of its ring. Returns the next watch of its operation. A key that loses its
    /// last watch is dropped later.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, an event costs 20 instructions more")]
    fn unlink(&mut self, index: WatchIndex) -> WatchIndex {
        self.watches -= 1;
        if !self.cursors.is_empty() {
            self.move_cursors(index);
        }
        let watch = self.linked(index);
        let &mut Watch { next_of_operation, hash, next_key, previous, next, .. } = watch;
        watch.number = None;
        let key = watch.key.take();
        let is_last = next == index;
        if !is_last {
            self.linked(previous).next = next;
            self.linked(next).previous = previous;
        }
        if let Some(key) = key {
            let chain = self.chain(hash);
            let mut link = &mut self.chains[chain];
            while *link != index {
                let other = *link;
                link = &mut self.linked(other).next_key;
            }
            if is_last {
                *link = next_key;
                self.keys -= 1;
                self.drop_later(key);
            } else {
                *link = next;
                let first = self.linked(next);
                (first.key, first.hash, first.next_key) = (Some(key), hash, next_key);
            }
        }
        next_of_operation
    }

    /// Moves the events that are at a watch on to the next one.
    #[cold]
    fn move_cursors(&mut self, index: WatchIndex) {
        let Some(watch) = self.watch_at(index) else { return };
        // The successor of a first watch that is not the only one becomes the first.
        let is_first_of_many = watch.key.is_some() && watch.next != index;
        let next = if is_first_of_many { watch.next } else { self.after(watch, index) };
        self.cursors
            .iter_mut()
            .filter(|cursor| **cursor == index)
            .for_each(|cursor| *cursor = next);
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
    fn chain(&self, hash: u32) -> usize {
        hash as usize & self.chains.len().wrapping_sub(1)
    }

    #[cold]
    fn double_chains(&mut self) {
        let len = (self.chains.len() * 2).max(1);
        self.chains.clear();
        self.chains.resize(len, WatchIndex::NONE);
        let own = self.operations.records.iter_mut().map(|parked| &mut parked.first_watch);
        let own = own.zip((0..).map(WatchIndex::in_operation));
        let further = self.further.records.iter_mut().zip((0..).map(WatchIndex::further));
        for (watch, index) in own.chain(further).filter(|(watch, _)| watch.key.is_some()) {
            let chain = &mut self.chains[watch.hash as usize & (len - 1)];
            watch.next_key = mem::replace(chain, index);
        }
    }

    /// Takes the next step of an event.
    #[inline]
    pub(super) fn step(&mut self, event: &mut Event) -> Next<Op> {
        if mem::take(&mut event.is_suspended) {
            event.next = self.cursors.pop().unwrap_or(WatchIndex::NONE);
        }
        let watcher = self.next_watcher(event);
        if event.next != WatchIndex::NONE {
            event.is_suspended = true;
            self.cursors.push(event.next);
        }
        match watcher {
            Some(Watcher::Own(Id { index, .. })) => match self.check_out(index) {
                Some(operation) => Next::Check(index, operation),
                None => Next::Nothing,
            },
            Some(Watcher::Other { core, operation, watch }) => {
                Next::Tell { core, operation, watch }
            }
            None => Next::Nothing,
        }
    }

    /// Takes an operation out to check its condition. One that is checked out already will check
    /// again.
    #[inline]
    pub(super) fn check_out(&mut self, index: u32) -> Option<Op> {
        let parked = self.at(index);
        let operation = parked.operation.take();
        parked.check_again = operation.is_none();
        operation
    }

    /// Returns the next watch of an event and moves on.
    #[inline]
    fn next_watcher(&self, event: &mut Event) -> Option<Watcher> {
        let at = mem::replace(&mut event.next, WatchIndex::NONE);
        let watch = self.watch_at(at)?;
        // Later watches were added during the event. An operation that was being added before the
        // event adds no watch during it, because the event is inside that call.
        let number = watch.number.filter(|&number| number <= event.last_number)?;
        event.next = self.after(watch, at);
        let &Watch { operation, core, .. } = watch;
        Some(if core == OWN_CORE {
            Watcher::Own(operation)
        } else {
            Watcher::Other { core, operation, watch: Id { number, index: at.index() } }
        })
    }

    /// Returns the operations of other cores that watch a key here, once for each watch.
    pub(super) fn operations_of_others(&self) -> impl Iterator<Item = (u32, Id)> {
        let watches = self.further.records.iter().filter(|watch| watch.number.is_some());
        let others = watches.filter(|watch| watch.core != OWN_CORE);
        others.map(|watch| (watch.core, watch.operation))
    }

    /// Returns the names of all operations of this core.
    pub(super) fn ids(&self) -> impl Iterator<Item = Id> {
        let first_watches = self.operations.records.iter().map(|parked| &parked.first_watch);
        first_watches.filter(|watch| watch.number.is_some()).map(|watch| watch.operation)
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
            watches: self.watches as u64,
            keys: self.keys as u64,
            ..self.ended
        }
    }

    /// Returns true if no operation waits and [`trim`](Self::trim) may find memory to free.
    #[inline]
    pub(super) fn has_spare_memory(&self) -> bool {
        self.operations.len == 0 && self.is_spacious()
    }

    fn is_spacious(&self) -> bool {
        self.operations.is_spacious() || self.further.is_spacious() || self.remote.is_spacious()
    }

    /// Counts a turn, and at the end of an interval frees the memory that the interval did not
    /// need. Before a long sleep it frees all spare memory at once. Returns true if there is more
    /// to free.
    pub(super) fn trim(&mut self, is_long_sleep: bool) -> bool {
        self.turns += 1;
        if is_long_sleep || self.turns >= TURNS_PER_INTERVAL {
            self.turns = 0;
            self.operations.end_interval(is_long_sleep);
            self.further.end_interval(is_long_sleep);
            self.remote.end_interval(is_long_sleep);
            if self.operations.records.capacity() + self.further.records.capacity() == 0 {
                self.chains = Vec::new();
            }
        }
        self.is_spacious()
    }
}

/// An event in progress: its walk along the watches of a key.
pub(super) struct Event {
    next: WatchIndex,
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
    /// Returns the first watch of a key.
    #[inline]
    fn find(&self, hash: u32, key: &K) -> Option<WatchIndex> {
        let mut at = *self.chains.get(self.chain(hash))?;
        loop {
            let watch = self.watch_at(at)?;
            if watch.hash == hash && watch.key.as_ref() == Some(key) {
                return Some(at);
            }
            at = watch.next_key;
        }
    }

    /// Finds a key of this core. The code of the key may panic here, where nothing has changed yet.
    #[inline]
    pub(super) fn entry(&self, hash: u32, key: K) -> KeyEntry<K> {
        KeyEntry { first: self.find(hash, &key), key, hash }
    }

    /// Parks an operation at the [`next_index`](Self::next_index), with a watch on a key.
    #[inline]
    pub(super) fn park(
        &mut self,
        operation: Op,
        timer: LocalHandle,
        key: Option<KeyEntry<K>>,
    ) -> Id {
        let id = Id { number: self.next_number(), index: self.next_index() };
        let mut first_watch = Watch::unlinked(id.number, id, OWN_CORE);
        if let Some(key) = key {
            first_watch = self.link(first_watch, WatchIndex::in_operation(id.index), key);
        }
        self.ended.added += 1;
        let operation = Some(operation);
        let (remote, completed, check_again) = (NONE, None, false);
        self.operations.insert(
            id.index,
            Parked { first_watch, operation, timer, remote, completed, check_again },
        );
        id
    }

    /// Adds a watch of an operation of this core. Returns false if the operation has completed.
    pub(super) fn watch(&mut self, operation: Id, hash: u32, key: K) -> bool {
        let key = self.entry(hash, key);
        let Some(parked) = self.get(operation) else {
            self.drop_later(key.key);
            return false;
        };
        let mut watch = Watch::unlinked(operation.number, operation, OWN_CORE);
        if parked.first_watch.next == WatchIndex::NONE {
            let index = WatchIndex::in_operation(operation.index);
            let watch = self.link(watch, index, key);
            self.at(operation.index).first_watch = watch;
        } else {
            watch.next_of_operation = parked.first_watch.next_of_operation;
            let latest = WatchIndex::further(self.add_further(watch, key));
            self.at(operation.index).first_watch.next_of_operation = latest;
        }
        true
    }

    /// Adds a watch of another core's operation.
    pub(super) fn watch_for_other(&mut self, core: u32, operation: Id, hash: u32, key: K) -> Id {
        let (key, number) = (self.entry(hash, key), self.next_number());
        Id { number, index: self.add_further(Watch::unlinked(number, operation, core), key) }
    }

    fn add_further(&mut self, watch: Watch<K>, key: KeyEntry<K>) -> u32 {
        let index = self.further.next_index();
        let watch = self.link(watch, WatchIndex::further(index), key);
        self.further.insert(index, watch);
        index
    }

    /// Appends a watch to the ring of a key. The caller puts it at its index.
    #[inline]
    fn link(&mut self, mut watch: Watch<K>, index: WatchIndex, entry: KeyEntry<K>) -> Watch<K> {
        let KeyEntry { key, hash, first } = entry;
        self.watches += 1;
        if let Some(next) = first {
            let previous = mem::replace(&mut self.linked(next).previous, index);
            self.linked(previous).next = index;
            (watch.previous, watch.next) = (previous, next);
            self.drop_later(key);
        } else {
            if 2 * self.keys >= self.chains.len() {
                self.double_chains();
            }
            self.keys += 1;
            let chain = self.chain(hash);
            watch.next_key = mem::replace(&mut self.chains[chain], index);
            (watch.key, watch.hash) = (Some(key), hash);
            (watch.previous, watch.next) = (index, index);
        }
        watch
    }

    /// Begins an event on a key. `None` if the key has no watch.
    #[inline]
    pub(super) fn begin_event(&self, hash: u32, key: &K) -> Option<Event> {
        let next = self.find(hash, key)?;
        Some(Event { next, is_suspended: false, last_number: self.last_number })
    }

    /// Returns the watches on a key in the order in which they came.
    pub(super) fn watchers(&self, hash: u32, key: &K) -> impl Iterator<Item = Watcher> {
        let mut event = self.begin_event(hash, key);
        std::iter::from_fn(move || self.next_watcher(event.as_mut()?))
    }
}

/// Records by index.
struct Slab<T> {
    records: Vec<T>,
    /// The first free record. [`NONE`] if all are in use.
    free: u32,
    len: u32,
    /// The most records that were needed at once in this interval, as far as the slab has become
    /// empty.
    peak: usize,
}

/// A record of a slab. A free one holds nothing that has a destructor.
trait Record {
    /// Returns the field that links the free records.
    fn next_free(&mut self) -> &mut u32;
}

impl<K, Op> Record for Parked<K, Op> {
    #[inline]
    fn next_free(&mut self) -> &mut u32 {
        &mut self.remote
    }
}

impl<K> Record for Watch<K> {
    #[inline]
    fn next_free(&mut self) -> &mut u32 {
        &mut self.hash
    }
}

impl Record for RemoteWatch {
    fn next_free(&mut self) -> &mut u32 {
        &mut self.next_of_operation
    }
}

impl<T> Slab<T> {
    const fn new() -> Self {
        Self { records: Vec::new(), free: NONE, len: 0, peak: 0 }
    }

    #[inline]
    fn at(&mut self, index: u32) -> &mut T {
        &mut self.records[index as usize]
    }

    fn is_spacious(&self) -> bool {
        self.len == 0 && self.records.capacity() > SPARE_SLOTS_MAX
    }

    /// Frees the memory of an empty slab if it is more than twice the peak of the interval, or if
    /// `all` of it is to be freed.
    fn end_interval(&mut self, all: bool) {
        let used = if self.len == 0 { 0 } else { self.records.len() };
        let peak = mem::replace(&mut self.peak, used);
        let needed = if all { 0 } else { 2 * peak };
        if self.is_spacious() && self.records.capacity() > needed {
            *self = Self::new();
        }
    }
}

impl<T: Record> Slab<T> {
    /// Returns the index of the next record to be inserted.
    #[inline]
    fn next_index(&self) -> u32 {
        if self.free == NONE { self.fresh_index() } else { self.free }
    }

    fn fresh_index(&self) -> u32 {
        let index = u32::try_from(self.records.len()).ok().filter(|&index| index < NONE >> 1);
        index.unwrap_or_else(|| panic!("2^31 operations or watches"))
    }

    /// Inserts a record at the [`next_index`](Self::next_index).
    #[inline]
    fn insert(&mut self, index: u32, record: T) {
        self.len += 1;
        match self.records.get_mut(index as usize) {
            Some(free) => {
                self.free = *free.next_free();
                *free = record;
            }
            None => self.records.push(record),
        }
    }

    /// Frees a record, which its user has emptied.
    #[inline]
    fn free(&mut self, index: u32) {
        let free = mem::replace(&mut self.free, index);
        *self.at(index).next_free() = free;
        self.len -= 1;
        if self.len == 0 && self.records.len() > SPARE_SLOTS_MAX {
            self.clear();
        }
    }

    /// Forgets the records of an empty slab, so that their number says again how many were needed.
    #[cold]
    fn clear(&mut self) {
        self.peak = self.peak.max(self.records.len());
        self.records.clear();
        self.free = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cross_core::handle::TimerHandle;

    /// Operations and keys are numbers, and the hash of a key has two bits.
    type Numbers = Table<u32, u32>;

    fn hash(key: u32) -> u32 {
        key % 4
    }

    fn watch(table: &mut Numbers, operation: Id, keys: &[u32]) {
        for &key in keys {
            assert!(table.watch(operation, hash(key), key));
        }
    }

    fn add(table: &mut Numbers, keys: &[u32]) -> Id {
        let id = table.park(0, LocalHandle::new(TimerHandle::new(0, 0, 0)), None);
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
        assert!(table.chains.iter().all(|&first| first == WatchIndex::NONE));
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn records_are_small() {
        assert_eq!(size_of::<Watch<u64>>(), size_of::<Option<u64>>() + 48);
        assert_eq!(size_of::<Parked<u64, [u64; 3]>>(), size_of::<Watch<u64>>() + 56);
        assert_eq!(size_of::<RemoteWatch>(), 20);
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

    fn capacities(table: &Numbers) -> [usize; 3] {
        let (operations, watches) = (&table.operations.records, &table.further.records);
        [operations.capacity(), watches.capacity(), table.chains.len()]
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
        assert_eq!(capacities(&table), [0; 3]);
    }

    #[test]
    fn a_long_sleep_frees_all_memory_that_nothing_uses() {
        let mut table = Numbers::new();
        round(&mut table, 100);
        let stays = add(&mut table, &[5]);
        let goes = add(&mut table, &[]);
        (0..2_000).for_each(|_| assert!(table.add_remote(goes, 3, goes)));
        table.at(goes.index).operation = None;
        let mut latest = table.remove(goes.index);
        while latest != NONE {
            latest = table.take_remote(latest).next_of_operation;
        }
        assert!(table.remote.records.capacity() > 0);
        table.trim(true);
        assert_eq!((table.remote.records.capacity(), watchers(&table, 5)), (0, vec![stays]));
        remove(&mut table, stays);
        assert!(!table.trim(true));
        assert_eq!(capacities(&table), [0; 3]);
    }
}
