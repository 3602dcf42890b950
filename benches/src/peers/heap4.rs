//! A 4-ary heap that knows where each timer stands, so any can be taken out. What the heap needs (deadlines; positions
//! and generations) is apart from the payloads.

use super::handle::Handle;
use crate::timers::{Payload, Timers};

const ARITY: usize = 4;
const NIL: u32 = u32::MAX;

/// `heap4`.
#[derive(Debug)]
pub struct Heap4 {
    heap: Vec<Entry>,
    records: Vec<Record>,
    payloads: Vec<Payload>,
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: u64,
    index: u32,
}

#[derive(Debug)]
struct Record {
    /// Odd while the timer is live.
    generation: u32,
    /// Its place in the heap; the next of the free list while it is not live.
    position: u32,
}

impl Heap4 {
    fn take_record(&mut self, payload: Payload) -> u32 {
        if self.free == NIL {
            self.records.push(Record { generation: 0, position: 0 });
            self.payloads.push(payload);
            return self.records.len() as u32 - 1;
        }
        let index = self.free;
        self.free = self.records[index as usize].position;
        self.payloads[index as usize] = payload;
        index
    }

    /// Ends the timer that stands at `position`.
    fn remove(&mut self, position: usize) {
        let index = self.heap[position].index;
        let record = &mut self.records[index as usize];
        record.generation = record.generation.wrapping_add(1);
        record.position = self.free;
        self.free = index;
        let last = self.heap.pop().expect("it holds at least the one at `position`");
        if position < self.heap.len() {
            self.settle(position, last);
        }
    }

    /// Puts an entry at `position`, or as far up or down from there as it must go.
    fn settle(&mut self, position: usize, entry: Entry) {
        let risen = self.rise(position, entry);
        if risen == position {
            self.sink(position, entry);
        }
    }

    /// Moves the hole at `position` up until `entry` fits, and puts it there.
    fn rise(&mut self, mut position: usize, entry: Entry) -> usize {
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

    /// Moves the hole at `position` down until `entry` fits, and puts it there.
    fn sink(&mut self, mut position: usize, entry: Entry) {
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
        self.records[entry.index as usize].position = position as u32;
    }

    fn position(&self, handle: Handle) -> Option<usize> {
        let record = &self.records[handle.index as usize];
        (record.generation == handle.generation).then_some(record.position as usize)
    }
}

impl Timers for Heap4 {
    type Handle = Handle;

    fn new() -> Self {
        Self { heap: Vec::new(), records: Vec::new(), payloads: Vec::new(), free: NIL }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let index = self.take_record(payload);
        let record = &mut self.records[index as usize];
        record.generation = record.generation.wrapping_add(1);
        let generation = record.generation;
        let entry = Entry { deadline, index };
        self.heap.push(entry);
        self.rise(self.heap.len() - 1, entry);
        Handle { index, generation }
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
            self.settle(position, Entry { deadline, index: handle.index });
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
