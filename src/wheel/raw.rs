//! The wheel over indices, which [`Wheel`](super::Wheel) and a shard share. How time moves is in
//! `advance`.
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
//! the tick that finds them would relink them all. So an entry that is linked into a slot which has
//! many already (a crowd) is relinked at once when it is reset, and a tick finds a bounded number
//! (P7).

use alloc::{boxed::Box, vec};
#[cfg(feature = "std")]
use core::iter;

use super::{
    level::{Geometry, Occupancy, coarsest},
    prefetcher::Prefetcher,
    slot::{Slots, Unlinked},
    storage::{Entry, Location, Storage},
};
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
    /// A pass to a target before this tick only stores it: no occupied slot starts, no late entry
    /// waits, no slot is cascaded, no revolution ends. It may be too early.
    pub(super) idle_until: u64,
    /// The first tick of the position's revolution.
    pub(super) revolution_start: u64,
    /// The work left at the position.
    pub(super) here: Here,
    /// The next slot of an upper level may have entries, which are cascaded in portions.
    pub(super) handing_down: bool,
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
    pub(super) waiting_in_all: u32,
    pub(super) touched: u64,
    pub(super) slots: Slots,
    /// The occupied slots of the first level.
    pub(super) near: Occupancy,
    /// The occupied slots of the other levels, level by level.
    pub(super) far: Box<[Occupancy]>,
}

