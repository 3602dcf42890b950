//! Moving an entry to another deadline.
//!
//! To a later one it is a store: the entry stays in its slot, and is put where it belongs when that slot's time comes. So
//! a timer that is moved at every packet is touched once per timeout, not once per packet. What is put off must not make a pause:
//! with very many entries in one slot, all of them reset, the tick that finds them would move them all. So those who come
//! to a slot that has many already (a crowd) are moved at once when they are reset, and a tick finds a bounded number (P7).

use super::{nodes::Standing, raw::RawWheel};

impl<T, const BITS: u32, const LEVELS: usize> RawWheel<T, BITS, LEVELS> {
    /// Moves the entry `index`, if it is in a slot and of this generation, to another deadline. Whether it was.
    #[inline]
    pub(crate) fn reset_generation(&mut self, index: u32, generation: u32, deadline: u64) -> bool {
        let Some(node) = self.slots.nodes.get_mut(index) else { return false };
        if !node.is_in_wheel(generation) {
            return false;
        }
        self.reset(index, deadline);
        true
    }

    /// Moves an entry, which is in a slot, to another deadline.
    #[inline]
    pub(crate) fn reset(&mut self, index: u32, deadline: u64) {
        let node = self.slots.nodes.node(index);
        if deadline >= node.deadline && deadline > self.target && node.standing != Standing::CROWDED
        {
            node.deadline = deadline;
            self.touched += 1;
        } else {
            self.move_at_once(index, deadline);
        }
    }

    /// A reset that cannot wait. In a crowd the entry goes to a slot of its own choice between now and its deadline: who is
    /// moved once is often moved again, and there that is a store. If there is a crowd as well, it stays with its tick's, so
    /// that nobody in a crowd is there before the deadline.
    #[inline(never)]
    fn move_at_once(&mut self, index: u32, deadline: u64) {
        self.take(index);
        self.place(index, deadline);
        if deadline > self.target && self.is_crowded(index) {
            let half = (deadline - self.target).div_ceil(2);
            let sooner = u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15) % half;
            self.take(index);
            self.put_by(index, deadline - sooner);
            if self.is_crowded(index) {
                self.take(index);
                self.put_by(index, deadline);
            }
        }
    }

    fn is_crowded(&mut self, index: u32) -> bool {
        self.slots.nodes.node(index).standing == Standing::CROWDED
    }
}
