//! A 4-ary heap that tracks the position of each timer, so that any timer can be removed.

use super::table::{Handle, Table, write_payload};
use crate::timers::{Payload, TimerSet};

const ARITY: usize = 4;

pub struct Heap4 {
    heap: Vec<Entry>,
    /// `next` of a live timer is its position in the heap.
    positions: Table<()>,
    payloads: Vec<Payload>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: u64,
    index: u32,
}

impl Heap4 {
    fn remove(&mut self, position: usize) {
        self.positions.end(self.heap[position].index);
        let last = self.heap.pop().expect("the heap is not empty");
        if position < self.heap.len() {
            self.sift(position, last);
        }
    }

    /// Writes an entry to `position`, and then moves it up or down to restore the heap.
    fn sift(&mut self, position: usize, entry: Entry) {
        let risen = self.sift_up(position, entry);
        if risen == position {
            self.sift_down(position, entry);
        }
    }

    /// Moves the hole at `position` up until `entry` fits, and puts it there.
    fn sift_up(&mut self, mut position: usize, entry: Entry) -> usize {
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.heap[parent].deadline <= entry.deadline {
                break;
            }
            self.put(position, self.heap[parent]);
            position = parent;
        }
        self.put(position, entry);
        position
    }

    fn sift_down(&mut self, mut position: usize, entry: Entry) {
        while let Some(child) = self.earliest_child(position) {
            if entry.deadline <= self.heap[child].deadline {
                break;
            }
            self.put(position, self.heap[child]);
            position = child;
        }
        self.put(position, entry);
    }

    fn earliest_child(&self, position: usize) -> Option<usize> {
        let first = ARITY * position + 1;
        (first..(first + ARITY).min(self.heap.len())).min_by_key(|&child| self.heap[child].deadline)
    }

    fn put(&mut self, position: usize, entry: Entry) {
        self.heap[position] = entry;
        self.positions[entry.index].next = position as u32;
    }

    fn position(&self, handle: Handle) -> Option<usize> {
        let position = self.positions[handle.index].next as usize;
        self.positions.is_live(handle).then_some(position)
    }
}

impl TimerSet for Heap4 {
    type Handle = Handle;

    fn new() -> Self {
        Self { heap: Vec::new(), positions: Table::new(), payloads: Vec::new() }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let handle = self.positions.allocate();
        write_payload(&mut self.payloads, handle.index, payload);
        let entry = Entry { deadline, index: handle.index };
        self.heap.push(entry);
        self.sift_up(self.heap.len() - 1, entry);
        handle
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let position = self.position(*handle);
        if let Some(position) = position {
            self.remove(position);
        }
        position.is_some()
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let position = self.position(*handle);
        if let Some(position) = position {
            self.sift(position, Entry { deadline, index: handle.index });
        }
        position.is_some()
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        while let Some(&Entry { index, .. }) =
            self.heap.first().filter(|first| first.deadline <= now)
        {
            self.remove(0);
            on_fire(self.payloads[index as usize]);
        }
    }
}
