//! The wheel over indices, which [`Wheel`](super::Wheel) and a shard share.
//!
//! Each entry is in exactly one slot, which starts at or before its deadline:
//!
//! * of the first level, if that reaches the deadline: the slot of its tick;
//! * of the lowest other level that reaches it: such a slot cascades before its first tick comes;
//! * in an *aligned* slot of an upper level, if its deadline is the first tick of that slot: it
//!   expires from there;
//! * in the *late* slot, if it was already due when it was linked: so no pass expires an entry that
//!   was linked during it (P5). The slot joins the one of its tick when the next pass begins;
//! * in an earlier slot, if it was reset to a later deadline: a reset to later is one store, and
//!   the entry is relinked when its old slot comes up.
//!
//! A deferred reset must not make a pause: with very many entries in one slot, all of them reset,
//! the tick that finds them would relink them all. So a slot of the first level counts its deferred
//! entries. An entry beyond [`DEFERRED_MAX`] is relinked at once, and a tick finds a bounded number
//! (P7).
//!
//! # The passage of time
//!
//! A pass begins with its `target`. `pop_due` then returns one entry after the other and moves the
//! `position` from one occupied slot to the next, up to the target. `position <= target` always,
//! and no slot before the position has entries. The next pass continues one that was abandoned or
//! used up its budget.
//!
//! # No pauses
//!
//! While one slot of an upper level is current, the next one is cascaded into the levels below, a
//! portion at the end of each pass. A portion is the slot's share of the elapsed time, so that the
//! slot is empty when it starts, and at most [`CASCADED_MAX`] entries (P7). No entry is added to
//! that slot, because the level below covers it already. If a slot has more than one portion left,
//! `next_deadline` requests one turn per portion before it starts. If the loop oversleeps, the
//! whole slot is moved when it starts, within the budget.

use alloc::{boxed::Box, vec};

use super::{
    level::{Geometry, coarsest},
    prefetcher::Prefetcher,
    slot::Slots,
    storage::{Entry, Links, Location, Placement, Storage},
};
use crate::limits::{CASCADED_MAX, PREFETCH_FROM};
#[cfg(feature = "std")]
use crate::limits::{SHARD_BITS, SHARD_LEVELS};

/// A hierarchical wheel of entries known by their index, which is never 0. All calls of one wheel
/// pass the same storage.
#[derive(Debug)]
pub(crate) struct RawWheel<const BITS: u32, const LEVELS: usize> {
    /// How far the entries have expired: no slot that ended before has entries.
    pub(super) position: u64,
    /// How far the current pass, or the last one, may go.
    pub(super) target: u64,
    /// Lower bound of the next tick with work. A pass to an earlier target only stores the target:
    /// before this tick no occupied slot starts, no late entry waits, no slot cascades and no
    /// revolution ends.
    pub(super) idle_until: u64,
    /// The first tick of the position's revolution.
    pub(super) revolution_start: u64,
    /// The last tick that the first level reaches.
    last_near: u64,
    /// The work left at the position.
    pub(super) here: Here,
    /// The next slot of an upper level may have entries, which are cascaded in portions.
    pub(super) cascade_pending: bool,
    /// The position at which a portion was last cascaded.
    pub(super) cascaded_until: u64,
    /// Entries that the pass may still touch.
    pub(super) budget: usize,
    pub(super) prefetcher: Prefetcher,
    /// Entries in slots. Narrower than `touched`: otherwise the compiler merges the two counters
    /// into one wide instruction, which waits for the narrow store before it.
    pub(super) len: u32,
    /// Entries that wait to be cascaded from each slot of the upper levels.
    pub(super) waiting: Box<[u32]>,
    pub(super) far_total: u32,
    pub(super) touched: u64,
    pub(super) slots: Slots<BITS, LEVELS>,
}

/// The work left at the position. Upper levels matter only where one of their slots starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    /// The upper slots that start here may have entries, which cascade first.
    Cascading,
    /// The slot of this tick expires.
    Expiring,
    /// The aligned slot of this level expires.
    ExpiringAligned(usize),
    Nothing,
}

