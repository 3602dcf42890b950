//! The operations of one core and the watches on its keys. The table calls no method of an
//! operation.
//!
//! One record holds an operation, its timer and its *inline watch*, the operation's first watch on
//! this core. While the purgatory checks the operation's condition, the operation is *checked out*
//! of its record. A *separate watch* is a record of its own: a further watch of an operation, or a
//! watch of another core's operation.
//!
//! The watches of a key form a ring, oldest watch first. The first watch holds the key. An event
//! walks along the ring with a *cursor*. When the watch at a cursor is unlinked, the cursor moves
//! to the next watch, so operations may change the ring during the walk.
//!
//! The keys form a hash table, whose chains link the first watches of their keys. The table uses
//! linear hashing (Litwin, VLDB 1980). The table grows by a few chains at a time, and a new chain
//! takes keys from only one other chain.

use std::{
    borrow::Borrow,
    hash::{BuildHasher, RandomState},
    mem,
    num::NonZeroU64,
};

use super::{
    operation::{Completion, PurgatoryCounts, RecordId},
    records::{NO_RECORD, OccupiedRecord, Record, Records},
};
use crate::{
    cross_core::handle::LocalHandle,
    limits::{
        GROW_BELOW_CHAINS_PER_KEY, PURGATORY_CHAIN_BYTES_FREED_PER_SLEEP_MAX,
        PURGATORY_CHAIN_BYTES_FREED_PER_TURN_MAX, PURGATORY_CHAINS_CREATED_PER_ADD_MAX,
        PURGATORY_CHAINS_REMOVED_PER_SLEEP_MAX, PURGATORY_CHAINS_REMOVED_PER_TURN_MAX,
        PURGATORY_SPARE_CHAINS_MAX, PURGATORY_TRIM_INTERVAL_TURNS, SHRINK_ABOVE_CHAINS_PER_KEY,
    },
    local::ThreadWheel,
};

pub(super) struct Table<K, Op> {
    pub(super) operations: Records<ParkedOperation<K, Op>>,
    separate_watches: Records<SeparateWatch<K>>,
    watches_on_other_cores: Records<WatchOnOtherCore>,
    /// For each chain, the first watch of the chain's first key.
    chain_heads: Vec<WatchIndex>,
    /// The bit mask that reduces a hash to the number of its chain:
    /// `chain_heads.len().next_power_of_two() - 1`.
    chain_mask: usize,
    key_count: usize,
    /// If there are at least this many keys, an add of a key calls
    /// [`add_chains_if_needed`](Self::add_chains_if_needed). The value is:
    ///
    /// - Zero while the table grows.
    /// - The number of chains divided by [`SHRINK_ABOVE_CHAINS_PER_KEY`] while chains are removed,
    ///   and after a trim interval that ended with surplus chains.
    /// - In all other cases, the number of chains divided by [`GROW_BELOW_CHAINS_PER_KEY`].
    grow_threshold: usize,
    is_removing_chains: bool,
    /// One cursor for each event that has a next watch, beginning with the outermost event.
    cursors: Vec<WatchIndex>,
    /// Keys that the table no longer needs, dropped while the table is not borrowed, because their
    /// destructors are user code.
    keys_to_drop: Vec<K>,
    /// The latest number assigned to a [`RecordId`]. The initial value is random, so an id hardly
    /// ever matches an operation of another purgatory. The initial value is at most 2^63, so a
    /// program cannot use up the numbers.
    last_record_id_number: NonZeroU64,
    /// True if this table has requested a call of [`trim_memory`](Self::trim_memory) from the
    /// thread's wheel.
    trim_is_requested: bool,
    /// The number of calls of [`trim_memory`](Self::trim_memory) since the trim interval began.
    turns_in_trim_interval: u32,
    /// The counts of added and ended operations, and of watches. [`counts`](Self::counts) fills in
    /// `live` and `keys`.
    pub(super) totals: PurgatoryCounts,
}

/// The record of an operation. A free record has neither an operation nor a key.
pub(super) struct ParkedOperation<K, Op> {
    /// The number in the operation's [`RecordId`]. `None` in a free record.
    record_id_number: Option<NonZeroU64>,
    timer: LocalHandle,
    /// `None` while the operation is checked out, and in a free record.
    pub(super) operation: Option<Op>,
    /// Linked into a key's ring if the operation watches a key of this core.
    inline_watch: Watch<K>,
    /// The index of the operation's latest [`WatchOnOtherCore`], or [`NO_RECORD`]. A free record
    /// stores the index of the next free record here.
    last_watch_on_other_core_index: u32,
    /// `None` unless the operation was forced to complete or has expired.
    completion: Option<Completion>,
    /// True if another check was requested while the operation was checked out.
    must_check_again: bool,
}

struct FreedRecordContents<K> {
    inline_watch: Watch<K>,
    last_watch_on_other_core_index: u32,
    /// The record's index if the caller must still pass it to
    /// [`put_in_free_list`](Records::put_in_free_list), otherwise [`NO_RECORD`].
    index_for_free_list: u32,
}

/// A watch on a key of this core.
struct Watch<K> {
    /// The key, if this is the first watch of the key.
    key: Option<K>,
    /// The hash of `key`. Has no meaning if `key` is `None`.
    hash: u32,
    /// In the first watch of a key: the first watch of the next key in the chain.
    next_in_chain: WatchIndex,
    /// The neighbors in the ring of the key. [`WatchIndex::NONE`] if the watch is not linked.
    previous_in_ring: WatchIndex,
    next_in_ring: WatchIndex,
    next_separate_of_operation: WatchIndex,
}

/// A watch in a separate record: a further watch of an operation, or a watch of another core's
/// operation. A free record has no key.
struct SeparateWatch<K> {
    /// `None` in a free record. For an operation of this core, the number in the operation's
    /// [`RecordId`]. For another core's operation, the number in the watch's own `RecordId`.
    record_id_number: Option<NonZeroU64>,
    operation: RecordId,
    /// The core of the operation, or [`LOCAL_CORE`]. A free record stores the index of the next
    /// free record here.
    operation_core: u32,
    watch: Watch<K>,
}

/// The index of the record that contains a watch. [`SEPARATE_FLAG`] is set for a separate watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WatchIndex(u32);

const SEPARATE_FLAG: u32 = 1 << 31;

impl WatchIndex {
    const NONE: Self = Self(NO_RECORD);

    #[inline]
    fn of_inline_watch(index: u32) -> Self {
        Self(index)
    }

    #[inline]
    fn of_separate_watch(index: u32) -> Self {
        Self(index | SEPARATE_FLAG)
    }

    /// Returns true for a separate watch and for [`NONE`](Self::NONE).
    #[inline]
    fn is_separate(self) -> bool {
        self.0 & SEPARATE_FLAG != 0
    }

    #[inline]
    fn index(self) -> u32 {
        self.0 & !SEPARATE_FLAG
    }
}

const LOCAL_CORE: u32 = u32::MAX;

