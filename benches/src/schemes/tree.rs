//! Scheme 3 of Varghese and Lauck with a balanced tree: the B-tree of the standard library, as many
//! runtimes use it. In the paper a stop is O(1), for trees that need no balancing, and so is a
//! tick, for trees that know their first key. This tree walks down its left edge.

use std::collections::BTreeSet;

use super::{Scheme, Timers};

/// All timers in a set ordered by deadline. The index makes equal deadlines different keys.
#[derive(Debug)]
pub struct Tree(BTreeSet<(u64, u32)>);

impl Scheme for Tree {
    const NAME: &'static str = "3-tree";
    const JUMPS: bool = true;

    fn new(_: &mut Timers) -> Self {
        Self(BTreeSet::new())
    }

    fn start(&mut self, timers: &mut Timers, index: u32) {
        self.0.insert((timers.due(index), index));
    }

    fn stop(&mut self, timers: &mut Timers, index: u32) {
        self.0.remove(&(timers.due(index), index));
        timers.release(index);
    }

    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64)) {
        while let Some(&(_, index)) = self.0.first().filter(|first| first.0 <= timers.now) {
            self.0.pop_first();
            expire(timers.release(index));
        }
    }
}
