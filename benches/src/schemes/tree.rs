//! Scheme 3 of Varghese and Lauck with a balanced tree: the B-tree of the standard library, as many runtimes use it.
//!
//! - start: O(log n), inserts a key.
//! - stop: O(log n), removes it. (The O(1) of the paper is for trees that need no balancing.)
//! - tick: O(1) in principle; this tree finds its first key by walking down its left edge, which is O(log n).
//! - expiry: O(log n), removes the first key.
//! - accuracy: exact. Range: any interval.

use std::collections::BTreeSet;

use super::store::Timers;
use super::{Accuracy, Cost, Growth, Handle, Scheme};

/// All timers in a set ordered by deadline. The index makes equal deadlines different keys.
#[derive(Debug)]
pub struct Tree {
    timers: Timers,
    order: BTreeSet<(u64, u32)>,
    now: u64,
}

impl Scheme for Tree {
    const NAME: &'static str = "3-tree";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const COST: Cost = Cost {
        start: Growth::Logarithmic,
        stop: Growth::Logarithmic,
        tick: Growth::Logarithmic,
        expiry: Growth::Logarithmic,
    };

    fn new() -> Self {
        Self { timers: Timers::new(0), order: BTreeSet::new(), now: 0 }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let due = self.now + interval.max(1);
        let index = self.timers.allocate(due, id);
        self.order.insert((due, index));
        Some(self.timers.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        let Some(index) = self.timers.find(handle) else { return false };
        self.order.remove(&(self.timers.due(index), index));
        self.timers.release(index);
        true
    }

    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.advance(1, expire);
    }

    /// The first key says when something is due: the ticks before need no visit.
    fn advance(&mut self, ticks: u64, expire: &mut impl FnMut(u64)) {
        self.now += ticks;
        while self.order.first().is_some_and(|&(due, _)| due <= self.now) {
            let (_, index) = self.order.pop_first().expect("it has a first key");
            expire(self.timers.release(index));
        }
    }

    fn len(&self) -> usize {
        self.timers.len()
    }
}
