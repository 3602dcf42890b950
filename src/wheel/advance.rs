//! How the wheel's time moves.
//!
//! A pass is begun with its `target`; `pop_due` then hands out one entry after the other and moves the `position` from one
//! occupied slot to the next until it meets the target. `position <= target` always, and no slot before the position has
//! entries. A pass that is given up, or whose budget is used up, is gone on with by the next one.
//!
//! # No pauses
//!
//! While one revolution of a level runs, the next slot of the level above is handed down into the revolution after it, some
//! entries per tick: so many that it is empty when its time comes (P7). Nothing new comes into it meanwhile, because
//! the level below covers it already. What is left because the wheel slept is moved when its time comes, within the budget.

use super::{
    level::{Geometry, Occupancy},
    raw::{Here, RawWheel},
    slot::Popped,
};
use crate::limits::LOOK_AHEAD_FROM;

impl<T, const BITS: u32, const LEVELS: usize> RawWheel<T, BITS, LEVELS> {
    /// Begins a pass that hands out what is due at `target`, and touches at most `budget` entries. An earlier target than
    /// the last one is held there.
    #[inline]
    pub(crate) fn begin(&mut self, target: u64, budget: usize) {
        if target < self.calm_until && target >= self.target {
            (self.target, self.position, self.budget) = (target, target, budget);
        } else {
            self.begin_to_look(target, budget);
        }
    }

    /// The same, also if nothing is due: so what is [put in order](Self::put_in_order) before the first entry is handed out is handed
    /// out in order.
    #[inline(never)]
    pub(crate) fn begin_to_look(&mut self, target: u64, budget: usize) {
        self.budget = budget;
        if self.has_late() {
            self.join_late();
        }
        self.target = self.target.max(target);
    }

    /// The entries that were inserted late, since the last pass began, had its target as their deadline.
    ///
    /// Where the position is far behind, the slot of that tick is one of an upper level. They stand in it as near ones do and are not
    /// counted in `waiting`: a tick hands down at least one of them, and the cascade the rest. Of two crowd counts it keeps the late
    /// slot's.
    #[cold]
    fn join_late(&mut self) {
        let tick = self.target;
        let slot = if self.is_near(tick) {
            self.occupy_near(tick)
        } else {
            let level = Geometry::<BITS, LEVELS>::far_level_of(self.position, tick);
            self.occupy_far(level, tick);
            Geometry::<BITS, LEVELS>::far_at(level, tick)
        };
        self.slots.append_to(slot);
        if tick == self.position && self.here != Here::Cascading {
            // Also when an aligned slot of this tick is being handed out: after that nobody would look here.
            self.here = Here::Firing(0);
        }
    }

    /// The next due entry of this pass and its deadline, in the order of the deadlines; its index is to be released. Indices
    /// of entries that will be due soon are shown to `ahead`, so that what belongs to them can be fetched.
    #[inline]
    pub(crate) fn pop_due(&mut self, mut ahead: impl FnMut(u32)) -> Option<(u32, u64)> {
        if self.is_done() {
            return None;
        }
        self.pop_in_pass(&mut ahead)
    }

