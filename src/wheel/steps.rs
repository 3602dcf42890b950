//! What only a shard asks of the wheel: entries without generations, because a shard names its timers otherwise, and in more
//! steps.

use core::iter;

use super::{
    level::{Geometry, Occupancy},
    nodes::Standing,
    raw::RawWheel,
};
use crate::limits::{SHARD_BITS, SHARD_LEVELS};

/// Of each level of a shard's wheel: how many ticks a slot covers, and how many slots there are.
pub(crate) fn shard_levels() -> impl Iterator<Item = (u64, u64)> {
    type Levels = Geometry<SHARD_BITS, SHARD_LEVELS>;
    let slots = |level| if level == 0 { Levels::NEAR_RING } else { Levels::FAR_RING };
    (0..SHARD_LEVELS).map(move |level| (Levels::start(level, 1), slots(level) as u64))
}

impl<T, const BITS: u32, const LEVELS: usize> RawWheel<T, BITS, LEVELS> {
    /// Prepares the memory of so many entries.
    pub(crate) fn reserve(&mut self, entries: u32) {
        self.slots.nodes.reserve(entries);
    }

    /// Brings an entry closer, if it is there.
    #[inline]
    pub(crate) fn fetch(&self, index: u32) {
        self.slots.fetch(index);
    }

    /// Puts an entry back that was handed out and not released.
    pub(crate) fn insert_again(&mut self, index: u32, deadline: u64) {
        self.len += 1;
        self.place(index, deadline);
    }

    /// Puts an entry where it belongs now, whether it is in a slot or was handed out and not released.
    pub(crate) fn put_again(&mut self, index: u32, deadline: u64) {
        if self.is_in_slot(index) {
            self.reset(index, deadline);
        } else {
            self.insert_again(index, deadline);
        }
    }

    /// Puts an entry, in a slot or handed out, where the present pass or a later one comes to it. An error if it is due already
    /// where the pass stands, with that tick; then it is handed out, with that deadline.
    pub(crate) fn put_in_order(&mut self, index: u32, deadline: u64) -> Result<(), u64> {
        if deadline <= self.position {
            self.take_out(index);
            self.slots.nodes.node(index).deadline = deadline;
            return Err(self.position);
        }
        if self.is_in_slot(index) {
            if self.deadline(index) == Some(deadline) {
                return Ok(());
            }
            self.take(index);
        } else {
            self.len += 1;
        }
        self.touched += 1;
        self.slots.nodes.node(index).deadline = deadline;
        self.put_by(index, deadline);
        Ok(())
    }

    /// Takes an entry out, if it is in a slot, and does not release its index.
    pub(crate) fn take_out(&mut self, index: u32) {
        if self.is_in_slot(index) {
            self.take(index);
            self.len -= 1;
            self.touched += 1;
        }
    }

    fn is_in_slot(&self, index: u32) -> bool {
        self.slots.nodes.get(index).is_some_and(|node| node.standing != Standing::OUT)
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, index: u32) -> Option<&T> {
        self.slots.nodes.get(index)?.value.as_ref()
    }

    /// Takes an entry out, if it is in a slot, and releases its index. Its value is to be taken next.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        self.end(index, |_| true, |_| true);
    }

    /// Releases the index of an entry that was handed out.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        self.slots.nodes.give_if(index, |_, _| true);
    }

    /// The deadline of an index in use; `None` if its page has gone.
    pub(crate) fn deadline(&self, index: u32) -> Option<u64> {
        self.slots.nodes.get(index).map(|node| node.deadline)
    }

    /// In how many slots of each level there are entries.
    pub(crate) fn occupied(&self) -> impl Iterator<Item = u32> + '_ {
        iter::once(&self.near).chain(&self.far).map(Occupancy::count)
    }

    /// One past the largest index in use.
    pub(crate) fn end_of_indices(&self) -> u32 {
        self.slots.nodes.end()
    }
}
