//! Nodes in one `Vec`, linked by index, with generational handles. A list is circular and doubly
//! linked through a sentinel node, so a timer is unlinked in O(1) without a search.

use std::ops::{Index, IndexMut, Range};

use crate::peers::Handle;
use crate::timers::Payload;

#[derive(Debug, Default)]
pub struct Node {
    previous: u32,
    next: u32,
    generation: u32,
    /// The deadline, or a count that the scheme defines.
    pub(super) deadline_or_rounds: u64,
    pub(super) payload: Payload,
}

#[derive(Debug, Default)]
pub struct Store {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The ticks that have passed.
    pub(super) now: u64,
}

impl Store {
    /// Adds empty lists with consecutive indices and returns the first index.
    pub(super) fn add_lists(&mut self, count: u32) -> u32 {
        let first = self.indices().end;
        for list in first..first + count {
            self.nodes.push(Node { previous: list, next: list, ..Node::default() });
        }
        first
    }

    pub(super) fn allocate(&mut self, deadline: u64, payload: Payload) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| self.add_lists(1));
        let node = &mut self[index];
        (node.deadline_or_rounds, node.payload) = (deadline, payload);
        index
    }

    /// Ends a timer and returns its payload. Makes the timer's handles stale, and sets the
    /// `deadline_or_rounds` to 0.
    pub(super) fn end(&mut self, index: u32) -> Payload {
        let node = &mut self[index];
        node.generation = node.generation.wrapping_add(1);
        node.deadline_or_rounds = 0;
        node.payload
    }

    /// Ends an unlinked timer, frees its node, and returns its payload.
    pub(super) fn end_and_free(&mut self, index: u32) -> Payload {
        self.free.push(index);
        self.end(index)
    }

    pub(super) fn handle(&self, index: u32) -> Handle {
        Handle { index, generation: self[index].generation }
    }

    pub(super) fn find(&self, handle: Handle) -> Option<u32> {
        (self[handle.index].generation == handle.generation).then_some(handle.index)
    }

    pub(super) fn indices(&self) -> Range<u32> {
        0..u32::try_from(self.nodes.len()).expect("fewer than 2^32 timers")
    }

    pub(super) fn first_in_list(&self, list: u32) -> Option<u32> {
        self.next_in_list(list, list)
    }

    fn next_in_list(&self, list: u32, index: u32) -> Option<u32> {
        let next = self[index].next;
        (next != list).then_some(next)
    }

    pub(super) fn push_back(&mut self, list: u32, index: u32) {
        self.insert_after(self[list].previous, index);
    }

    /// Inserts a timer in order of `deadline_or_rounds`, after equal ones, with a search from the
    /// rear.
    pub(super) fn insert_sorted(&mut self, list: u32, index: u32) {
        let deadline = self[index].deadline_or_rounds;
        let mut predecessor = self[list].previous;
        while predecessor != list && self[predecessor].deadline_or_rounds > deadline {
            predecessor = self[predecessor].previous;
        }
        self.insert_after(predecessor, index);
    }

    fn insert_after(&mut self, predecessor: u32, index: u32) {
        let next = std::mem::replace(&mut self[predecessor].next, index);
        let node = &mut self[index];
        (node.previous, node.next) = (predecessor, next);
        self[next].previous = index;
    }

    pub(super) fn unlink(&mut self, index: u32) {
        let Node { previous, next, .. } = self[index];
        self[previous].next = next;
        self[next].previous = previous;
    }

    pub(super) fn remove(&mut self, index: u32) -> Payload {
        self.unlink(index);
        self.end_and_free(index)
    }

    pub(super) fn expire_due(&mut self, list: u32, expire: &mut impl FnMut(Payload)) {
        while let Some(index) =
            self.first_in_list(list).filter(|&index| self[index].deadline_or_rounds <= self.now)
        {
            expire(self.remove(index));
        }
    }

    /// Expires the timers without remaining rounds, and subtracts a round from the others.
    pub(super) fn expire_or_count_down(&mut self, list: u32, expire: &mut impl FnMut(Payload)) {
        let mut next = self.first_in_list(list);
        while let Some(index) = next {
            next = self.next_in_list(list, index);
            match self[index].deadline_or_rounds {
                0 => expire(self.remove(index)),
                rounds => self[index].deadline_or_rounds = rounds - 1,
            }
        }
    }
}

impl Index<u32> for Store {
    type Output = Node;

    fn index(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }
}

impl IndexMut<u32> for Store {
    fn index_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than `slots`")]
pub(super) fn slot_of(tick: u64, slots: u32) -> u32 {
    (tick % u64::from(slots)) as u32
}