impl<K> Watch<K> {
    const UNLINKED: Self = Self {
        key: None,
        hash: 0,
        next_in_chain: WatchIndex::NONE,
        previous_in_ring: WatchIndex::NONE,
        next_in_ring: WatchIndex::NONE,
        next_separate_of_operation: WatchIndex::NONE,
    };

    /// Returns true if this is the first watch of `key`.
    #[inline]
    fn is_first_watch_of<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.hash == hash && self.key.as_ref().is_some_and(|own_key| own_key.borrow() == key)
    }

    /// Returns a copy of the watch, and moves the key into the copy.
    #[inline]
    fn copy_and_take_key(&mut self) -> Self {
        Self { key: self.key.take(), ..*self }
    }
}

/// A watch on another core, for an operation of this core.
#[derive(Clone, Copy)]
pub(super) struct WatchOnOtherCore {
    pub(super) core: u32,
    pub(super) watch: RecordId,
    /// The index of the operation's previous `WatchOnOtherCore`, or [`NO_RECORD`].
    pub(super) previous_index: u32,
}

/// The result of looking up a key before adding a watch. `first_watch` is `NONE` if the key has no
/// watch.
pub(super) struct KeyEntry<K> {
    pub(super) key: K,
    hash: u32,
    first_watch: WatchIndex,
}

/// An operation that watches a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchingOperation {
    /// The index of an operation of this core.
    Local(u32),
    /// An operation of another `core`, and the operation's watch on this core.
    Remote { core: u32, operation: RecordId, watch: RecordId },
}

/// The operations that watch the key of a new event.
pub(super) enum FoundWatchers<Op> {
    /// No operation watches the key.
    Unwatched,
    /// The key has one watch, the inline watch of this operation. The operation is now checked out,
    /// and the caller must check its condition.
    CheckedOut(u32, Op),
    /// The key has several watches or a separate watch, or the operation of its only watch is
    /// checked out. The caller must call [`Table::advance_event`] until the event's `has_cursor` is
    /// false.
    Walk(EventWalk),
}

/// The result of a check.
#[must_use]
pub(super) enum ConditionCheckOutcome {
    /// The condition holds, and the table has removed the operation.
    /// `last_watch_on_other_core_index` may be [`NO_RECORD`].
    ConditionHeld { last_watch_on_other_core_index: u32 },
    /// The operation was forced to complete or has expired. The caller must remove and complete the
    /// operation.
    ForcedOrExpired(Completion),
    /// Another check was requested during the check, so the caller must check the condition once
    /// more.
    CheckAgain,
    /// The operation still waits. The caller must put the operation back into its record.
    Waits,
}

impl<K, Op> ParkedOperation<K, Op> {
    /// Takes the operation out of its record for a check. If the operation is already checked out,
    /// requests one more check and returns `None`.
    #[inline]
    pub(super) fn check_out(&mut self) -> Option<Op> {
        let operation = self.operation.take();
        self.must_check_again = operation.is_none();
        operation
    }

    /// Cancels the operation's timer. Returns true if the timer was pending. If the thread's wheel
    /// has ended, no timer is pending, and the result is true if the operation is not completed. If
    /// the result is true, the caller must complete or take the operation.
    #[inline(always)]
    pub(super) fn try_cancel_timer(&self) -> bool {
        // Drops nothing: the callback of this timer belongs to the wheel and has no destructor.
        ThreadWheel::cancel_private(self.timer.handle, |_| ()).is_some()
            || self.completion.is_none() && ThreadWheel::has_ended()
    }
}

impl<K> FreedRecordContents<K> {
    #[inline(always)]
    fn free_record<Op>(occupied_record: OccupiedRecord<'_, ParkedOperation<K, Op>>) -> Self {
        let last_watch_on_other_core_index = occupied_record.record.last_watch_on_other_core_index;
        let (parked_operation, index_for_free_list) = occupied_record.free();
        debug_assert!(
            parked_operation.operation.is_none(),
            "the operation would stay in a free record"
        );
        parked_operation.record_id_number = None;
        let inline_watch = parked_operation.inline_watch.copy_and_take_key();
        Self { inline_watch, last_watch_on_other_core_index, index_for_free_list }
    }
}

impl<K, Op> Table<K, Op> {
    pub(super) fn new() -> Self {
        Self {
            operations: Records::new(),
            separate_watches: Records::new(),
            watches_on_other_cores: Records::new(),
            chain_heads: Vec::new(),
            chain_mask: 0,
            key_count: 0,
            grow_threshold: 0,
            is_removing_chains: false,
            cursors: Vec::new(),
            keys_to_drop: Vec::new(),
            last_record_id_number: NonZeroU64::MIN
                .saturating_add(RandomState::new().hash_one(()) >> 1),
            trim_is_requested: false,
            turns_in_trim_interval: 0,
            totals: PurgatoryCounts::default(),
        }
    }

    #[inline]
    fn next_record_id_number(&mut self) -> NonZeroU64 {
        self.last_record_id_number = self.last_record_id_number.saturating_add(1);
        self.last_record_id_number
    }

    /// Returns the record of an operation, unless it was removed.
    #[inline]
    pub(super) fn get(&mut self, id: RecordId) -> Option<&mut ParkedOperation<K, Op>> {
        let parked_operation = self.operations.get_mut(id.index)?;
        (parked_operation.record_id_number == Some(id.number)).then_some(parked_operation)
    }

    pub(super) fn is_parked(&mut self, id: RecordId) -> bool {
        self.get(id).is_some()
    }

    /// Ends a check, and determines the caller's next step.
    ///
    /// A second check follows if one was requested during the first check. There is no third check,
    /// so the checks end even if each check requests another.
    #[inline(always)]
    pub(super) fn end_check(
        &mut self,
        index: u32,
        condition_holds: bool,
        is_second_check: bool,
    ) -> ConditionCheckOutcome {
        let occupied_record = self.operations.occupied_record(index);
        let parked_operation = &mut *occupied_record.record;
        if let Some(completion) = parked_operation.completion {
            ConditionCheckOutcome::ForcedOrExpired(completion)
        } else if condition_holds && parked_operation.try_cancel_timer() {
            let freed_contents = FreedRecordContents::free_record(occupied_record);
            self.count_completion(Completion::Condition);
            let last_watch_on_other_core_index = self.unlink_watches(index, freed_contents);
            ConditionCheckOutcome::ConditionHeld { last_watch_on_other_core_index }
        } else if parked_operation.must_check_again && !is_second_check {
            parked_operation.must_check_again = false;
            ConditionCheckOutcome::CheckAgain
        } else {
            ConditionCheckOutcome::Waits
        }
    }

    /// Records the completion of an operation whose timer has fired or was cancelled, and takes the
    /// operation. Returns `None` if the operation is checked out: the operation then completes
    /// after its check. Also returns `None` if the operation has ended: a program may run the
    /// drained timer of an ended operation.
    pub(super) fn complete_and_take(&mut self, index: u32, completion: Completion) -> Option<Op> {
        let parked_operation =
            self.operations.get_mut(index).filter(|parked| parked.completion.is_none())?;
        let operation = parked_operation.operation.take();
        parked_operation.completion = Some(completion);
        operation
    }

