//! The wheel over indices: what [`Wheel`](super::Wheel) and a shard have in common. How time moves is in `advance`.
//!
//! An index is allocated, put into the wheel and taken out again any number of times, and released. Each entry is in
//! exactly one slot, which starts at or before its deadline:
//!
//! * of the first level, if that reaches the deadline: the slot of its tick;
//! * of the lowest level that does otherwise: such a slot is handed down before its first tick comes;
//! * in an *aligned* slot of an upper level, if its deadline is the first tick of that slot: it fires from there;
//! * in the *late* slot, if it was already due when it was inserted: so no pass hands out what was inserted during it (P5),
//!   and the slot joins the one of its tick when the next pass begins;
//! * in an earlier slot, if it was reset to a later deadline: a reset to later is one store, and the entry is re-placed
//!   when its old slot comes up. Crowded slots are the exception, so that no tick finds more of these than it should.

use alloc::{boxed::Box, vec};
use core::mem;

use super::{
    ahead::Ahead,
    level::{Geometry, Occupancy},
    nodes::{Link, Node, Standing},
    slot::{Left, Slots},
};

/// A hierarchical wheel of entries known by their index, which is never 0.
#[derive(Debug)]
pub(crate) struct RawWheel<T, const BITS: u32, const LEVELS: usize> {
    /// How far the entries have been handed out: no slot that ended before has entries.
    pub(super) position: u64,
    /// How far the current pass, or the last one, may go.
    pub(super) target: u64,
    /// For a target before this tick there is nothing to do but to remember it: no occupied slot starts, no late entry
    /// waits, nothing is left here or to be handed down, no revolution ends. It may be too early.
    pub(super) calm_until: u64,
    /// What is left to do at the position.
    pub(super) here: Here,
    /// An upper level's next slot may have entries, which are handed down little by little.
    pub(super) handing_down: bool,
    /// Entries that the pass may still touch.
    pub(super) budget: usize,
    pub(super) ahead: Ahead,
    /// Entries in slots. (Of another width than `touched`: otherwise the two are counted by one wide instruction, which waits for
    /// the narrow one before.)
    pub(super) len: u32,
    /// Entries that wait to be handed down from each slot of the upper levels, and from all of them.
    pub(super) waiting: Box<[u32]>,
    pub(super) waiting_in_all: u32,
    pub(super) touched: u64,
    pub(super) slots: Slots<T>,
    /// Which slots of the first level have entries.
    pub(super) near: Occupancy,
    /// Which slots of the other levels have, level by level.
    pub(super) far: Box<[Occupancy]>,
}

/// An entry that was inserted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inserted {
    pub(crate) index: u32,
    /// How many entries of this index have ended before.
    pub(crate) generation: u32,
}

/// What is left to do at the position. Upper levels matter only where one of their slots starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    /// The upper slots that start here may have entries, which move down first.
    Cascading,
    /// The slot of this tick at this level is being handed out; above the first level, the aligned one.
    Firing(usize),
    Nothing,
}

