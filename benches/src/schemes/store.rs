//! What the schemes have in common: nodes in one `Vec`, linked by index, and handles that go stale.
//!
//! A list is circular and doubly linked, and its two ends meet in a sentinel, which is a node as well. So a timer
//! can be unlinked without knowing its list, in O(1). A node that is released gets a new generation: a handle of the
//! old one is refused, until the 32 bits of the generation have come round.

/// Names a timer until it expires or is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    index: u32,
    generation: u32,
}

/// Ends the chain of free nodes.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node {
    previous: u32,
    next: u32,
    generation: u32,
    place: u32,
    due: u64,
    id: u64,
}

/// The nodes of all timers and the sentinels of all lists of a scheme.
#[derive(Debug)]
pub(super) struct Timers {
    nodes: Vec<Node>,
    free: u32,
    len: usize,
}

impl Timers {
    /// No timers, and empty lists named 0 to `lists` - 1.
    pub(super) fn new(lists: u32) -> Self {
        let mut timers = Self { nodes: Vec::new(), free: NONE, len: 0 };
        timers.add_lists(lists);
        timers
    }

    /// Adds empty lists with consecutive names and returns the first name.
    pub(super) fn add_lists(&mut self, count: u32) -> u32 {
        let first = self.next_index();
        for list in first..first + count {
            self.nodes.push(Node {
                previous: list,
                next: list,
                generation: 0,
                place: 0,
                due: 0,
                id: 0,
            });
        }
        first
    }

    /// A node for a timer, in no list yet.
    pub(super) fn allocate(&mut self, due: u64, id: u64) -> u32 {
        self.len += 1;
        let index = self.free;
        if index == NONE {
            let index = self.next_index();
            self.nodes.push(Node {
                previous: index,
                next: index,
                generation: 0,
                place: 0,
                due,
                id,
            });
            return index;
        }
        let node = self.node_mut(index);
        (node.due, node.id) = (due, id);
        self.free = self.node(index).next;
        index
    }

    /// Takes a node back and returns the id of its timer. Handles to it are stale from here on; its `due` is 0.
    pub(super) fn release(&mut self, index: u32) -> u64 {
        self.len -= 1;
        let free = std::mem::replace(&mut self.free, index);
        let node = self.node_mut(index);
        node.generation = node.generation.wrapping_add(1);
        node.due = 0;
        node.next = free;
        node.id
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn handle(&self, index: u32) -> Handle {
        Handle { index, generation: self.node(index).generation }
    }

    /// The node that a handle names, unless it is stale.
    pub(super) fn find(&self, handle: Handle) -> Option<u32> {
        (self.node(handle.index).generation == handle.generation).then_some(handle.index)
    }

    /// When the timer is due: a deadline, or whatever else the scheme counts.
    pub(super) fn due(&self, index: u32) -> u64 {
        self.node(index).due
    }

    pub(super) fn set_due(&mut self, index: u32, due: u64) {
        self.node_mut(index).due = due;
    }

    /// Every node, live or not.
    pub(super) fn indices(&self) -> std::ops::Range<u32> {
        0..self.next_index()
    }

    /// Where in another structure the timer is.
    pub(super) fn place(&self, index: u32) -> u32 {
        self.node(index).place
    }

    pub(super) fn set_place(&mut self, index: u32, place: u32) {
        self.node_mut(index).place = place;
    }

    /// The first timer of a list.
    pub(super) fn first(&self, list: u32) -> Option<u32> {
        self.after(list, list)
    }

    /// The timer that follows `index` in `list`.
    pub(super) fn after(&self, list: u32, index: u32) -> Option<u32> {
        let next = self.node(index).next;
        (next != list).then_some(next)
    }

    pub(super) fn push_back(&mut self, list: u32, index: u32) {
        self.insert_after(self.node(list).previous, index);
    }

    /// Puts a timer into a list in the order of `due`, behind its equals: a search from the rear.
    pub(super) fn insert_sorted(&mut self, list: u32, index: u32) {
        let due = self.due(index);
        let mut place = self.node(list).previous;
        while place != list && self.due(place) > due {
            place = self.node(place).previous;
        }
        self.insert_after(place, index);
    }

    fn insert_after(&mut self, place: u32, index: u32) {
        let next = std::mem::replace(&mut self.node_mut(place).next, index);
        let node = self.node_mut(index);
        (node.previous, node.next) = (place, next);
        self.node_mut(next).previous = index;
    }

    pub(super) fn unlink(&mut self, index: u32) {
        let &Node { previous, next, .. } = self.node(index);
        self.node_mut(previous).next = next;
        self.node_mut(next).previous = previous;
    }

    /// Unlinks and releases a timer that is in a list; its id.
    pub(super) fn remove(&mut self, index: u32) -> u64 {
        self.unlink(index);
        self.release(index)
    }

    /// `STOP_TIMER` of every scheme whose timers are always in a list.
    pub(super) fn stop(&mut self, handle: Handle) -> bool {
        self.find(handle).map(|index| self.remove(index)).is_some()
    }

    /// Expires all timers of a list.
    pub(super) fn expire_all(&mut self, list: u32, expire: &mut impl FnMut(u64)) {
        while let Some(index) = self.first(list) {
            expire(self.remove(index));
        }
    }

    /// Expires the timers at the head of an ordered list that are due by `now`.
    pub(super) fn expire_until(&mut self, list: u32, now: u64, expire: &mut impl FnMut(u64)) {
        while let Some(index) = self.first(list).filter(|&index| self.due(index) <= now) {
            expire(self.remove(index));
        }
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.nodes.len()).expect("fewer than 2^32 timers")
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }
}