    /// Takes an operation and cancels its timer. Returns `None` if the operation is checked out or
    /// has ended.
    pub(super) fn cancel_timer_and_take(&mut self, id: RecordId) -> Option<Op> {
        let parked_operation = self.get(id).filter(|parked| parked.operation.is_some())?;
        if parked_operation.try_cancel_timer() { parked_operation.operation.take() } else { None }
    }

    /// Frees the record of an operation and removes its watches on this core. Returns the index of
    /// the operation's latest [`WatchOnOtherCore`], or [`NO_RECORD`].
    pub(super) fn remove(&mut self, index: u32) -> u32 {
        let freed_contents =
            FreedRecordContents::free_record(self.operations.occupied_record(index));
        self.unlink_watches(index, freed_contents)
    }

    /// Unlinks an operation's watches that are on this core, and frees the records of these watches.
    /// `freed` has the contents of the operation's record, which includes the inline watch. Returns
    /// `freed.last_watch_on_other_core_index`.
    #[inline(always)]
    fn unlink_watches(&mut self, index: u32, freed: FreedRecordContents<K>) -> u32 {
        if freed.inline_watch.next_in_ring != WatchIndex::NONE {
            let inline_index = WatchIndex::of_inline_watch(index);
            let mut next = self.unlink_watch(inline_index, freed.inline_watch);
            while next != WatchIndex::NONE {
                next = self.remove_separate_watch(next.index());
            }
        }
        if freed.index_for_free_list != NO_RECORD
            && self.operations.put_in_free_list(freed.index_for_free_list)
        {
            self.request_trim();
        }
        freed.last_watch_on_other_core_index
    }

    /// Removes a separate watch, and returns the next separate watch of the same operation.
    fn remove_separate_watch(&mut self, index: u32) -> WatchIndex {
        let (watch_record, index_for_free_list) =
            self.separate_watches.occupied_record(index).free();
        watch_record.record_id_number = None;
        let watch = watch_record.watch.copy_and_take_key();
        if index_for_free_list != NO_RECORD
            && self.separate_watches.put_in_free_list(index_for_free_list)
        {
            self.request_trim();
        }
        self.unlink_watch(WatchIndex::of_separate_watch(index), watch)
    }

    /// Records an operation's watch on another core. Returns false if the operation has ended.
    pub(super) fn try_record_watch_on_other_core(
        &mut self,
        operation: RecordId,
        core: u32,
        watch: RecordId,
    ) -> bool {
        let index = self.watches_on_other_cores.vacant_index();
        let Some(parked_operation) = self.get(operation) else { return false };
        let previous_index =
            mem::replace(&mut parked_operation.last_watch_on_other_core_index, index);
        *self.watches_on_other_cores.occupy_record(index) =
            WatchOnOtherCore { core, watch, previous_index };
        true
    }

    /// Frees and returns the record of a watch on another core.
    pub(super) fn take_watch_on_other_core(&mut self, index: u32) -> WatchOnOtherCore {
        let occupied = self.watches_on_other_cores.occupied_record(index);
        let watch = *occupied.record;
        let (_, index_for_free_list) = occupied.free();
        if index_for_free_list != NO_RECORD
            && self.watches_on_other_cores.put_in_free_list(index_for_free_list)
        {
            self.request_trim();
        }
        watch
    }

    /// Removes a watch of another core's operation, unless the watch was removed before.
    pub(super) fn remove_remote_watch(&mut self, watch: RecordId) {
        let separate = self.separate_watches.get(watch.index);
        if separate.is_some_and(|separate| separate.record_id_number == Some(watch.number)) {
            self.remove_separate_watch(watch.index);
        }
    }

    #[inline]
    fn watch_at(&self, index: WatchIndex) -> Option<&Watch<K>> {
        if index.is_separate() {
            self.separate_watches.get(index.index()).map(|separate| &separate.watch)
        } else {
            self.operations.get(index.0).map(|parked| &parked.inline_watch)
        }
    }

    #[inline]
    fn watch_mut(&mut self, index: WatchIndex) -> &mut Watch<K> {
        if index.is_separate() {
            &mut self.separate_watches.record_mut(index.index()).watch
        } else {
            &mut self.operations.record_mut(index.0).inline_watch
        }
    }

    /// Returns `next`, the watch after the watch `index` in the ring, or `NONE` if `index` is the
    /// ring's last watch.
    #[inline]
    fn next_unless_last(&self, next: WatchIndex, index: WatchIndex) -> WatchIndex {
        let is_last = next == index || self.watch_at(next).is_none_or(|next| next.key.is_some());
        if is_last { WatchIndex::NONE } else { next }
    }

    /// Unlinks a watch, whose record the caller has freed, from its ring. If the watch holds the
    /// key, moves the key to the next watch. Removes the key if there is no other watch. Returns
    /// the next separate watch of the same operation.
    #[inline(always)]
    fn unlink_watch(&mut self, index: WatchIndex, watch: Watch<K>) -> WatchIndex {
        self.totals.watches -= 1;
        if !self.cursors.is_empty() {
            self.move_cursors(index, watch.next_in_ring);
        }
        let is_only_watch = watch.next_in_ring == index;
        if !is_only_watch {
            self.watch_mut(watch.previous_in_ring).next_in_ring = watch.next_in_ring;
            self.watch_mut(watch.next_in_ring).previous_in_ring = watch.previous_in_ring;
        }
        if let Some(key) = watch.key {
            let mut link = self.chain_head_mut(watch.hash);
            while *link != index {
                let next_index = *link;
                link = &mut self.watch_mut(next_index).next_in_chain;
            }
            if is_only_watch {
                *link = watch.next_in_chain;
                self.key_count -= 1;
                // Only the comparison is inlined, because the condition is rarely true.
                if self.key_count < self.chain_heads.len().div_ceil(SHRINK_ABOVE_CHAINS_PER_KEY) {
                    self.request_trim_if_surplus_chains();
                }
                self.defer_drop(key);
            } else {
                *link = watch.next_in_ring;
                let first = self.watch_mut(watch.next_in_ring);
                (first.key, first.hash) = (Some(key), watch.hash);
                first.next_in_chain = watch.next_in_chain;
            }
        }
        watch.next_separate_of_operation
    }

    /// Moves the cursors at the watch `index` to the next watch.
    #[cold]
    fn move_cursors(&mut self, index: WatchIndex, next_in_ring: WatchIndex) {
        let next = self.next_unless_last(next_in_ring, index);
        self.cursors
            .iter_mut()
            .filter(|cursor| **cursor == index)
            .for_each(|cursor| *cursor = next);
    }

    fn defer_drop(&mut self, key: K) {
        if mem::needs_drop::<K>() {
            self.keys_to_drop.push(key);
        }
    }