/// Returns how many ticks a slot of each level of a shard's wheel covers, and how many slots the
/// level has.
#[cfg(feature = "std")]
pub(crate) fn shard_levels() -> impl Iterator<Item = (u64, u64)> {
    type Levels = Geometry<SHARD_BITS, SHARD_LEVELS>;
    let slots = |level| if level == 0 { Levels::NEAR_RING } else { Levels::FAR_RING };
    (0..SHARD_LEVELS).map(move |level| (Levels::start(level, 1), slots(level) as u64))
}

impl<const BITS: u32, const LEVELS: usize> RawWheel<BITS, LEVELS> {
    pub(crate) fn starting_at(now: u64) -> Self {
        Self {
            position: now,
            target: now,
            idle_until: 0,
            revolution_start: Geometry::<BITS, LEVELS>::revolution_start(now),
            last_near: Geometry::<BITS, LEVELS>::last_near(
                Geometry::<BITS, LEVELS>::revolution_start(now),
            ),
            here: Here::Nothing,
            cascade_pending: false,
            cascaded_until: now,
            budget: 0,
            prefetcher: Prefetcher::new(),
            len: 0,
            waiting: vec![0; (LEVELS - 1) * Geometry::<BITS, LEVELS>::FAR_RING].into_boxed_slice(),
            far_total: 0,
            touched: 0,
            slots: Slots::new(),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.target
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// Links an entry that is in no slot. A deadline that is not in the future becomes the present
    /// tick.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it would save and restore six registers")]
    pub(crate) fn link<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        self.touched += 1;
        self.len += 1;
        if deadline <= self.target {
            self.link_late(storage, entry);
        } else if deadline <= self.last_near {
            self.link_near(storage, entry, deadline, deadline, Location::NEAR);
        } else {
            self.link_far(storage, entry, deadline, deadline);
        }
    }

    #[cold]
    #[inline(never)]
    fn link_late<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        let links = self.slots.link_late(storage, entry.index());
        entry.place(Placement { deadline: self.target, links, location: Location::LATE });
        self.idle_until = 0;
    }

