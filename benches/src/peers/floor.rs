//! The least that a timer with a handle must do: a node is taken from a free list, written, stored
//! in a table, and found again by its handle. This peer links no node and fires no timer.

use std::sync::atomic::{AtomicU32, Ordering};

use super::table::{Handle, NIL};
use crate::timers::{Payload, TimerSet};

const SLOTS: usize = 65_536;

/// The peer `floor`; with `CAS`, the peer `floor-cas`, which ends a timer by a compare-and-swap.
pub struct Floor<const CAS: bool> {
    nodes: Vec<Node>,
    free: u32,
    slots: Box<[u32]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Node {
    payload: Payload,
    deadline: u64,
    /// Odd while the timer is live, and copied into its handle.
    generation: AtomicU32,
    next_free: u32,
}

impl<const CAS: bool> Floor<CAS> {
    /// Ends the timer and returns true, if the generation matches.
    fn claim(node: &Node, generation: u32) -> bool {
        if CAS {
            // AcqRel and Relaxed, as in a claim whose winner takes the payload.
            let swap = node.generation.compare_exchange(
                generation,
                generation.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            return swap.is_ok();
        }
        let live = node.generation.load(Ordering::Relaxed) == generation;
        if live {
            node.generation.store(generation.wrapping_add(1), Ordering::Relaxed);
        }
        live
    }
}

impl<const CAS: bool> TimerSet for Floor<CAS> {
    type Handle = Handle;

    fn new() -> Self {
        Self { nodes: Vec::new(), free: NIL, slots: vec![NIL; SLOTS].into_boxed_slice() }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        if self.free == NIL {
            self.free = self.nodes.len() as u32;
            self.nodes.push(Node { next_free: NIL, ..Node::default() });
        }
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next_free;
        node.payload = payload;
        node.deadline = deadline;
        let generation = node.generation.get_mut().wrapping_add(1);
        // Release, as if other cores could read the timer; on x86, a plain store.
        node.generation.store(generation, Ordering::Release);
        self.slots[deadline as usize % SLOTS] = index;
        Handle { index, generation }
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let node = &mut self.nodes[handle.index as usize];
        let live = Self::claim(node, handle.generation);
        if live {
            node.next_free = self.free;
            self.free = handle.index;
        }
        live
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let node = &mut self.nodes[handle.index as usize];
        let live = *node.generation.get_mut() == handle.generation;
        if live {
            node.deadline = deadline;
        }
        live
    }

    fn advance(&mut self, _: u64, _: impl FnMut(Payload)) {}
}