    /// Takes all keys out of a table without operations. The table must not be used afterwards.
    pub(super) fn take_all_keys(&mut self) -> Vec<K> {
        self.separate_watches.iter_mut().filter_map(|separate| separate.watch.key.take()).collect()
    }

    pub(super) fn pop_key_to_drop(&mut self) -> Option<K> {
        let key = self.keys_to_drop.pop();
        if key.is_none() && self.keys_to_drop.capacity() > PURGATORY_SPARE_CHAINS_MAX {
            self.keys_to_drop = Vec::new();
        }
        key
    }

    /// Returns the first watch in the chain of a hash, or `NONE` if the chain is empty.
    #[inline]
    fn chain_head(&self, hash: u32) -> WatchIndex {
        let chain_number = hash as usize & self.chain_mask;
        match self.chain_heads.get(chain_number) {
            Some(first) => *first,
            None => self
                .chain_heads
                .get(self.parent_chain(chain_number))
                .copied()
                .unwrap_or(WatchIndex::NONE),
        }
    }

    /// Returns a mutable reference to the head of a hash's chain. The low bits of the hash are the
    /// number of the chain. If the chain does not exist yet, its [parent](Self::parent_chain)
    /// contains its keys.
    #[inline]
    fn chain_head_mut(&mut self, hash: u32) -> &mut WatchIndex {
        let chain_number = hash as usize & self.chain_mask;
        if chain_number < self.chain_heads.len() {
            &mut self.chain_heads[chain_number]
        } else {
            let parent_number = self.parent_chain(chain_number);
            &mut self.chain_heads[parent_number]
        }
    }

    /// For a `chain_number` that does not exist yet, returns the chain that contains its keys.
    /// Marked cold, so that the compiler emits a branch, which is rarely taken, instead of a
    /// conditional move.
    #[cold]
    fn parent_chain(&self, chain_number: usize) -> usize {
        chain_number & (self.chain_mask >> 1)
    }

    /// Adds a few chains if there are too few for the keys, or if the number of chains is not a
    /// power of two. If the table was removing surplus chains, stops that removal.
    #[cold]
    fn add_chains_if_needed(&mut self) {
        self.is_removing_chains = false;
        let chain_count = self.chain_heads.len();
        if GROW_BELOW_CHAINS_PER_KEY * self.key_count >= chain_count {
            self.add_chain();
        }
        while !self.chain_heads.len().is_power_of_two()
            && self.chain_heads.len() < chain_count + PURGATORY_CHAINS_CREATED_PER_ADD_MAX
        {
            self.add_chain();
        }
        let is_power_of_two = self.chain_heads.len().is_power_of_two();
        self.grow_threshold =
            if is_power_of_two { self.chain_heads.len() / GROW_BELOW_CHAINS_PER_KEY } else { 0 };
    }

    /// Adds a chain, and moves the keys whose hashes select the new chain.
    fn add_chain(&mut self) {
        let added_chain = self.chain_heads.len();
        self.chain_heads.push(WatchIndex::NONE);
        self.chain_mask = self.chain_heads.len().next_power_of_two() - 1;
        let parent = self.parent_chain(added_chain);
        let mut moved_watch = mem::replace(&mut self.chain_heads[parent], WatchIndex::NONE);
        while moved_watch != WatchIndex::NONE {
            let hash = self.watch_mut(moved_watch).hash;
            let first = mem::replace(self.chain_head_mut(hash), moved_watch);
            moved_watch = mem::replace(&mut self.watch_mut(moved_watch).next_in_chain, first);
        }
    }

    /// Removes all chains but the first `kept_count`, and moves their keys to their
    /// [parents](Self::parent_chain).
    fn keep_chains(&mut self, kept_count: usize) {
        for removed_chain in (kept_count..self.chain_heads.len()).rev() {
            let mut moved_watch = self.chain_heads[removed_chain];
            while moved_watch != WatchIndex::NONE {
                let parent = removed_chain ^ 1 << removed_chain.ilog2();
                let first = mem::replace(&mut self.chain_heads[parent], moved_watch);
                moved_watch = mem::replace(&mut self.watch_mut(moved_watch).next_in_chain, first);
            }
        }
        self.chain_heads.truncate(kept_count);
        self.chain_mask = kept_count.next_power_of_two() - 1;
    }

    /// Returns true if the table has more than [`PURGATORY_SPARE_CHAINS_MAX`] chains, and more than
    /// [`SHRINK_ABOVE_CHAINS_PER_KEY`] per key.
    fn has_surplus_chains(&self) -> bool {
        SHRINK_ABOVE_CHAINS_PER_KEY * self.key_count < self.chain_heads.len()
            && self.chain_heads.len() > PURGATORY_SPARE_CHAINS_MAX
    }

    /// Begins to remove chains if there were surplus chains during the whole trim interval that
    /// ends now. To detect a lasting surplus, lowers `grow_threshold` at the end of each interval
    /// with surplus chains. An add that reaches the lowered threshold computes a new threshold. A
    /// threshold that is still lowered at the end of the next interval shows that the surplus has
    /// lasted.
    fn end_chain_trim_interval(&mut self) {
        if self.has_surplus_chains() {
            let regular_threshold = self.chain_heads.len() / GROW_BELOW_CHAINS_PER_KEY;
            self.is_removing_chains |= (1..regular_threshold).contains(&self.grow_threshold);
            self.grow_threshold = self.chain_heads.len() / SHRINK_ABOVE_CHAINS_PER_KEY;
        }
    }

    /// Removes at most `max_chains` chains. Then shrinks the array of chains by at most
    /// `max_bytes`. The removal is complete when there are no [surplus
    /// chains](Self::has_surplus_chains) and the number of chains is a power of two.
    fn remove_surplus_chains(&mut self, max_chains: usize, max_bytes: usize) {
        let chain_count = self.chain_heads.len();
        let max_kept_chains =
            PURGATORY_SPARE_CHAINS_MAX.max(SHRINK_ABOVE_CHAINS_PER_KEY * self.key_count);
        let surplus_count = chain_count - (1 << chain_count.min(max_kept_chains).ilog2());
        let chain_count = chain_count - surplus_count.min(max_chains);
        self.keep_chains(chain_count);
        self.is_removing_chains = surplus_count >= max_chains;
        self.grow_threshold = if self.is_removing_chains {
            chain_count / SHRINK_ABOVE_CHAINS_PER_KEY
        } else {
            chain_count / GROW_BELOW_CHAINS_PER_KEY
        };
        let capacity = self.chain_heads.capacity();
        if 4 * chain_count < capacity {
            let max_freed_len = max_bytes / size_of::<WatchIndex>();
            self.chain_heads
                .shrink_to((2 * chain_count).max(capacity.saturating_sub(max_freed_len)));
        }
    }

