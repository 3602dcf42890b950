//! The peer `floor` for two cores: a lower bound of the cost of a remote cancel. A timer's cache
//! line travels to the other core and back.
//!
//! The owner writes a node, which is one cache line. The canceller claims the node by a swap, and
//! pushes it on the owner's stack by a compare-and-swap. The owner takes the stack by a swap, reads
//! each node again, and frees it. As in corewheel's mailbox, a node links to the second node below
//! it, so that the owner fetches two cache lines at once. This peer has no wheel, no epochs and no
//! wake-ups.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{IN_FLIGHT, Owner, Remote, TickClock, TurnResult};
use crate::cores::PaddedAtomic;
use crate::peers::Handle;
use crate::timers::Payload;

const CANCELLED: u64 = u64::MAX;

pub struct FloorOwner {
    nodes: Arc<FloorNodes>,
    free: Vec<u32>,
    generation: u64,
    ticks: TickClock,
}

/// The nodes of an owner. Index 0 means "no node".
pub struct FloorNodes {
    /// The newest node of the stack in the lower half, and the node below it in the upper half.
    head: PaddedAtomic,
    nodes: Box<[FloorNode]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct FloorNode {
    /// A generation, or `CANCELLED`.
    state: AtomicU64,
    second_below: AtomicU32,
    deadline: AtomicU64,
    /// Accessed with Relaxed, which compiles to plain loads and stores.
    payload: [AtomicU64; 3],
}

impl FloorNodes {
    /// Pushes a node that the caller has claimed.
    fn push(&self, index: u32, node: &FloorNode) {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            node.second_below.store((head >> 32) as u32, Ordering::Relaxed);
            let pushed = head << 32 | u64::from(index);
            // Release: publishes the link; pairs with the Acquire in `take`.
            match self.head.0.compare_exchange_weak(
                head,
                pushed,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Empties the stack. Returns its two newest nodes, newest first; 0 stands for a missing node.
    fn take(&self) -> [u32; 2] {
        if self.head.0.load(Ordering::Relaxed) == 0 {
            return [0; 2];
        }
        // Acquire: sees the links, and the writes to the nodes.
        let head = self.head.0.swap(0, Ordering::Acquire);
        [head as u32, (head >> 32) as u32]
    }
}

impl Owner for FloorOwner {
    type Handle = Handle;
    type Remote = Arc<FloorNodes>;

    fn new(timers: usize) -> (Self, Arc<FloorNodes>) {
        let nodes = (0..=timers + IN_FLIGHT).map(|_| FloorNode::default()).collect();
        let nodes = Arc::new(FloorNodes { head: PaddedAtomic::default(), nodes });
        let (ticks, free) =
            (TickClock(Instant::now()), (1..nodes.nodes.len() as u32).rev().collect());
        (Self { nodes: Arc::clone(&nodes), free, generation: 0, ticks }, nodes)
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> Handle {
        let index = self.free.pop().expect("a free node");
        let node = &self.nodes.nodes[index as usize];
        node.deadline.store(self.ticks.deadline(delay), Ordering::Relaxed);
        for (place, part) in node.payload.iter().zip(payload) {
            place.store(part, Ordering::Relaxed);
        }
        // Fits in a u32: a run adds fewer than 2^32 timers.
        self.generation += 1;
        // Release: publishes the node to the holder of the handle; on x86 a plain store.
        node.state.store(self.generation, Ordering::Release);
        Handle { index, generation: self.generation as u32 }
    }

    /// Collects the cancelled nodes; fires nothing.
    fn turn(&mut self, _: usize, _: impl FnMut(Payload)) -> TurnResult {
        black_box(self.ticks.now());
        let [mut index, mut next] = self.nodes.take();
        let mut collected = 0;
        while index != 0 {
            let node = &self.nodes.nodes[index as usize];
            let state = node.state.load(Ordering::Relaxed);
            assert_eq!(state, CANCELLED, "a pushed node is claimed");
            black_box(node.payload[0].load(Ordering::Relaxed));
            self.free.push(index);
            (index, next) = (next, node.second_below.load(Ordering::Relaxed));
            collected += 1;
        }
        TurnResult { collected, is_behind: false }
    }
}

impl Remote for Arc<FloorNodes> {
    type Handle = Handle;

    fn cancel(&mut self, Handle { index, generation }: Handle) -> bool {
        let node = &self.nodes[index as usize];
        // AcqRel, as in corewheel's claim of a timer. A node has one canceller, so a swap suffices.
        let was_live = node.state.swap(CANCELLED, Ordering::AcqRel) == u64::from(generation);
        self.push(index, node);
        was_live
    }
}
