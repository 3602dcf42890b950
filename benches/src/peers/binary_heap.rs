//! The standard library's `BinaryHeap`. A cancelled or moved timer leaves a stale entry. The heap
//! is rebuilt when it has many stale entries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::table::{Handle, Table};
use crate::timers::{Payload, TimerSet};

/// The heap is rebuilt when its stale entries outnumber the live timers by more than this number.
const STALE_SURPLUS_MAX: usize = 1024;

pub struct LazyBinaryHeap {
    heap: BinaryHeap<Reverse<Entry>>,
    timers: Table<Timer>,
    live: usize,
}

/// Deadline, index and version.
type Entry = (u64, u32, u32);

#[derive(Debug, Default)]
struct Timer {
    payload: Payload,
    /// Changes when the timer is added, moved or ended, which makes older entries stale.
    entry_version: u32,
}

impl Timer {
    fn next_version(&mut self) -> u32 {
        self.entry_version = self.entry_version.wrapping_add(1);
        self.entry_version
    }
}

impl LazyBinaryHeap {
    fn end(&mut self, index: u32) {
        self.timers[index].value.next_version();
        self.timers.end(index);
        self.live -= 1;
    }

    fn push_entry(&mut self, index: u32, deadline: u64) {
        let entry_version = self.timers[index].value.next_version();
        self.heap.push(Reverse((deadline, index, entry_version)));
    }

    fn rebuild_if_stale(&mut self) {
        if self.heap.len() > 2 * self.live + STALE_SURPLUS_MAX {
            let timers = &self.timers;
            self.heap.retain(|&Reverse((_, index, entry_version))| {
                timers[index].value.entry_version == entry_version
            });
        }
    }
}

impl TimerSet for LazyBinaryHeap {
    type Handle = Handle;

    fn new() -> Self {
        Self { heap: BinaryHeap::new(), timers: Table::new(), live: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        let handle = self.timers.allocate();
        self.timers[handle.index].value.payload = payload;
        self.live += 1;
        self.push_entry(handle.index, deadline);
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
            self.push_entry(handle.index, deadline);
            self.rebuild_if_stale();
        }
        live
    }

    fn advance(&mut self, now: u64, mut on_fire: impl FnMut(Payload)) {
        while let Some(&Reverse((deadline, index, entry_version))) = self.heap.peek() {
            if deadline > now {
                break;
            }
            self.heap.pop();
            let timer = &self.timers[index].value;
            if timer.entry_version == entry_version {
                on_fire(timer.payload);
                self.end(index);
            }
        }
    }
}