    /// Moves an event to its next watch, and returns the operation of this watch. Returns `None` if
    /// no watch remains, or if all remaining watches were added after the event began.
    #[inline]
    pub(super) fn advance_event(&mut self, event: &mut EventWalk) -> Option<WatchingOperation> {
        if mem::take(&mut event.has_cursor) {
            event.next_watch = self.cursors.pop().unwrap_or(WatchIndex::NONE);
        }
        let watcher = self.next_watcher(event);
        if event.next_watch != WatchIndex::NONE {
            event.has_cursor = true;
            self.cursors.push(event.next_watch);
        }
        watcher
    }

    #[inline]
    fn next_watcher(&self, event: &mut EventWalk) -> Option<WatchingOperation> {
        let reached_watch = mem::replace(&mut event.next_watch, WatchIndex::NONE);
        let (number, watcher, watch) = if reached_watch.is_separate() {
            let separate = self.separate_watches.get(reached_watch.index())?;
            let (number, &SeparateWatch { operation, operation_core: core, .. }) =
                (separate.record_id_number?, separate);
            let watcher = if core == LOCAL_CORE {
                WatchingOperation::Local(operation.index)
            } else {
                let watch = RecordId { number, index: reached_watch.index() };
                WatchingOperation::Remote { core, operation, watch }
            };
            (number, watcher, &separate.watch)
        } else {
            let parked_operation = self.operations.get(reached_watch.index())?;
            (
                parked_operation.record_id_number?,
                WatchingOperation::Local(reached_watch.index()),
                &parked_operation.inline_watch,
            )
        };
        // A watch with a larger number, and all watches after it in the ring, were added during the
        // event.
        if number > event.last_record_id_number_at_start {
            return None;
        }
        event.next_watch = self.next_unless_last(watch.next_in_ring, reached_watch);
        Some(watcher)
    }

    /// Returns the operations of other cores that watch this core's keys, once for each watch.
    pub(super) fn all_remote_watchers(&self) -> impl Iterator<Item = (u32, RecordId)> {
        let watches = self.separate_watches.iter().map(|(_, watch)| watch);
        let remote_watches = watches
            .filter(|watch| watch.record_id_number.is_some() && watch.operation_core != LOCAL_CORE);
        remote_watches.map(|watch| (watch.operation_core, watch.operation))
    }

    /// Returns the id of the operation at `index`, if its record is in use.
    pub(super) fn id_at(&self, index: u32) -> Option<RecordId> {
        let number = self.operations.get(index)?.record_id_number?;
        Some(RecordId { number, index })
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = RecordId> {
        self.operations.iter().filter_map(|(index, _)| self.id_at(index))
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len as usize
    }

    pub(super) fn count_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Condition => self.totals.by_condition += 1,
            Completion::Forced => self.totals.forced += 1,
            Completion::Expired => self.totals.expired += 1,
        }
    }

    pub(super) fn counts(&self) -> PurgatoryCounts {
        PurgatoryCounts { live: self.len() as u64, keys: self.key_count as u64, ..self.totals }
    }

    #[inline(never)]
    fn request_trim_if_surplus_chains(&mut self) {
        if !self.trim_is_requested && self.has_surplus_chains() {
            self.request_trim();
        }
    }

    #[inline(never)]
    fn request_trim(&mut self) {
        if !mem::replace(&mut self.trim_is_requested, true) {
            let _ = ThreadWheel::with(ThreadWheel::request_trim);
        }
    }

    /// After [`PURGATORY_TRIM_INTERVAL_TURNS`] turns, ends the trim interval, which may free pages.
    /// If a removal of chains is in progress, removes some chains. Before a long sleep, frees all
    /// spare pages, and removes more chains than in a turn. Returns true if further calls may free
    /// memory.
    pub(super) fn trim_memory(&mut self, is_before_long_sleep: bool) -> bool {
        self.turns_in_trim_interval += 1;
        if is_before_long_sleep || self.turns_in_trim_interval >= PURGATORY_TRIM_INTERVAL_TURNS {
            self.turns_in_trim_interval = 0;
            self.operations.end_trim_interval(is_before_long_sleep);
            self.separate_watches.end_trim_interval(is_before_long_sleep);
            self.watches_on_other_cores.end_trim_interval(is_before_long_sleep);
            self.end_chain_trim_interval();
        }
        self.is_removing_chains |= is_before_long_sleep && self.has_surplus_chains();
        if self.is_removing_chains {
            let (chains, bytes) = if is_before_long_sleep {
                (PURGATORY_CHAINS_REMOVED_PER_SLEEP_MAX, PURGATORY_CHAIN_BYTES_FREED_PER_SLEEP_MAX)
            } else {
                (PURGATORY_CHAINS_REMOVED_PER_TURN_MAX, PURGATORY_CHAIN_BYTES_FREED_PER_TURN_MAX)
            };
            self.remove_surplus_chains(chains, bytes);
        }
        self.trim_is_requested = self.has_surplus_chains()
            || self.is_removing_chains
            || self.operations.has_spare_page()
            || self.separate_watches.has_spare_page()
            || self.watches_on_other_cores.has_spare_page();
        self.trim_is_requested
    }
}

/// An event in progress, which walks along the watches of a key.
pub(super) struct EventWalk {
    next_watch: WatchIndex,
    /// True while a cursor of the table points to the event's next watch.
    pub(super) has_cursor: bool,
    /// The latest id number that the table had assigned when the event began.
    last_record_id_number_at_start: NonZeroU64,
}

impl<K: Eq, Op> Table<K, Op> {
    #[inline]
    fn find_key<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> WatchIndex
    where
        K: Borrow<Q>,
    {
        let mut index = self.chain_head(hash);
        // `get` returns `None` for a separate watch, because `SEPARATE_FLAG` makes its index too
        // large.
        while index != WatchIndex::NONE {
            let Some(parked_operation) = self.operations.get(index.0) else {
                return self.find_key_slow(index, hash, key);
            };
            let watch = &parked_operation.inline_watch;
            if watch.is_first_watch_of(hash, key) {
                return index;
            }
            index = watch.next_in_chain;
        }
        index
    }

    /// Searches a chain for a key, from the separate watch `index` on.
    #[inline(never)]
    fn find_key_slow<Q: Eq + ?Sized>(&self, mut index: WatchIndex, hash: u32, key: &Q) -> WatchIndex
    where
        K: Borrow<Q>,
    {
        while let Some(watch) = self.watch_at(index) {
            if watch.is_first_watch_of(hash, key) {
                return index;
            }
            index = watch.next_in_chain;
        }
        WatchIndex::NONE
    }

    /// Looks up the key of a watch that the caller adds. During the add, only this lookup calls the
    /// key's `Eq`, so `Eq` cannot panic while the table changes.
    #[inline]
    pub(super) fn look_up_key(&self, hash: u32, key: K) -> KeyEntry<K> {
        KeyEntry { first_watch: self.find_key(hash, &key), key, hash }
    }

