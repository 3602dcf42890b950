//! A table of timers with generational handles, which several peers use.

use std::mem;
use std::ops::{Index, IndexMut};

use crate::timers::Payload;

/// Names a node and a generation. A handle is stale once the node has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

pub(super) const NIL: u32 = u32::MAX;
/// Marks the `previous` of a slot's first node: the other bits are the slot's number.
const SLOT_FLAG: u32 = 1 << 31;

/// A timer or a free node, aligned like `A`.
pub(super) struct Node<T, A> {
    pub(super) value: T,
    /// Odd while the timer is live.
    pub(super) generation: u32,
    /// The next node of the free list. While the timer is live, the peer may use this field.
    pub(super) next: u32,
    _align: [A; 0],
}

pub(super) struct Table<T, A = u32> {
    nodes: Vec<Node<T, A>>,
    free: u32,
}

impl<T, A> Index<u32> for Table<T, A> {
    type Output = Node<T, A>;

    fn index(&self, index: u32) -> &Node<T, A> {
        &self.nodes[index as usize]
    }
}

impl<T, A> IndexMut<u32> for Table<T, A> {
    fn index_mut(&mut self, index: u32) -> &mut Node<T, A> {
        &mut self.nodes[index as usize]
    }
}

impl<T: Default, A> Table<T, A> {
    pub(super) fn new() -> Self {
        Self { nodes: Vec::new(), free: NIL }
    }

    /// Begins a timer in a free or new node. The caller must overwrite the node's old value.
    pub(super) fn allocate(&mut self) -> Handle {
        let index = if self.free == NIL {
            let value = T::default();
            self.nodes.push(Node { value, generation: 0, next: NIL, _align: [] });
            self.nodes.len() as u32 - 1
        } else {
            let next = self[self.free].next;
            mem::replace(&mut self.free, next)
        };
        let node = &mut self[index];
        node.generation = node.generation.wrapping_add(1);
        Handle { index, generation: node.generation }
    }

    pub(super) fn end(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        node.next = mem::replace(&mut self.free, index);
    }

    pub(super) fn is_live(&self, handle: Handle) -> bool {
        self[handle.index].generation == handle.generation
    }
}

#[derive(Debug, Default)]
pub(super) struct Linked<T> {
    previous: u32,
    pub(super) timer: T,
}

impl<T, A> Table<Linked<T>, A> {
    /// Links a node at the front of a slot; returns whether the slot was empty.
    pub(super) fn link(&mut self, heads: &mut [u32], slot: u32, index: u32) -> bool {
        let head = mem::replace(&mut heads[slot as usize], index);
        let node = &mut self[index];
        (node.value.previous, node.next) = (SLOT_FLAG | slot, head);
        if head != NIL {
            self[head].value.previous = index;
        }
        head == NIL
    }

    /// Unlinks a node; returns its slot if the slot is now empty.
    pub(super) fn unlink(&mut self, heads: &mut [u32], index: u32) -> Option<u32> {
        let node = &self[index];
        let (previous, next) = (node.value.previous, node.next);
        if next != NIL {
            self[next].value.previous = previous;
        }
        if previous & SLOT_FLAG == 0 {
            self[previous].next = next;
            return None;
        }
        heads[(previous ^ SLOT_FLAG) as usize] = next;
        (next == NIL).then_some(previous ^ SLOT_FLAG)
    }
}

/// Writes the payload of a node, in peers that store payloads separately.
pub(super) fn write_payload(payloads: &mut Vec<Payload>, index: u32, payload: Payload) {
    match payloads.get_mut(index as usize) {
        Some(place) => *place = payload,
        None => payloads.push(payload),
    }
}