    /// Whether the pass has come to its end.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.here == Here::Nothing && self.position == self.target
    }

    fn pop_in_pass(&mut self, ahead: &mut impl FnMut(u32)) -> Option<(u32, u64)> {
        loop {
            if let Here::Firing(level) = self.here {
                let slot = self.due_slot(level);
                if self.budget == 0 && !self.slots.is_empty(slot) {
                    return None;
                }
                if let Some(popped) = self.pop(slot) {
                    self.walk_ahead(ahead);
                    if popped.deadline <= self.position {
                        self.len -= 1;
                        return Some((popped.index, popped.deadline));
                    }
                    // It was reset to later.
                    self.put_by(popped.index, popped.deadline);
                    continue;
                }
            }
            if !self.go_on() {
                return None;
            }
        }
    }

    /// Takes the first entry out of a slot, within the budget.
    #[inline]
    fn pop(&mut self, slot: u32) -> Option<Popped> {
        let popped = self.slots.pop(slot)?;
        self.budget -= 1;
        self.touched += 1;
        self.left(popped.stood, popped.left);
        Some(popped)
    }

    /// Two walkers take a step for each entry that is handed out: so they arrive in time also where lists are uneven.
    #[inline]
    fn walk_ahead(&mut self, ahead: &mut impl FnMut(u32)) {
        if self.len >= LOOK_AHEAD_FROM {
            self.ahead.step(&self.slots, ahead);
            self.ahead.step(&self.slots, ahead);
        }
    }

    /// Whether the pass has left something to do: its budget is used up, or it was given up.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.is_done() && self.has_left()
    }

    fn has_left(&self) -> bool {
        // All slots up to the position are done with. What came late to a pass that has not got to its end was due by then.
        let is_due =
            || self.has_late() || self.next_start().is_some_and(|tick| tick <= self.target);
        self.is_busy_here() || self.position < self.target && is_due()
    }

    #[inline]
    fn due_slot(&self, level: usize) -> u32 {
        if level == 0 {
            Geometry::<BITS, LEVELS>::near_at(self.position)
        } else {
            Geometry::<BITS, LEVELS>::aligned_at(level, self.position)
        }
    }

    /// What comes next when the slot at hand is empty; false if the pass ends.
    #[inline]
    fn go_on(&mut self) -> bool {
        match self.here {
            Here::Cascading => self.cascade(),
            Here::Firing(level) if level < self.highest_here() => {
                self.here = Here::Firing(level + 1);
                true
            }
            Here::Firing(_) | Here::Nothing => {
                self.here = Here::Nothing;
                if self.position == self.target {
                    return false;
                }
                self.step();
                true
            }
        }
    }

    /// Moves the position to the next slot that has entries, or to the target if that comes first.
    #[inline]
    fn step(&mut self) {
        let next = self.position + 1;
        if self.target > next || !self.is_this_revolution(next) {
            return self.leap();
        }
        // Time mostly goes on tick by tick.
        self.hand_down_until(next);
        self.position = next;
        if self.slots.is_empty(Geometry::<BITS, LEVELS>::near_at(next)) {
            self.calm_down();
        } else {
            self.here = Here::Firing(0);
            self.look_ahead();
        }
    }

    #[inline(never)]
    fn leap(&mut self) {
        let start = self.next_start().unwrap_or(u64::MAX);
        let next = start.min(self.target);
        self.hand_down_until(next);
        let goes_round = !self.is_this_revolution(next);
        self.position = next;
        if goes_round {
            self.handing_down =
                (1..LEVELS).any(|level| !self.slots.is_empty(self.next_slot(level)));
        }
        if next == start {
            self.here = if self.highest_here() > 0 { Here::Cascading } else { Here::Firing(0) };
            self.look_ahead();
        } else {
            self.calm_down();
        }
    }

    /// Nothing is left here: finds out how long that lasts.
    #[inline(never)]
    fn calm_down(&mut self) {
        self.calm_until = if self.handing_down || self.has_late() {
            0
        } else {
            let revolution = Geometry::<BITS, LEVELS>::revolution(0, self.position);
            let last = Geometry::<BITS, LEVELS>::start(1, revolution)
                | (Geometry::<BITS, LEVELS>::start(1, 1) - 1);
            self.next_start().unwrap_or(u64::MAX).min(last)
        };
    }

    /// Entries of the ticks to come, and what belongs to them, are fetched while those of this one are handed out. A wheel
    /// that is small is in the cache anyway.
    #[inline]
    fn look_ahead(&mut self) {
        if self.len >= LOOK_AHEAD_FROM {
            self.ahead.send(self.position, &self.slots, Geometry::<BITS, LEVELS>::near_at);
        }
    }

    fn is_this_revolution(&self, tick: u64) -> bool {
        Geometry::<BITS, LEVELS>::revolution(0, tick)
            == Geometry::<BITS, LEVELS>::revolution(0, self.position)
    }

    fn highest_here(&self) -> usize {
        Geometry::<BITS, LEVELS>::highest_starting_at(self.position)
    }

    /// Moves the entries of the slots that start at the position down; those that handing down has left. True when it is
    /// done.
    #[cold]
    fn cascade(&mut self) -> bool {
        for level in 1..=self.highest_here() {
            let slot = Geometry::<BITS, LEVELS>::far_at(level, self.position);
            if !self.move_down(slot, usize::MAX) {
                return false;
            }
        }
        self.here = Here::Firing(0);
        true
    }

    #[inline]
    fn hand_down_until(&mut self, next: u64) {
        if self.handing_down {
            self.hand_down(next);
        }
    }

    /// Hands the next slots of the upper levels down: the share of the ticks up to `next`.
    #[inline(never)]
    fn hand_down(&mut self, next: u64) {
        self.handing_down = false;
        for level in 1..LEVELS {
            let slot = self.next_slot(level);
            if self.slots.is_empty(slot) {
                continue;
            }
            let end = Geometry::<BITS, LEVELS>::start(
                level,
                Geometry::<BITS, LEVELS>::number(level, self.position) + 1,
            );
            let (ticks, left) = (next.min(end) - self.position, end - self.position);
            let waiting = self.waiting[slot as usize - Geometry::<BITS, LEVELS>::NEAR_RING];
            let quota = u64::from(waiting).div_ceil(left).max(1).saturating_mul(ticks);
            self.handing_down |=
                !self.move_down(slot, usize::try_from(quota).unwrap_or(usize::MAX));
        }
    }

    /// The slot of an upper level that comes after the current one.
    fn next_slot(&self, level: usize) -> u32 {
        let number = Geometry::<BITS, LEVELS>::number(level, self.position) + 1;
        Geometry::<BITS, LEVELS>::far_slot(level, Geometry::<BITS, LEVELS>::position(level, number))
    }

    /// Moves up to `quota` entries of a slot to where they belong by now; true if none is left.
    fn move_down(&mut self, slot: u32, quota: usize) -> bool {
        for _ in 0..quota.min(self.budget) {
            let Some(popped) = self.pop(slot) else {
                return true;
            };
            self.put_by(popped.index, popped.deadline);
        }
        self.slots.is_empty(slot)
    }

    /// The earliest start of an occupied slot after the current ones.
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

    /// The tick until which there is nothing to do.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let late = self.has_late().then_some(self.target);
        self.next_work().into_iter().chain(late).min()
    }

    /// The same for what is not late.
    fn next_work(&self) -> Option<u64> {
        if self.len == 0 {
            None
        } else if self.is_busy_here() {
            Some(self.position)
        } else {
            self.next_start()
        }
    }

    /// Whether entries wait that were due when they were inserted.
    #[inline]
    fn has_late(&self) -> bool {
        !self.slots.is_empty(Geometry::<BITS, LEVELS>::LATE)
    }

    fn is_busy_here(&self) -> bool {
        let is_busy = |level| {
            !self.slots.is_empty(self.due_slot(level))
                || (level > 0
                    && !self.slots.is_empty(Geometry::<BITS, LEVELS>::far_at(level, self.position)))
        };
        self.here != Here::Nothing && (0..=self.highest_here()).any(is_busy)
    }
}