    /// Inserts a parked operation at `index`, which must be the
    /// [`vacant_index`](Records::vacant_index). Adds a watch on the key of `entry`.
    #[inline(always)]
    pub(super) fn insert_parked(
        &mut self,
        index: u32,
        operation: Op,
        timer: LocalHandle,
        entry: Option<KeyEntry<K>>,
    ) -> RecordId {
        let (number, watch_index) =
            (self.next_record_id_number(), WatchIndex::of_inline_watch(index));
        let inline_watch =
            entry.map_or(Watch::UNLINKED, |entry| self.link_new_watch(watch_index, entry));
        self.totals.added += 1;
        let parked_operation = self.operations.occupy_record(index);
        parked_operation.record_id_number = Some(number);
        parked_operation.timer = timer;
        parked_operation.operation = Some(operation);
        parked_operation.inline_watch = inline_watch;
        parked_operation.last_watch_on_other_core_index = NO_RECORD;
        parked_operation.completion = None;
        RecordId { number, index }
    }

    /// Adds a watch. Returns false if the operation has ended.
    pub(super) fn try_watch(&mut self, operation: RecordId, hash: u32, key: K) -> bool {
        let entry = self.look_up_key(hash, key);
        let Some(parked_operation) = self.get(operation) else {
            self.defer_drop(entry.key);
            return false;
        };
        if parked_operation.inline_watch.next_in_ring == WatchIndex::NONE {
            let inline_watch =
                self.link_new_watch(WatchIndex::of_inline_watch(operation.index), entry);
            self.operations.record_mut(operation.index).inline_watch = inline_watch;
        } else {
            let index = self.add_separate_watch(operation.number, LOCAL_CORE, operation, entry);
            let inline_watch = &mut self.operations.record_mut(operation.index).inline_watch;
            let next = mem::replace(
                &mut inline_watch.next_separate_of_operation,
                WatchIndex::of_separate_watch(index),
            );
            self.separate_watches.record_mut(index).watch.next_separate_of_operation = next;
        }
        true
    }

    pub(super) fn add_remote_watch(
        &mut self,
        operation_core: u32,
        operation: RecordId,
        hash: u32,
        key: K,
    ) -> RecordId {
        let (entry, number) = (self.look_up_key(hash, key), self.next_record_id_number());
        RecordId {
            number,
            index: self.add_separate_watch(number, operation_core, operation, entry),
        }
    }

    fn add_separate_watch(
        &mut self,
        record_id_number: NonZeroU64,
        operation_core: u32,
        operation: RecordId,
        entry: KeyEntry<K>,
    ) -> u32 {
        let index = self.separate_watches.vacant_index();
        let new_watch = self.link_new_watch(WatchIndex::of_separate_watch(index), entry);
        let separate = self.separate_watches.occupy_record(index);
        (separate.record_id_number, separate.operation_core) =
            (Some(record_id_number), operation_core);
        separate.operation = operation;
        separate.watch = new_watch;
        index
    }

    /// Makes and counts a new watch, which the caller stores at `index`. If the key has no other
    /// watch, adds the key to its chain. If the key has other watches, appends the new watch to the
    /// key's ring, and defers the drop of `entry.key`.
    #[inline]
    fn link_new_watch(&mut self, index: WatchIndex, entry: KeyEntry<K>) -> Watch<K> {
        let KeyEntry { key, hash, first_watch } = entry;
        self.totals.watches += 1;
        if first_watch != WatchIndex::NONE {
            let previous = self.append_to_ring(first_watch, index);
            self.defer_drop(key);
            return Watch {
                previous_in_ring: previous,
                next_in_ring: first_watch,
                ..Watch::UNLINKED
            };
        }
        if self.key_count >= self.grow_threshold {
            self.add_chains_if_needed();
        }
        self.key_count += 1;
        let (key, next_in_chain) = (Some(key), mem::replace(self.chain_head_mut(hash), index));
        Watch {
            key,
            hash,
            next_in_chain,
            previous_in_ring: index,
            next_in_ring: index,
            ..Watch::UNLINKED
        }
    }

    /// Appends the watch `index` to the ring that begins at `first_watch`. Returns the watch before
    /// `index`.
    #[inline(never)]
    fn append_to_ring(&mut self, first_watch: WatchIndex, index: WatchIndex) -> WatchIndex {
        let previous = mem::replace(&mut self.watch_mut(first_watch).previous_in_ring, index);
        self.watch_mut(previous).next_in_ring = index;
        previous
    }

    /// Begins an event. If the only watch on the key is an inline watch, tries to check out the
    /// operation of this watch.
    #[inline]
    pub(super) fn begin_event<Q: Eq + ?Sized>(&mut self, hash: u32, key: &Q) -> FoundWatchers<Op>
    where
        K: Borrow<Q>,
    {
        let mut index = self.chain_head(hash);
        // Repeats the code of `find_key`: a call would look up the record twice.
        while let Some(parked_operation) = self.operations.get_mut(index.0) {
            let watch = &parked_operation.inline_watch;
            if watch.is_first_watch_of(hash, key) {
                if watch.next_in_ring == index
                    && let Some(operation) = parked_operation.check_out()
                {
                    return FoundWatchers::CheckedOut(index.0, operation);
                }
                return FoundWatchers::Walk(self.begin_walk_at(index));
            }
            index = watch.next_in_chain;
        }
        if index != WatchIndex::NONE {
            index = self.find_key_slow(index, hash, key);
        }
        if index == WatchIndex::NONE {
            return FoundWatchers::Unwatched;
        }
        FoundWatchers::Walk(self.begin_walk_at(index))
    }

    fn begin_walk_at(&self, next_watch: WatchIndex) -> EventWalk {
        EventWalk {
            next_watch,
            has_cursor: false,
            last_record_id_number_at_start: self.last_record_id_number,
        }
    }

    /// Returns the operations that watch a key, one for each watch, oldest watch first.
    pub(super) fn watchers<Q: Eq + ?Sized>(
        &self,
        hash: u32,
        key: &Q,
    ) -> impl Iterator<Item = WatchingOperation>
    where
        K: Borrow<Q>,
    {
        let mut event = self.begin_walk_at(self.find_key(hash, key));
        std::iter::from_fn(move || self.next_watcher(&mut event))
    }
}

impl<K, Op> Record for ParkedOperation<K, Op> {
    const FREE_RECORD: Self = Self {
        record_id_number: None,
        timer: LocalHandle::NO_TIMER,
        operation: None,
        inline_watch: Watch::UNLINKED,
        last_watch_on_other_core_index: NO_RECORD,
        completion: None,
        must_check_again: false,
    };

    #[inline]
    fn next_free_index_mut(&mut self) -> &mut u32 {
        &mut self.last_watch_on_other_core_index
    }
}

impl<K> Record for SeparateWatch<K> {
    const FREE_RECORD: Self = Self {
        record_id_number: None,
        operation: RecordId::NONE,
        operation_core: NO_RECORD,
        watch: Watch::UNLINKED,
    };

    #[inline]
    fn next_free_index_mut(&mut self) -> &mut u32 {
        &mut self.operation_core
    }
}

