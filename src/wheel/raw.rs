//! A timing wheel that identifies entries by index. A [`Wheel`](super::Wheel) contains a
//! `RawWheel`, and so does a shard.
//!
//! The module `level` defines *upper levels*, and the ticks that a level *covers*. Each linked
//! entry is in exactly one slot:
//!
//! * If the first level covers an entry's deadline, the entry is linked into the first level's
//!   slot of this deadline.
//! * An entry with a later deadline is linked into the deadline's slot in the lowest level that
//!   covers the deadline. When this slot starts, or earlier, its entries *cascade*: they are
//!   relinked, usually into lower levels.
//! * An entry is *late* if an add or a reset gives it a deadline at or before `pass_end`, the final
//!   tick of the latest pass. A late entry gets the deadline `pass_end`, and is linked into the
//!   *late* slot. At its start, the next pass moves the late entries to the slot of their deadline.
//!   So no pass expires an entry that became late during that pass (promise P5 in
//!   `ARCHITECTURE.md`).
//! * An entry that was reset to a later deadline may stay in an earlier slot. The reset is then
//!   *postponed*: the entry is relinked when the earlier slot expires or cascades.
//!
//! In the first level, only the reset of a *postponable* entry is postponed. Usually an entry
//! becomes postponable at its first reset to a later deadline: its slot then counts the entry. A
//! slot counts at most [`POSTPONABLE_PER_SLOT_MAX`](crate::limits::POSTPONABLE_PER_SLOT_MAX)
//! entries (promise P7). In a slot whose count is at its maximum, a reset of a further entry
//! relinks the entry at once.
//!
//! # The passage of time
//!
//! A pass returns the entries that are due up to its final tick, `pass_end`. Each call of
//! `pop_due_entry` advances `current_tick` to the tick of the next due entry, and returns this
//! entry. If a pass is abandoned or uses up its budget, the next pass continues at `current_tick`.
//!
//! # No pauses
//!
//! While a slot of an upper level is current, the next slot of the level cascades in portions. A
//! pass that reaches its final tick cascades a portion. A portion's size is proportional to the
//! time since the previous portion, so that a slot is usually empty when it starts. The portions of
//! one pass have at most [`CASCADED_AHEAD_PER_TURN_MAX`] entries in all (P7). While a slot
//! cascades, no new entry goes to this slot, because a lower level already covers the slot's ticks.
//!
//! If a slot needs several portions, `next_pass_tick` returns a tick early enough to leave one tick
//! for each portion. A late pass cascades a larger portion, so that the following passes are short
//! again.

use alloc::{boxed::Box, vec};
use core::cell::Cell;

use super::{
    level::{Geometry, ShardLevels},
    prefetcher::Prefetcher,
    slot::Slots,
    storage::{Entry, Location, Storage},
};
use crate::limits::{CASCADED_AHEAD_PER_TURN_MAX, PREFETCH_MIN_WHEEL_ENTRIES};

/// A hierarchical timing wheel that identifies its entries by index. No entry has index 0. All
/// calls of one wheel must pass the same storage.
#[derive(Debug)]
pub(crate) struct RawWheel<G> {
    /// The tick that the pass has reached. No slot that ended before this tick has entries.
    pub(crate) current_tick: u64,
    /// The final tick of the latest pass.
    pub(crate) pass_end: u64,
    /// Before this tick there is no work: no late entry exists, no slot cascades, no occupied slot
    /// starts, and no revolution of the first level ends. A pass that ends before this tick only
    /// stores `pass_end` and `current_tick`.
    pub(crate) idle_until: u64,
    /// No occupied slot starts after `current_tick` and before this tick. `idle_until` never
    /// exceeds this tick. The `Cell` lets `next_pass_tick` store the tick that it found, so that
    /// the next call need not search again.
    pub(super) next_slot_start_min: Cell<u64>,
    /// The last tick that the first level covers.
    pub(super) last_first_level_tick: u64,
    pub(super) pass_stage: PassStage,
    /// True if, in some upper level, the slot after the current one may have entries.
    pub(super) is_cascade_pending: bool,
    /// The tick of the latest call of `cascade_portions_ahead`.
    last_cascade_tick: u64,
    /// The number of entries that the pass may still return or relink.
    budget: usize,
    prefetcher: Prefetcher,
    /// The number of entries in slots.
    len: u32,
    /// For each slot of an upper level, the number of its entries, except those spliced from the
    /// late slot.
    pub(super) upper_counts_by_slot: Box<[u32]>,
    /// The sum of `upper_counts_by_slot`.
    pub(super) upper_entry_count: u32,
    /// How often a pass has moved an entry to another slot, except to apply a remote reset.
    pub(crate) relinked: u64,
    pub(super) slots: Slots<G>,
}