/// The work left at the position. Upper levels matter only where one of their slots starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    /// The upper slots that start here may have entries, which cascade first.
    Cascading,
    /// The slot of this tick expires (0), or the aligned slot of this level.
    Expiring(u8),
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
        let () = Geometry::<BITS, LEVELS>::VALID;
        Self {
            position: now,
            target: now,
            idle_until: 0,
            revolution_start: Geometry::<BITS, LEVELS>::revolution_start(now),
            here: Here::Nothing,
            handing_down: false,
            cascaded_until: now,
            budget: 0,
            prefetcher: Prefetcher::new(),
            len: 0,
            waiting: vec![0; (LEVELS - 1) * Geometry::<BITS, LEVELS>::FAR_RING].into_boxed_slice(),
            waiting_in_all: 0,
            touched: 0,
            slots: Slots::new(
                Geometry::<BITS, LEVELS>::LATE as usize + 1,
                Geometry::<BITS, LEVELS>::LATE,
            ),
            near: Occupancy::new(Geometry::<BITS, LEVELS>::NEAR_RING),
            far: (1..LEVELS).map(|_| Occupancy::new(Geometry::<BITS, LEVELS>::FAR_RING)).collect(),
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
    #[inline]
    pub(crate) fn link<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        self.touched += 1;
        self.len += 1;
        if deadline <= self.target {
            self.link_late(storage, entry);
        } else {
            self.link_by(storage, entry, deadline, deadline);
        }
    }

    #[cold]
    #[inline(never)]
    fn link_late<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        let late = Geometry::<BITS, LEVELS>::LATE;
        let is_only = !self.has_late();
        self.slots.link_near(storage, late, entry, self.target);
        if is_only {
            self.slots.note_last(entry.index());
        }
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
        if self.is_near(chosen) {
            return self.link(storage, entry, chosen);
        }
        let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, chosen);
        if !Geometry::<BITS, LEVELS>::starts(level, chosen) {
            return self.link(storage, entry, chosen);
        }
        self.touched += 1;
        self.len += 1;
        // It is near in that it is never cascaded.
        let slot = Geometry::<BITS, LEVELS>::aligned_at(level, chosen);
        self.slots.link_near(storage, slot, entry, chosen);
        self.occupy_far(level, chosen);
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
        if deadline > self.target
            && deadline >= entry.deadline()
            && entry.location() != Location::CROWDED
        {
            self.touched += 1;
            entry.set_deadline(deadline);
        } else {
            self.relink_at_once(storage, entry, deadline);
        }
    }

    /// Moves an entry whose reset cannot be deferred. An entry of a crowd is linked into a
    /// pseudo-random slot before its deadline, where the next reset can be deferred. If that slot
    /// has a crowd, the entry is linked into the slot of its deadline, so that no crowded entry is
    /// in a slot before its deadline.
    #[inline(never)]
    fn relink_at_once<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64) {
        self.detach(storage, entry);
        self.touched += 1;
        if deadline <= self.target {
            return self.link_late(storage, entry);
        }
        self.link_by(storage, entry, deadline, deadline);
        if entry.location() == Location::CROWDED {
            let half = (deadline - self.target).div_ceil(2);
            let sooner = u64::from(entry.index()).wrapping_mul(0x9E37_79B9_7F4A_7C15) % half;
            self.detach(storage, entry);
            self.link_by(storage, entry, deadline, deadline - sooner);
            if entry.location() == Location::CROWDED {
                self.detach(storage, entry);
                self.link_by(storage, entry, deadline, deadline);
            }
        }
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

    /// Links an entry, in a slot or not, where the present pass or a later one finds it. If the
    /// pass is already at its deadline or beyond, the entry is left unlinked with that deadline,
    /// and the error is the tick of the pass.
    #[cfg(feature = "std")]
    pub(crate) fn place_in_order<S: Storage>(
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
        self.link_by(storage, entry, deadline, deadline);
        Ok(())
    }

    /// Returns how many slots of each level have entries.
    #[cfg(feature = "std")]
    pub(crate) fn occupied(&self) -> impl Iterator<Item = u32> + '_ {
        iter::once(&self.near).chain(&self.far).map(Occupancy::count)
    }

    /// Links an entry into the slot that `tick`, at most its deadline, belongs to.
    #[inline(always)]
    #[allow(clippy::inline_always)] // A function of its own would save and restore six registers.
    pub(super) fn link_by<S: Storage>(
        &mut self,
        storage: &S,
        entry: S::Entry<'_>,
        deadline: u64,
        tick: u64,
    ) {
        if self.is_near(tick) {
            let slot = self.occupy_near(tick);
            self.slots.link_near(storage, slot, entry, deadline);
        } else {
            self.link_far(storage, entry, deadline, tick);
        }
    }

    #[inline(never)]
    fn link_far<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>, deadline: u64, tick: u64) {
        let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, tick);
        self.occupy_far(level, tick);
        let slot = Geometry::<BITS, LEVELS>::far_at(level, tick);
        self.waiting[slot as usize - Geometry::<BITS, LEVELS>::NEAR_RING] += 1;
        self.waiting_in_all += 1;
        self.slots.link_far(storage, slot, entry, deadline);
    }

    /// Returns true if the first level reaches a deadline.
    #[inline]
    pub(super) fn is_near(&self, deadline: u64) -> bool {
        Geometry::<BITS, LEVELS>::is_near(self.revolution_start, deadline)
    }

    /// Marks the slot of this tick in the first level, and returns it.
    #[inline]
    pub(super) fn occupy_near(&mut self, tick: u64) -> u32 {
        let slot = Geometry::<BITS, LEVELS>::near_at(tick);
        self.near.set(slot);
        self.idle_until = self.idle_until.min(tick);
        slot
    }

    /// Marks the slot of an upper level and its aligned one.
    #[inline]
    pub(super) fn occupy_far(&mut self, level: usize, tick: u64) {
        let number = Geometry::<BITS, LEVELS>::number(level, tick);
        self.far[level - 1].set(Geometry::<BITS, LEVELS>::position(level, number));
        self.idle_until = self.idle_until.min(Geometry::<BITS, LEVELS>::start(level, number));
    }

    /// Takes an entry out of its slot without counting.
    #[inline]
    fn detach<S: Storage>(&mut self, storage: &S, entry: S::Entry<'_>) {
        let unlinked = self.slots.unlink(storage, entry);
        self.note_unlinked(unlinked);
    }

    /// Updates the marks after an entry was unlinked.
    #[inline]
    pub(super) fn note_unlinked(&mut self, Unlinked { slot, is_empty, location }: Unlinked) {
        if let Some(slot) = location.far_slot() {
            self.note_unlinked_far(slot);
        } else if is_empty && (slot as usize) < Geometry::<BITS, LEVELS>::NEAR_RING {
            self.near.clear(slot);
        } else if is_empty && slot < Geometry::<BITS, LEVELS>::LATE {
            self.clear_far(slot);
        }
    }

    #[inline(never)]
    fn note_unlinked_far(&mut self, slot: u32) {
        let waiting = &mut self.waiting[slot as usize - Geometry::<BITS, LEVELS>::NEAR_RING];
        *waiting -= 1;
        self.waiting_in_all -= 1;
        if *waiting == 0 {
            self.clear_far(slot);
        }
    }

    /// Clears the mark of a slot of an upper level if it and its aligned one are empty.
    #[cold]
    #[inline(never)]
    fn clear_far(&mut self, slot: u32) {
        let (level, position) = Geometry::<BITS, LEVELS>::far_place(slot);
        let both = [
            Geometry::<BITS, LEVELS>::far_slot(level, position),
            Geometry::<BITS, LEVELS>::aligned_slot(level, position),
        ];
        if both.iter().all(|&slot| self.slots.is_empty(slot)) {
            self.far[level - 1].clear(position);
        }
    }
}
