//! The standard library's `BinaryHeap`. It cannot take out what is not on top, so a cancelled timer leaves its entry
//! behind; when half of the entries are stale, the heap is rebuilt without them.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::handle::Handle;
use crate::timers::{Payload, Timers};

const NIL: u32 = u32::MAX;
/// So few stale entries are never worth a rebuild.
const STALE_MIN: usize = 1024;

/// `binary-heap`.
#[derive(Debug)]
pub struct LazyBinaryHeap {
    heap: BinaryHeap<Reverse<Entry>>,
    nodes: Vec<Node>,
    free: u32,
    live: usize,
}

/// Deadline, node, and the placement that this entry stands for.
type Entry = (u64, u32, u32);

#[derive(Debug)]
struct Node {
    payload: Payload,
    /// Odd while the timer is live.
    generation: u32,
    /// How often the timer, or one before it in this node, was placed or taken away: tells an old entry from the valid one.
    placement: u32,
    next_free: u32,
}

impl LazyBinaryHeap {
    fn take_node(&mut self, payload: Payload) -> u32 {
        if self.free == NIL {
            self.nodes.push(Node { payload, generation: 0, placement: 0, next_free: NIL });
            return self.nodes.len() as u32 - 1;
        }
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next_free;
        node.payload = payload;
        index
    }

    fn end(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        node.placement = node.placement.wrapping_add(1);
        node.next_free = self.free;
        self.free = index;
        self.live -= 1;
    }

    fn place(&mut self, index: u32, deadline: u64) {
        let node = &mut self.nodes[index as usize];
        node.placement = node.placement.wrapping_add(1);
        self.heap.push(Reverse((deadline, index, node.placement)));
    }

    fn rebuild_if_stale(&mut self) {
        if self.heap.len() > 2 * self.live + STALE_MIN {
            let nodes = &self.nodes;
            self.heap.retain(|Reverse((_, index, placement))| {
                nodes[*index as usize].placement == *placement
            });
        }
    }
}

impl Timers for LazyBinaryHeap {
    type Handle = Handle;

    fn new() -> Self {
        Self { heap: BinaryHeap::new(), nodes: Vec::new(), free: NIL, live: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let index = self.take_node(payload);
        self.live += 1;
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        let generation = node.generation;
        self.place(index, deadline);
        Handle { index, generation }
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let live = self.nodes[handle.index as usize].generation == handle.generation;
        if live {
            self.end(handle.index);
            self.rebuild_if_stale();
        }
        live
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let live = self.nodes[handle.index as usize].generation == handle.generation;
        if live {
            self.place(handle.index, deadline);
            self.rebuild_if_stale();
        }
        live
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        while let Some(&Reverse((deadline, index, placement))) = self.heap.peek() {
            if deadline > now {
                break;
            }
            self.heap.pop();
            let node = &self.nodes[index as usize];
            if node.placement == placement {
                on_fire(node.payload);
                self.end(index);
            }
        }
    }
}