    /// Links an entry that may expire at any tick from `deadline` to `slack` later. It expires at
    /// the multiple of the largest power of two, where most entries with slack meet. There it need
    /// not cascade.
    #[inline(never)]
    pub(crate) fn link_within<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
        slack: u64,
    ) {
        let last = deadline.saturating_add(slack);
        if last <= self.target {
            return self.link(storage, entry, last);
        }
        let chosen = coarsest(deadline.max(self.target + 1), last);
        if chosen <= self.last_near {
            return self.link(storage, entry, chosen);
        }
        let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, chosen);
        if !Geometry::<BITS, LEVELS>::starts(level, chosen) {
            return self.link(storage, entry, chosen);
        }
        self.touched += 1;
        self.len += 1;
        let slot = Geometry::<BITS, LEVELS>::aligned_at(level, chosen);
        let links = self.slots.link(storage, slot, entry.index());
        entry.place(Placement { deadline: chosen, links, location: Location::ALIGNED });
        self.mark_far(level, chosen);
    }

    /// Unlinks an entry that is in a slot.
    #[inline]
    pub(crate) fn unlink<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        self.len -= 1;
        self.touched += 1;
        self.detach(storage, entry);
    }

    /// Unlinks an entry if it is in a slot.
    #[cfg(feature = "std")]
    pub(crate) fn unlink_if_linked<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        if entry.location().is_linked() {
            self.unlink(storage, entry);
        }
    }

    /// Moves an entry that is in a slot to another deadline. A later one is only stored: the entry
    /// stays in its slot, so a timer that is moved at every packet is touched once per timeout, not
    /// once per packet.
    #[inline]
    pub(crate) fn relink<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        let location = entry.location();
        let is_later = deadline > self.target && deadline >= entry.deadline();
        if is_later && (location.is_before_deadline() || self.try_defer(entry, location)) {
            self.touched += 1;
            entry.set_deadline(deadline);
        } else if is_later && location == Location::NEAR {
            self.relink_crowded(storage, entry, deadline);
        } else {
            self.relink_at_once(storage, entry, deadline);
        }
    }

    /// Counts an entry in the slot of its deadline as deferred, unless that slot has too many.
    #[inline]
    fn try_defer(&mut self, entry: impl Entry, location: Location) -> bool {
        let slot = Geometry::<BITS, LEVELS>::near_at(entry.deadline());
        let is_deferred = location == Location::NEAR && self.slots.try_defer(slot);
        if is_deferred {
            entry.set_location(Location::DEFERRED);
        }
        is_deferred
    }

    /// Moves an entry whose reset cannot be deferred.
    #[inline(never)]
    fn relink_at_once<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        self.detach(storage, entry);
        self.touched += 1;
        if deadline <= self.target {
            self.link_late(storage, entry);
        } else {
            self.link_exactly(storage, entry, deadline);
        }
    }

    /// Moves an entry to a later deadline whose slot has deferred too many. The entry is counted as
    /// deferred in its new slot, so that its next reset is a store again. If the slot of its
    /// deadline has too many as well, it goes to a pseudo-random slot before that one.
    #[cold]
    #[inline(never)]
    fn relink_crowded<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        self.detach(storage, entry);
        self.touched += 1;
        let half = (deadline - self.target).div_ceil(2);
        let sooner = u64::from(entry.index()).wrapping_mul(0x9E37_79B9_7F4A_7C15) % half;
        for tick in [deadline, deadline - sooner] {
            if tick > self.last_near {
                return self.link_far(storage, entry, deadline, tick);
            }
            if self.slots.try_defer(Geometry::<BITS, LEVELS>::near_at(tick)) {
                return self.link_near(storage, entry, deadline, tick, Location::DEFERRED);
            }
        }
        self.link_near(storage, entry, deadline, deadline, Location::NEAR);
    }

    /// Moves an entry to another deadline, whether it is in a slot or not.
    #[cfg(feature = "std")]
    pub(crate) fn relink_or_link<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
    ) {
        if entry.location().is_linked() {
            self.relink(storage, entry, deadline);
        } else {
            self.link(storage, entry, deadline);
        }
    }

    /// Links or relinks an entry so that this pass or a later one pops it. If the pass is already
    /// at its deadline or beyond, the entry is left unlinked with that deadline, and the error is
    /// the tick of the pass.
    #[cfg(feature = "std")]
    pub(crate) fn link_in_order<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
    ) -> Result<(), u64> {
        if entry.location().is_linked() {
            if deadline > self.position && entry.deadline() == deadline {
                return Ok(());
            }
            self.detach(storage, entry);
            self.len -= 1;
        }
        if deadline <= self.position {
            entry.set_deadline(deadline);
            return Err(self.position);
        }
        self.touched += 1;
        self.len += 1;
        self.link_exactly(storage, entry, deadline);
        Ok(())
    }

    /// Returns how many slots of each level have entries.
    #[cfg(feature = "std")]
    pub(crate) fn occupied(&self) -> impl Iterator<Item = u32> + '_ {
        (0..LEVELS).map(|level| self.slots.count_occupied(Geometry::<BITS, LEVELS>::slots(level)))
    }

    /// Links an entry into the slot of its deadline, without counting.
    #[inline]
    fn link_exactly<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        if deadline <= self.last_near {
            self.link_near(storage, entry, deadline, deadline, Location::NEAR);
        } else {
            self.link_far(storage, entry, deadline, deadline);
        }
    }

    /// Links an entry into the slot of `tick`, at most its deadline, in the first level.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it would save and restore six registers")]
    fn link_near<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
        tick: u64,
        location: Location,
    ) {
        let slot = Geometry::<BITS, LEVELS>::near_at(tick);
        self.slots.mark(slot);
        if tick < self.idle_until {
            self.idle_until = tick;
        }
        let links = self.slots.link(storage, slot, entry.index());
        entry.place(Placement { deadline, links, location });
    }

    /// Links an entry into the slot of `tick`, at most its deadline, in the level that reaches it.
    #[inline(never)]
    fn link_far<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64, tick: u64) {
        let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, tick);
        self.mark_far(level, tick);
        let slot = Geometry::<BITS, LEVELS>::far_at(level, tick);
        self.waiting[slot as usize - Geometry::<BITS, LEVELS>::NEAR_RING] += 1;
        self.far_total += 1;
        let links = self.slots.link(storage, slot, entry.index());
        entry.place(Placement { deadline, links, location: Location::far(slot) });
    }

    /// Marks the slot of an upper level and its aligned one.
    fn mark_far(&mut self, level: usize, tick: u64) {
        let number = Geometry::<BITS, LEVELS>::number(level, tick);
        self.slots.mark(Geometry::<BITS, LEVELS>::far_at(level, tick));
        self.idle_until = self.idle_until.min(Geometry::<BITS, LEVELS>::start(level, number));
    }

    /// Takes an entry out of its slot without counting.
    #[inline]
    fn detach<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        let Placement { links, location, .. } = entry.displace();
        if !location.is_near() {
            self.detach_elsewhere(storage, entry.index(), links, location);
        } else if let Some(slot) = self.slots.unlink(storage, links) {
            self.slots.clear(slot);
        }
    }

    /// Takes an entry out of a slot other than one of the first level that it was linked into.
    #[inline(never)]
    fn detach_elsewhere(
        &mut self,
        storage: &impl Storage,
        index: u32,
        links: Links,
        location: Location,
    ) {
        if location == Location::LATE {
            self.slots.note_unlinked_late(index, links);
        }
        let emptied = self.slots.unlink(storage, links);
        if let Some(slot) = location.far_slot() {
            self.note_unlinked_far(slot);
        } else if let Some(slot) = emptied {
            self.clear(slot);
        }
    }

    fn note_unlinked_far(&mut self, slot: u32) {
        let waiting = &mut self.waiting[slot as usize - Geometry::<BITS, LEVELS>::NEAR_RING];
        *waiting -= 1;
        self.far_total -= 1;
        if *waiting == 0 {
            self.clear(slot);
        }
    }

    /// Updates the marks after a slot was emptied.
    #[inline]
    fn clear(&mut self, slot: u32) {
        if (slot as usize) < Geometry::<BITS, LEVELS>::NEAR_RING {
            self.slots.clear(slot);
        } else if slot < Geometry::<BITS, LEVELS>::LATE {
            self.clear_far(slot);
        }
    }

    /// Clears the mark of a slot of an upper level if it and its aligned one are empty.
    #[cold]
    #[inline(never)]
    fn clear_far(&mut self, slot: u32) {
        let (level, position) = Geometry::<BITS, LEVELS>::far_place(slot);
        let plain = Geometry::<BITS, LEVELS>::far_slot(level, position);
        let aligned = Geometry::<BITS, LEVELS>::aligned_slot(level, position);
        if self.slots.is_empty(plain) && self.slots.is_empty(aligned) {
            self.slots.clear(plain);
        }
    }

    // ---- the passage of time

    /// Begins a pass that returns the entries due at `target`, and touches at most `budget`
    /// entries. The target never goes back.
    #[inline]
    pub(crate) fn begin(&mut self, storage: &impl Storage, target: u64, budget: usize) {
        self.budget = budget;
        if self.has_late() {
            self.join_late(storage);
        }
        self.target = self.target.max(target);
    }

    /// Begins and ends a pass that has nothing to do. Returns false, and does nothing, if there may
    /// be work.
    #[inline]
    pub(crate) fn try_idle_pass(&mut self, target: u64) -> bool {
        let is_idle = target < self.idle_until && target >= self.target;
        if is_idle {
            (self.target, self.position) = (target, target);
        }
        is_idle
    }

    /// Returns the tick before which a pass would have nothing to do and need not begin.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn idle_until(&self) -> u64 {
        self.idle_until
    }

    /// Moves the late entries, which were inserted since the last pass began, to the slot of their
    /// deadline, which is that pass's target. If the position is far behind, the slot of that tick
    /// is in an upper level. There, late entries keep their location and are not counted in
    /// `waiting`. The portion of a tick moves at least one of them, and the final cascade the rest.
    #[cold]
    fn join_late(&mut self, storage: &impl Storage) {
        let tick = self.target;
        let slot = if tick <= self.last_near {
            let slot = Geometry::<BITS, LEVELS>::near_at(tick);
            self.slots.mark(slot);
            self.idle_until = self.idle_until.min(tick);
            slot
        } else {
            let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, tick);
            self.mark_far(level, tick);
            Geometry::<BITS, LEVELS>::far_at(level, tick)
        };
        self.slots.splice_late(storage, slot);
        if tick == self.position && self.here != Here::Cascading {
            // Also while an aligned slot of this tick expires: no later step would visit this slot.
            self.here = Here::Expiring;
        }
    }

    /// Unlinks the next due entry of this pass, in the order of the deadlines, and returns it and
    /// its deadline.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "apart, it costs 24 instructions for each entry")]
    pub(crate) fn pop_due<'s, S: Storage>(
        &mut self,
        storage: &'s S,
    ) -> Option<(S::Entry<'s>, u64)> {
        loop {
            if self.here == Here::Nothing {
                if self.position == self.target {
                    return None;
                }
                self.step(storage);
            }
            let slot = match self.here {
                Here::Expiring => Geometry::<BITS, LEVELS>::near_at(self.position),
                Here::ExpiringAligned(level) => {
                    Geometry::<BITS, LEVELS>::aligned_at(level, self.position)
                }
                Here::Cascading => {
                    if !self.cascade(storage) {
                        return None;
                    }
                    continue;
                }
                Here::Nothing => continue,
            };
            let first = self.slots.first(slot);
            if first == 0 {
                self.slot_has_expired();
                continue;
            }
            if self.budget == 0 {
                return None;
            }
            self.budget -= 1;
            self.touched += 1;
            let entry = storage.entry(first);
            let Placement { deadline, links: Links { next, .. }, .. } = entry.displace();
            if !self.slots.pop(storage, slot, first, next) {
                self.clear(slot);
                self.slot_has_expired();
            }
            self.step_prefetcher(storage);
            if deadline <= self.position {
                self.len -= 1;
                return Some((entry, deadline));
            }
            // It was reset to a later deadline.
            self.link_exactly(storage, entry, deadline);
        }
    }

    /// Continues after an emptied slot with the aligned slots that start at the position, if any.
    #[inline]
    fn slot_has_expired(&mut self) {
        if !Geometry::<BITS, LEVELS>::starts(1, self.position) {
            self.here = Here::Nothing;
            return;
        }
        let next = if let Here::ExpiringAligned(level) = self.here { level + 1 } else { 1 };
        self.here =
            if next <= self.highest_here() { Here::ExpiringAligned(next) } else { Here::Nothing };
    }

    /// Returns true if the pass has reached its end.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.here == Here::Nothing && self.position == self.target
    }

    /// Two walkers take a step for each returned entry, so that they arrive in time even if the
    /// lists are uneven.
    #[inline]
    fn step_prefetcher(&mut self, storage: &impl Storage) {
        if self.len >= PREFETCH_FROM {
            self.prefetcher.step(storage);
            self.prefetcher.step(storage);
        }
    }

    /// Returns true if the pass has left work: its budget was used up, or it was abandoned.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.is_done() && self.has_work_left()
    }

    fn has_work_left(&self) -> bool {
        // All slots up to the position are finished. A late entry was due by the target if the pass
        // has not reached its end.
        let is_due =
            || self.has_late() || self.next_start().is_some_and(|tick| tick <= self.target);
        self.is_busy_here() || self.position < self.target && is_due()
    }

    /// Moves the position to the next occupied slot, or to the target if that comes first.
    #[inline]
    fn step(&mut self, storage: &impl Storage) {
        let next = self.position + 1;
        if self.target > next || !self.is_this_revolution(next) {
            return self.leap(storage);
        }
        // Time mostly advances tick by tick.
        self.position = next;
        if self.cascade_pending {
            self.cascade_portion(storage);
        }
        if self.slots.is_empty(Geometry::<BITS, LEVELS>::near_at(next)) {
            self.note_idle();
        } else {
            self.here = Here::Expiring;
            self.start_prefetcher(storage);
        }
    }

    #[inline(never)]
    fn leap(&mut self, storage: &impl Storage) {
        let start = self.next_start().unwrap_or(u64::MAX);
        let next = start.min(self.target);
        let goes_round = !self.is_this_revolution(next);
        self.position = next;
        if goes_round {
            self.revolution_start = Geometry::<BITS, LEVELS>::revolution_start(next);
            self.last_near = Geometry::<BITS, LEVELS>::last_near(self.revolution_start);
            self.cascade_pending =
                (1..LEVELS).any(|level| !self.slots.is_empty(self.next_slot(level)));
        }
        if self.cascade_pending && next == self.target {
            self.cascade_portion(storage);
        }
        if next == start {
            self.here = if self.highest_here() > 0 { Here::Cascading } else { Here::Expiring };
            self.start_prefetcher(storage);
        } else {
            self.note_idle();
        }
    }

    /// Updates `idle_until` after all work at the position is done.
    #[inline(never)]
    fn note_idle(&mut self) {
        self.idle_until = if self.cascade_pending || self.has_late() {
            0
        } else {
            let revolution = Geometry::<BITS, LEVELS>::revolution(0, self.position);
            let last = Geometry::<BITS, LEVELS>::start(1, revolution)
                | (Geometry::<BITS, LEVELS>::start(1, 1) - 1);
            self.next_start().unwrap_or(u64::MAX).min(last)
        };
    }

    /// Fetches entries of the coming ticks and their data while the entries of this tick are
    /// returned. A small wheel is in the cache anyway.
    #[inline]
    fn start_prefetcher(&mut self, storage: &impl Storage) {
        if self.len >= PREFETCH_FROM {
            self.prefetcher.send(self.position, &self.slots, storage);
        }
    }

    fn is_this_revolution(&self, tick: u64) -> bool {
        Geometry::<BITS, LEVELS>::revolution_start(tick) == self.revolution_start
    }

    fn highest_here(&self) -> usize {
        Geometry::<BITS, LEVELS>::highest_starting_at(self.position)
    }

    /// Moves down the remaining entries of the slots that start at the position. Returns true when
    /// it is done.
    #[cold]
    fn cascade(&mut self, storage: &impl Storage) -> bool {
        for level in 1..=self.highest_here() {
            let slot = Geometry::<BITS, LEVELS>::far_at(level, self.position);
            if !self.cascade_slot(storage, slot, u64::MAX) {
                return false;
            }
        }
        self.here = Here::Expiring;
        true
    }

    /// Cascades a portion of the next slots of the upper levels: their share of the ticks since the
    /// last portion. The portion is larger if one per coming tick would not be enough.
    #[inline(never)]
    fn cascade_portion(&mut self, storage: &impl Storage) {
        self.cascade_pending = false;
        // Entries left in the slots that start here are part of the portion.
        let left = (1..=self.highest_here()).map(|level| {
            u64::from(self.waiting_at(Geometry::<BITS, LEVELS>::far_at(level, self.position)))
        });
        let mut portion = u64::from(CASCADED_MAX).saturating_sub(left.sum());
        for level in 1..LEVELS {
            let slot = self.next_slot(level);
            if self.slots.is_empty(slot) {
                continue;
            }
            let number = Geometry::<BITS, LEVELS>::number(level, self.position);
            let (start, end) = (
                Geometry::<BITS, LEVELS>::start(level, number),
                Geometry::<BITS, LEVELS>::start(level, number + 1),
            );
            let since = self.cascaded_until.max(start.saturating_sub(1));
            let waiting = u64::from(self.waiting_at(slot));
            let share = waiting.div_ceil(end - 1 - since).saturating_mul(self.position - since);
            let room = (end - self.position).saturating_mul(CASCADED_MAX.into());
            let excess = waiting.saturating_sub(room);
            let quota = share.max(excess).max(1).min(portion);
            portion -= quota;
            self.cascade_pending |= !self.cascade_slot(storage, slot, quota);
        }
        self.cascaded_until = self.position;
    }

    fn waiting_at(&self, slot: u32) -> u32 {
        self.waiting[slot as usize - Geometry::<BITS, LEVELS>::NEAR_RING]
    }

    /// Returns the slot of an upper level that comes after the current one.
    fn next_slot(&self, level: usize) -> u32 {
        let number = Geometry::<BITS, LEVELS>::number(level, self.position) + 1;
        Geometry::<BITS, LEVELS>::far_slot(level, Geometry::<BITS, LEVELS>::position(level, number))
    }

    /// Moves up to `quota` entries of a slot to their present slots. Returns true if none is left.
    fn cascade_slot(&mut self, storage: &impl Storage, slot: u32, quota: u64) -> bool {
        let quota = usize::try_from(quota).unwrap_or(usize::MAX);
        for _ in 0..quota.min(self.budget) {
            let first = self.slots.first(slot);
            if first == 0 {
                return true;
            }
            self.budget -= 1;
            self.touched += 1;
            let entry = storage.entry(first);
            let deadline = entry.deadline();
            self.detach(storage, entry);
            self.link_exactly(storage, entry, deadline);
        }
        self.slots.is_empty(slot)
    }

    /// Returns the earliest start of an occupied slot after the current ones.
    fn next_start(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let has_near = self.far_total < self.len;
        let near = has_near.then(|| self.next_occupied(0)).flatten();
        match near {
            // No upper slot starts within a revolution.
            Some(near) if self.is_this_revolution(near) => Some(near),
            _ => (1..LEVELS).filter_map(|level| self.next_start_of(level)).chain(near).min(),
        }
    }

    fn next_start_of(&self, level: usize) -> Option<u64> {
        Some(Geometry::<BITS, LEVELS>::start(level, self.next_occupied(level)?))
    }

    /// Returns the number of the first occupied slot of a level after the current one.
    #[inline]
    fn next_occupied(&self, level: usize) -> Option<u64> {
        let slots = Geometry::<BITS, LEVELS>::slots(level);
        let current = Geometry::<BITS, LEVELS>::number(level, self.position);
        let from = Geometry::<BITS, LEVELS>::position(level, current.wrapping_add(1));
        let found = self
            .slots
            .first_occupied(slots.start + from..slots.end)
            .or_else(|| self.slots.first_occupied(slots.clone()))?;
        let ahead = (found - slots.start).wrapping_sub(from);
        Some(current + 1 + u64::from(Geometry::<BITS, LEVELS>::position(level, ahead.into())))
    }

    /// Returns the tick until which there is nothing to do.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let late = self.has_late().then_some(self.target);
        self.next_work().into_iter().chain(late).chain(self.next_portion()).min()
    }

    /// Returns the tick at which a loop has to turn so that the entries of the next upper slots are
    /// cascaded in portions.
    fn next_portion(&self) -> Option<u64> {
        if self.far_total <= CASCADED_MAX {
            return None;
        }
        let mut entries = 0;
        (1..LEVELS)
            .filter_map(|level| {
                let number = self.next_occupied(level)?;
                let position = Geometry::<BITS, LEVELS>::position(level, number);
                entries += self.waiting_at(Geometry::<BITS, LEVELS>::far_slot(level, position));
                // The first portion that fits into one turn is moved when the slot starts.
                let portions = u64::from(entries.div_ceil(CASCADED_MAX).saturating_sub(1));
                let start = Geometry::<BITS, LEVELS>::start(level, number);
                let slot_before = start - Geometry::<BITS, LEVELS>::start(level, 1);
                (portions > 0)
                    .then(|| start.saturating_sub(portions).max(slot_before).max(self.position + 1))
            })
            .min()
    }

    /// Returns the tick until which there is nothing to do apart from late entries.
    fn next_work(&self) -> Option<u64> {
        if self.len == 0 {
            None
        } else if self.is_busy_here() {
            Some(self.position)
        } else {
            self.next_start()
        }
    }

    /// Returns true if entries wait that were due when they were inserted.
    #[inline]
    pub(super) fn has_late(&self) -> bool {
        !self.slots.is_empty(Geometry::<BITS, LEVELS>::LATE)
    }

    fn is_busy_here(&self) -> bool {
        let is_busy = |slot| !self.slots.is_empty(slot);
        let is_busy_at = |level| {
            is_busy(Geometry::<BITS, LEVELS>::aligned_at(level, self.position))
                || is_busy(Geometry::<BITS, LEVELS>::far_at(level, self.position))
        };
        self.here != Here::Nothing
            && (is_busy(Geometry::<BITS, LEVELS>::near_at(self.position))
                || (1..=self.highest_here()).any(is_busy_at))
    }
}
