//! The wheel over indices that the caller owns: what [`Wheel`](super::Wheel) and a shard have in common.
//!
//! # How time moves
//!
//! A pass is begun with its `target`; `pop_due` then hands out one entry after the other and moves its `position`
//! from one occupied slot to the next until it meets the target. `position <= target` always, and every slot before
//! the position is empty.
//!
//! What is inserted with a deadline that `target` has already reached is *late*: it waits in a slot of its own, so that
//! no pass hands out what was inserted during it (P5), and joins the slot of its tick when the next pass begins.

use super::{
    level::{Geometry, Occupancy},
    slot::{Slots, Unlinked},
};

/// A hierarchical wheel of entries known by their index, which is never 0.
#[derive(Debug)]
pub(crate) struct RawWheel<const BITS: u32, const LEVELS: usize> {
    /// How far the entries have been handed out: slots that end before are empty.
    pub(super) position: u64,
    /// How far the current pass, or the last one, may go.
    pub(super) target: u64,
    /// No occupied slot after the current one starts before this tick. It may be too early, after a removal.
    pub(super) earliest: u64,
    pub(super) len: usize,
    touched: u64,
    pub(super) slots: Slots,
    pub(super) occupied: Box<[Occupancy]>,
}

impl<const BITS: u32, const LEVELS: usize> RawWheel<BITS, LEVELS> {
    /// The slot, after those of all levels, of entries that were already due when they were inserted.
    pub(super) const LATE: u32 = Self::slot(LEVELS, 0);

    pub(crate) fn starting_at(now: u64) -> Self {
        let () = Geometry::<BITS, LEVELS>::VALID;
        Self {
            position: now,
            target: now,
            earliest: u64::MAX,
            len: 0,
            touched: 0,
            slots: Slots::new(Self::LATE as usize + 1),
            occupied: (0..LEVELS).map(|_| Occupancy::new(1 << BITS)).collect(),
        }
    }

    /// Prepares the records of the indices up to `index`.
    pub(crate) fn reserve(&mut self, index: u32) {
        self.slots.grow_to(index);
    }

    pub(crate) fn now(&self) -> u64 {
        self.target
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// Inserts the entry `index`, which is in no slot. A deadline that is not in the future becomes the present tick.
    #[inline]
    pub(crate) fn insert(&mut self, index: u32, deadline: u64) {
        self.slots.grow_to(index);
        self.len += 1;
        self.place(index, deadline);
    }

    /// Takes an entry out, if it is in a slot.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        if self.slots.is_linked(index) {
            self.take_out(index);
        }
    }

    #[inline]
    fn take_out(&mut self, index: u32) {
        self.len -= 1;
        self.touched += 1;
        self.unlink(index);
    }

    /// Moves an entry, which is in a slot, to another deadline.
    #[inline]
    pub(crate) fn reset(&mut self, index: u32, deadline: u64) {
        self.unlink(index);
        self.place(index, deadline);
    }

    /// Whether an index, which was inserted at some time, is in a slot now.
    pub(crate) fn is_linked(&self, index: u32) -> bool {
        self.slots.is_linked(index)
    }

    pub(crate) fn deadline(&self, index: u32) -> u64 {
        self.slots.deadline(index)
    }

    /// Begins a pass that hands out what is due at `target`. An earlier target than the last one is held there.
    pub(crate) fn begin(&mut self, target: u64) {
        if !self.slots.is_empty(Self::LATE) {
            // They were inserted since the last pass began, so all of them have its target as their deadline.
            let slot = self.slot_for(self.target);
            self.slots.append(Self::LATE, slot);
        }
        self.target = self.target.max(target);
    }

    /// The next due entry of this pass and its deadline, in the order of the deadlines.
    #[inline]
    pub(crate) fn pop_due(&mut self) -> Option<(u32, u64)> {
        loop {
            if let Some(index) = self.slots.first(Self::slot_at(0, self.position)) {
                let deadline = self.slots.deadline(index);
                debug_assert_eq!(deadline, self.position);
                self.take_out(index);
                return Some((index, deadline));
            }
            if self.position == self.target {
                return None;
            }
            self.step();
        }
    }

    /// The tick until which there is nothing to do.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        if self.len == 0 {
            None
        } else if !self.slots.is_empty(Self::slot_at(0, self.position)) {
            Some(self.position)
        } else if self.slots.is_empty(Self::LATE) {
            self.next_start()
        } else {
            Some(self.next_start().map_or(self.target, |start| start.min(self.target)))
        }
    }

    /// Moves the position to the next slot that has entries, or to the target if that comes first.
    fn step(&mut self) {
        if self.earliest <= self.target {
            self.earliest = self.next_start().unwrap_or(u64::MAX);
        }
        self.position = self.earliest.min(self.target);
        self.cascade();
    }

    /// Moves the entries of the slots that start at the position down, the widest slots first: a cascade. Each goes to the
    /// lowest level that reaches it, so an entry moves at most once per level.
    fn cascade(&mut self) {
        for level in (1..=Geometry::<BITS, LEVELS>::highest_starting_at(self.position)).rev() {
            let slot = Self::slot_at(level, self.position);
            while let Some(index) = self.slots.first(slot) {
                self.unlink(index);
                let deadline = self.slots.deadline(index);
                let lower = self.slot_for(deadline);
                self.link(lower, index);
            }
        }
    }

    /// The earliest start of an occupied slot after the current ones.
    fn next_start(&self) -> Option<u64> {
        let starts = self.occupied.iter().enumerate().filter_map(|(level, occupied)| {
            let number = Geometry::<BITS, LEVELS>::next_occupied(occupied, level, self.position)?;
            Some(Geometry::<BITS, LEVELS>::start(level, number))
        });
        starts.min()
    }

    #[inline]
    fn place(&mut self, index: u32, deadline: u64) {
        let deadline = deadline.max(self.target);
        self.slots.set_deadline(index, deadline);
        let slot = if deadline == self.target { Self::LATE } else { self.slot_for(deadline) };
        self.link(slot, index);
    }

    /// The slot that `deadline` belongs to, marked as occupied.
    #[inline]
    fn slot_for(&mut self, deadline: u64) -> u32 {
        let level = Geometry::<BITS, LEVELS>::level_of(self.position, deadline);
        let number = Geometry::<BITS, LEVELS>::number(level, deadline);
        self.occupied[level].set(Geometry::<BITS, LEVELS>::position(number));
        self.earliest = self.earliest.min(Geometry::<BITS, LEVELS>::start(level, number));
        Self::slot(level, Geometry::<BITS, LEVELS>::position(number))
    }

    #[inline]
    fn link(&mut self, slot: u32, index: u32) {
        self.touched += 1;
        self.slots.link(slot, index);
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        if let Unlinked::Emptied(slot) = self.slots.unlink(index)
            && slot != Self::LATE
        {
            let (level, position) = (slot >> BITS, slot & (Self::slot(1, 0) - 1));
            self.occupied[level as usize].clear(position);
        }
    }

    /// The slot of `level` that covers `tick`.
    fn slot_at(level: usize, tick: u64) -> u32 {
        Self::slot(level, Geometry::<BITS, LEVELS>::position(Geometry::<BITS, LEVELS>::number(level, tick)))
    }

    /// Slots are numbered through all levels.
    #[allow(clippy::cast_possible_truncation)] // Levels are at most 64.
    pub(super) const fn slot(level: usize, position: u32) -> u32 {
        (level as u32) << BITS | position
    }
}