/// The next step of the pass at tick `current_tick`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassStage {
    /// The slots of upper levels that start at this tick cascade, if they have entries.
    Cascade,
    /// The first level's slot of this tick expires.
    Expire,
    /// The tick is finished.
    Done,
}

/// Returns, for each level of a shard's wheel, the number of ticks per slot and the number of
/// slots.
pub(crate) fn shard_level_geometry() -> impl Iterator<Item = (u64, u64)> {
    (0..ShardLevels::LEVEL_COUNT).map(|level| {
        (ShardLevels::slot_start(level, 1), ShardLevels::slot_indices_of_level(level).len() as u64)
    })
}

impl<G: Geometry> RawWheel<G> {
    pub(crate) fn starting_at(now: u64) -> Self {
        Self {
            current_tick: now,
            pass_end: now,
            idle_until: 0,
            next_slot_start_min: Cell::new(0),
            last_first_level_tick: G::last_first_level_tick(now),
            pass_stage: PassStage::Done,
            is_cascade_pending: false,
            last_cascade_tick: now,
            budget: 0,
            prefetcher: Prefetcher::default(),
            len: 0,
            upper_counts_by_slot: vec![0; (G::LATE_SLOT - G::FIRST_LEVEL_SLOT_COUNT) as usize]
                .into(),
            upper_entry_count: 0,
            relinked: 0,
            slots: Slots::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if the wheel is large enough for its entries to be prefetched.
    #[inline]
    pub(crate) fn should_prefetch(&self) -> bool {
        self.len >= PREFETCH_MIN_WHEEL_ENTRIES
    }

    /// Links an entry that is in no slot. A deadline before `pass_end` becomes `pass_end`.
    #[inline(always)]
    pub(crate) fn link<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        self.len += 1;
        if deadline <= self.pass_end {
            self.link_late(storage, entry);
        } else {
            self.link_into_slot(storage, entry, deadline);
        }
    }

    #[cold]
    #[inline(never)]
    fn link_late<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        self.slots.link_late(storage, entry);
        entry.deadline().set(self.pass_end);
        entry.location().set(Location::LATE);
        self.idle_until = 0;
    }

