//! The standard library's `BinaryHeap`. A cancelled timer leaves a stale entry. When more than half
//! of the entries are stale, the heap is rebuilt without them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::table::{Handle, Table};
use crate::timers::{Payload, Timers};

/// Fewer stale entries cause no rebuild.
const STALE_MIN: usize = 1024;

pub struct LazyBinaryHeap {
    heap: BinaryHeap<Reverse<Entry>>,
    timers: Table<Timer>,
    live: usize,
}

/// Deadline, index and placement.
type Entry = (u64, u32, u32);

#[derive(Debug, Default)]
struct Timer {
    payload: Payload,
    /// Changes when the timer is added, moved or ended, which makes older entries stale.
    placement: u32,
}

impl Timer {
    fn begin_placement(&mut self) -> u32 {
        self.placement = self.placement.wrapping_add(1);
        self.placement
    }
}

impl LazyBinaryHeap {
    fn end(&mut self, index: u32) {
        self.timers[index].value.begin_placement();
        self.timers.end(index);
        self.live -= 1;
    }

    fn place(&mut self, index: u32, deadline: u64) {
        let placement = self.timers[index].value.begin_placement();
        self.heap.push(Reverse((deadline, index, placement)));
    }

    fn rebuild_if_stale(&mut self) {
        if self.heap.len() > 2 * self.live + STALE_MIN {
            let timers = &self.timers;
            self.heap.retain(|&Reverse((_, index, placement))| {
                timers[index].value.placement == placement
            });
        }
    }
}

impl Timers for LazyBinaryHeap {
    type Handle = Handle;

    fn new() -> Self {
        Self { heap: BinaryHeap::new(), timers: Table::new(), live: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let handle = self.timers.take();
        self.timers[handle.index].value.payload = payload;
        self.live += 1;
        self.place(handle.index, deadline);
        handle
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        let live = self.timers.is_live(*handle);
        if live {
            self.end(handle.index);
            self.rebuild_if_stale();
        }
        live
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        let live = self.timers.is_live(*handle);
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
            let timer = &self.timers[index].value;
            if timer.placement == placement {
                on_fire(timer.payload);
                self.end(index);
            }
        }
    }
}
