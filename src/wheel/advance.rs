//! The passage of the wheel's time.
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

use super::{
    level::{Geometry, Occupancy},
    raw::{Here, RawWheel},
    slot::Popped,
    storage::Storage,
};
use crate::limits::{CASCADED_MAX, LOOK_AHEAD_FROM};

impl<const BITS: u32, const LEVELS: usize> RawWheel<BITS, LEVELS> {
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
    pub(crate) fn pass_is_idle(&mut self, target: u64) -> bool {
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
    /// deadline, which is that pass's target. If the position is far behind, the slot of that tick is in
    /// an upper level. The late entries stay in it as near ones and are not counted in `waiting`: a
    /// tick hands down at least one of them, and the cascade the rest. Of the two crowd counts, the
    /// slot keeps the late one.
    #[cold]
    fn join_late(&mut self, storage: &impl Storage) {
        let tick = self.target;
        let slot = if self.is_near(tick) {
            self.occupy_near(tick)
        } else {
            let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, tick);
            self.occupy_far(level, tick);
            Geometry::<BITS, LEVELS>::far_at(level, tick)
        };
        self.slots.splice(storage, slot);
        if tick == self.position && self.here != Here::Cascading {
            // Also while an aligned slot of this tick expires: no later step would visit this slot.
            self.here = Here::Expiring(0);
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
                Here::Expiring(0) => Geometry::<BITS, LEVELS>::near_at(self.position),
                Here::Expiring(level) => {
                    Geometry::<BITS, LEVELS>::aligned_at(level.into(), self.position)
                }
                Here::Cascading => {
                    if !self.cascade(storage) {
                        return None;
                    }
                    continue;
                }
                Here::Nothing => continue,
            };
            if self.budget == 0 && !self.slots.is_empty(slot) {
                return None;
            }
            let Some(popped) = self.slots.pop(storage, slot) else {
                self.slot_has_expired();
                continue;
            };
            self.budget -= 1;
            self.touched += 1;
            self.note_unlinked(popped.unlinked);
            if popped.unlinked.is_empty {
                self.slot_has_expired();
            }
            self.step_prefetcher(storage);
            if popped.deadline <= self.position {
                self.len -= 1;
                return Some((popped.entry, popped.deadline));
            }
            // It was reset to a later deadline.
            self.link_by(storage, popped.entry, popped.deadline, popped.deadline);
        }
    }

    /// Moves on from an empty slot to the aligned slots that start at the position, if any.
    #[inline]
    fn slot_has_expired(&mut self) {
        let next = if let Here::Expiring(level) = self.here { level + 1 } else { 1 };
        let is_start = Geometry::<BITS, LEVELS>::starts(1, self.position);
        self.here = if is_start && usize::from(next) <= self.highest_here() {
            Here::Expiring(next)
        } else {
            Here::Nothing
        };
    }

    /// Returns true if the pass has reached its end.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.here == Here::Nothing && self.position == self.target
    }

    /// Takes the first entry out of a slot, within the budget.
    #[inline]
    fn pop<'s, S: Storage>(&mut self, storage: &'s S, slot: u32) -> Option<Popped<S::Entry<'s>>> {
        let popped = self.slots.pop(storage, slot)?;
        self.budget -= 1;
        self.touched += 1;
        self.note_unlinked(popped.unlinked);
        Some(popped)
    }

    /// Two walkers take a step for each returned entry, so that they arrive in time even if the
    /// lists are uneven.
    #[inline]
    fn step_prefetcher(&mut self, storage: &impl Storage) {
        if self.len >= LOOK_AHEAD_FROM {
            self.prefetcher.step(storage);
            self.prefetcher.step(storage);
        }
    }

    /// Returns true if the pass has left work: its budget was used up, or it was abandoned.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.is_done() && self.has_left()
    }

    fn has_left(&self) -> bool {
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
        if self.handing_down {
            self.hand_down(storage);
        }
        if self.slots.is_empty(Geometry::<BITS, LEVELS>::near_at(next)) {
            self.note_idle();
        } else {
            self.here = Here::Expiring(0);
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
            self.handing_down =
                (1..LEVELS).any(|level| !self.slots.is_empty(self.next_slot(level)));
        }
        if self.handing_down && next == self.target {
            self.hand_down(storage);
        }
        if next == start {
            self.here = if self.highest_here() > 0 { Here::Cascading } else { Here::Expiring(0) };
            self.start_prefetcher(storage);
        } else {
            self.note_idle();
        }
    }

    /// Computes how long the wheel stays idle, when nothing is left at this position.
    #[inline(never)]
    fn note_idle(&mut self) {
        self.idle_until = if self.handing_down || self.has_late() {
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
        if self.len >= LOOK_AHEAD_FROM {
            self.prefetcher.send(
                self.position,
                &self.slots,
                storage,
                Geometry::<BITS, LEVELS>::near_at,
            );
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
            if !self.move_down(storage, slot, u64::MAX) {
                return false;
            }
        }
        self.here = Here::Expiring(0);
        true
    }

    /// Cascades a portion of the next slots of the upper levels: their share of the ticks since the
    /// last portion. The portion is larger if one per coming tick would not be enough.
    #[inline(never)]
    fn hand_down(&mut self, storage: &impl Storage) {
        self.handing_down = false;
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
            self.handing_down |= !self.move_down(storage, slot, quota);
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
    fn move_down(&mut self, storage: &impl Storage, slot: u32, quota: u64) -> bool {
        let quota = usize::try_from(quota).unwrap_or(usize::MAX);
        for _ in 0..quota.min(self.budget) {
            let Some(popped) = self.pop(storage, slot) else {
                return true;
            };
            self.link_by(storage, popped.entry, popped.deadline, popped.deadline);
        }
        self.slots.is_empty(slot)
    }

    /// Returns the earliest start of an occupied slot after the current ones.
    fn next_start(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let has_near = self.waiting_in_all < self.len;
        let near = has_near
            .then(|| Geometry::<BITS, LEVELS>::next_occupied(&self.near, 0, self.position))
            .flatten();
        match near {
            // No upper slot starts within a revolution.
            Some(near) if self.is_this_revolution(near) => Some(near),
            _ => self
                .far
                .iter()
                .zip(1..)
                .filter_map(|(far, level)| self.start_in(far, level))
                .chain(near)
                .min(),
        }
    }

    fn start_in(&self, far: &Occupancy, level: usize) -> Option<u64> {
        let number = Geometry::<BITS, LEVELS>::next_occupied(far, level, self.position)?;
        Some(Geometry::<BITS, LEVELS>::start(level, number))
    }

    /// Returns the tick until which there is nothing to do.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let late = self.has_late().then_some(self.target);
        self.next_work().into_iter().chain(late).chain(self.next_portion()).min()
    }

    /// Returns the tick at which a loop has to turn so that the entries of the next upper slots are
    /// cascaded in portions.
    fn next_portion(&self) -> Option<u64> {
        if self.waiting_in_all <= CASCADED_MAX {
            return None;
        }
        let mut entries = 0;
        (1..LEVELS)
            .filter_map(|level| {
                let far = &self.far[level - 1];
                let number = Geometry::<BITS, LEVELS>::next_occupied(far, level, self.position)?;
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