    /// Unlinks an entry that is in a slot.
    #[inline]
    pub(crate) fn unlink<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        self.len -= 1;
        self.unlink_keeping_len(storage, entry);
    }

    #[inline]
    fn unlink_keeping_len<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        let location = entry.location().replace(Location::UNLINKED);
        if location.is_in_first_level() {
            self.slots.unlink(storage, entry.links());
        } else {
            self.unlink_late_or_upper(storage, entry, location);
        }
    }

    /// Unlinks an entry whose location satisfies
    /// [`is_in_first_level`](Location::is_in_first_level).
    #[inline]
    pub(super) fn unlink_from_first_level<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        self.len -= 1;
        entry.location().set(Location::UNLINKED);
        self.slots.unlink(storage, entry.links());
    }

    #[inline]
    pub(crate) fn unlink_if_linked<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        if entry.location().get().is_linked() {
            self.unlink(storage, entry);
        }
    }

    /// Resets an entry that is in a slot to another deadline. A later deadline is usually only
    /// stored, and the entry stays in its slot.
    #[inline]
    pub(crate) fn reset<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        let location = entry.location().get();
        let is_later = deadline > self.pass_end && deadline >= entry.deadline().get();
        if is_later
            && (location.may_precede_deadline() || self.try_make_postponable(entry, location))
        {
            entry.deadline().set(deadline);
        } else if is_later && location == Location::FIRST_LEVEL {
            self.relink_from_crowded_slot(storage, entry, deadline);
        } else {
            self.relink_now(storage, entry, deadline);
        }
    }

    /// Makes an entry postponable, and counts it in its slot. Returns false if `location` is not
    /// `FIRST_LEVEL`, or if the slot's count is at its maximum.
    #[inline]
    fn try_make_postponable(&mut self, entry: impl Entry, location: Location) -> bool {
        let slot = G::first_level_slot_at(entry.deadline().get());
        let is_postponable =
            location == Location::FIRST_LEVEL && self.slots.try_increment_postponable_count(slot);
        if is_postponable {
            entry.location().set(Location::POSTPONABLE);
        }
        is_postponable
    }

    /// Relinks an entry whose reset cannot be postponed. The slow path is a separate function, so
    /// that the fast path need not save registers.
    #[inline(never)]
    fn relink_now<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        let is_in_first_level = entry.location().get().is_in_first_level();
        if is_in_first_level && Slots::<G>::is_only_entry(entry.links()) {
            self.slots.unlink(storage, entry.links());
            self.len -= 1; // `link` adds 1
            self.link(storage, entry, deadline);
        } else {
            self.relink_slow(storage, entry, deadline);
        }
    }

    #[inline(never)]
    fn relink_slow<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        self.unlink(storage, entry);
        self.link(storage, entry, deadline);
    }

    /// Relinks an entry of a *crowded* slot, whose count of postponable entries is at its maximum.
    /// Tries the slot of the new deadline, and then a pseudo-random earlier slot, so that the
    /// entry's next reset can be postponed. If the two tried slots are crowded too, links the entry
    /// with the location `FIRST_LEVEL` into the slot of its deadline.
    #[cold]
    #[inline(never)]
    fn relink_from_crowded_slot<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
    ) {
        self.unlink_keeping_len(storage, entry);
        let half_distance = (deadline - self.pass_end).div_ceil(2);
        let ticks_earlier =
            u64::from(entry.index()).wrapping_mul(0x9E37_79B9_7F4A_7C15) % half_distance;
        for tick in [deadline, deadline - ticks_earlier] {
            if tick > self.last_first_level_tick {
                return self.link_in_upper_level(storage, entry, deadline, tick);
            }
            if self.slots.try_increment_postponable_count(G::first_level_slot_at(tick)) {
                return self.link_in_first_level(
                    storage,
                    entry,
                    deadline,
                    tick,
                    Location::POSTPONABLE,
                );
            }
        }
        self.link_in_first_level(storage, entry, deadline, deadline, Location::FIRST_LEVEL);
    }

    /// Resets an entry to another deadline, or links it if it is in no slot.
    pub(crate) fn reset_or_link<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
    ) {
        if entry.location().get().is_linked() {
            self.reset(storage, entry, deadline);
        } else {
            self.link(storage, entry, deadline);
        }
    }

    /// Relinks an entry at a deadline after `pass_end`, or links it if it is in no slot. Returns
    /// true if the entry is now postponable. The caller may let other threads reset a postponable
    /// entry to a later deadline without a message to the owner (P7).
    #[inline]
    pub(crate) fn try_relink_as_postponable<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
    ) -> bool {
        debug_assert!(deadline > self.pass_end);
        let slot = G::first_level_slot_at(deadline);
        if deadline > self.last_first_level_tick || !self.slots.has_room_for_postponable(slot) {
            self.reset_or_link(storage, entry, deadline);
            return false;
        }
        self.unlink_if_linked(storage, entry);
        self.len += 1;
        // Counts the entry only after the unlink, because unlinking a slot's only entry clears the
        // slot's count.
        let is_counted = self.slots.try_increment_postponable_count(slot);
        debug_assert!(is_counted, "unlinking an entry never raises a count");
        self.link_in_first_level(storage, entry, deadline, deadline, Location::POSTPONABLE);
        true
    }

    /// Links or relinks an entry at `deadline`, if the current pass has not reached this tick yet.
    /// If the pass has reached `deadline`, unlinks the entry, stores `deadline` in it, and returns
    /// `current_tick` as the error.
    pub(crate) fn relink_unless_reached<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
    ) -> Result<(), u64> {
        if entry.location().get().is_linked() {
            if deadline > self.current_tick && entry.deadline().get() == deadline {
                return Ok(());
            }
            self.unlink(storage, entry);
        }
        if deadline <= self.current_tick {
            entry.deadline().set(deadline);
            return Err(self.current_tick);
        }
        self.len += 1;
        self.link_into_slot(storage, entry, deadline);
        Ok(())
    }

    /// Returns how many slots of each level have entries.
    pub(crate) fn occupied_slot_counts(&self) -> impl Iterator<Item = u32> + '_ {
        (0..G::LEVEL_COUNT).map(|level| self.slots.count_occupied(G::slot_indices_of_level(level)))
    }

    /// Links an entry, which the caller counts in `len`, into the slot of its deadline.
    #[inline]
    fn link_into_slot<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        if deadline <= self.last_first_level_tick {
            self.link_in_first_level(storage, entry, deadline, deadline, Location::FIRST_LEVEL);
        } else {
            self.link_in_upper_level(storage, entry, deadline, deadline);
        }
    }

    /// Links an entry into the first level's slot of `slot_tick`. `slot_tick` must be at most
    /// `deadline`.
    #[inline(always)]
    fn link_in_first_level<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
        slot_tick: u64,
        location: Location,
    ) {
        self.lower_next_slot_start_min(slot_tick);
        let slot = G::first_level_slot_at(slot_tick);
        self.slots.link(storage, slot, entry);
        entry.deadline().set(deadline);
        entry.location().set(location);
    }

    /// Links an entry into the slot of `slot_tick` in the lowest upper level that covers this tick.
    /// `slot_tick` must be at most `deadline`.
    #[inline(never)]
    fn link_in_upper_level<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
        slot_tick: u64,
    ) {
        let slot = self.choose_upper_slot(slot_tick);
        self.upper_counts_by_slot[(slot - G::FIRST_LEVEL_SLOT_COUNT) as usize] += 1;
        self.upper_entry_count += 1;
        self.slots.link(storage, slot, entry);
        entry.deadline().set(deadline);
        entry.location().set(Location::in_upper_slot(slot));
    }

    /// Returns the slot of `tick` in the lowest upper level that covers `tick`. The caller must
    /// link an entry into the returned slot.
    #[inline]
    fn choose_upper_slot(&mut self, tick: u64) -> u32 {
        let level = G::upper_level_of(self.current_tick, tick);
        let number = G::slot_number(level, tick);
        self.lower_next_slot_start_min(G::slot_start(level, number));
        G::slot_index(level, number)
    }

    /// Lowers `next_slot_start_min` and `idle_until` to at most `start`, the start of a slot into
    /// which the caller links an entry.
    #[inline]
    fn lower_next_slot_start_min(&mut self, start: u64) {
        if start < self.next_slot_start_min.get() {
            self.next_slot_start_min.set(start);
            self.idle_until = self.idle_until.min(start);
        }
    }

    /// Unlinks an entry that was linked into the late slot or an upper level. The caller has
    /// updated the entry's location and `len`.
    #[inline(never)]
    fn unlink_late_or_upper<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        location: Location,
    ) {
        if location == Location::LATE {
            self.slots.update_last_late_before_unlinking(entry);
        }
        if let Some(slot) = location.upper_slot() {
            self.upper_counts_by_slot[(slot - G::FIRST_LEVEL_SLOT_COUNT) as usize] -= 1;
            self.upper_entry_count -= 1;
        }
        self.slots.unlink(storage, entry.links());
    }

    // ---- passes

    /// Begins a pass that returns the entries due by tick `pass_end`. The pass returns or relinks
    /// at most `budget` entries. `pass_end` must not be before the end of the previous pass.
    #[inline]
    pub(crate) fn begin_pass(&mut self, storage: &impl Storage, pass_end: u64, budget: usize) {
        debug_assert!(pass_end >= self.pass_end);
        self.budget = budget;
        // While there are late entries, `idle_until` is zero, which is cheaper to check first.
        if self.idle_until == 0 && self.has_late_entries() {
            self.move_late_to_pass_end_slot(storage);
        }
        self.pass_end = pass_end;
    }

    /// If a pass up to `pass_end` certainly has nothing to do, completes the pass and returns true.
    /// If the pass may have work, changes nothing and returns false. `pass_end` must not be before
    /// the end of the previous pass.
    #[inline]
    pub(crate) fn try_complete_idle_pass(&mut self, pass_end: u64) -> bool {
        let is_idle = pass_end < self.idle_until;
        if is_idle {
            (self.pass_end, self.current_tick) = (pass_end, pass_end);
        }
        is_idle
    }

    /// Moves the late entries to the slot of their common deadline, the `pass_end` of the previous
    /// pass. The late entries keep the location `LATE`, so in a slot of an upper level,
    /// `upper_counts_by_slot` does not count them.
    #[cold]
    fn move_late_to_pass_end_slot(&mut self, storage: &impl Storage) {
        let tick = self.pass_end;
        let slot = if tick <= self.last_first_level_tick {
            self.lower_next_slot_start_min(tick);
            G::first_level_slot_at(tick)
        } else {
            self.choose_upper_slot(tick)
        };
        self.slots.splice_late_slot_into(storage, slot);
        if tick == self.current_tick && self.pass_stage == PassStage::Done {
            // The stage `Expire` makes the next pass visit the slot of the finished tick again.
            self.pass_stage = PassStage::Expire;
        }
    }

    /// Unlinks the next due entry of this pass, in the order of deadlines. Returns the entry and
    /// its deadline, or `None` if the pass has reached its end or used up its budget.
    #[inline(always)]
    pub(crate) fn pop_due_entry<'s, S: Storage>(
        &mut self,
        storage: &'s S,
    ) -> Option<(S::Entry<'s>, u64)> {
        loop {
            match self.pass_stage {
                PassStage::Expire => (),
                PassStage::Cascade => {
                    if !self.try_finish_cascade(storage) {
                        return None;
                    }
                }
                PassStage::Done => {
                    if self.current_tick == self.pass_end {
                        return None;
                    }
                    self.advance_current_tick(storage);
                    if !matches!(self.pass_stage, PassStage::Expire) {
                        continue;
                    }
                }
            }
            let slot = G::first_level_slot_at(self.current_tick);
            let first_entry = self.slots.first_entry(slot);
            if first_entry == 0 {
                self.pass_stage = PassStage::Done;
                continue;
            }
            if self.budget == 0 {
                return None;
            }
            self.budget -= 1;
            let entry = storage.entry(first_entry);
            let deadline = entry.deadline().get();
            entry.location().set(Location::UNLINKED);
            if !self.slots.pop_and_has_more(storage, slot, first_entry, entry.links().next.get()) {
                self.pass_stage = PassStage::Done;
            }
            if self.should_prefetch() {
                self.prefetcher.advance_walker(storage);
                self.prefetcher.advance_walker(storage);
            }
            if deadline <= self.current_tick {
                self.len -= 1;
                return Some((entry, deadline));
            }
            // The entry is not due, because it was reset to a later deadline.
            self.relinked += 1;
            self.link_into_slot(storage, entry, deadline);
        }
    }

    #[inline]
    pub(crate) fn is_pass_done(&self) -> bool {
        matches!(self.pass_stage, PassStage::Done) && self.current_tick == self.pass_end
    }

    /// Returns true if entries remain for the pass to return or relink, because the pass used up
    /// its budget or was abandoned.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.is_pass_done() && self.has_remaining_work()
    }

    #[inline(never)]
    fn has_remaining_work(&self) -> bool {
        // No slot before `current_tick` has entries, so work can remain only at `current_tick` or
        // later.
        let is_due = || self.next_pass_tick().is_some_and(|tick| tick <= self.pass_end);
        self.has_work_at_current() || self.current_tick < self.pass_end && is_due()
    }

    /// Moves `current_tick` to the start of the next occupied slot, or to `pass_end` if that is
    /// earlier. When `current_tick` reaches `pass_end`, also cascades a portion.
    #[inline]
    fn advance_current_tick(&mut self, storage: &impl Storage) {
        let next_tick = self.current_tick + 1;
        if self.pass_end > next_tick || !self.is_in_current_revolution(next_tick) {
            return self.advance_current_tick_slow(storage);
        }
        // The fast path: the pass ends at `next_tick`, in the revolution of `current_tick`.
        self.current_tick = next_tick;
        if self.is_cascade_pending {
            self.cascade_portions_ahead(storage);
        }
        if self.slots.is_empty(G::first_level_slot_at(next_tick)) {
            self.update_idle_until();
        } else {
            self.pass_stage = PassStage::Expire;
            self.start_prefetcher(storage);
        }
    }

    #[inline(never)]
    fn advance_current_tick_slow(&mut self, storage: &impl Storage) {
        let slot_start = self.next_slot_start().unwrap_or(u64::MAX);
        let new_current = slot_start.min(self.pass_end);
        let enters_revolution = !self.is_in_current_revolution(new_current);
        self.current_tick = new_current;
        if enters_revolution {
            self.last_first_level_tick = G::last_first_level_tick(new_current);
            self.is_cascade_pending = (1..G::LEVEL_COUNT).any(|level| {
                let next_number = G::slot_number(level, new_current) + 1;
                !self.slots.is_empty(G::slot_index(level, next_number))
            });
        }
        if self.is_cascade_pending && new_current == self.pass_end {
            self.cascade_portions_ahead(storage);
        }
        if new_current == slot_start {
            self.pass_stage =
                if enters_revolution { PassStage::Cascade } else { PassStage::Expire };
            self.start_prefetcher(storage);
        } else {
            self.update_idle_until();
        }
    }

    /// Computes `idle_until` again. The pass must have finished the tick `current_tick`.
    #[inline(never)]
    fn update_idle_until(&mut self) {
        let first_slot_start = self.next_slot_start().unwrap_or(u64::MAX);
        self.idle_until = if self.is_cascade_pending || self.has_late_entries() {
            0
        } else {
            let revolution_end = self.current_tick | (G::slot_start(1, 1) - 1);
            first_slot_start.min(revolution_end)
        };
    }

    #[inline]
    fn start_prefetcher(&mut self, storage: &impl Storage) {
        if self.should_prefetch() {
            self.prefetcher.start_walkers(self.current_tick, &self.slots, storage);
        }
    }

    fn is_in_current_revolution(&self, tick: u64) -> bool {
        G::slot_number(1, tick ^ self.current_tick) == 0
    }

    /// Cascades the remaining entries of the upper levels' slots that start at `current_tick`.
    /// Returns false if the budget does not suffice.
    #[cold]
    fn try_finish_cascade(&mut self, storage: &impl Storage) -> bool {
        for slot in G::upper_slots_starting_at(self.current_tick) {
            if !self.cascade_at_most(storage, slot, u64::MAX) {
                return false;
            }
        }
        self.pass_stage = PassStage::Expire;
        true
    }

    /// Cascades a portion of the next slot of each upper level; see "No pauses" in the module's
    /// documentation.
    #[inline(never)]
    fn cascade_portions_ahead(&mut self, storage: &impl Storage) {
        self.is_cascade_pending = false;
        // Entries of slots that start at `current_tick` also cascade in this pass, so they use up a
        // part of the allowance.
        let current_slot_counts = G::upper_slots_starting_at(self.current_tick)
            .map(|slot| u64::from(self.upper_slot_entry_count(slot)));
        let mut allowance =
            u64::from(CASCADED_AHEAD_PER_TURN_MAX).saturating_sub(current_slot_counts.sum());
        // Of the entries in the slots visited so far, the number that this pass does not cascade.
        let mut uncascaded_count = 0;
        for level in 1..G::LEVEL_COUNT {
            let number = G::slot_number(level, self.current_tick);
            let slot = G::slot_index(level, number + 1);
            if self.slots.is_empty(slot) {
                continue;
            }
            let (current_slot_start, next_slot_start) =
                (G::slot_start(level, number), G::slot_start(level, number + 1));
            let previous_portion_tick =
                self.last_cascade_tick.max(current_slot_start.saturating_sub(1));
            let entry_count = u64::from(self.upper_slot_entry_count(slot));
            let ticks_between = next_slot_start - 1 - previous_portion_tick;
            let portion_len = entry_count
                .div_ceil(ticks_between)
                .saturating_mul(self.current_tick - previous_portion_tick);
            let later_capacity = (next_slot_start - self.current_tick)
                .saturating_mul(CASCADED_AHEAD_PER_TURN_MAX.into());
            let quota_min = (uncascaded_count + entry_count).saturating_sub(later_capacity);
            let quota = portion_len.max(1).min(allowance).max(quota_min);
            allowance = allowance.saturating_sub(quota);
            uncascaded_count += entry_count.saturating_sub(quota);
            self.is_cascade_pending |= !self.cascade_at_most(storage, slot, quota);
        }
        self.last_cascade_tick = self.current_tick;
    }

    pub(super) fn upper_slot_entry_count(&self, slot: u32) -> u32 {
        self.upper_counts_by_slot[(slot - G::FIRST_LEVEL_SLOT_COUNT) as usize]
    }

    /// Moves up to `quota` entries of a slot, within the budget, to the slots of their deadlines.
    /// Returns true if the slot is empty now.
    fn cascade_at_most(&mut self, storage: &impl Storage, slot: u32, quota: u64) -> bool {
        let quota = usize::try_from(quota).unwrap_or(usize::MAX);
        for _ in 0..quota.min(self.budget) {
            let first_entry = self.slots.first_entry(slot);
            if first_entry == 0 {
                return true;
            }
            self.budget -= 1;
            self.relinked += 1;
            let entry = storage.entry(first_entry);
            let deadline = entry.deadline().get();
            self.unlink_keeping_len(storage, entry);
            self.link_into_slot(storage, entry, deadline);
        }
        self.slots.is_empty(slot)
    }

    /// Returns the first tick after `current_tick` at which an occupied slot starts.
    #[inline]
    fn next_slot_start(&self) -> Option<u64> {
        let tick = self.next_slot_start_min.get();
        let is_next_slot_start = tick > self.current_tick
            && tick <= self.last_first_level_tick
            && !self.slots.is_empty(G::first_level_slot_at(tick));
        if is_next_slot_start { Some(tick) } else { self.find_next_slot_start() }
    }

    /// Searches the levels for [`next_slot_start`](Self::next_slot_start), and stores the result in
    /// `next_slot_start_min`.
    #[inline(never)]
    fn find_next_slot_start(&self) -> Option<u64> {
        let tick = self.next_slot_start_min.get();
        if tick > self.current_tick && self.has_upper_slot_starting_at(tick) {
            return Some(tick);
        }
        let has_entries = self.upper_entry_count < self.len;
        let mut first_start_tick =
            if has_entries { self.next_occupied_slot_number(0, u64::MAX) } else { None };
        // A slot of an upper level starts only where a revolution of the first level starts. So if
        // `first_start_tick` is in the current revolution, no upper level's slot starts before it.
        if self.len > 0 && !first_start_tick.is_some_and(|tick| self.is_in_current_revolution(tick))
        {
            for level in 1..G::LEVEL_COUNT {
                let number =
                    self.next_occupied_slot_number(level, first_start_tick.unwrap_or(u64::MAX));
                let start = |number| G::slot_start(level, number);
                first_start_tick = number.map(start).or(first_start_tick);
            }
        }
        self.next_slot_start_min.set(first_start_tick.unwrap_or(u64::MAX));
        first_start_tick
    }

    /// Returns the number of a level's first occupied slot that starts after `current_tick`, and at
    /// tick `last_tick` at the latest.
    #[inline]
    fn next_occupied_slot_number(&self, level: u32, last_tick: u64) -> Option<u64> {
        let slots = G::slot_indices_of_level(level);
        let previous = G::slot_number(
            level,
            self.current_tick.max(self.next_slot_start_min.get().saturating_sub(1)),
        );
        let slots_to_search = G::slot_number(level, last_tick) - previous;
        if slots_to_search == 0 {
            return None;
        }
        let first_slot = G::slot_index(level, previous + 1);
        // The range may wrap around the ring.
        let ring_len = slots.end - slots.start;
        let end = first_slot
            + u32::try_from(slots_to_search)
                .map_or(ring_len, |slots_to_search| slots_to_search.min(ring_len));
        let found_slot =
            self.slots.first_occupied(first_slot..end.min(slots.end)).or_else(|| {
                if end > slots.end {
                    self.slots.first_occupied(slots.start..end - ring_len)
                } else {
                    None
                }
            })?;
        let slots_ahead = u64::from(found_slot.wrapping_sub(first_slot));
        let slots_ahead = G::position_in_ring(level, slots_ahead);
        Some(previous + 1 + u64::from(slots_ahead))
    }

    /// Returns the first tick at which the wheel needs a pass; `None` if there are no entries.
    pub(crate) fn next_pass_tick(&self) -> Option<u64> {
        let late_tick = self.has_late_entries().then_some(self.pass_end);
        let work_tick = if self.has_work_at_current() {
            Some(self.current_tick)
        } else {
            self.next_slot_start().map(|start| self.cascade_tick_or_slot_start(start))
        };
        work_tick.into_iter().chain(late_tick).min()
    }

    /// Returns the earlier of `first_slot_start`, the first start of an occupied slot, and the next
    /// tick at which a pass must cascade a portion in advance. Ignores a slot's final portion,
    /// which cascades at the slot's start.
    fn cascade_tick_or_slot_start(&self, first_slot_start: u64) -> u64 {
        if self.upper_entry_count <= CASCADED_AHEAD_PER_TURN_MAX {
            return first_slot_start;
        }
        // A slot that starts after `last_tick` needs its first portion only after
        // `first_slot_start`, so it is irrelevant here.
        let portion_count_max = u64::from(self.upper_entry_count / CASCADED_AHEAD_PER_TURN_MAX);
        let last_tick = first_slot_start.saturating_add(portion_count_max);
        let slot_number_at = G::slot_number;
        let mut total_entry_count = 0;
        (1..G::LEVEL_COUNT)
            .take_while(|&level| {
                slot_number_at(level, first_slot_start - 1) < slot_number_at(level, last_tick)
            })
            .filter_map(|level| {
                let number = self.next_occupied_slot_number(level, last_tick)?;
                total_entry_count += self.upper_slot_entry_count(G::slot_index(level, number));
                let portion_count = u64::from(
                    total_entry_count.div_ceil(CASCADED_AHEAD_PER_TURN_MAX).saturating_sub(1),
                );
                let start = G::slot_start(level, number);
                let previous_slot_start = start - G::slot_start(level, 1);
                (portion_count > 0).then(|| {
                    start
                        .saturating_sub(portion_count)
                        .max(previous_slot_start)
                        .max(self.current_tick + 1)
                })
            })
            .fold(first_slot_start, u64::min)
    }

    #[inline]
    fn has_late_entries(&self) -> bool {
        !self.slots.is_empty(G::LATE_SLOT)
    }

    fn has_work_at_current(&self) -> bool {
        let slot = G::first_level_slot_at(self.current_tick);
        self.pass_stage != PassStage::Done
            && (!self.slots.is_empty(slot) || self.has_upper_slot_starting_at(self.current_tick))
    }

    /// Returns true if an occupied slot of an upper level starts at `tick`. No occupied slot may
    /// start after `current_tick` and before `tick`.
    fn has_upper_slot_starting_at(&self, tick: u64) -> bool {
        G::upper_slots_starting_at(tick).any(|slot| !self.slots.is_empty(slot))
    }
}
