//! Scheme 3 of Varghese and Lauck with a binary heap. Each timer knows its place in the heap, so
//! that it can be removed from the middle. A heap without places (Java's `DelayQueue`) has to
//! search, or to keep stopped timers. A start is O(1) on average, because a new timer seldom rises
//! far.

use super::{Scheme, Timers};

/// All timers in an array in which none is due before its parent, which is at (place - 1) / 2.
#[derive(Debug)]
pub struct IndexedHeap(Vec<(u64, u32)>);

impl IndexedHeap {
    fn put(&mut self, timers: &mut Timers, place: usize, entry: (u64, u32)) {
        self.0[place] = entry;
        timers.set_place(entry.1, place);
    }

    /// Moves the entry towards the root until its parent is not later.
    fn rise(&mut self, timers: &mut Timers, mut place: usize) {
        let entry = self.0[place];
        while place > 0 && self.0[(place - 1) / 2] > entry {
            self.put(timers, place, self.0[(place - 1) / 2]);
            place = (place - 1) / 2;
        }
        self.put(timers, place, entry);
    }

    /// Moves the entry away from the root until no child is earlier.
    fn sink(&mut self, timers: &mut Timers, mut place: usize) {
        let entry = self.0[place];
        loop {
            let children = 2 * place + 1..self.0.len().min(2 * place + 3);
            let child = children.min_by_key(|&child| self.0[child]);
            let Some(child) = child.filter(|&child| self.0[child] < entry) else { break };
            self.put(timers, place, self.0[child]);
            place = child;
        }
        self.put(timers, place, entry);
    }

    /// Takes the timer at a place out and returns its id.
    fn take(&mut self, timers: &mut Timers, place: usize) -> u64 {
        let (_, index) = self.0.swap_remove(place);
        if let Some(&(_, moved)) = self.0.get(place) {
            self.sink(timers, place);
            self.rise(timers, timers.place(moved));
        }
        timers.release(index)
    }
}

impl Scheme for IndexedHeap {
    const NAME: &'static str = "3-heap";
    const JUMPS: bool = true;

    fn new(_: &mut Timers) -> Self {
        Self(Vec::new())
    }

    fn start(&mut self, timers: &mut Timers, index: u32) {
        self.0.push((timers.due(index), index));
        self.rise(timers, self.0.len() - 1);
    }

    fn stop(&mut self, timers: &mut Timers, index: u32) {
        self.take(timers, timers.place(index));
    }

    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64)) {
        while self.0.first().is_some_and(|&(due, _)| due <= timers.now) {
            expire(self.take(timers, 0));
        }
    }
}