impl<T, const BITS: u32, const LEVELS: usize> RawWheel<T, BITS, LEVELS> {
    pub(crate) fn starting_at(now: u64) -> Self {
        let () = Geometry::<BITS, LEVELS>::VALID;
        Self {
            position: now,
            target: now,
            calm_until: 0,
            here: Here::Nothing,
            handing_down: false,
            budget: 0,
            ahead: Ahead::new(),
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

    pub(crate) fn now(&self) -> u64 {
        self.target
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// Whether every index is in use.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.slots.nodes.is_full()
    }

    /// Inserts an entry, whose value is to be set next, under an index that is free. A deadline that is not in the future becomes
    /// the present tick.
    #[inline]
    pub(crate) fn insert(&mut self, deadline: u64) -> Inserted {
        if deadline <= self.target {
            return self.insert_late();
        }
        self.touched += 1;
        self.len += 1;
        let far = !self.is_near(deadline);
        let slot = if far { self.wait_far(deadline) } else { self.occupy_near(deadline) };
        let (index, generation) = self.slots.insert(slot, far, deadline);
        Inserted { index, generation }
    }

    #[cold]
    #[inline(never)]
    fn insert_late(&mut self) -> Inserted {
        let inserted = self.allocate();
        self.place(inserted.index, self.target);
        inserted
    }

    /// As [`insert`](Self::insert), due at any tick from `deadline` to `slack` later: at the one that most of the
    /// others with some slack would choose, and from which it needs no cascade.
    #[inline(never)]
    pub(crate) fn insert_within(&mut self, deadline: u64, slack: u64) -> Inserted {
        let last = deadline.saturating_add(slack);
        if last <= self.target {
            return self.insert(last);
        }
        let chosen = Geometry::<BITS, LEVELS>::coarsest(deadline.max(self.target + 1), last);
        if self.is_near(chosen) {
            return self.insert(chosen);
        }
        let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, chosen);
        if !Geometry::<BITS, LEVELS>::starts(level, chosen) {
            return self.insert(chosen);
        }
        let inserted = self.allocate();
        self.slots.nodes.node(inserted.index).deadline = chosen;
        self.touched += 1;
        // It is near in that it will not be handed down.
        self.slots.put_near(Geometry::<BITS, LEVELS>::aligned_at(level, chosen), inserted.index);
        self.occupy_far(level, chosen);
        inserted
    }

    /// A new entry, which is in no slot yet.
    fn allocate(&mut self) -> Inserted {
        self.len += 1;
        self.take_index()
    }

    /// An index whose entry is not in the wheel yet, as if it had been handed out: it is [put in order](Self::put_in_order) or released.
    pub(crate) fn take_index(&mut self) -> Inserted {
        let (index, node, _) = self.slots.nodes.take();
        Inserted { index, generation: node.generation }
    }

    /// Gives an entry its value. (Values come and go apart from the rest: so they are moved once, from or to where the caller
    /// has them.)
    #[inline]
    pub(crate) fn set_value(&mut self, index: u32, value: T) {
        self.slots.nodes.node(index).value = Some(value);
    }

    /// Takes the value of an entry that was handed out, or has just been taken out.
    #[inline]
    pub(crate) fn take_value(&mut self, index: u32) -> Option<T> {
        self.slots.nodes.get_mut(index)?.value.take()
    }

    /// Takes an entry out, if it is in a slot and of this generation, which ends. Whether it was; then its value is to be
    /// taken next.
    #[inline]
    pub(crate) fn remove_generation(&mut self, index: u32, generation: u32) -> bool {
        self.end(index, |node| node.is_in_wheel(generation), Node::end_generation)
    }

    /// Ends an entry that `judge` finds right, and releases its index if `release` says so. Whether it was in a slot.
    #[inline]
    pub(super) fn end(
        &mut self,
        index: u32,
        judge: impl FnOnce(&Node<T>) -> bool,
        release: impl FnOnce(&mut Node<T>) -> bool,
    ) -> bool {
        let (mut between, mut stood) = (Link::default(), Standing::OUT);
        self.slots.nodes.give_if(index, |node, link| {
            if !judge(node) {
                return false;
            }
            between = *link;
            stood = mem::take(&mut node.standing);
            release(node)
        });
        if stood == Standing::OUT {
            return false;
        }
        self.len -= 1;
        self.touched += 1;
        let left = self.slots.bypass(index, between);
        self.left(stood, left);
        true
    }

    /// The value of an entry that was handed out; its generation ends, and its index is released.
    #[inline]
    pub(crate) fn finish_generation(&mut self, index: u32) -> Option<T> {
        let mut value = None;
        self.slots.nodes.give_if(index, |node, _| {
            value = node.value.take();
            node.end_generation()
        });
        value
    }

    /// Whether so much memory is not needed that some of it should go back.
    #[inline]
    pub(crate) fn has_too_much(&self) -> bool {
        self.slots.nodes.has_too_much()
    }

    /// Gives a page back that is not needed, if one is found soon; its number.
    pub(crate) fn shrink(&mut self) -> Option<u32> {
        self.slots.nodes.shrink()
    }

    /// Puts an entry that is in no slot where it belongs.
    pub(super) fn place(&mut self, index: u32, deadline: u64) {
        self.touched += 1;
        let deadline = deadline.max(self.target);
        self.slots.nodes.node(index).deadline = deadline;
        if deadline > self.target {
            self.put_by(index, deadline);
        } else {
            self.slots.put_near(Geometry::<BITS, LEVELS>::LATE, index);
            self.calm_until = 0;
        }
    }

    /// Puts an entry into the slot that `tick`, at most its deadline, belongs to.
    #[inline]
    pub(super) fn put_by(&mut self, index: u32, tick: u64) {
        if self.is_near(tick) {
            let slot = self.occupy_near(tick);
            self.slots.put_near(slot, index);
        } else {
            let slot = self.wait_far(tick);
            self.slots.put(slot, index, Standing::far(slot));
        }
    }

    /// Whether the first level reaches a deadline.
    #[inline]
    pub(super) fn is_near(&self, deadline: u64) -> bool {
        Geometry::<BITS, LEVELS>::is_near(self.position, deadline)
    }

    /// The slot of this tick in the first level, which has entries now.
    #[inline]
    pub(super) fn occupy_near(&mut self, tick: u64) -> u32 {
        let slot = Geometry::<BITS, LEVELS>::near_at(tick);
        self.near.set(slot);
        self.calm_until = self.calm_until.min(tick);
        slot
    }

    /// The slot of an upper level for this tick, where one entry more waits.
    #[inline(never)]
    fn wait_far(&mut self, tick: u64) -> u32 {
        let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, tick);
        self.occupy_far(level, tick);
        let slot = Geometry::<BITS, LEVELS>::far_at(level, tick);
        self.waiting[slot as usize - Geometry::<BITS, LEVELS>::NEAR_RING] += 1;
        self.waiting_in_all += 1;
        slot
    }

