//! Scheme 3 of Varghese and Lauck with a binary heap. Each timer knows its place in the heap, so that it can be taken
//! out of the middle; a heap without places (Java's `DelayQueue`) has to search, or to keep what was stopped.
//!
//! - start: O(log n), O(1) on average: a new timer seldom rises far.
//! - stop: O(log n), the last timer takes the place and sinks or rises.
//! - tick: O(1), compares the root with the time.
//! - expiry: O(log n), as a stop of the root.
//! - accuracy: exact. Range: any interval.

use super::store::Timers;
use super::{Accuracy, Cost, Growth, Handle, Scheme};

/// All timers in an array in which none is due before its parent: that of place p is at (p - 1) / 2.
#[derive(Debug)]
pub struct IndexedHeap {
    timers: Timers,
    heap: Vec<(u64, u32)>,
    now: u64,
}

impl IndexedHeap {
    /// Writes an entry to a place and tells its timer.
    fn put(&mut self, place: usize, entry: (u64, u32)) {
        self.heap[place] = entry;
        self.timers.set_place(entry.1, u32::try_from(place).expect("fewer than 2^32 timers"));
    }

    /// Moves the entry towards the root until its parent is not later.
    fn rise(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Moves the entry away from the root until no child is earlier.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let left = 2 * place + 1;
            let Some(&first) = self.heap.get(left) else { break };
            let child = if self.heap.get(left + 1).is_some_and(|&second| second < first) {
                left + 1
            } else {
                left
            };
            if self.heap[child] >= entry {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    /// Takes the timer at a place out and returns its id.
    fn take(&mut self, place: usize) -> u64 {
        let (_, index) = self.heap.swap_remove(place);
        if let Some(&(_, moved)) = self.heap.get(place) {
            self.sink(place);
            self.rise(self.timers.place(moved) as usize);
        }
        self.timers.release(index)
    }
}

impl Scheme for IndexedHeap {
    const NAME: &'static str = "3-heap";
    const ACCURACY: Accuracy = Accuracy::Exact;
    const COST: Cost = Cost {
        start: Growth::Logarithmic,
        stop: Growth::Logarithmic,
        tick: Growth::Constant,
        expiry: Growth::Logarithmic,
    };

    fn new() -> Self {
        Self { timers: Timers::new(0), heap: Vec::new(), now: 0 }
    }

    fn start_timer(&mut self, interval: u64, id: u64) -> Option<Handle> {
        if interval > Self::RANGE {
            return None;
        }
        let due = self.now + interval.max(1);
        let index = self.timers.allocate(due, id);
        self.heap.push((due, index));
        self.rise(self.heap.len() - 1);
        Some(self.timers.handle(index))
    }

    fn stop_timer(&mut self, handle: Handle) -> bool {
        let place = self.timers.find(handle).map(|index| self.timers.place(index));
        place.map(|place| self.take(place as usize)).is_some()
    }

    fn per_tick(&mut self, expire: &mut impl FnMut(u64)) {
        self.advance(1, expire);
    }

    /// The root says when something is due: the ticks before need no visit.
    fn advance(&mut self, ticks: u64, expire: &mut impl FnMut(u64)) {
        self.now += ticks;
        while self.heap.first().is_some_and(|&(due, _)| due <= self.now) {
            expire(self.take(0));
        }
    }

    fn len(&self) -> usize {
        self.timers.len()
    }
}