impl Record for WatchOnOtherCore {
    const FREE_RECORD: Self =
        Self { core: LOCAL_CORE, watch: RecordId::NONE, previous_index: NO_RECORD };

    fn next_free_index_mut(&mut self) -> &mut u32 {
        &mut self.previous_index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestTable = Table<u32, u32>;

    fn hash(key: u32) -> u32 {
        key % 4
    }

    fn watch(table: &mut TestTable, operation: RecordId, keys: &[u32]) {
        for &key in keys {
            assert!(table.try_watch(operation, hash(key), key));
        }
    }

    fn add(table: &mut TestTable, keys: &[u32]) -> RecordId {
        let id =
            table.insert_parked(table.operations.vacant_index(), 0, LocalHandle::NO_TIMER, None);
        watch(table, id, keys);
        id
    }

    fn remove(table: &mut TestTable, id: RecordId) {
        table.operations.record_mut(id.index).operation = None;
        assert_eq!(table.remove(id.index), NO_RECORD);
    }

    fn watchers(table: &TestTable, key: u32) -> Vec<RecordId> {
        let watchers = table.watchers(hash(key), &key);
        watchers
            .map(|watcher| match watcher {
                WatchingOperation::Local(index) => table.id_at(index).expect("in use"),
                WatchingOperation::Remote { operation, .. } => operation,
            })
            .collect()
    }

    fn assert_empty(table: &TestTable) {
        let PurgatoryCounts { live, watches, keys, .. } = table.counts();
        assert_eq!((live, watches, keys, table.cursors.len()), (0, 0, 0, 0));
        assert!(table.chain_heads.iter().all(|&first| first == WatchIndex::NONE));
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn records_are_small() {
        assert_eq!(size_of::<Watch<u64>>(), size_of::<Option<u64>>() + 24);
        assert_eq!(size_of::<SeparateWatch<u64>>(), size_of::<Watch<u64>>() + 24);
        assert_eq!(size_of::<ParkedOperation<u64, [u64; 3]>>(), size_of::<Watch<u64>>() + 64);
        assert_eq!(size_of::<WatchOnOtherCore>(), 20);
        assert_eq!(size_of::<Option<RecordId>>(), 12);
    }

    #[test]
    fn watches_keep_their_order_when_an_operation_ends() {
        for removed in 0..4 {
            let mut table = TestTable::new();
            let mut ids: Vec<RecordId> = (0..4).map(|_| add(&mut table, &[7, 3, 7])).collect();
            let twice = |ids: &[RecordId]| ids.iter().flat_map(|&id| [id; 2]).collect::<Vec<_>>();
            assert_eq!((watchers(&table, 7), watchers(&table, 3)), (twice(&ids), ids.clone()));
            remove(&mut table, ids.remove(removed));
            assert_eq!((watchers(&table, 7), watchers(&table, 3)), (twice(&ids), ids.clone()));
            for id in ids {
                remove(&mut table, id);
            }
            assert_empty(&table);
        }
    }

    #[test]
    fn keys_of_one_chain_are_distinguished() {
        let mut table = TestTable::new();
        let ids: Vec<RecordId> = (0..40).map(|key| add(&mut table, &[key])).collect();
        for removed in [36, 0, 20, 16, 4] {
            remove(&mut table, ids[removed]);
        }
        for (key, &id) in (0..).zip(&ids) {
            let is_removed = [36, 0, 20, 16, 4].contains(&key);
            assert_eq!(watchers(&table, key), if is_removed { vec![] } else { vec![id] });
        }
    }

    #[test]
    fn an_id_never_matches_another_operation() {
        let mut table = TestTable::new();
        let first = add(&mut table, &[1]);
        remove(&mut table, first);
        let second = add(&mut table, &[1]);
        assert_eq!({ first.index }, { second.index });
        assert!(table.get(first).is_none() && table.get(second).is_some());
        remove(&mut table, second);
        while table.trim_memory(true) {}
        let third = add(&mut table, &[1]);
        assert!(table.get(first).is_none() && table.get(second).is_none());
        assert!(!table.try_watch(first, 0, 0) && table.get(third).is_some());
    }

    #[test]
    fn a_second_unwatch_does_not_end_a_later_watch() {
        let mut table = TestTable::new();
        let remote_operation = RecordId { number: NonZeroU64::MIN, index: 5 };
        let watch = table.add_remote_watch(3, remote_operation, hash(1), 1);
        assert_eq!(table.all_remote_watchers().collect::<Vec<_>>(), [(3, remote_operation)]);
        table.remove_remote_watch(watch);
        assert_empty(&table);
        let next = table.add_remote_watch(3, remote_operation, hash(1), 1);
        table.remove_remote_watch(watch);
        assert_eq!(watchers(&table, 1), [remote_operation]);
        table.remove_remote_watch(next);
        assert_empty(&table);
    }

    fn begin_walk(table: &TestTable) -> EventWalk {
        table.begin_walk_at(table.find_key(hash(9), &9))
    }

    /// Takes a step of an event, and returns the index of the reached operation.
    fn advance_event(table: &mut TestTable, event: &mut EventWalk) -> Option<u32> {
        let WatchingOperation::Local(index) = table.advance_event(event)? else { return None };
        Some(index)
    }

    /// During two nested events on a key, one watch is removed, and one is added.
    #[test]
    fn an_event_skips_watches_removed_or_added_during_it() {
        for removed in 0..5 {
            let mut table = TestTable::new();
            let ids: Vec<RecordId> = (0..5).map(|_| add(&mut table, &[9])).collect();
            let mut outer = begin_walk(&table);
            let mut seen_by_outer = vec![advance_event(&mut table, &mut outer).expect("the first")];
            let mut inner = begin_walk(&table);
            assert_eq!(advance_event(&mut table, &mut inner), Some(ids[0].index));
            remove(&mut table, ids[removed]);
            let late = add(&mut table, &[9]);
            let mut seen_by_inner = vec![ids[0].index];
            while inner.has_cursor {
                seen_by_inner.extend(advance_event(&mut table, &mut inner));
            }
            while outer.has_cursor {
                seen_by_outer.extend(advance_event(&mut table, &mut outer));
            }
            let indices = ids.iter().map(|id| id.index).enumerate();
            let expected: Vec<u32> = indices
                .filter(|&(at, _)| at == 0 || at != removed)
                .map(|(_, index)| index)
                .collect();
            assert_eq!(
                (&seen_by_outer, &seen_by_inner),
                (&expected, &expected),
                "without {removed}"
            );
            assert!(table.cursors.is_empty() && watchers(&table, 9).contains(&late));
        }
    }

    fn add_and_remove(table: &mut TestTable, operations: u32) {
        let ids: Vec<RecordId> = (0..operations).map(|key| add(table, &[key, 1, 2])).collect();
        for id in ids {
            remove(table, id);
        }
    }

    fn capacities(table: &TestTable) -> [usize; 3] {
        [table.operations.capacity(), table.separate_watches.capacity(), table.chain_heads.len()]
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes half an hour, and nothing here is unsafe")]
    fn equal_bursts_reuse_memory_and_smaller_bursts_free_it() {
        let mut table = TestTable::new();
        add_and_remove(&mut table, 100);
        let large = capacities(&table);
        for _ in 0..10 * PURGATORY_TRIM_INTERVAL_TURNS {
            assert!(table.trim_memory(false), "there is memory to free");
            add_and_remove(&mut table, 100);
            // In a unit test, the first page has room for four records, and each later page for
            // two.
            let now = capacities(&table);
            assert!(now.iter().zip(large).all(|(&now, large)| now + 2 >= large), "{now:?}");
        }
        for _ in 0..2 * PURGATORY_TRIM_INTERVAL_TURNS {
            table.trim_memory(false);
            add_and_remove(&mut table, 10);
        }
        let small = capacities(&table);
        assert!(small[2] < large[2], "{small:?} {large:?}");
        for _ in 0..10 * PURGATORY_TRIM_INTERVAL_TURNS {
            table.trim_memory(false);
        }
        assert!(!table.trim_memory(false), "there is nothing to free");
        assert_only_spare_memory(&table);
    }

    /// The first page of each kind has room for four records: a `Vec` begins with this capacity.
    fn assert_only_spare_memory(table: &TestTable) {
        let [operations, watches, chains] = capacities(table);
        assert!(operations <= 4 && watches <= 4 && chains <= PURGATORY_SPARE_CHAINS_MAX);
    }

    #[test]
    fn one_operation_keeps_one_page_and_few_chains() {
        for is_before_long_sleep in [false, true] {
            let mut table = TestTable::new();
            let ids: Vec<RecordId> =
                (0..500).map(|key| add(&mut table, &[key, 1_000 + key])).collect();
            for &id in ids[..250].iter().chain(&ids[251..]) {
                remove(&mut table, id);
            }
            let mut turns = 1;
            let mut chains = table.chain_heads.len();
            while table.trim_memory(is_before_long_sleep) {
                assert!(table.chain_heads.len() + PURGATORY_CHAINS_REMOVED_PER_TURN_MAX >= chains);
                (turns, chains) = (turns + 1, table.chain_heads.len());
            }
            assert_eq!(turns == 1, is_before_long_sleep);
            let [operations, watches, chains] = capacities(&table);
            assert!(operations <= 4 && watches <= 4, "{operations} {watches}");
            assert!(chains <= 2 * SHRINK_ABOVE_CHAINS_PER_KEY, "{chains}");
            assert_eq!([250, 1_250].map(|key| watchers(&table, key)), [[ids[250]], [ids[250]]]);
        }
    }

    #[test]
    fn adding_and_removing_chains_loses_no_key() {
        let hash = |key: u32| key.wrapping_mul(0x9E37_79B9);
        let keys = 0..if cfg!(miri) { 20 } else { 200 };
        let mut table = TestTable::new();
        let id = add(&mut table, &[]);
        for key in keys.clone() {
            let chains = table.chain_heads.len();
            assert!(table.try_watch(id, hash(key), key));
            assert!(table.chain_heads.len() <= chains + PURGATORY_CHAINS_CREATED_PER_ADD_MAX);
            assert!(table.chain_heads.len() >= table.key_count);
        }
        let remove_chain = |table: &mut TestTable| table.keep_chains(table.chain_heads.len() - 1);
        for change in [TestTable::add_chain, remove_chain] {
            for _ in 0..table.chain_heads.len() - 1 {
                change(&mut table);
                assert!(keys.clone().all(|key| table.watchers(hash(key), &key).count() == 1));
            }
        }
        remove(&mut table, id);
        assert_empty(&table);
    }

    #[test]
    fn a_turn_frees_a_bounded_part_of_the_chains() {
        let mut table = TestTable::new();
        add_and_remove(&mut table, if cfg!(miri) { 100 } else { 2_000 });
        let mut capacity = table.chain_heads.capacity();
        while table.trim_memory(false) {
            let freed_bytes = (capacity - table.chain_heads.capacity()) * size_of::<WatchIndex>();
            assert!(
                freed_bytes <= PURGATORY_CHAIN_BYTES_FREED_PER_TURN_MAX,
                "{freed_bytes} of {capacity} chains"
            );
            capacity = table.chain_heads.capacity();
        }
        assert!(capacity <= 4 * PURGATORY_SPARE_CHAINS_MAX, "{capacity}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes, and nothing here is unsafe")]
    fn a_long_sleep_frees_a_bounded_part_of_the_chains() {
        let mut table = TestTable::new();
        add_and_remove(&mut table, 4_000);
        let (mut sleeps, mut chains) = (1, table.chain_heads.len());
        while table.trim_memory(true) {
            let removed = chains - table.chain_heads.len();
            assert_eq!(removed, PURGATORY_CHAINS_REMOVED_PER_SLEEP_MAX, "of {chains} chains");
            (sleeps, chains) = (sleeps + 1, table.chain_heads.len());
        }
        assert!(sleeps > 1, "a long sleep removes all chains");
        assert_only_spare_memory(&table);
        let capacity = table.chain_heads.capacity();
        assert!(capacity <= 4 * PURGATORY_SPARE_CHAINS_MAX, "{capacity}");
    }

    #[test]
    fn the_removal_of_the_last_keys_requests_a_trim() {
        let mut table = TestTable::new();
        add_and_remove(&mut table, 200);
        // The operations in `pair` are in the current page, so their removal frees no page, and
        // only surplus chains can request a trim.
        let pair = [0, 1].map(|key| add(&mut table, &[key]));
        while table.trim_memory(false) {}
        let chains = table.chain_heads.len();
        assert!(chains > PURGATORY_SPARE_CHAINS_MAX && !table.trim_is_requested, "{chains}");
        for id in pair {
            remove(&mut table, id);
        }
        assert!(table.trim_is_requested);
    }

    #[test]
    fn a_long_sleep_frees_all_but_one_page_of_each_kind() {
        let mut table = TestTable::new();
        let (operations, watches) = if cfg!(miri) { (20, 50) } else { (100, 2_000) };
        add_and_remove(&mut table, operations);
        let kept_id = add(&mut table, &[5]);
        let removed_id = add(&mut table, &[]);
        (0..watches)
            .for_each(|_| assert!(table.try_record_watch_on_other_core(removed_id, 3, removed_id)));
        table.operations.record_mut(removed_id.index).operation = None;
        let mut latest = table.remove(removed_id.index);
        while latest != NO_RECORD {
            latest = table.take_watch_on_other_core(latest).previous_index;
        }
        assert!(table.watches_on_other_cores.capacity() > 4);
        table.trim_memory(true);
        assert!(table.watches_on_other_cores.capacity() <= 4);
        assert_eq!(watchers(&table, 5), [kept_id]);
        remove(&mut table, kept_id);
        assert!(!table.trim_memory(true));
        assert_only_spare_memory(&table);
    }
}