    /// The slot of an upper level, or its aligned twin, has entries now.
    #[inline]
    pub(super) fn occupy_far(&mut self, level: usize, tick: u64) {
        let number = Geometry::<BITS, LEVELS>::number(level, tick);
        self.far[level - 1].set(Geometry::<BITS, LEVELS>::position(level, number));
        self.calm_until = self.calm_until.min(Geometry::<BITS, LEVELS>::start(level, number));
    }

    /// Takes an entry out of the slot it is in.
    #[inline]
    pub(super) fn take(&mut self, index: u32) {
        let stood = self.slots.nodes.node(index).standing;
        let left = self.slots.take(index);
        self.left(stood, left);
    }

    /// An entry that stood so has left its slot. In the first level this does not branch: nobody can foresee which slots are empty
    /// now.
    #[inline]
    pub(super) fn left(&mut self, stood: Standing, left: Left) {
        if let Some(slot) = stood.far_slot() {
            let waiting = &mut self.waiting[slot as usize - Geometry::<BITS, LEVELS>::NEAR_RING];
            *waiting -= 1;
            self.waiting_in_all -= 1;
            if *waiting == 0 {
                self.vacate(slot);
            }
        } else if (left.slot as usize) < Geometry::<BITS, LEVELS>::NEAR_RING {
            self.near.clear_if(left.slot, left.is_empty);
        } else if left.is_empty && left.slot < Geometry::<BITS, LEVELS>::LATE {
            self.vacate(left.slot);
        }
    }

    /// A slot of an upper level may be empty now; its mark goes if its twin is empty as well.
    #[cold]
    #[inline(never)]
    fn vacate(&mut self, slot: u32) {
        let (level, position) = Geometry::<BITS, LEVELS>::far_place(slot);
        let twins = [
            Geometry::<BITS, LEVELS>::far_slot(level, position),
            Geometry::<BITS, LEVELS>::aligned_slot(level, position),
        ];
        if twins.iter().all(|&twin| self.slots.is_empty(twin)) {
            self.far[level - 1].clear_if(position, true);
        }
    }
}
